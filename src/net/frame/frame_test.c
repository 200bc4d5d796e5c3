#include "base/test.h"
#include "net/frame/frame.h"

#include <stdlib.h>

static void prefixes(void **state)
{
    const ligi_frame_prefix cases[] = {
        {LIGI_KIND_HELLO, 0, 0}, {LIGI_KIND_DATA, 65536, UINT64_MAX}, {255, 1, 1}};
    uint8_t bytes[LIGI_PREFIX_BYTES];
    ligi_frame_prefix back;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_frame_prefix_encode(&cases[i], bytes);
        assert_ok(ligi_frame_prefix_decode(bytes, &back));
        assert_int_equal(back.kind, cases[i].kind);
        assert_int_equal(back.head_bytes, cases[i].head_bytes);
        assert_true(back.payload_bytes == cases[i].payload_bytes);
    }
    const uint8_t golden[] = {'L', 'G', 'N', 2, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 128};
    assert_ok(ligi_frame_prefix_decode(golden, &back));
    assert_int_equal(back.head_bytes, 3);
    assert_true(back.payload_bytes == (UINT64_C(1) << 63) + 256);
    memcpy(bytes, "GET / HTTP/1.1\r\n", sizeof bytes);
    assert_status(ligi_frame_prefix_decode(bytes, &back), LIG_E_CORRUPT);
}

static void hellos(void **state)
{
    ligi_hello hello = {.data = "module", .bytes = 6, .uid = 7, .pid = 8}, back = {0};
    ligi_writer writer = {0};
    uint32_t service;

    (void)state;
    memset(hello.boot_id, 1, sizeof hello.boot_id);
    memset(hello.net_id, 2, sizeof hello.net_id);
    ligi_hello_encode(&hello, LIGI_SERVICE_MESH, &writer);
    assert_ok(writer.status);
    assert_ok(ligi_hello_decode(writer.data, writer.bytes, &back, &service));
    assert_int_equal(service, LIGI_SERVICE_MESH);
    assert_int_equal(back.bytes, 6);
    assert_memory_equal(back.data, "module", 6);
    assert_memory_equal(back.boot_id, hello.boot_id, 16);
    assert_memory_equal(back.net_id, hello.net_id, 16);
    assert_int_equal(back.uid, 7);
    assert_int_equal(back.pid, 8);
    for (size_t bytes = 0; bytes < writer.bytes; bytes++) {
        /* A copy of that size alone, so that ASan sees a step beyond it. */
        uint8_t *cut = malloc(bytes + 1);
        memcpy(cut, writer.data, bytes);
        assert_status(ligi_hello_decode(cut, bytes, &back, &service), LIG_E_CORRUPT);
        free(cut);
    }
    writer.data[0] = LIGI_NET_VERSION + 1;
    assert_status(ligi_hello_decode(writer.data, writer.bytes, &back, &service), LIG_E_UNSUPPORTED);
    assert_says("the peer has version 2");
    ligi_writer_fini(&writer);
}

static void a_hello_holds_what_it_may(void **state)
{
    static uint8_t large[LIGI_HELLO_BYTES_MAX + 1];
    ligi_hello hello = {.data = large, .bytes = sizeof large}, back;
    ligi_writer writer = {0};
    uint32_t service;

    (void)state;
    ligi_hello_encode(&hello, 0, &writer);
    assert_status(ligi_hello_decode(writer.data, writer.bytes, &back, &service), LIG_E_CORRUPT);
    writer.bytes = 0;
    hello.bytes = LIGI_HELLO_BYTES_MAX;
    ligi_hello_encode(&hello, 0, &writer);
    assert_ok(ligi_hello_decode(writer.data, writer.bytes, &back, &service));
    assert_true(writer.bytes <= LIGI_HELLO_HEAD_MAX);
    ligi_writer_fini(&writer);
}

static void goodbyes(void **state)
{
    uint8_t bytes[LIGI_BYE_HEAD_MAX + 1];
    char text[LIGI_BYE_TEXT_MAX + 1], longer[2 * LIGI_BYE_TEXT_MAX];
    lig_status status;

    (void)state;
    size_t used = ligi_bye_encode(LIG_E_DENIED, "no entry", bytes);
    assert_ok(ligi_bye_decode(bytes, used, &status, text));
    assert_status(status, LIG_E_DENIED);
    assert_string_equal(text, "no entry");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    used = ligi_bye_encode(LIG_E_PEER, longer, bytes);
    assert_ok(ligi_bye_decode(bytes, used, &status, text));
    assert_int_equal(strlen(text), LIGI_BYE_TEXT_MAX);
    assert_status(ligi_bye_decode(bytes, sizeof bytes, &status, text), LIG_E_CORRUPT);
    assert_status(ligi_bye_decode(bytes, 3, &status, text), LIG_E_CORRUPT);
    /* A terminal is not at the peer's mercy, and neither is the enum. */
    memcpy(bytes, "\xff\xff\xff\xff\x1b[2J\xc3\x28", 10);
    assert_ok(ligi_bye_decode(bytes, 10, &status, text));
    assert_status(status, LIG_E_CLOSED);
    assert_string_equal(text, "?[2J?(");
    memset(bytes, 0, 4);
    assert_ok(ligi_bye_decode(bytes, 4, &status, text));
    assert_status(status, LIG_E_CLOSED);
}

static void cards(void **state)
{
    uint8_t bytes[LIGI_CARD_BYTES_MAX];
    size_t used = sizeof bytes;
    ligi_card card = {.count = 2, .addresses = {"shm:x", "tcp://10.0.0.1:7000"}}, back = {0};

    (void)state;
    card.boot_id[3] = 9;
    assert_ok(ligi_card_encode(&card, bytes, &used));
    assert_ok(ligi_card_decode(bytes, used, &back));
    assert_int_equal(back.count, 2);
    assert_string_equal(back.addresses[1], "tcp://10.0.0.1:7000");
    assert_memory_equal(back.boot_id, card.boot_id, 16);
    for (size_t cut = 0; cut < used; cut++)
        assert_status(ligi_card_decode(bytes, cut, &back), LIG_E_CORRUPT);
    size_t small = 20;
    assert_status(ligi_card_encode(&card, bytes, &small), LIG_E_LIMIT);
    bytes[36] = 200; /* the count */
    assert_status(ligi_card_decode(bytes, used, &back), LIG_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes),
        cmocka_unit_test(hellos),
        cmocka_unit_test(a_hello_holds_what_it_may),
        cmocka_unit_test(goodbyes),
        cmocka_unit_test(cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
