/* Our record layer against OpenSSL's, with every engine: one end of a connection is ours, the other
 * is all OpenSSL. */
#include "net/secure/tls_record.h"

#include <dlfcn.h>
#include <stdio.h>

#include "base/test.h"
#include "net/secure/tls_channel_testing.h"
#include "net/secure/tls_handshake.h"

static ligi_openssl openssl;
static ligi_gcm_set set;
static const ligi_gcm *engine; /* ours */

/* What the library itself does not use of OpenSSL. */
static struct {
    int (*SSL_read_ex)(SSL *ssl, void *data, size_t bytes, size_t *got);
    int (*SSL_write_ex)(SSL *ssl, const void *data, size_t bytes, size_t *written);
    int (*SSL_key_update)(SSL *ssl, int kind);
    int (*SSL_shutdown)(SSL *ssl);
} more;

static int find_more(void)
{
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    void *found[4] = {NULL};
    static const char *const names[4] = {"SSL_read_ex", "SSL_write_ex", "SSL_key_update",
                                         "SSL_shutdown"};
    for (size_t i = 0; i < 4 && library != NULL; i++)
        found[i] = dlsym(library, names[i]);
    memcpy(&more, found, sizeof more);
    return found[3] != NULL;
}

/* The ends: ours is the client, OpenSSL's the server (its handshake is never turned into records of
 * ours). */
typedef struct mixed {
    scene_end ours;
    ligi_tls_keys *keys;
    ligi_tls_handshake theirs;
    const ligi_openssl *openssl;
} mixed;

/* Between our socket's other end and their ring. */
static size_t pump(mixed *mixed_)
{
    char *data;
    size_t moved = 0;
    int bytes = mixed_->openssl->BIO_nread0(mixed_->theirs.wire, &data);

    if (bytes > 0) {
        ssize_t sent = send(mixed_->ours.relay, data, (size_t)bytes, MSG_DONTWAIT);
        if (sent > 0)
            moved += (size_t)mixed_->openssl->BIO_nread(mixed_->theirs.wire, &data, (int)sent);
    }
    bytes = mixed_->openssl->BIO_nwrite0(mixed_->theirs.wire, &data);
    if (bytes > 0) {
        ssize_t got = recv(mixed_->ours.relay, data, (size_t)bytes, MSG_DONTWAIT);
        if (got > 0)
            moved += (size_t)mixed_->openssl->BIO_nwrite(mixed_->theirs.wire, &data, (int)got);
    }
    return moved;
}

static void mixed_open(mixed *mixed_)
{
    int done = 0;

    memset(mixed_, 0, sizeof *mixed_);
    assert_ok(scene_end_open(&mixed_->ours, LIGI_SECURE_CONNECT, SCENE_SECRET, "group"));
    assert_ok(ligi_tls_keys_open(SCENE_SECRET, strlen(SCENE_SECRET), "group", &mixed_->keys));
    mixed_->openssl = ligi_tls_keys_openssl(mixed_->keys);
    assert_ok(ligi_tls_handshake_init(&mixed_->theirs, mixed_->keys, LIGI_SECURE_ACCEPT));
    while (!done || !mixed_->ours.done) {
        scene_shake(&mixed_->ours);
        pump(mixed_);
        if (!done)
            assert_ok(ligi_tls_handshake_step(&mixed_->theirs, "ours", &done));
        pump(mixed_);
        assert_ok(mixed_->ours.status);
    }
}

static void mixed_close(mixed *mixed_)
{
    ligi_tls_handshake_fini(&mixed_->theirs);
    ligi_tls_keys_close(mixed_->keys);
    scene_end_close(&mixed_->ours);
}

static void to_them(mixed *mixed_, const uint8_t *data, size_t bytes)
{
    uint8_t *got = malloc(bytes);
    size_t sent = 0, received = 0, taken, some;

    assert_non_null(got);
    while (received < bytes) {
        struct iovec out = {(void *)(data + sent), bytes - sent};
        assert_ok(ligi_tls_channel_send(mixed_->ours.secure, &out, 1, &taken));
        sent += taken;
        pump(mixed_);
        int result;
        while ((result = more.SSL_read_ex(mixed_->theirs.ssl, got + received, bytes - received,
                                          &some)) == 1)
            received += some;
        if (received < bytes)
            assert_int_equal(mixed_->openssl->SSL_get_error(mixed_->theirs.ssl, result),
                             SSL_ERROR_WANT_READ);
    }
    assert_memory_equal(got, data, bytes);
    free(got);
}

static void from_them(mixed *mixed_, const uint8_t *data, size_t bytes)
{
    uint8_t *got = malloc(bytes);
    size_t sent = 0, received = 0, some;

    assert_non_null(got);
    while (received < bytes) {
        /* A write that found no room is to be made again with the same bytes. */
        size_t part = bytes - sent < 5000 ? bytes - sent : 5000;
        if (part > 0 && more.SSL_write_ex(mixed_->theirs.ssl, data + sent, part, &some) == 1)
            sent += some;
        pump(mixed_);
        struct iovec in = {got + received, bytes - received};
        assert_ok(ligi_tls_channel_recv(mixed_->ours.secure, &in, 1, &some));
        received += some;
    }
    assert_memory_equal(got, data, bytes);
    free(got);
}

static uint8_t pattern[300000];

static void test_speaks_with_openssl(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 16383, 16384, 16385, 300000};
    mixed mixed_;

    (void)state;
    mixed_open(&mixed_);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        to_them(&mixed_, pattern, sizes[i]);
        from_them(&mixed_, pattern, sizes[i]);
    }
    mixed_close(&mixed_);
}

static void test_changes_keys_with_openssl(void **state)
{
    mixed mixed_;

    (void)state;
    mixed_open(&mixed_);
    ligi_tls_channel_rekey_after(mixed_.ours.secure, 40000);
    to_them(&mixed_, pattern, sizeof pattern);
    for (int requested = 0; requested < 2; requested++) { /* theirs; then theirs and ours */
        assert_int_equal(more.SSL_key_update(mixed_.theirs.ssl, requested), 1);
        from_them(&mixed_, pattern, 20000);
        to_them(&mixed_, pattern, 20000);
        to_them(&mixed_, pattern, 20000);
    }
    mixed_close(&mixed_);
}

static void test_goodbyes_of_openssl(void **state)
{
    uint8_t byte;
    struct iovec in = {&byte, 1};
    size_t some;
    mixed mixed_;

    (void)state;
    mixed_open(&mixed_);
    more.SSL_shutdown(mixed_.theirs.ssl);
    pump(&mixed_);
    assert_status(ligi_tls_channel_recv(mixed_.ours.secure, &in, 1, &some), LIG_E_PEER);
    assert_says("closed the connection");
    mixed_close(&mixed_);

    mixed_open(&mixed_);
    ligi_tls_channel_close(mixed_.ours.secure);
    mixed_.ours.secure = NULL;
    pump(&mixed_);
    int result = more.SSL_read_ex(mixed_.theirs.ssl, &byte, 1, &some);
    assert_int_equal(mixed_.openssl->SSL_get_error(mixed_.theirs.ssl, result), 6); /* ZERO_RETURN */
    mixed_close(&mixed_);
}

static void test_lengths(void **state)
{
    size_t bytes;

    (void)state;
    assert_ok(ligi_tls_length((const uint8_t *)"\x17\x03\x03\x00\x11", &bytes));
    assert_int_equal(bytes, 22);
    assert_int_equal(ligi_tls_data_bytes(bytes), 0);
    assert_ok(ligi_tls_length((const uint8_t *)"\x17\x03\x03\x40\x11", &bytes));
    assert_int_equal(ligi_tls_data_bytes(bytes), LIGI_TLS_DATA_MAX);
    assert_status(ligi_tls_length((const uint8_t *)"\x17\x03\x03\x40\x12", &bytes), LIG_E_CORRUPT);
    assert_status(ligi_tls_length((const uint8_t *)"\x17\x03\x03\x00\x10", &bytes), LIG_E_CORRUPT);
    assert_status(ligi_tls_length((const uint8_t *)"\x17\x03\x02\x01\x00", &bytes), LIG_E_CORRUPT);
    assert_status(ligi_tls_length((const uint8_t *)"\x16\x03\x03\x01\x00", &bytes), LIG_E_CORRUPT);
}

/* Every length goes there and back, across changes of keys; a flipped bit does not. */
static void test_there_and_back(void **state)
{
    static uint8_t record[LIGI_TLS_MAX], back[LIGI_TLS_DATA_MAX];
    uint8_t secret[LIGI_TLS_SECRET] = {7};
    ligi_tls_key seals = {0}, opens = {0};
    size_t bytes;
    int type;

    (void)state;
    assert_ok(ligi_tls_key_init(engine, &seals, secret, 1));
    assert_ok(ligi_tls_key_init(engine, &opens, secret, 0));
    for (size_t i = 0; i < 60; i++) {
        size_t data = i * i * 31 % (LIGI_TLS_DATA_MAX + 1);
        assert_ok(ligi_tls_seal(&seals, LIGI_TLS_DATA, pattern, data, record));
        assert_ok(ligi_tls_length(record, &bytes));
        assert_int_equal(bytes, data + LIGI_TLS_MORE);
        assert_ok(ligi_tls_open(&opens, record, bytes, back, &type));
        assert_int_equal(type, LIGI_TLS_DATA);
        assert_memory_equal(back, pattern, data);
        if (i % 10 == 9) {
            assert_ok(ligi_tls_key_next(&seals));
            assert_ok(ligi_tls_key_next(&opens));
        }
    }
    assert_ok(ligi_tls_seal(&seals, LIGI_TLS_DATA, pattern, 100, record));
    record[7] ^= 1;
    assert_status(ligi_tls_open(&opens, record, 100 + LIGI_TLS_MORE, back, &type), LIG_E_CORRUPT);
    ligi_tls_key_fini(&seals);
    ligi_tls_key_fini(&opens);
}

/* RFC 8448, section 3: the client's traffic secret and its first record of data. */
static void test_published_record(void **state)
{
    static const uint8_t secret[LIGI_TLS_SECRET] = {0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d,
                                                    0xc0, 0x5a, 0xf8, 0x88, 0x9b, 0xce, 0x65, 0x52,
                                                    0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf, 0x00, 0x87,
                                                    0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5};
    static const uint8_t record[] = {
        0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa,
        0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc,
        0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20,
        0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
        0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4};
    uint8_t data[50], made[sizeof record], back[sizeof data];
    ligi_tls_key seals = {0}, opens = {0};
    int type;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    assert_ok(ligi_tls_key_init(engine, &seals, secret, 1));
    assert_ok(ligi_tls_key_init(engine, &opens, secret, 0));
    assert_ok(ligi_tls_seal(&seals, LIGI_TLS_DATA, data, sizeof data, made));
    assert_memory_equal(made, record, sizeof record);
    assert_ok(ligi_tls_open(&opens, record, sizeof record, back, &type));
    assert_int_equal(type, LIGI_TLS_DATA);
    assert_memory_equal(back, data, sizeof data);
    ligi_tls_key_fini(&seals);
    ligi_tls_key_fini(&opens);
}

/* A record of an old key after its change, one that was cut and put together again, one for the
 * second time, and one out of turn are alike: not the peer's. */
static void test_refuses_other_records(void **state)
{
    static uint8_t records[3][LIGI_TLS_MAX], back[LIGI_TLS_DATA_MAX];
    const uint8_t secret[LIGI_TLS_SECRET] = {9};
    ligi_tls_key seals = {0}, opens = {0};
    int type;

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        size_t bytes = 700;
        assert_ok(ligi_tls_key_init(engine, &seals, secret, 1));
        assert_ok(ligi_tls_key_init(engine, &opens, secret, 0));
        for (size_t i = 0; i < 3; i++)
            assert_ok(ligi_tls_seal(&seals, LIGI_TLS_DATA, pattern + i, bytes, records[i]));
        assert_ok(ligi_tls_open(&opens, records[0], bytes + LIGI_TLS_MORE, back, &type));
        const uint8_t *wrong = records[kind == 2 ? 0 : kind == 3 ? 2 : 1];
        if (kind == 0)
            assert_ok(ligi_tls_key_next(&opens));
        if (kind == 1) {
            bytes--;
            records[1][4]--; /* its length; the low byte is not 0 */
            memmove(records[1] + 300, records[1] + 301, bytes + LIGI_TLS_MORE - 300);
        }
        assert_status(ligi_tls_open(&opens, wrong, bytes + LIGI_TLS_MORE, back, &type),
                      LIG_E_CORRUPT);
        ligi_tls_key_fini(&seals);
        ligi_tls_key_fini(&opens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speaks_with_openssl),
        cmocka_unit_test(test_changes_keys_with_openssl),
        cmocka_unit_test(test_goodbyes_of_openssl),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_published_record),
        cmocka_unit_test(test_refuses_other_records),
    };
    static const char *const names[] = {"openssl", "ipsec-mb"};
    int failed = 0;

    if (ligi_openssl_load(&openssl) != LIG_OK || !find_more()) {
        printf("skipped: %s\n", lig_error_text());
        return 0;
    }
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 2654435761u >> 13);
    ligi_gcm_set_init(&set, &openssl);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scene_engines[LIGI_SECURE_CONNECT] = names[i];
        if (ligi_gcm_choose(&set, names[i], &engine) == LIG_OK)
            failed += cmocka_run_group_tests_name(names[i], tests, NULL, NULL);
        else
            printf("left out: %s\n", lig_error_text());
    }
    return failed;
}
