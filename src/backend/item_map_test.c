/* The map of catalog items against a plain array of all keys. */
#include "backend/item_map.h"
#include "base/test.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 700, ROUNDS = 400, OPS = 120 };

typedef struct expected_items {
    int value[KEYS]; /* -1: absent */
} expected_items;

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 33;
}

/* Keys of 2 to 64 bytes whose order is that of their numbers. */
static size_t key_of(int number, uint8_t key[LIGI_ITEM_KEY_MAX])
{
    memset(key, 7, LIGI_ITEM_KEY_MAX);
    key[0] = (uint8_t)(number >> 8);
    key[1] = (uint8_t)number;
    return 2 + (size_t)number % 63;
}

static void compare_all(const ligi_item_map *map, const expected_items *expected)
{
    uint8_t key[LIGI_ITEM_KEY_MAX];
    lig_catalog_item item, sought;
    ligi_item_walk walk = {0};
    size_t count = 0;
    uint64_t bytes = 0;

    for (int i = 0; i < KEYS; i++) {
        size_t key_bytes = key_of(i, key);
        assert_int_equal(ligi_item_map_get(map, key, key_bytes, &item), expected->value[i] >= 0);
        if (expected->value[i] < 0)
            continue;
        assert_int_equal(item.value_bytes, sizeof(int));
        assert_memory_equal(item.value, &expected->value[i], sizeof(int));
        assert_true(ligi_item_map_next(map, &walk, &sought));
        assert_ptr_equal(item.key, sought.key);
        assert_true(ligi_item_map_seek(map, key, 2, &sought));
        assert_ptr_equal(item.key, sought.key);
        count++;
        bytes += item.key_bytes + item.value_bytes;
    }
    assert_false(ligi_item_map_next(map, &walk, &item));
    assert_int_equal(ligi_item_map_count(map), count);
    assert_int_equal(ligi_item_map_bytes(map), bytes);
}

static void edit(ligi_item_map **map, expected_items *expected, uint64_t *seed)
{
    lig_catalog_op ops[OPS];
    uint8_t keys[OPS][LIGI_ITEM_KEY_MAX];
    int values[OPS];
    size_t count = random_next(seed) % OPS;
    int erases = (int)(random_next(seed) % 5), first = (int)(random_next(seed) % KEYS);
    int width = 1 + (int)(random_next(seed) % (KEYS - (uint64_t)first));
    ligi_item_map *next;

    for (size_t i = 0; i < count; i++) {
        int number = first + (int)(random_next(seed) % (uint64_t)width);
        values[i] = (int)random_next(seed) & 0xFFFFFF;
        int erased = (int)(random_next(seed) % 5) < erases;
        ops[i] = (lig_catalog_op){keys[i], key_of(number, keys[i]), erased ? NULL : &values[i],
                                  erased ? 0 : sizeof(int)};
        expected->value[number] = erased ? -1 : values[i];
    }
    assert_ok(ligi_item_map_edit(*map, ops, count, &next));
    ligi_item_map_release(*map);
    *map = next;
}

static void maps_follow_an_array(void **state)
{
    expected_items now, then;
    ligi_item_map *map = NULL, *old = NULL;
    uint64_t seed = 20;

    (void)state;
    memset(&now, -1, sizeof now);
    compare_all(NULL, &now);
    then = now;
    for (int round = 0; round < ROUNDS; round++) {
        edit(&map, &now, &seed);
        if (round % 7 == 0)
            compare_all(map, &now);
        compare_all(old, &then); /* a snapshot does not change */
        if (round % 11 == 0) {
            ligi_item_map_release(old);
            old = ligi_item_map_hold(map);
            then = now;
        }
    }
    ligi_item_map_release(old);
    ligi_item_map_release(map);
}

enum { MANY = 20000, CHANGE_BYTES = 16 << 10 };

static size_t used_bytes(void)
{
    struct mallinfo2 heap = mallinfo2(); /* zeros under a sanitizer */

    return heap.uordblks + heap.hblkhd;
}

static ligi_item_map *many_items(void)
{
    static char keys[MANY][8];
    lig_catalog_op *ops = calloc(MANY, sizeof *ops);
    ligi_item_map *map = NULL;

    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "%06d", i);
        ops[i] = (lig_catalog_op){keys[i], 6, "value", 5};
    }
    assert_ok(ligi_item_map_edit(NULL, ops, MANY, &map));
    free(ops);
    return map;
}

/* Chunks of a map that was made at once are full: an item that does not fit must not move those
 * behind it. */
static void an_item_changes_few_chunks(void **state)
{
    const char *const keys[] = {"000000a", "000100a", "010000a", "019999a"};
    ligi_item_map *map = many_items(), *next;

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const lig_catalog_op add = {keys[i], 7, "value", 5};
        size_t before = used_bytes();
        assert_ok(ligi_item_map_edit(map, &add, 1, &next));
        assert_true(used_bytes() - before < CHANGE_BYTES);
        assert_int_equal(ligi_item_map_count(next), MANY + i + 1);
        ligi_item_map_release(map);
        map = next;
    }
    ligi_item_map_release(map);
}

static void bad_keys_are_refused(void **state)
{
    uint8_t key[LIGI_ITEM_KEY_MAX + 1] = {0};
    const lig_catalog_op ops[] = {{"a", 1, "b", 1}, {key, sizeof key, "c", 1}};
    ligi_item_map *map = NULL;

    (void)state;
    assert_status(ligi_item_map_edit(NULL, ops, 2, &map), LIG_E_INVALID);
    assert_null(map);
    assert_status(ligi_item_key_check(key, 0), LIG_E_INVALID);
    assert_says("1 to 64");
    assert_status(ligi_item_key_check(key, LIGI_ITEM_KEY_MAX), LIG_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_follow_an_array),
        cmocka_unit_test(an_item_changes_few_chunks),
        cmocka_unit_test(bad_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
