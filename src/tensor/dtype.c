#include <ligament/tensor.h>

#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[LIG_DTYPE_COUNT] = {
    [LIG_BOOL] = {"bool", 1},
    [LIG_INT8] = {"int8", 1},
    [LIG_INT16] = {"int16", 2},
    [LIG_INT32] = {"int32", 4},
    [LIG_INT64] = {"int64", 8},
    [LIG_UINT8] = {"uint8", 1},
    [LIG_UINT16] = {"uint16", 2},
    [LIG_UINT32] = {"uint32", 4},
    [LIG_UINT64] = {"uint64", 8},
    [LIG_FLOAT16] = {"float16", 2},
    [LIG_BFLOAT16] = {"bfloat16", 2},
    [LIG_FLOAT32] = {"float32", 4},
    [LIG_FLOAT64] = {"float64", 8},
    [LIG_COMPLEX32] = {"complex32", 4},
    [LIG_COMPLEX64] = {"complex64", 8},
    [LIG_COMPLEX128] = {"complex128", 16},
    [LIG_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [LIG_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [LIG_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
    [LIG_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
    [LIG_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1},
    [LIG_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [LIG_FLOAT8_E3M4] = {"float8_e3m4", 1},
    [LIG_FLOAT8_E4M3B11FNUZ] = {"float8_e4m3b11fnuz", 1},
    [LIG_FLOAT6_E2M3FN] = {"float6_e2m3fn", 1},
    [LIG_FLOAT6_E3M2FN] = {"float6_e3m2fn", 1},
    [LIG_FLOAT4_E2M1FN] = {"float4_e2m1fn", 1},
    [LIG_FLOAT4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1},
    [LIG_INT4] = {"int4", 1},
    [LIG_UINT4] = {"uint4", 1},
    [LIG_INT2] = {"int2", 1},
    [LIG_UINT2] = {"uint2", 1},
};

uint32_t lig_dtype_bytes(uint32_t dtype)
{
    return dtype < LIG_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *lig_dtype_name(uint32_t dtype)
{
    return dtype < LIG_DTYPE_COUNT ? dtypes[dtype].name : NULL;
}

uint32_t lig_dtype_parse(const char *name)
{
    for (uint32_t dtype = 1; dtype < LIG_DTYPE_COUNT; dtype++)
        if (strcmp(dtypes[dtype].name, name) == 0)
            return dtype;
    return LIG_DTYPE_NONE;
}
