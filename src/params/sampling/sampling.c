#include "params/sampling/sampling.h"

#include "params/sampling/local_fallback.h"
#include "params/state/node_wait.h"
#include "params/tables/table_info.h"

#include <stdlib.h>

enum { POOL_SIZE = 250 };

/* --- the node --- */

static lig_status check_options(const lig_params *node, const lig_params_sampling *options)
{
    if (node->tables == NULL)
        return lig_fail(LIG_E_INVALID, "a scheduler has no rows to sample");
    if (ligi_tables_hashed(node->tables))
        return lig_fail(LIG_E_UNSUPPORTED, "sampling requires dense keys, but these are hashed");
    if (options->scheme > LIG_PARAMS_SAMPLE_LOCAL)
        return lig_fail(
            LIG_E_INVALID,
            "unknown sampling scheme %u; expected 0 (naive), 1 (preloc), 2 (pool) or 3 (local)",
            options->scheme);
    uint64_t keys = ligi_tables_entry_limit(node->tables);
    if (options->min < 0 || options->max <= options->min || (uint64_t)options->max > keys)
        return lig_fail(LIG_E_INVALID,
                        "cannot sample keys %lld .. %lld - 1: valid keys are 0 .. %llu - 1",
                        (long long)options->min, (long long)options->max, (unsigned long long)keys);
    return LIG_OK;
}

/* The caller provides room for rows before it knows the keys. A weight of 0 excludes a key. */
static lig_status check_lengths(const lig_params *node, const lig_params_sampling *options,
                                uint32_t *length)
{
    const double *weights =
        options->distribution == LIG_PARAMS_SAMPLE_WEIGHTS ? options->weights : NULL;
    int64_t first = options->min;
    *length = ligi_tables_uniform(node->tables);
    if (*length)
        return LIG_OK;
    for (int64_t key = options->min; key < options->max; key++) {
        if (weights && weights[key - options->min] == 0)
            continue;
        uint32_t other = ligi_tables_length(node->tables, (ligi_entry)key);
        if (*length == 0) {
            *length = other;
            first = key;
        }
        if (other != *length)
            return lig_fail(LIG_E_INVALID,
                            "sampled rows must have one length: key %lld has %u, key %lld has %u",
                            (long long)first, *length, (long long)key, other);
    }
    return LIG_OK;
}

/* Called by the tables, whose moves are serialised. */
static void moved(void *context, ligi_entry entry, ligi_row_state state)
{
    struct ligi_sampling *self = context;
    uint64_t first = (uint64_t)self->options.min;
    if (entry < first || entry - first >= self->here.range)
        return;
    if (state == LIGI_ROW_OWNED || state == LIGI_ROW_REPLICA)
        ligi_local_keys_add(&self->here, (uint32_t)(entry - first));
    else
        ligi_local_keys_remove(&self->here, (uint32_t)(entry - first));
}

/* Under the lock: nothing moves between the first scan and the watch. */
static void list_local(lig_params *node, struct ligi_sampling *self)
{
    for (uint32_t i = 0; i < self->here.range; i++) {
        ligi_entry entry = (ligi_entry)self->options.min + i;
        moved(self, entry, ligi_tables_state(node->tables, entry));
    }
    ligi_tables_watch(node->tables, moved, self);
}

static void destroy(struct ligi_sampling *self)
{
    if (self == NULL)
        return;
    ligi_local_keys_fini(&self->here);
    ligi_draw_fini(&self->draw);
    free(self);
}

static lig_status make(const lig_params *node, const lig_params_sampling *options,
                       struct ligi_sampling *self)
{
    self->options = *options;
    self->options.weights = NULL;
    if (options->pool_size == 0)
        self->options.pool_size = POOL_SIZE;
    if (options->reuse == 0)
        self->options.reuse = 1;
    if (self->options.pool_size > LIGI_SAMPLE_COUNT_MAX)
        return lig_fail(LIG_E_LIMIT, "a sampling pool has at most %u keys, not %u",
                        LIGI_SAMPLE_COUNT_MAX, self->options.pool_size);
    LIG_TRY(check_lengths(node, options, &self->length));
    uint32_t range = (uint32_t)(options->max - options->min);
    LIG_TRY(ligi_draw_init(&self->draw, options->distribution, range, options->weights));
    if (options->scheme == LIG_PARAMS_SAMPLE_LOCAL && node->node_count > 1)
        return ligi_local_keys_init(&self->here, range);
    return LIG_OK;
}

lig_status lig_params_enable_sampling(lig_params *params, const lig_params_sampling *sampling)
{
    struct ligi_sampling *self = NULL, *before = NULL;
    LIG_TRY(ligi_session_check(&params->session));
    LIG_TRY(check_options(params, sampling));
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "sampling"));
    lig_status status = make(params, sampling, self);
    ligi_node_lock(params);
    if (status == LIG_OK && params->sampling && params->sampling->in_use)
        status = lig_fail(LIG_E_BUSY,
                          "sampling is already enabled or in use: call lig_params_enable_sampling "
                          "once, before the first prepare_sample");
    if (status == LIG_OK) {
        before = params->sampling;
        params->sampling = self;
        ligi_tables_watch(params->tables, NULL, NULL);
        if (self->here.range)
            list_local(params, self);
        self = NULL;
    }
    ligi_node_unlock(params);
    destroy(before);
    destroy(self);
    return status;
}

void ligi_sampling_fini(lig_params *node)
{
    destroy(node->sampling);
    node->sampling = NULL;
}

/* --- a worker --- */

lig_status ligi_sample_worker_open(lig_params_worker *worker)
{
    return ligi_calloc(&worker->sampler, 1, sizeof *worker->sampler, "a worker");
}

static void close_sample(ligi_sample *sample)
{
    free(sample->items);
    ligi_seen_fini(&sample->seen);
    *sample = (ligi_sample){.id = sample->id};
}

void ligi_sample_worker_close(lig_params_worker *worker)
{
    struct ligi_sampler *self = worker->sampler;
    worker->sampler = NULL;
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->count; i++)
        close_sample(&self->samples[i]);
    ligi_sample_pool_fini(&self->pool);
    free(self->samples);
    free(self->spare);
    free(self->keys);
    free(self);
}

static lig_status start(lig_params_worker *worker)
{
    struct ligi_sampler *self = worker->sampler;
    lig_params *node = worker->node;
    if (self->sampling)
        return LIG_OK;
    ligi_node_lock(node);
    struct ligi_sampling *sampling = node->sampling;
    if (sampling)
        sampling->in_use = 1;
    ligi_node_unlock(node);
    if (sampling == NULL)
        return lig_fail(
            LIG_E_INVALID,
            "sampling is not enabled: every node must call lig_params_enable_sampling first");
    if (sampling->options.scheme == LIG_PARAMS_POOL)
        LIG_TRY(ligi_sample_pool_init(&self->pool, sampling->options.pool_size,
                                      sampling->options.reuse));
    ligi_rng_init(&self->rng, sampling->options.seed, node->rank, worker->id);
    self->sampling = sampling;
    return LIG_OK;
}

/* Reserves room for giving the keys back, so that this cannot fail. */
static lig_status new_sample(struct ligi_sampler *self, ligi_sample **sample)
{
    if (self->spare_count == 0) {
        if (self->count == LIGI_SAMPLES_OPEN_MAX)
            return lig_fail(
                LIG_E_LIMIT,
                "%u samples of this worker are open: pull them, or call lig_params_finish_sample",
                LIGI_SAMPLES_OPEN_MAX);
        LIG_TRY(ligi_grow(&self->spare, &self->spare_capacity, self->count + 1, sizeof *self->spare,
                          "samples"));
        LIG_TRY(ligi_grow(&self->samples, &self->capacity, self->count + 1, sizeof *self->samples,
                          "samples"));
        self->samples[self->count] = (ligi_sample){.id = (int64_t)self->count};
        self->spare[self->spare_count++] = (uint32_t)self->count++;
    }
    *sample = &self->samples[self->spare[--self->spare_count]];
    (*sample)->id += LIGI_SAMPLES_OPEN_MAX;
    (*sample)->open = 1;
    return LIG_OK;
}

static void end_sample(struct ligi_sampler *self, ligi_sample *sample)
{
    close_sample(sample);
    self->spare[self->spare_count++] = (uint32_t)(sample->id % LIGI_SAMPLES_OPEN_MAX);
}

/* NULL: a valid number whose sample has been used up. */
static lig_status find(struct ligi_sampler *self, int64_t id, ligi_sample **sample)
{
    size_t number = (size_t)(id % LIGI_SAMPLES_OPEN_MAX);
    if (id < LIGI_SAMPLES_OPEN_MAX || number >= self->count || id > self->samples[number].id)
        return lig_fail(LIG_E_NOTFOUND, "sample %lld does not exist for this worker",
                        (long long)id);
    *sample = &self->samples[number];
    if ((*sample)->id != id || !(*sample)->open)
        *sample = NULL;
    return LIG_OK;
}

/* --- drawing --- */

static lig_status make_keys(struct ligi_sampler *self, const uint32_t *items, uint32_t count)
{
    int64_t min = self->sampling->options.min;
    LIG_TRY(ligi_grow(&self->keys, &self->key_capacity, count, sizeof *self->keys, "a sample"));
    for (uint32_t i = 0; i < count; i++)
        self->keys[i] = min + items[i];
    return LIG_OK;
}

typedef struct window {
    lig_params_worker *worker;
    int64_t start, end;
} window;

static lig_status announce(void *context, const uint32_t *items, uint32_t count)
{
    const window *when = context;
    struct ligi_sampler *self = when->worker->sampler;
    LIG_TRY(make_keys(self, items, count));
    return lig_params_intent(when->worker, self->keys, count, when->start, when->end);
}

static lig_status draw_now(struct ligi_sampler *self, window *when, ligi_sample *sample)
{
    const lig_params_sampling *options = &self->sampling->options;
    ligi_seen seen = {0};
    LIG_TRY(ligi_alloc(&sample->items, sample->count * sizeof *sample->items + 1, "a sample"));
    ligi_sample_pool_draw_options pooled = {&self->sampling->draw, &self->rng,
                                            options->with_replacement ? NULL : &seen, announce,
                                            when};
    lig_status status;
    if (options->scheme == LIG_PARAMS_POOL)
        status = ligi_sample_pool_draw(&self->pool, &pooled, sample->count, sample->items);
    else
        status = ligi_draw_many(pooled.draw, &self->rng, pooled.seen, sample->count, sample->items);
    ligi_seen_fini(&seen);
    LIG_TRY(status);
    return options->scheme == LIG_PARAMS_NAIVE ? LIG_OK
                                               : announce(when, sample->items, sample->count);
}

static lig_status check_count(const struct ligi_sampling *self, uint64_t count)
{
    if (count > LIGI_SAMPLE_COUNT_MAX)
        return lig_fail(LIG_E_LIMIT, "a sample has at most %u keys, not %llu",
                        LIGI_SAMPLE_COUNT_MAX, (unsigned long long)count);
    if (!self->options.with_replacement && count > self->draw.available)
        return lig_fail(LIG_E_LIMIT,
                        "%llu samples without replacement requested, but only %u keys can be "
                        "drawn; request fewer, or sample with replacement",
                        (unsigned long long)count, self->draw.available);
    return LIG_OK;
}

lig_status lig_params_prepare_sample(lig_params_worker *worker, uint64_t count, int64_t start_clock,
                                     int64_t end_clock, int64_t *sample)
{
    struct ligi_sampler *self = worker->sampler;
    ligi_sample *made = NULL;
    window when = {worker, start_clock, end_clock};
    LIG_TRY(ligi_session_check(&worker->node->session));
    LIG_TRY(start(worker));
    LIG_TRY(check_count(self->sampling, count));
    LIG_TRY(new_sample(self, &made));
    made->count = (uint32_t)count;
    lig_status status = LIG_OK;
    if (self->sampling->options.scheme != LIG_PARAMS_SAMPLE_LOCAL)
        status = draw_now(self, &when, made);
    if (status == LIG_OK)
        *sample = made->id;
    else
        end_sample(self, made);
    return status;
}

/* --- pulling --- */

static lig_status check_pull(struct ligi_sampler *self, int64_t id, size_t count,
                             ligi_sample **sample)
{
    LIG_TRY(find(self, id, sample));
    if (*sample == NULL)
        return lig_fail(LIG_E_NOTFOUND, "sample %lld is used up or finished", (long long)id);
    uint32_t left = (*sample)->count - (*sample)->used;
    if (count > left)
        return lig_fail(LIG_E_LIMIT,
                        "%zu keys requested from sample %lld, but %u of its %u are left", count,
                        (long long)id, left, (*sample)->count);
    return LIG_OK;
}

lig_status lig_params_pull_sample(lig_params_worker *worker, int64_t sample, int64_t *keys,
                                  size_t count, void *values, int64_t *ticket)
{
    struct ligi_sampler *self = worker->sampler;
    ligi_sample *from = NULL;
    LIG_TRY(ligi_session_check(&worker->node->session));
    LIG_TRY(check_pull(self, sample, count, &from));
    if (count > 0 && (keys == NULL || values == NULL))
        return lig_fail(LIG_E_INVALID, "keys or values is NULL (%zu samples)", count);
    if (from->items == NULL)
        LIG_TRY(ligi_sample_draw_local(self, from, (uint32_t)count, keys));
    for (size_t i = 0; i < count && from->items; i++)
        keys[i] = self->sampling->options.min + from->items[from->used + i];
    uint64_t elements = (uint64_t)count * self->sampling->length;
    lig_status status = lig_params_pull(worker, keys, count, values, elements, ticket);
    if (status != LIG_OK && from->items == NULL)
        ligi_sample_put_back(self, from, keys, (uint32_t)count);
    LIG_TRY(status);
    from->used += (uint32_t)count;
    atomic_fetch_add_explicit(&worker->counts.samples, count, memory_order_relaxed);
    if (from->used == from->count)
        end_sample(self, from);
    return LIG_OK;
}

lig_status lig_params_finish_sample(lig_params_worker *worker, int64_t sample)
{
    ligi_sample *found = NULL;
    LIG_TRY(ligi_session_check(&worker->node->session));
    LIG_TRY(find(worker->sampler, sample, &found));
    if (found)
        end_sample(worker->sampler, found);
    return LIG_OK;
}
