#include "params/rows/row_kernels.h"

static int row_type(uint32_t dtype)
{
    switch (dtype) {
    case LIG_FLOAT32: return LIGI_ROW_FLOAT32;
    case LIG_FLOAT64: return LIGI_ROW_FLOAT64;
    case LIG_BFLOAT16: return LIGI_ROW_BFLOAT16;
    case LIG_INT32: return LIGI_ROW_INT32;
    case LIG_INT64: return LIGI_ROW_INT64;
    default: return -1;
    }
}

const ligi_row_kernels *ligi_row_kernels_pick(uint32_t dtype)
{
    int type = row_type(dtype);

    if (type < 0)
        return NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return &ligi_row_avx512[type];
    if (__builtin_cpu_supports("avx2"))
        return &ligi_row_avx2[type];
#endif
    return &ligi_row_plain[type];
}
