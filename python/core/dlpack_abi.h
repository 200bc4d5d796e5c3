/* The two layouts of DLPack capsules, and the table of functions that some frameworks provide,
 * as defined by the specification. */
#ifndef LIGAMENT_DLPACK_ABI_H
#define LIGAMENT_DLPACK_ABI_H

#include <stdint.h>

enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3 };
#define DLPACK_READ_ONLY UINT64_C(1)

typedef struct dlpack_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} dlpack_dtype;

typedef struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    dlpack_dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_managed { /* capsule "dltensor" */
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

typedef struct dlpack_versioned { /* capsule "dltensor_versioned" */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

typedef struct dlpack_exchange { /* capsule "dlpack_exchange_api" */
    uint32_t major, minor;
    struct dlpack_exchange *older;
    void *unused[2];
    /* These return -1 with an exception. */
    int (*make)(dlpack_versioned *tensor, void **object);
    int (*describe)(void *object, dlpack_tensor *tensor); /* may be NULL */
    int (*stream)(int device_type, int32_t device_id, void **stream);
} dlpack_exchange;

/* The lig_dtype of one, 0 for none (py_memory.c). */
uint32_t ligi_py_dlpack_dtype(dlpack_dtype dtype);

#endif
