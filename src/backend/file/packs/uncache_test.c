#include "backend/file/packs/uncache.h"

#include "base/test.h"

#include <stdlib.h>

#define MS INT64_C(1000000)

static void begins_and_ends(void **state)
{
    static const struct {
        ligi_uncaching now;
        ligi_uncaching_times times; /* waited, landed, uncached */
        ligi_uncaching next;
    } cases[] = {
        {LIGI_UNCACHING_NOT_YET, {0, 0, 0}, LIGI_UNCACHING_NOT_YET},
        /* The disk has to keep us waiting for 5 ms, and for twice as long as we copy. */
        {LIGI_UNCACHING_NOT_YET, {5 * MS, 0, 0}, LIGI_UNCACHING_NOT_YET},
        {LIGI_UNCACHING_NOT_YET, {5 * MS + 1, 0, 0}, LIGI_UNCACHING},
        {LIGI_UNCACHING_NOT_YET, {205 * MS, 100 * MS, 0}, LIGI_UNCACHING_NOT_YET},
        {LIGI_UNCACHING_NOT_YET, {205 * MS + 1, 100 * MS, 0}, LIGI_UNCACHING},
        {LIGI_UNCACHING_NOT_YET, {90 * MS, 100 * MS, 0}, LIGI_UNCACHING_NOT_YET},
        /* It may take half of what the copying takes, and 1.25 ms. */
        {LIGI_UNCACHING, {0, 0, 0}, LIGI_UNCACHING},
        {LIGI_UNCACHING, {0, 100 * MS, 20 * MS}, LIGI_UNCACHING}, /* a fifth */
        {LIGI_UNCACHING, {0, 100 * MS, 50 * MS + 1250000}, LIGI_UNCACHING},
        {LIGI_UNCACHING, {0, 100 * MS, 50 * MS + 1250001}, LIGI_UNCACHING_OVER},
        {LIGI_UNCACHING, {0, 0, 1250000}, LIGI_UNCACHING},
        {LIGI_UNCACHING, {0, 0, 1250001}, LIGI_UNCACHING_OVER},
        {LIGI_UNCACHING, {900 * MS, MS, 10 * MS}, LIGI_UNCACHING_OVER}, /* ten times */
        /* Then it is over, whatever comes. */
        {LIGI_UNCACHING_OVER, {0, 0, 0}, LIGI_UNCACHING_OVER},
        {LIGI_UNCACHING_OVER, {900 * MS, MS, 0}, LIGI_UNCACHING_OVER},
        {LIGI_UNCACHING_OVER, {900 * MS, 900 * MS, 10 * MS}, LIGI_UNCACHING_OVER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ligi_uncaching_next(cases[i].now, &cases[i].times) != cases[i].next)
            fail_msg("case %zu", i);
}

/* Leaf 7's ebx as processors have it. */
static void processors(void **state)
{
    static const struct {
        uint32_t ebx;
        ligi_flush how;
    } cases[] = {
        {0, LIGI_FLUSH_IN_ORDER},          /* no such leaf */
        {0x00000281, LIGI_FLUSH_IN_ORDER}, /* Ivy Bridge */
        {0x000037ab, LIGI_FLUSH_IN_ORDER}, /* Haswell */
        {0x029c6fbf, LIGI_FLUSH_FREELY},   /* Skylake */
        {0x00800000, LIGI_FLUSH_FREELY},
        {~UINT32_C(0x00800000), LIGI_FLUSH_IN_ORDER}, /* clwb, bit 24, is another */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ligi_flush_of(cases[i].ebx) != cases[i].how)
            fail_msg("case %zu", i);
}

/* In every way that the processor has, the older ones too. */
static void bytes_stay(void **state)
{
    enum { BYTES = 1 << 16 };
    uint8_t *bytes = aligned_alloc(64, BYTES);

    (void)state;
    assert_non_null(bytes);
    for (ligi_flush how = LIGI_FLUSH_NONE; how <= ligi_flush_here(); how++) {
        for (size_t i = 0; i < BYTES; i++)
            bytes[i] = (uint8_t)(i * 7 + how);
        ligi_flush_lines(how, bytes, BYTES);
        for (size_t i = 0; i < BYTES; i++)
            if (bytes[i] != (uint8_t)(i * 7 + how))
                fail_msg("byte %zu, way %d", i, (int)how);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_and_ends),
        cmocka_unit_test(processors),
        cmocka_unit_test(bytes_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
