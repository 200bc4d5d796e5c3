#include "base/test.h"
#include "store/format/assemble.h"
#include "store/format/manifest.h"

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

/* Two tensors of 5 x 4, the second tied to the first, each in boxes of 3 and 2 rows; and a scalar.
 */
static void make_boxes(ligi_writer *writer, int part)
{
    static const int64_t whole[2] = {5, 4}, shapes[2][2] = {{3, 4}, {2, 4}},
                         starts[2][2] = {{0, 0}, {3, 0}};
    lig_tensor tensors[5] = {{.name = "s", .bytes = 4, .dtype = LIG_FLOAT32}};
    ligi_box_position places[5] = {{NULL, NULL}};
    ligi_slot slots[5] = {{.offset = 4096, .tied = SIZE_MAX, .first_hash = 2}};
    for (size_t i = 0; i < 4; i++) {
        tensors[1 + i] = (lig_tensor){.name = i < 2 ? "a" : "b",
                                      .bytes = i % 2 ? 32 : 48,
                                      .shape = shapes[i % 2],
                                      .ndim = 2,
                                      .dtype = LIG_FLOAT32};
        places[1 + i] = (ligi_box_position){whole, starts[i % 2]};
        slots[1 + i] = (ligi_slot){.owner = 3,
                                   .pack = 9 + i % 2,
                                   .offset = 4096,
                                   .first_hash = i % 2,
                                   .tied = i < 2 ? SIZE_MAX : i - 1};
    }
    uint64_t hashes[3] = {1, 2, 3};
    ligi_about about = {.id = part ? 0 : 1, .name = "m", .parent_name = "", .meta = ""};
    ligi_body body = {.structure = "",
                      .tensors = tensors,
                      .slots = slots,
                      .hashes = hashes,
                      .count = 5,
                      .places = places,
                      .part = part};
    ligi_manifest_put(writer, &about, &body);
    assert_ok(writer->status);
}

static void boxes_make_tensors(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    ligi_manifest manifest = {0};
    make_boxes(&writer, 0);
    assert_ok(ligi_manifest_get(writer.data, writer.bytes, 5, &manifest));
    assert_int_equal(manifest.tensor_count, 5);
    assert_int_equal(manifest.shown_count, 3);
    assert_string_equal(manifest.shown[1].tensor.name, "a");
    assert_int_equal(manifest.shown[1].tensor.shape[0], 5);
    assert_int_equal(manifest.shown[1].tensor.bytes, 80);
    assert_int_equal(manifest.shown[1].boxes, 2);
    assert_int_equal(manifest.shown[1].tied, -1);
    assert_int_equal(manifest.shown[2].tied, 1);
    static const uint8_t secret[LIG_SECRET_BYTES] = {1};
    ligi_manifest_fingerprints(&manifest, secret);
    assert_memory_equal(manifest.shown[1].fingerprint, manifest.shown[2].fingerprint, 16);
    assert_memory_equal(manifest.shown[0].fingerprint, manifest.tensors[0].fingerprint, 16);
    assert_memory_not_equal(manifest.shown[1].fingerprint, manifest.tensors[1].fingerprint, 16);
    ligi_manifest_fini(&manifest);
    writer.bytes = 0;
    make_boxes(&writer, 1);
    assert_ok(ligi_manifest_get(writer.data, writer.bytes, 5, &manifest));
    assert_true(manifest.part);
    assert_int_equal(manifest.shown_count, 5);
    ligi_manifest_fini(&manifest);
    ligi_writer_fini(&writer);
}

/* Every byte with every bit turned, and two at a time: what is still accepted makes whole tensors.
 */
static void damaged_boxes_are_refused(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    make_boxes(&writer, 0);
    size_t accepted = 0;
    for (size_t at = 0; at < writer.bytes; at++)
        for (int turn = 1; turn < 256; turn++) {
            uint8_t *copy = malloc(writer.bytes);
            ligi_manifest manifest = {0};
            memcpy(copy, writer.data, writer.bytes);
            copy[at] ^= (uint8_t)turn;
            copy[(at * 7 + (size_t)turn) % writer.bytes] ^= turn % 3 == 0;
            lig_status status = ligi_manifest_get(copy, writer.bytes, 5, &manifest);
            assert_true(status == LIG_OK || status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED);
            for (size_t i = 0; status == LIG_OK && i < manifest.shown_count; i++) {
                ligi_whole whole = ligi_manifest_whole(&manifest, i);
                assert_true(whole.first + whole.count <= manifest.tensor_count);
                assert_true(manifest.shown[i].tied < (int64_t)i);
            }
            accepted += status == LIG_OK;
            ligi_manifest_fini(&manifest);
            free(copy);
        }
    assert_true(accepted > 0);
    ligi_writer_fini(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_short_it_is_refused),
        cmocka_unit_test(boxes_make_tensors),
        cmocka_unit_test(damaged_boxes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
