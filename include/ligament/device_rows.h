/* Ligament: CUDA kernels for rows of float32 that are cached in the memory of a device. Python's `params.torch` manages
 * the cache and its arrays (docs/params.md, "On a GPU"); these calls look up ids, sum rows and gradients, and apply the
 * optimizer's steps. Experimental.
 *
 * The caller owns all arrays and keeps them until the work queued on the stream is done; a `stream` is a CUstream. */
#ifndef LIGAMENT_DEVICE_ROWS_H
#define LIGAMENT_DEVICE_ROWS_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lig_device_rows_kind { /* optimizers that the kernels implement */
    LIG_DEVICE_ROWS_ADD = 0,
    LIG_DEVICE_ROWS_SGD = 1,
    LIG_DEVICE_ROWS_ADAGRAD = 2
} lig_device_rows_kind;

typedef struct lig_device_rows { /* a cache; arrays in device memory, except `report` */
    const int32_t *slot_of;      /* by id; -1: not cached */
    int64_t *used;               /* by slot: the tick of the last lookup */
    const int64_t *read;         /* by slot: the epoch of its values; NULL: they are never stale */
    int32_t *leaders;            /* by slot, for the kernels */
    float *values, *state;       /* by slot */
    float *pending;              /* by slot: sums of the gradients; NULL: not needed */
    uint8_t *dirty;              /* by slot: set to 1 by a step */
    int64_t *missed;             /* one element, for the kernels; initially -1 */
    volatile int64_t *report;    /* one element in pinned host memory, for the kernels; initially -1 */
    int64_t length, state_length, kind;
    double eps, decay;
} lig_device_rows;

typedef struct lig_device_batch { /* the ids of a batch and its bags; arrays in device memory */
    const int64_t *ids;
    int64_t *slots;         /* by position: filled by find, and needed by the other calls */
    int64_t count;          /* of ids; below 2**31 */
    int64_t bound;          /* all ids are less than this */
    int64_t tick, epoch;    /* the number of the lookup, which grows; the epoch of current values */
    const int64_t *starts;  /* the first position of each bag; NULL: bags of `size` ids */
    int64_t bags, size;     /* 0 bags: only a lookup */
    int64_t mean;           /* 1: the mean of a bag, 0: the sum */
    int64_t padding;        /* the id that is ignored; -1: none */
    float *bag;             /* filled: one row for each bag */
    const float *gradients; /* rows */
    const int64_t *places;  /* by position: its gradient; NULL: position / size */
    float *sums;            /* a row for each position: zeros before and after a step */
    double rate;
} lig_device_batch;

/* Loads the kernels. LIG_E_UNSUPPORTED if the device's driver refuses them, or if there is none. */
LIG_API lig_status lig_device_rows_load(int32_t device);
/* Looks up ids and fills `slots` and `bag`. Waits for the lookup, but not for `bag`. *missing is 1 if an id is not
 * cached, is out of range, or has a stale row: then `bag` is incomplete. */
LIG_API lig_status lig_device_rows_find(const lig_device_rows *rows, int32_t device, void *stream,
                                        const lig_device_batch *batch, int *missing);
/* Fills `bag` from `slots`. */
LIG_API lig_status lig_device_rows_sum(const lig_device_rows *rows, int32_t device, void *stream,
                                       const lig_device_batch *batch);
/* One step of the optimizer for each distinct id, with the sum of its gradients. The ids are those of the last
 * lookup. */
LIG_API lig_status lig_device_rows_step(const lig_device_rows *rows, int32_t device, void *stream,
                                        const lig_device_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
