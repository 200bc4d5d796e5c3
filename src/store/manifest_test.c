#include "base/test.h"
#include "store/manifest.h"

#include <stdlib.h>

/* A manifest of one tensor with as many dimensions as there can be. */
static void make(ligi_writer *writer)
{
    static int64_t shape[LIG_NDIM_MAX];
    for (int i = 0; i < LIG_NDIM_MAX; i++)
        shape[i] = 1;
    uint8_t byte = 7;
    uint64_t hash = 99;
    lig_tensor tensor = {.name = "t",
                         .data = &byte,
                         .bytes = 1,
                         .shape = shape,
                         .ndim = LIG_NDIM_MAX,
                         .dtype = LIG_UINT8};
    ligi_slot slot = {.offset = 4096, .tied = SIZE_MAX};
    ligi_about about = {.id = 1, .name = "m", .parent_name = "", .meta = ""};
    ligi_body body = {
        .structure = "", .tensors = &tensor, .slots = &slot, .hashes = &hash, .count = 1};
    ligi_manifest_put(writer, &about, &body);
    assert_ok(writer->status);
}

/* Wherever it ends, in memory of exactly that size: a sanitizer sees a write or read past the end.
 */
static void cut_short_it_is_refused(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    make(&writer);
    ligi_manifest manifest = {0};
    assert_ok(ligi_manifest_get(writer.data, writer.bytes, 5, &manifest));
    assert_int_equal(manifest.tensors[0].tensor.ndim, LIG_NDIM_MAX);
    ligi_manifest_fini(&manifest);
    for (size_t bytes = 0; bytes < writer.bytes; bytes++) {
        uint8_t *cut = malloc(bytes ? bytes : 1);
        memcpy(cut, writer.data, bytes);
        assert_status(ligi_manifest_get(cut, bytes, 5, &manifest), LIG_E_CORRUPT);
        ligi_manifest_fini(&manifest);
        free(cut);
    }
    ligi_writer_fini(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_short_it_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
