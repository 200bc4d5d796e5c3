#include "base/test.h"
#include "tensor/memory.h"
#include "tensor/stride.h"
#include "tensor/tensor.h"

#include <stdlib.h>

static lig_tensor tensor_of(const char *name, void *data, const int64_t *shape, uint32_t ndim,
                            uint32_t dtype)
{
    lig_tensor tensor = {
        .name = name, .data = data, .shape = shape, .ndim = ndim, .dtype = (uint16_t)dtype};
    ligi_shape_bytes(shape, ndim, dtype, &tensor.bytes);
    return tensor;
}

static void dtypes_are_complete(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < LIG_DTYPE_COUNT; i++) {
        assert_non_null(lig_dtype_name(i));
        assert_true(lig_dtype_bytes(i) > 0);
        assert_int_equal(lig_dtype_parse(lig_dtype_name(i)), i);
    }
    assert_int_equal(lig_dtype_bytes(0), 0);
    assert_int_equal(lig_dtype_bytes(LIG_DTYPE_COUNT), 0);
    assert_null(lig_dtype_name(LIG_DTYPE_COUNT));
    assert_int_equal(lig_dtype_parse("float"), LIG_DTYPE_NONE);
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    float data[6] = {0};
    static const int64_t shape[] = {2, 3}, negative[] = {2, -3}, huge[] = {INT64_MAX, INT64_MAX};
    lig_tensor good = tensor_of("a", data, shape, 2, LIG_FLOAT32), bad = good;
    assert_ok(lig_tensors_check(&good, 1));
    bad.name = "";
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    bad.name = "\xff";
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    assert_says("UTF-8");
    char longer[LIG_NAME_BYTES_MAX + 2];
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    bad.name = longer;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_LIMIT);
    bad = good, bad.bytes = 20;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    assert_says("'a': bytes is 20");
    bad = good, bad.shape = negative;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    bad = good, bad.shape = huge;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_LIMIT);
    bad = good, bad.dtype = 999;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    bad = good, bad.data = NULL;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    bad = good, bad.memory = LIG_MEMORY_CUDA, bad.device = 1000; /* with a driver or without */
    assert_int_not_equal(lig_tensors_check(&bad, 1), LIG_OK);
    assert_says("'a': ");
    assert_says("CUDA");
    static const int64_t gaps[] = {6, 2};
    bad.strides = gaps;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_UNSUPPORTED);
    assert_says("not contiguous");
    bad = good, bad.memory = 77;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_INVALID);
    bad = good, bad.ndim = LIG_NDIM_MAX + 1;
    assert_status(lig_tensors_check(&bad, 1), LIG_E_LIMIT);
    lig_tensor twice[] = {good, good};
    assert_status(lig_tensors_check(twice, 2), LIG_E_INVALID);
    assert_says("two tensors are named 'a'");
}

static void empty_and_scalar_are_fine(void **state)
{
    (void)state;
    static const int64_t none[] = {3, 0, INT64_MAX};
    double scalar = 1;
    lig_tensor tensors[] = {tensor_of("empty", NULL, none, 3, LIG_FLOAT64),
                            tensor_of("scalar", &scalar, NULL, 0, LIG_FLOAT64)};
    assert_ok(lig_tensors_check(tensors, 2));
    assert_true(tensors[0].bytes == 0 && tensors[1].bytes == 8);
}

/* The naive implementation: one element at a time, from its index. */
static void pack_slowly(const lig_tensor *tensor, char *flat)
{
    uint32_t element = lig_dtype_bytes(tensor->dtype);
    for (uint64_t i = 0; i < tensor->bytes / element; i++) {
        int64_t rest = (int64_t)i, at = 0;
        for (uint32_t d = tensor->ndim; d-- > 0;) {
            at += rest % tensor->shape[d] * tensor->strides[d];
            rest /= tensor->shape[d];
        }
        memcpy(flat + i * element, (char *)tensor->data + at * (int64_t)element, element);
    }
}

/* A random view into a block: dimensions permuted, stepped, some reversed. Fills shape and strides;
 * returns the first element. */
static int64_t random_view(int64_t *shape, int64_t *strides, uint32_t ndim)
{
    int64_t stride = 1, first = 0;
    uint32_t order[4] = {0, 1, 2, 3};
    for (uint32_t i = ndim; i > 1; i--) {
        uint32_t j = (uint32_t)rand() % i, swap = order[i - 1];
        order[i - 1] = order[j], order[j] = swap;
    }
    for (uint32_t i = 0; i < ndim; i++) {
        uint32_t d = order[i];
        shape[d] = 1 + rand() % 5;
        strides[d] = stride * (1 + rand() % 2);
        stride = strides[d] * shape[d];
        if (rand() % 3 == 0) {
            first += strides[d] * (shape[d] - 1);
            strides[d] = -strides[d];
        }
    }
    return first;
}

static void strided_walk_equals_its_twin(void **state)
{
    (void)state;
    static char block[200000], fast[40000], slow[40000], back[200000];
    srand(11);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)rand();
    static const uint32_t dtypes[] = {LIG_UINT8, LIG_FLOAT16, LIG_FLOAT32, LIG_COMPLEX128};
    for (int round = 0; round < 1000; round++) {
        int64_t shape[4], strides[4];
        uint32_t ndim = (uint32_t)rand() % 5, dtype = dtypes[rand() % 4];
        int64_t first = random_view(shape, strides, ndim);
        lig_tensor tensor = tensor_of("t", NULL, shape, ndim, dtype);
        tensor.data = block + first * lig_dtype_bytes(dtype);
        tensor.strides = strides;
        pack_slowly(&tensor, slow);
        uint64_t offset = (uint64_t)rand() % tensor.bytes,
                 bytes = (uint64_t)rand() % (tensor.bytes - offset + 1);
        ligi_tensor_pack_range(&tensor, offset, bytes, fast);
        assert_memory_equal(fast, slow + offset, bytes);
        memcpy(back, block, sizeof block);
        for (uint64_t i = 0; i < tensor.bytes; i++)
            fast[i] = (char)rand();
        lig_tensor_unpack(&tensor, fast);
        pack_slowly(&tensor, slow);
        assert_memory_equal(slow, fast, tensor.bytes);
        memcpy(block, back, sizeof block);
    }
}

static void contiguity_is_told(void **state)
{
    (void)state;
    float data[6];
    static const int64_t shape[] = {2, 3}, row[] = {3, 1}, column[] = {1, 2}, one[] = {1, 3},
                         any[] = {77, 1};
    lig_tensor tensor = tensor_of("t", data, shape, 2, LIG_FLOAT32);
    assert_true(lig_tensor_contiguous(&tensor));
    tensor.strides = row;
    assert_true(lig_tensor_contiguous(&tensor));
    tensor.strides = column;
    assert_false(lig_tensor_contiguous(&tensor));
    tensor = tensor_of("t", data, one, 2, LIG_FLOAT32);
    tensor.strides = any;
    assert_true(lig_tensor_contiguous(&tensor));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_are_complete),       cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(empty_and_scalar_are_fine), cmocka_unit_test(strided_walk_equals_its_twin),
        cmocka_unit_test(contiguity_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
