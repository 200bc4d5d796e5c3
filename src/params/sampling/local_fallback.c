#include "params/sampling/local_fallback.h"

enum { BLOCK = 1024 };

/* If too few keys are local, perhaps only for a moment, the rest is drawn from all keys: training
 * must not fail because rows have just moved. */
static lig_status draw_block(struct ligi_sampler *self, ligi_seen *seen, uint32_t count,
                             uint32_t *items)
{
    const struct ligi_sampling *sampling = self->sampling;
    ligi_local_draw how = {&sampling->draw, &self->rng, seen};
    uint32_t got = 0;
    if (sampling->here.range)
        LIG_TRY(ligi_local_keys_draw(&sampling->here, &how, count, items, &got));
    lig_status status = ligi_draw_many(&sampling->draw, &self->rng, seen, count - got, items + got);
    if (status != LIG_OK)
        ligi_seen_remove_all(seen, items, got);
    return status;
}

void ligi_sample_put_back(struct ligi_sampler *self, ligi_sample *sample, const int64_t *keys,
                          uint32_t count)
{
    const lig_params_sampling *options = &self->sampling->options;
    for (uint32_t i = 0; i < count && !options->with_replacement; i++)
        ligi_seen_remove(&sample->seen, (uint32_t)(keys[i] - options->min));
}

lig_status ligi_sample_draw_local(struct ligi_sampler *self, ligi_sample *sample, uint32_t count,
                                  int64_t *keys)
{
    const struct ligi_sampling *sampling = self->sampling;
    ligi_seen *seen = sampling->options.with_replacement ? NULL : &sample->seen;
    uint32_t items[BLOCK], done = 0;
    lig_status status = LIG_OK;
    while (done < count && status == LIG_OK) {
        uint32_t want = count - done < BLOCK ? count - done : BLOCK;
        status = draw_block(self, seen, want, items);
        for (uint32_t i = 0; i < want && status == LIG_OK; i++)
            keys[done + i] = sampling->options.min + items[i];
        done += status == LIG_OK ? want : 0;
    }
    if (status != LIG_OK)
        ligi_sample_put_back(self, sample, keys, done);
    return status;
}
