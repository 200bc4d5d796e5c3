#include "store/catalog/commit_event.h"

#include "base/test.h"

#include <stdlib.h>

static lig_event example(void)
{
    return (lig_event){.kind = LIG_EVENT_UPDATED, .model = 300, .name = "new", .other = "old"};
}

static void test_round_trip(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    lig_event event = example(), back = {.version = 7, .date_ns = 8};
    ligi_event_put(&writer, &event);
    assert_ok(writer.status);
    assert_ok(ligi_event_get(writer.data, writer.bytes, &back));
    assert_int_equal(back.kind, LIG_EVENT_UPDATED);
    assert_int_equal(back.model, 300);
    assert_string_equal(back.name, "new");
    assert_string_equal(back.other, "old");
    assert_int_equal(back.version, 7);
    assert_int_equal(back.date_ns, 8);
    writer.bytes = 0;
    event = (lig_event){.kind = LIG_EVENT_ALIAS};
    ligi_event_put(&writer, &event);
    assert_ok(ligi_event_get(writer.data, writer.bytes, &back));
    assert_string_equal(back.name, "");
    assert_string_equal(back.other, "");
    ligi_writer_fini(&writer);
}

/* The bytes themselves: programs of other versions read them. */
static void test_bytes(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {1, 5, 0xac, 2, 3, 'n', 'e', 'w', 0, 3, 'o', 'l', 'd', 0};
    ligi_writer writer = {0};
    lig_event event = example();
    ligi_event_put(&writer, &event);
    assert_int_equal(writer.bytes, sizeof wanted);
    assert_memory_equal(writer.data, wanted, sizeof wanted);
    ligi_writer_fini(&writer);
}

static void test_damage(void **state)
{
    (void)state;
    ligi_writer writer = {0};
    lig_event event = example(), back;
    ligi_event_put(&writer, &event);
    for (size_t i = 0; i < writer.bytes; i++) { /* a copy, so that a sanitizer sees its end */
        uint8_t *cut = malloc(i ? i : 1);
        memcpy(cut, writer.data, i);
        assert_status(ligi_event_get(cut, i, &back), LIG_E_CORRUPT);
        free(cut);
    }
    ligi_put_u8(&writer, 0);
    assert_status(ligi_event_get(writer.data, writer.bytes, &back), LIG_E_CORRUPT);
    writer.bytes--;
    const struct {
        size_t at;
        uint8_t value;
        lig_status status;
    } cases[] = {{0, 2, LIG_E_UNSUPPORTED},
                 {0, 0, LIG_E_CORRUPT},
                 {1, 6, LIG_E_UNSUPPORTED},
                 {1, 0, LIG_E_CORRUPT},
                 {8, 1, LIG_E_CORRUPT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t before = writer.data[cases[i].at];
        writer.data[cases[i].at] = cases[i].value;
        assert_status(ligi_event_get(writer.data, writer.bytes, &back), cases[i].status);
        writer.data[cases[i].at] = before;
    }
    ligi_writer_fini(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_bytes), cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
