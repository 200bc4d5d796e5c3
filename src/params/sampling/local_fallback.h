/* The scheme LOCAL: draws local keys, and falls back to all keys if too few are local. */
#ifndef LIGI_LOCAL_FALLBACK_H
#define LIGI_LOCAL_FALLBACK_H

#include "params/sampling/sampling.h"

/* Fills `keys` with `count` keys of the sample. On failure none counts as drawn. */
lig_status ligi_sample_draw_local(struct ligi_sampler *self, ligi_sample *sample, uint32_t count,
                                  int64_t *keys);
/* Keys that were drawn and cannot be returned count as not drawn. */
void ligi_sample_put_back(struct ligi_sampler *self, ligi_sample *sample, const int64_t *keys,
                          uint32_t count);

#endif
