#include "base/test.h"
#include "mesh/device/free_spans.h"

#include <stdlib.h>
#include <string.h>

enum { UNITS = 64 };

static void test_spans_join_again(void **unused)
{
    (void)unused;
    ligi_free_spans free_spans;
    ligi_span spans[4], whole;
    int found;
    assert_ok(ligi_free_spans_init(&free_spans, 4 * LIGI_SPAN_ALIGNMENT));
    for (int i = 0; i < 4; i++) {
        assert_ok(ligi_free_spans_take(&free_spans, 1, &spans[i], &found));
        assert_true(found && spans[i].offset == (uint64_t)i * LIGI_SPAN_ALIGNMENT);
    }
    assert_ok(ligi_free_spans_take(&free_spans, 1, &whole, &found));
    assert_false(found);
    static const int order[] = {0, 2, 3, 1};
    for (int i = 0; i < 4; i++)
        ligi_free_spans_give(&free_spans, spans[order[i]]);
    assert_ok(ligi_free_spans_take(&free_spans, 4 * LIGI_SPAN_ALIGNMENT, &whole, &found));
    assert_true(found && whole.offset == 0);
    assert_ok(ligi_free_spans_take(&free_spans, UINT64_MAX, &whole, &found));
    assert_false(found);
    ligi_free_spans_fini(&free_spans);
}

/* Against a map of units. */
static void test_random(void **unused)
{
    (void)unused;
    ligi_free_spans free_spans;
    uint8_t used[UNITS] = {0};
    ligi_span taken[UNITS];
    size_t count = 0;
    srand(5);
    assert_ok(ligi_free_spans_init(&free_spans, UNITS * LIGI_SPAN_ALIGNMENT));
    for (int round = 0; round < 20000; round++) {
        ligi_span span;
        int found;
        if (rand() % 2) {
            uint64_t bytes = (uint64_t)(rand() % (int)(8 * LIGI_SPAN_ALIGNMENT));
            uint64_t units = (bytes + LIGI_SPAN_ALIGNMENT - 1) / LIGI_SPAN_ALIGNMENT;
            units += units == 0;
            assert_ok(ligi_free_spans_take(&free_spans, bytes, &span, &found));
            uint64_t run = 0, first = 0;
            for (uint64_t i = 0; i < UNITS && run < units; i++) {
                run = used[i] ? 0 : run + 1;
                first = i + 1 - run;
            }
            assert_int_equal(found, run >= units);
            if (!found)
                continue;
            assert_int_equal(span.offset, first * LIGI_SPAN_ALIGNMENT);
            memset(used + first, 1, units);
            taken[count++] = span;
        } else if (count > 0) {
            size_t i = (size_t)rand() % count;
            span = taken[i];
            taken[i] = taken[--count];
            memset(used + span.offset / LIGI_SPAN_ALIGNMENT, 0, span.bytes / LIGI_SPAN_ALIGNMENT);
            ligi_free_spans_give(&free_spans, span);
        }
    }
    ligi_free_spans_fini(&free_spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans_join_again),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
