#include "store/format/tensor_boxes.h"

#include "store_scene.h"

/* A slow, obvious count: how often each element is covered. */
static int covers_once(const int64_t *whole, uint32_t ndim, const ligi_tile *tiles, size_t count)
{
    uint8_t seen[4096] = {0};
    size_t elements = 1;
    for (uint32_t d = 0; d < ndim; d++)
        elements *= (size_t)whole[d];
    for (size_t i = 0; i < count; i++)
        for (size_t e = 0; e < elements; e++) {
            size_t rest = e;
            int inside = 1;
            for (uint32_t d = ndim; d-- > 0;) {
                int64_t at = (int64_t)(rest % (size_t)whole[d]);
                rest /= (size_t)whole[d];
                inside &= at >= tiles[i].start[d] && at < tiles[i].start[d] + tiles[i].shape[d];
            }
            seen[e] = (uint8_t)(seen[e] + inside);
        }
    for (size_t e = 0; e < elements; e++)
        if (seen[e] != 1)
            return 0;
    return 1;
}

enum { TILES = 24 };

typedef struct example {
    uint32_t ndim;
    int64_t whole[3], start[TILES][3], shape[TILES][3];
    ligi_tile tiles[TILES];
    size_t count;
} example;

/* Cuts the whole in two again and again. */
static void make(example *made, uint64_t *seed)
{
    made->ndim = (uint32_t)(scene_random(seed) % 4);
    made->count = 1;
    for (uint32_t d = 0; d < made->ndim; d++) {
        made->whole[d] = made->shape[0][d] = 1 + (int64_t)(scene_random(seed) % 8);
        made->start[0][d] = 0;
    }
    for (size_t cuts = scene_random(seed) % (TILES - 1); cuts > 0 && made->ndim; cuts--) {
        size_t from = scene_random(seed) % made->count, to = made->count;
        uint32_t d = (uint32_t)(scene_random(seed) % made->ndim);
        if (made->shape[from][d] < 2)
            continue;
        int64_t rows = 1 + (int64_t)(scene_random(seed) % (uint64_t)(made->shape[from][d] - 1));
        memcpy(made->start[to], made->start[from], sizeof made->start[to]);
        memcpy(made->shape[to], made->shape[from], sizeof made->shape[to]);
        made->start[to][d] += rows;
        made->shape[to][d] -= rows;
        made->shape[from][d] = rows;
        made->count++;
    }
    for (size_t i = 0; i < made->count; i++)
        made->tiles[i] = (ligi_tile){made->start[i], made->shape[i]};
}

/* Sometimes wrong: a tile moved, grown, lost or doubled. */
static void spoil(example *made, uint64_t *seed)
{
    size_t i = scene_random(seed) % made->count;
    uint32_t d = made->ndim ? (uint32_t)(scene_random(seed) % made->ndim) : 0;
    switch (scene_random(seed) % 6) {
    case 0: made->tiles[i] = made->tiles[--made->count]; break;
    case 1:
        if (made->count < TILES)
            made->tiles[made->count++] = made->tiles[i];
        break;
    case 2:
        made->shape[i][d] += made->ndim && made->start[i][d] + made->shape[i][d] < made->whole[d];
        break;
    case 3: made->start[i][d] -= made->ndim && made->start[i][d] > 0; break;
    default: break;
    }
}

static void test_random(void **state)
{
    uint64_t seed = 11;
    size_t right = 0, wrong = 0;
    (void)state;
    for (int i = 0; i < 4000; i++) {
        example made = {0};
        make(&made, &seed);
        spoil(&made, &seed);
        lig_status status = ligi_tiling_check(made.whole, made.ndim, made.tiles, made.count);
        int wanted = covers_once(made.whole, made.ndim, made.tiles, made.count);
        assert_int_equal(status == LIG_OK, wanted);
        right += wanted != 0;
        wrong += wanted == 0;
    }
    assert_true(right > 500 && wrong > 500);
}

static void test_sentences(void **state)
{
    (void)state;
    const int64_t whole[2] = {6, 4}, zero[2] = {0, 0}, low[2] = {2, 0}, far[2] = {5, 0},
                  rows3[2] = {3, 4}, rows4[2] = {4, 4}, minus[2] = {-1, 0};
    ligi_tile twice[2] = {{low, rows4}, {zero, rows3}};
    assert_fails(ligi_tiling_check(whole, 2, twice, 2), LIG_E_MISMATCH);
    assert_non_null(strstr(lig_error_text(), "[0:3, 0:4] and [2:6, 0:4] cover the same"));
    assert_fails(ligi_tiling_check(whole, 2, twice, 1), LIG_E_MISMATCH);
    assert_non_null(strstr(lig_error_text(), "cover 12 of 24"));
    ligi_tile outside[1] = {{far, rows3}};
    assert_fails(ligi_tiling_check(whole, 2, outside, 1), LIG_E_MISMATCH);
    assert_non_null(strstr(lig_error_text(), "exceeds dimension 0"));
    ligi_tile below[1] = {{minus, rows3}};
    assert_fails(ligi_tiling_check(whole, 2, below, 1), LIG_E_MISMATCH);
    const int64_t none[2] = {0, 4};
    assert_ok(ligi_tiling_check(none, 2, NULL, 0));
    ligi_tile scalar[2] = {{zero, zero}, {zero, zero}};
    assert_ok(ligi_tiling_check(zero, 0, scalar, 1));
    assert_fails(ligi_tiling_check(zero, 0, scalar, 2), LIG_E_MISMATCH);
}

/* What all tiles have of a slice is the slice, each element once and in its place. */
static void check_slice(const example *made, const lig_slice *slices)
{
    int64_t values[512];
    size_t asked = 1, found = 0;
    for (uint32_t d = 0; d < made->ndim; d++)
        asked *= (size_t)slices[d].count;
    memset(values, -1, sizeof values);
    for (size_t t = 0; t < made->count; t++) {
        lig_slice within[3];
        int64_t first[3];
        if (!ligi_tiling_meet(made->whole, made->ndim, &made->tiles[t], slices, within, first))
            continue;
        int64_t at[3] = {0};
        for (;;) {
            int64_t to = 0, from = 0, source = 0;
            for (uint32_t d = 0; d < made->ndim; d++) {
                int64_t local = within[d].start + at[d] * within[d].step;
                assert_true(local >= 0 && local < made->tiles[t].shape[d]);
                to = to * slices[d].count + first[d] + at[d];
                from = from * made->whole[d] + made->tiles[t].start[d] + local;
                source =
                    source * made->whole[d] + slices[d].start + (first[d] + at[d]) * slices[d].step;
            }
            assert_int_equal(from, source);
            assert_int_equal(values[to], -1);
            values[to] = from;
            found++;
            uint32_t d = made->ndim;
            while (d > 0 && ++at[d - 1] == within[d - 1].count)
                at[--d] = 0;
            if (d == 0)
                break;
        }
    }
    assert_int_equal(found, asked);
}

static void test_meet(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 4000; i++) {
        example made = {0};
        lig_slice slices[3];
        make(&made, &seed);
        for (uint32_t d = 0; d < made.ndim; d++) {
            int64_t step = 1 + (int64_t)(scene_random(&seed) % 3), size = made.whole[d];
            int64_t start = (int64_t)(scene_random(&seed) % (uint64_t)size);
            int back = scene_random(&seed) % 2 == 0;
            int64_t most = (back ? start : size - 1 - start) / step + 1;
            slices[d] = (lig_slice){start, back ? -step : step,
                                    1 + (int64_t)(scene_random(&seed) % (uint64_t)most)};
        }
        check_slice(&made, slices);
    }
    const int64_t whole[1] = {4}, start[1] = {2}, shape[1] = {2};
    ligi_tile tile = {start, shape};
    lig_slice one = {3, INT64_MIN, 1}, within[1];
    int64_t first[1];
    assert_true(ligi_tiling_meet(whole, 1, &tile, &one, within, first));
    assert_int_equal(within[0].start, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
