/* Sampling: the state of a node and of its workers. The public calls are in params.h. */
#ifndef LIGI_SAMPLING_H
#define LIGI_SAMPLING_H

#include "params/sampling/local_keys.h"
#include "params/sampling/sample_pool.h"
#include "params/state/node.h"

#define LIGI_SAMPLES_OPEN_MAX 65536u              /* of a worker */
#define LIGI_SAMPLE_COUNT_MAX (UINT32_C(1) << 28) /* of one sample */

/* Items are keys less `min`. */
struct ligi_sampling {
    lig_params_sampling options; /* weights is NULL */
    uint32_t length;             /* of every row of the range */
    ligi_draw draw;
    ligi_local_keys here; /* LOCAL with several nodes; range 0: not used, all keys are local */
    int in_use;           /* a worker has prepared a sample; guarded by the node's lock */
};

typedef struct ligi_sample {
    int64_t id; /* generation x LIGI_SAMPLES_OPEN_MAX + its number */
    uint32_t count, used;
    uint32_t *items; /* NULL: drawn at pull */
    ligi_seen seen;  /* LOCAL without replacement */
    int open;
} ligi_sample;

struct ligi_sampler {
    struct ligi_sampling *sampling; /* NULL until the first sample is prepared */
    ligi_rng rng;
    ligi_sample_pool pool;
    ligi_sample *samples;
    size_t count, capacity;
    uint32_t *spare; /* numbers of samples that are not open */
    size_t spare_count, spare_capacity;
    int64_t *keys; /* scratch */
    size_t key_capacity;
};

/* sampling.c */
void ligi_sampling_fini(lig_params *node);
lig_status ligi_sample_worker_open(lig_params_worker *worker);
void ligi_sample_worker_close(lig_params_worker *worker);

#endif
