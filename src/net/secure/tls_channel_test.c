#include "net/secure/tls_channel.h"

#include <malloc.h>
#include <stdio.h>

#include "base/test.h"
#include "net/secure/tls_channel_testing.h"
#include "net/secure/tls_keys.h"

#define RECORD_MORE ((size_t)(5 + 1 + 16)) /* header, the type inside, tag */

static void open_met(scene *scene_)
{
    assert_ok(scene_open(scene_, SCENE_SECRET, "group"));
    scene_meet(scene_);
    if (!scene_->client.done || !scene_->server.done)
        fail_msg("not met: '%s' '%s'", scene_->client.text, scene_->server.text);
}

/* Sends as much as is taken, hands on, receives; until `bytes` have arrived. Steps of many sizes.
 */
static void carry(scene *scene_, int to_server, const uint8_t *data, size_t bytes)
{
    scene_end *from = to_server ? &scene_->client : &scene_->server;
    scene_end *to = to_server ? &scene_->server : &scene_->client;
    uint8_t *got = malloc(bytes + 1);
    size_t sent = 0, received = 0, step = 1;

    assert_non_null(got);
    while (received < bytes) {
        size_t part = step < bytes - sent ? step : bytes - sent, taken = 0, some;
        struct iovec out[3] = {{(void *)(data + sent), part / 3},
                               {(void *)(data + sent + part / 3), 0},
                               {(void *)(data + sent + part / 3), part - part / 3}};
        assert_ok(ligi_tls_channel_send(from->secure, out, 3, &taken));
        sent += taken;
        assert_ok(ligi_tls_channel_flush(from->secure));
        while (scene_relay(scene_, to_server) > 0)
            ;
        size_t room = bytes - received, first = room < step / 2 ? room : step / 2;
        struct iovec in[2] = {{got + received, first}, {got + received + first, room - first}};
        assert_ok(ligi_tls_channel_recv(to->secure, in, 2, &some));
        received += some;
        step = step * 7 % 300007 + 1;
    }
    assert_memory_equal(got, data, bytes);
    free(got);
}

static uint8_t *make_noise(size_t bytes)
{
    uint8_t *data = malloc(bytes);
    uint64_t x = 88172645463325252u;

    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (uint8_t)x;
    }
    return data;
}

static void test_carries_both_ways(void **state)
{
    static const size_t sizes[] = {1, 2, 5, 16383, 16384, 16385, 70000, 3000001};
    uint8_t *data = make_noise(3000001);
    scene scene_;

    (void)state;
    open_met(&scene_);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        carry(&scene_, 1, data, sizes[i]);
        carry(&scene_, 0, data, sizes[i]);
        assert_int_equal(ligi_tls_channel_unsent(scene_.client.secure), 0);
    }
    scene_close(&scene_);
    free(data);
}

static void test_changes_keys(void **state)
{
    uint8_t *data = make_noise(500000);
    scene scene_;

    (void)state;
    open_met(&scene_);
    ligi_tls_channel_rekey_after(scene_.client.secure, 3);
    ligi_tls_channel_rekey_after(scene_.server.secure, 1);
    carry(&scene_, 1, data, 500000);
    carry(&scene_, 0, data, 500000);
    scene_close(&scene_);
    free(data);
}

static void expect_denied(const scene_end *end)
{
    assert_int_equal(end->done, 0);
    assert_string_equal(lig_status_name(end->status), "denied");
    assert_non_null(strstr(end->text, "the same secret, the same group"));
}

static void test_refuses_another_secret_or_group(void **state)
{
    static const char *const tries[][2] = {
        {"0123456789abcdef0123456789abcdeF", "group"},
        {SCENE_SECRET "0", "group"},
        {SCENE_SECRET, "grouP"},
        {SCENE_SECRET, ""},
    };
    scene scene_;

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        assert_ok(scene_open(&scene_, tries[i][0], tries[i][1]));
        scene_meet(&scene_);
        expect_denied(&scene_.server);
        expect_denied(&scene_.client);
        scene_close(&scene_);
    }
}

static void test_refuses_bad_secrets(void **state)
{
    ligi_tls_keys *keys = NULL;
    char *group = calloc(1, 2000);

    (void)state;
    assert_status(ligi_tls_keys_open("short", 5, "group", &keys), LIG_E_INVALID);
    assert_says("5 bytes");
    memset(group, 'g', 1999);
    assert_status(ligi_tls_keys_open(SCENE_SECRET, 32, group, &keys), LIG_E_LIMIT);
    assert_null(keys);
    free(group);
    ligi_tls_keys_close(NULL);
    ligi_tls_channel_close(NULL);
}

/* Somebody recorded a client's words and says them again: the server answers with a fresh exchange,
 * for which the recorded end does not fit. */
static void test_refuses_a_replay(void **state)
{
    scene first, second;

    (void)state;
    open_met(&first);
    assert_ok(scene_open(&second, SCENE_SECRET, "group"));
    assert_true(send(second.server.relay, first.flight[0], first.flight_bytes[0], MSG_NOSIGNAL) >
                0);
    scene_shake(&second.server);
    assert_int_equal(second.server.done, 0);
    assert_true(second.server.status == LIG_OK || second.server.status == LIG_E_DENIED);
    shutdown(second.server.relay, SHUT_WR);
    scene_shake(&second.server);
    assert_int_equal(second.server.done, 0);
    assert_true(second.server.status != LIG_OK);
    scene_close(&first);
    scene_close(&second);
}

/* The same for a server's words: a client never takes a recorded server for a live one. */
static void test_refuses_a_replayed_server(void **state)
{
    scene first, second;

    (void)state;
    open_met(&first);
    assert_ok(scene_open(&second, SCENE_SECRET, "group"));
    scene_shake(&second.client);
    assert_true(send(second.client.relay, first.flight[1], first.flight_bytes[1], MSG_NOSIGNAL) >
                0);
    scene_shake(&second.client);
    assert_int_equal(second.client.done, 0);
    assert_string_equal(lig_status_name(second.client.status), "denied");
    scene_close(&first);
    scene_close(&second);
}

/* Every prefix of a good client's words, then nothing, then the end. */
static void test_cut_handshakes(void **state)
{
    scene first;

    (void)state;
    open_met(&first);
    for (size_t cut = 0; cut < first.flight_bytes[0]; cut += 1 + cut / 16) {
        scene second;
        assert_ok(scene_open(&second, SCENE_SECRET, "group"));
        (void)!send(second.server.relay, first.flight[0], cut, MSG_NOSIGNAL);
        scene_shake(&second.server);
        assert_int_equal(second.server.done, 0);
        shutdown(second.server.relay, SHUT_WR);
        scene_shake(&second.server);
        assert_int_equal(second.server.done, 0);
        assert_true(second.server.status == LIG_E_PEER || second.server.status == LIG_E_DENIED);
        scene_close(&second);
    }
    scene_close(&first);
}

static void test_refuses_what_is_no_tls(void **state)
{
    static const char *const words[] = {"GET / HTTP/1.1\r\n\r\n", "LIGA\1\0\0\0 hello, here I am",
                                        "\x16\x03\x01\xff\xff\x01", "\x17\x03\x03\x40\x01......"};
    scene scene_;

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_ok(scene_open(&scene_, SCENE_SECRET, "group"));
        (void)!send(scene_.server.relay, words[i], strlen(words[i]), MSG_NOSIGNAL);
        scene_shake(&scene_.server);
        assert_int_equal(scene_.server.done, 0);
        shutdown(scene_.server.relay, SHUT_WR);
        scene_shake(&scene_.server);
        assert_true(scene_.server.status == LIG_E_PEER || scene_.server.status == LIG_E_DENIED);
        scene_close(&scene_);
    }
}

/* The extension of that number in a ClientHello; NULL when it is not there. */
static const uint8_t *find_extension(const uint8_t *hello, size_t bytes, unsigned number,
                                     size_t *extension_bytes)
{
    size_t at = 5 + 4 + 2 + 32;
    at += 1 + (size_t)hello[at];
    at += 2 + ((size_t)hello[at] << 8 | hello[at + 1]);
    at += 1 + (size_t)hello[at];
    for (at += 2; at + 4 <= bytes;) {
        *extension_bytes = (size_t)hello[at + 2] << 8 | hello[at + 3];
        if (((unsigned)hello[at] << 8 | hello[at + 1]) == number)
            return hello + at + 4;
        at += 4 + *extension_bytes;
    }
    return NULL;
}

/* What is offered is what can be agreed on: TLS 1.3 alone, a key with an exchange alone, no early
 * data. */
static void test_offers_nothing_weaker(void **state)
{
    scene scene_;
    size_t bytes;

    (void)state;
    open_met(&scene_);
    const uint8_t *hello = scene_.flight[0];
    const uint8_t *versions = find_extension(hello, scene_.flight_bytes[0], 43, &bytes);
    assert_non_null(versions);
    assert_int_equal(bytes, 3);
    assert_memory_equal(versions, "\2\3\4", 3);
    const uint8_t *modes = find_extension(hello, scene_.flight_bytes[0], 45, &bytes);
    assert_non_null(modes);
    assert_int_equal(bytes, 2);
    assert_memory_equal(modes, "\1\1", 2);
    assert_null(find_extension(hello, scene_.flight_bytes[0], 42, &bytes));
    assert_null(find_extension(hello, scene_.flight_bytes[0], 35, &bytes));
    scene_close(&scene_);
}

/* One bit of any record changed on the way: the receiver says so, and no byte of that record is
 * told. */
static void test_finds_changed_bits(void **state)
{
    uint8_t *data = make_noise(1000), wire[2000], got[1000];
    struct iovec out = {data, 1000}, in = {got, sizeof got};
    size_t taken, some;

    (void)state;
    for (size_t at = 0; at < 1000 + RECORD_MORE; at += 1 + at / 4) {
        scene scene_;
        open_met(&scene_);
        assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &taken));
        ssize_t bytes = recv(scene_.client.relay, wire, sizeof wire, 0);
        assert_int_equal(bytes, 1000 + RECORD_MORE);
        wire[at] ^= 4;
        assert_int_equal(send(scene_.server.relay, wire, (size_t)bytes, 0), bytes);
        lig_status status = ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some);
        if (at == 3 || at == 4) /* its length: it may wait for more, which never comes */
            assert_true(status == LIG_E_CORRUPT || (status == LIG_OK && some == 0));
        else
            assert_status(status, LIG_E_CORRUPT);
        scene_close(&scene_);
    }
    free(data);
}

/* Records said twice, or in another order, are refused as well. */
static void test_finds_repeated_records(void **state)
{
    uint8_t wire[200], got[20];
    struct iovec out = {"ten bytes.", 10}, in = {got, sizeof got};
    size_t taken, some;
    scene scene_;

    (void)state;
    open_met(&scene_);
    assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &taken));
    ssize_t bytes = recv(scene_.client.relay, wire, sizeof wire, 0);
    assert_int_equal(send(scene_.server.relay, wire, (size_t)bytes, 0), bytes);
    assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
    assert_int_equal(some, 10);
    assert_int_equal(send(scene_.server.relay, wire, (size_t)bytes, 0), bytes);
    assert_status(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some), LIG_E_CORRUPT);
    scene_close(&scene_);
}

static void test_ends(void **state)
{
    uint8_t got[10];
    struct iovec out = {"four", 4}, in = {got, sizeof got};
    size_t some;
    scene scene_;

    (void)state;
    open_met(&scene_); /* goodbye: what was said before arrives first */
    assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &some));
    ligi_tls_channel_close(scene_.client.secure);
    scene_.client.secure = NULL;
    assert_true(scene_relay(&scene_, 1) > 0);
    assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
    assert_int_equal(some, 4);
    assert_status(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some), LIG_E_PEER);
    assert_says("the client closed");
    scene_close(&scene_);

    open_met(&scene_); /* no goodbye */
    shutdown(scene_.server.relay, SHUT_WR);
    assert_status(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some), LIG_E_PEER);
    assert_says("connection to the client was cut");
    close(scene_.server.relay);
    scene_.server.relay = -1;
    assert_status(ligi_tls_channel_send(scene_.server.secure, &out, 1, &some), LIG_E_PEER);
    scene_close(&scene_);
}

/* A peer that does not read: what is taken is bounded, and nothing is lost. */
static void test_full_socket(void **state)
{
    size_t bytes = 8 << 20, sent = 0, taken = 1, received = 0, some;
    uint8_t *data = make_noise(bytes), *got = malloc(bytes);
    scene scene_;

    (void)state;
    open_met(&scene_);
    while (taken > 0) {
        struct iovec out = {data + sent, bytes - sent};
        assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &taken));
        sent += taken;
    }
    assert_true(sent < 4 << 20);
    assert_int_equal(ligi_tls_channel_unsent(scene_.client.secure), 1);
    while (received < sent) {
        struct iovec in = {got + received, sent - received};
        assert_ok(ligi_tls_channel_flush(scene_.client.secure));
        scene_relay(&scene_, 1);
        assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
        received += some;
    }
    assert_memory_equal(got, data, sent);
    free(data);
    free(got);
    scene_close(&scene_);
}

/* Ten thousand that say nothing cost little more than their sockets. */
static void test_silence_is_cheap(void **state)
{
    enum { COUNT = 10000 };
    ligi_tls_channel **secures = calloc(COUNT, sizeof *secures);
    scene scene_;
    int done;

    (void)state;
    assert_ok(scene_open(&scene_, SCENE_SECRET, "group"));
    size_t before = mallinfo2().uordblks;
    for (size_t i = 0; i < COUNT; i++) {
        assert_ok(ligi_tls_channel_open(scene_.server.keys, scene_.server.fd, LIGI_SECURE_ACCEPT,
                                        "one", &secures[i]));
        assert_ok(ligi_tls_channel_handshake(secures[i], &done));
        assert_int_equal(done, 0);
    }
    size_t each = (mallinfo2().uordblks - before) / COUNT;
    if (each > 1024)
        fail_msg("a silent connection takes %zu bytes", each);
    for (size_t i = 0; i < COUNT; i++)
        ligi_tls_channel_close(secures[i]);
    free(secures);
    scene_close(&scene_);
}

static void test_not_before_the_handshake(void **state)
{
    struct iovec piece = {"x", 1};
    size_t some;
    scene scene_;

    (void)state;
    assert_ok(scene_open(&scene_, SCENE_SECRET, "group"));
    assert_status(ligi_tls_channel_send(scene_.client.secure, &piece, 1, &some), LIG_E_INTERNAL);
    assert_status(ligi_tls_channel_recv(scene_.client.secure, &piece, 1, &some), LIG_E_INTERNAL);
    scene_close(&scene_);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carries_both_ways),
        cmocka_unit_test(test_changes_keys),
        cmocka_unit_test(test_refuses_another_secret_or_group),
        cmocka_unit_test(test_refuses_bad_secrets),
        cmocka_unit_test(test_refuses_a_replay),
        cmocka_unit_test(test_refuses_a_replayed_server),
        cmocka_unit_test(test_cut_handshakes),
        cmocka_unit_test(test_refuses_what_is_no_tls),
        cmocka_unit_test(test_offers_nothing_weaker),
        cmocka_unit_test(test_finds_changed_bits),
        cmocka_unit_test(test_finds_repeated_records),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_full_socket),
        cmocka_unit_test(test_silence_is_cheap),
        cmocka_unit_test(test_not_before_the_handshake),
    };
    const ligi_openssl *openssl;

    if (ligi_openssl_load(&openssl) != LIG_OK) {
        printf("skipped: %s\n", lig_error_text());
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
