/* Ligament: tensors. A lig_tensor is a view and owns nothing. */
#ifndef LIGAMENT_TENSOR_H
#define LIGAMENT_TENSOR_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values are fixed, because they are part of file formats. Elements are little-endian. */
typedef enum lig_dtype {
    LIG_DTYPE_NONE = 0,
    LIG_BOOL = 1,
    LIG_INT8 = 2,
    LIG_INT16 = 3,
    LIG_INT32 = 4,
    LIG_INT64 = 5,
    LIG_UINT8 = 6,
    LIG_UINT16 = 7,
    LIG_UINT32 = 8,
    LIG_UINT64 = 9,
    LIG_FLOAT16 = 10,
    LIG_BFLOAT16 = 11,
    LIG_FLOAT32 = 12,
    LIG_FLOAT64 = 13,
    LIG_COMPLEX32 = 14,
    LIG_COMPLEX64 = 15,
    LIG_COMPLEX128 = 16,
    LIG_FLOAT8_E4M3FN = 17,
    LIG_FLOAT8_E5M2 = 18,
    LIG_FLOAT8_E4M3FNUZ = 19,
    LIG_FLOAT8_E5M2FNUZ = 20,
    LIG_FLOAT8_E8M0FNU = 21,
    LIG_FLOAT8_E4M3 = 22,
    LIG_FLOAT8_E3M4 = 23,
    LIG_FLOAT8_E4M3B11FNUZ = 24,
    LIG_FLOAT6_E2M3FN = 25,    /* one element per byte, as in ml_dtypes */
    LIG_FLOAT6_E3M2FN = 26,    /* one element per byte */
    LIG_FLOAT4_E2M1FN = 27,    /* one element per byte */
    LIG_FLOAT4_E2M1FN_X2 = 28, /* two values per byte, which is one element, as in torch */
    LIG_INT4 = 29,             /* one element per byte */
    LIG_UINT4 = 30,            /* one element per byte */
    LIG_INT2 = 31,             /* one element per byte */
    LIG_UINT2 = 32,            /* one element per byte */
    LIG_DTYPE_COUNT = 33
} lig_dtype;

typedef enum lig_memory { LIG_MEMORY_HOST = 0, LIG_MEMORY_CUDA = 1 } lig_memory;

#define LIG_NDIM_MAX 32
#define LIG_NAME_BYTES_MAX 4096 /* of a tensor or a model, without the final NUL */

/* The layout is fixed for each ABI number (plugin.h). */
typedef struct lig_tensor {
    const char *name; /* UTF-8 */
    void *data;       /* NULL only if bytes == 0, or where a call takes only a description */
    uint64_t bytes;   /* of the elements: product of the shape times the element size */
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL = contiguous, which plugins always get */
    uint32_t ndim;
    uint16_t dtype;  /* lig_dtype */
    uint16_t memory; /* lig_memory */
    int32_t device;  /* number of the device; 0 for host memory */
    uint32_t flags;  /* none defined: 0 */
    uint64_t reserved[2];
} lig_tensor;

/* Bytes of one element; 0 for an unknown dtype. */
LIG_API uint32_t lig_dtype_bytes(uint32_t dtype);

/* "float32"; NULL for an unknown dtype. Static storage. */
LIG_API const char *lig_dtype_name(uint32_t dtype);

/* The dtype of a name as lig_dtype_name spells it; LIG_DTYPE_NONE if unknown. */
LIG_API uint32_t lig_dtype_parse(const char *name);

/* Performs the checks that every call with tensors performs first: names (present, at most LIG_NAME_BYTES_MAX bytes,
 * valid UTF-8, no two equal), dtypes, shapes (non-negative, product times element size == bytes without overflow),
 * pointers and memory kinds. Allocates O(count) memory to find duplicate names. */
LIG_API lig_status lig_tensors_check(const lig_tensor *tensors, size_t count);

/* 1 if the elements are contiguous in row-major order. */
LIG_API int lig_tensor_contiguous(const lig_tensor *tensor);

/* Orders the library's accesses to memory of this kind and device after the work that is currently queued on `stream`,
 * without waiting for it. Call it before a save or a load of device memory that is not idle, on the thread that queued
 * the work. For LIG_MEMORY_CUDA `stream` is a CUstream (NULL: the legacy default stream); 1 and 2 name the legacy and
 * the per-thread default stream, as in DLPack. A stream that is being captured into a graph is LIG_E_INVALID.
 * **shared** */
LIG_API lig_status lig_memory_follow(uint32_t memory, int32_t device, void *stream);

/* Copies the elements in row-major order between a strided tensor in host memory and flat memory of
 * tensor->bytes bytes. */
LIG_API void lig_tensor_pack(const lig_tensor *tensor, void *flat);
LIG_API void lig_tensor_unpack(const lig_tensor *tensor, const void *flat);

#ifdef __cplusplus
}
#endif
#endif
