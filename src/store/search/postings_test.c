#include "base/test.h"
#include "store/search/postings.h"

#include <stdlib.h>

static void fill(ligi_bitmap *set, uint32_t percent)
{
    memset(set, 0, sizeof *set);
    for (uint32_t i = 0; i < LIGI_CHUNK_IDS; i++)
        if ((uint32_t)rand() % 100 < percent)
            ligi_bitmap_set(set, i, 1);
}

static void sets_come_back(void **state)
{
    (void)state;
    srand(1);
    static const uint32_t percents[] = {0, 1, 5, 6, 7, 50, 100};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        ligi_bitmap set, back;
        uint8_t data[LIGI_BITMAP_BYTES];
        fill(&set, percents[i]);
        size_t bytes = ligi_postings_put(&set, data);
        assert_true(bytes <= LIGI_BITMAP_BYTES);
        assert_ok(ligi_postings_get(&back, data, bytes));
        assert_memory_equal(&set, &back, sizeof set);
    }
}

static void hostile_sets_are_refused(void **state)
{
    (void)state;
    ligi_bitmap set;
    assert_status(ligi_postings_get(&set, "\x01", 1), LIG_E_CORRUPT);
    assert_status(ligi_postings_get(&set, "\x02\x00\x01\x00", 4), LIG_E_CORRUPT);
    assert_status(ligi_postings_get(&set, "\x02\x00\x02\x00", 4), LIG_E_CORRUPT);
    assert_status(ligi_postings_get(&set, "\x00\x10", 2), LIG_E_CORRUPT);
    assert_ok(ligi_postings_get(&set, "\xff\x0f", 2));
    assert_status(ligi_postings_get(&set, "", LIGI_BITMAP_BYTES + 2), LIG_E_CORRUPT);
}

static void tally_equals_counting(void **state)
{
    (void)state;
    srand(2);
    for (int round = 0; round < 40; round++) {
        static ligi_tally tally;
        static uint32_t counts[LIGI_CHUNK_IDS];
        memset(counts, 0, sizeof counts);
        ligi_tally_init(&tally);
        for (int sets = rand() % 80; sets > 0; sets--) {
            ligi_bitmap set;
            fill(&set, (uint32_t)rand() % 101);
            ligi_tally_add(&tally, &set);
            for (uint32_t i = 0; i < LIGI_CHUNK_IDS; i++)
                counts[i] += (uint32_t)ligi_bitmap_has(&set, i);
        }
        ligi_bitmap among, equal;
        fill(&among, (uint32_t)rand() % 101);
        uint32_t most = 0, asked = (uint32_t)rand() % 80;
        for (uint32_t i = 0; i < LIGI_CHUNK_IDS; i++)
            if (ligi_bitmap_has(&among, i) && counts[i] > most)
                most = counts[i];
        assert_int_equal(ligi_tally_most(&tally, &among), most);
        ligi_tally_equal(&tally, &among, asked, &equal);
        for (uint32_t i = 0; i < LIGI_CHUNK_IDS; i++)
            assert_int_equal(ligi_bitmap_has(&equal, i),
                             ligi_bitmap_has(&among, i) && counts[i] == asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_come_back),
        cmocka_unit_test(hostile_sets_are_refused),
        cmocka_unit_test(tally_equals_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
