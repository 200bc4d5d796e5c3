#include "base/hash.h"
#include "base/map.h"
#include "base/test.h"
#include "base/xxh3/hash_kernel.h"

#include <ligament/base.h>

#include <stdio.h>
#include <stdlib.h>

#define KEYS 20000

static void keys_are_found_again(void **state)
{
    (void)state;
    char (*names)[16] = malloc(KEYS * sizeof *names);
    ligi_map map = {0};
    for (size_t i = 0; i < KEYS; i++) {
        int bytes = snprintf(names[i], sizeof names[i], "key-%zu", i);
        assert_ok(ligi_map_insert(&map, names[i], (size_t)bytes, i, NULL));
    }
    uint64_t value;
    for (size_t i = 0; i < KEYS; i++) {
        assert_true(ligi_map_find(&map, names[i], strlen(names[i]), &value));
        assert_true(value == i);
    }
    assert_false(ligi_map_find(&map, "key-", 4, NULL));
    assert_int_equal(ligi_map_insert(&map, "key-7", 5, 99, &value), LIG_E_EXISTS);
    assert_true(value == 7);
    ligi_map_fini(&map);
    assert_false(ligi_map_find(&map, "key-7", 5, NULL));
    free(names);
}

/* Files written on one machine are read on another: every kernel gives the same number. */
static void kernels_agree(void **state)
{
    (void)state;
    unsigned char secret[LIG_SECRET_BYTES], data[5000];
    srand(7);
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)rand();
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)rand();
    for (size_t bytes = 0; bytes < sizeof data; bytes += 1 + bytes / 9) {
        uint64_t plain = ligi_hash_sse2.hash64(secret, data, bytes);
        assert_true(plain == ligi_hash64(secret, data, bytes));
        assert_true(plain == lig_hash_block(secret, data, bytes));
        ligi_hash128 wide = ligi_hash_sse2.hash128(secret, data, bytes);
        ligi_hash128 other = ligi_hash128_keyed(secret, data, bytes);
        assert_true(wide.low == other.low && wide.high == other.high);
    }
    assert_true(ligi_hash64(secret, data, 100) != ligi_hash64_plain(data, 100));
}

/* Any length and alignment on both sides, over several pieces; nothing beside them is touched. */
static void copying_hashes_the_same(void **state)
{
    (void)state;
    enum { BYTES = 300000, EDGE = 128 };
    unsigned char secret[LIG_SECRET_BYTES], *from = malloc(BYTES), *to = malloc(BYTES + 2 * EDGE);
    srand(11);
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)rand();
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)rand();
    for (int round = 0; round < 300; round++) {
        size_t limit = round % 3 ? 200 : BYTES;
        size_t start = (size_t)rand() % 90, bytes = (size_t)rand() % (limit - start);
        unsigned char *at = to + EDGE + rand() % EDGE / 2;
        memset(to, 0xa5, BYTES + 2 * EDGE);
        uint64_t hash = ligi_hash64(secret, from + start, bytes);
        assert_true(hash == ligi_hash64_copy(secret, at, from + start, bytes));
        assert_true(hash == ligi_hash_sse2.hash64_copy(secret, at, from + start, bytes));
        assert_memory_equal(at, from + start, bytes);
        assert_true(at[-1] == 0xa5 && at[bytes] == 0xa5);
    }
    free(from);
    free(to);
}

/* XXH3's published value for the empty input: the hash on disk is the one other tools compute. */
static void plain_hash_is_xxh3(void **state)
{
    (void)state;
    assert_true(ligi_hash64_plain("", 0) == UINT64_C(0x2d06800538d394c2));
    ligi_hash128 empty = ligi_hash128_plain("", 0);
    assert_true(empty.high == UINT64_C(0x99aa06d3014798d8) &&
                empty.low == UINT64_C(0x6001c324468d497f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_again),
        cmocka_unit_test(kernels_agree),
        cmocka_unit_test(copying_hashes_the_same),
        cmocka_unit_test(plain_hash_is_xxh3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
