#include "params/tables/key_groups.h"

#include "base/test.h"

#include <stdlib.h>

enum { MOST = 3000 };

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
}

/* Compared with a search from the start for every key. */
static void check(const ligi_key_groups *groups, const int64_t *keys, size_t count)
{
    size_t distinct = 0, seen = 0;

    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (keys[j] != keys[i])
            j++;
        if (j == i) {
            assert_int_equal(groups->keys[distinct], keys[i]);
            assert_int_equal(groups->first[distinct], i);
            distinct++;
        }
    }
    assert_int_equal(groups->count, distinct);
    for (size_t group = 0; group < groups->count; group++) {
        uint32_t before = 0;
        for (uint32_t i = groups->first[group]; i != LIGI_KEY_LAST; i = groups->next[i]) {
            assert_int_equal(keys[i], groups->keys[group]);
            assert_true(i == groups->first[group] || i > before);
            before = i;
            seen++;
        }
        assert_int_equal(before, groups->last[group]);
    }
    assert_int_equal(seen, count);
}

static void equal_keys_are_found(void **state)
{
    ligi_key_groups groups = {0};
    int64_t *keys = calloc(MOST, sizeof *keys);
    uint64_t seed = 7;

    (void)state;
    assert_non_null(keys);
    for (int turn = 0; turn < 40; turn++) {
        size_t count = draw(&seed) % MOST;
        uint64_t range = 1 + draw(&seed) % (2 * MOST);
        for (size_t i = 0; i < count; i++) /* some share the low bits of their hash's input */
            keys[i] = (int64_t)((draw(&seed) % range) << (turn % 3 * 24));
        if (turn == 20)
            groups.pass = UINT32_MAX; /* the next pass begins again at 1 */
        assert_ok(ligi_key_groups_find(&groups, keys, count));
        check(&groups, keys, count);
    }
    assert_ok(ligi_key_groups_find(&groups, NULL, 0));
    assert_int_equal(groups.count, 0);
    ligi_key_groups_fini(&groups);
    free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_keys_are_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
