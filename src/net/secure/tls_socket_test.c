/* Connections whose socket is full, has failed, or finds no memory. */
#include "net/secure/tls_socket.h"

#include <dlfcn.h>
#include <stdio.h>

#include "base/test.h"
#include "net/secure/tls_channel_testing.h"

/* Nobody in the middle: what one end does not read fills the other's socket. */
static void open_direct(scene *scene_)
{
    int pair[2];

    assert_ok(scene_open(scene_, SCENE_SECRET, "group"));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_true(dup2(pair[0], scene_->client.fd) >= 0 && dup2(pair[1], scene_->server.fd) >= 0);
    close(pair[0]);
    close(pair[1]);
    while (!scene_->client.done || !scene_->server.done) {
        scene_shake(&scene_->client);
        scene_shake(&scene_->server);
        assert_true(scene_->client.status == LIG_OK && scene_->server.status == LIG_OK);
    }
}

/* The peer is cut off while our socket is full: OpenSSL cannot send its alert, and would wait for
 * room for ever. */
static void test_failure_stays(void **state)
{
    uint8_t got[10], filler[4096] = {0};
    struct iovec out = {"four", 4}, in = {got, sizeof got};
    size_t some;
    scene scene_;

    (void)state;
    open_direct(&scene_);
    while (send(scene_.server.fd, filler, sizeof filler, MSG_DONTWAIT) > 0)
        ;
    while (send(scene_.server.fd, filler, 1, MSG_DONTWAIT) > 0)
        ;
    assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &some));
    shutdown(scene_.client.fd, SHUT_WR);
    assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
    assert_int_equal(some, 4); /* the data is delivered first */
    for (int i = 0; i < 3; i++) {
        assert_status(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some), LIG_E_PEER);
        assert_says("connection to the client was cut");
        assert_status(ligi_tls_channel_send(scene_.server.secure, &out, 1, &some), LIG_E_PEER);
        assert_status(ligi_tls_channel_flush(scene_.server.secure), LIG_E_PEER);
        assert_says("connection to the client was cut");
    }
    scene_close(&scene_);
}

/* A writer that fails still reads what the peer said before it went. */
static void test_reads_after_a_failed_send(void **state)
{
    uint8_t got[10];
    struct iovec out = {"four", 4}, in = {got, sizeof got};
    size_t some;
    scene scene_;

    (void)state;
    open_direct(&scene_);
    assert_ok(ligi_tls_channel_send(scene_.client.secure, &out, 1, &some));
    ligi_tls_channel_forget(scene_.client.secure);
    scene_.client.secure = NULL;
    close(scene_.client.fd);
    scene_.client.fd = -1;
    assert_status(ligi_tls_channel_send(scene_.server.secure, &out, 1, &some), LIG_E_PEER);
    assert_status(ligi_tls_channel_flush(scene_.server.secure), LIG_E_PEER);
    assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
    assert_int_equal(some, 4);
    assert_status(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some), LIG_E_PEER);
    scene_close(&scene_);
}

/* A direction of a stream that repeats `data`. */
typedef struct flow {
    ligi_tls_channel *from, *to;
    const uint8_t *data;
    size_t sent, received;
} flow;

#define FLOW_BYTES ((size_t)1 << 20)

static size_t flow_send(flow *flow_)
{
    size_t at = flow_->sent % FLOW_BYTES, taken;
    struct iovec out = {(void *)(flow_->data + at), FLOW_BYTES - at};

    assert_ok(ligi_tls_channel_send(flow_->from, &out, 1, &taken));
    flow_->sent += taken;
    return taken;
}

static size_t flow_receive(flow *flow_, uint8_t *got)
{
    size_t at = flow_->received % FLOW_BYTES, some;
    struct iovec in = {got, FLOW_BYTES - at};

    assert_ok(ligi_tls_channel_recv(flow_->to, &in, 1, &some));
    assert_memory_equal(got, flow_->data + at, some);
    flow_->received += some;
    return some;
}

/* Both ends change keys while both sockets are full: each still reads, and so empties the other's
 * socket. Whether a change falls on a full socket depends on the count of records: many are tried.
 */
static void test_changes_keys_on_full_sockets(void **state)
{
    uint8_t *data = malloc(FLOW_BYTES), *got = malloc(FLOW_BYTES);

    (void)state;
    assert_true(data != NULL && got != NULL);
    for (size_t i = 0; i < FLOW_BYTES; i++)
        data[i] = (uint8_t)(i * 31 + i / 251);
    for (uint64_t records = 1; records < 32; records++) {
        scene scene_;
        open_direct(&scene_);
        flow out = {scene_.client.secure, scene_.server.secure, data, 0, 0};
        flow back = {scene_.server.secure, scene_.client.secure, data, 0, 0};
        ligi_tls_channel_rekey_after(scene_.client.secure, records);
        ligi_tls_channel_rekey_after(scene_.server.secure, records);
        while (out.received < 2 * FLOW_BYTES || back.received < 2 * FLOW_BYTES) {
            size_t moved = flow_send(&out) + flow_send(&back);
            moved += flow_receive(&out, got) + flow_receive(&back, got);
            if (moved == 0)
                fail_msg("a key change after %d records stops both ends", (int)records);
        }
        scene_close(&scene_);
    }
    free(data);
    free(got);
}

/* A short write to a full socket is taken, and says that it waits. */
static void test_short_writes_on_a_full_socket(void **state)
{
    uint8_t *got = malloc(FLOW_BYTES);
    struct iovec ten = {"ten bytes.", 10};
    size_t taken = 1, all = 0, some;
    scene scene_;

    (void)state;
    assert_non_null(got);
    open_direct(&scene_);
    while (taken > 0) {
        assert_ok(ligi_tls_channel_send(scene_.client.secure, &ten, 1, &taken));
        all += taken;
    }
    assert_int_equal(ligi_tls_channel_unsent(scene_.client.secure), 1);
    for (size_t received = 0; received < all; received += some) {
        struct iovec in = {got, FLOW_BYTES};
        assert_ok(ligi_tls_channel_recv(scene_.server.secure, &in, 1, &some));
        if (some == 0)
            assert_int_equal(ligi_tls_channel_unsent(scene_.client.secure), 1);
        assert_ok(ligi_tls_channel_flush(scene_.client.secure));
    }
    assert_int_equal(ligi_tls_channel_unsent(scene_.client.secure), 0);
    free(got);
    scene_close(&scene_);
}

/* OpenSSL's allocations fail once this many have been made; -1: never. */
static long allocations_left = -1;

static int may_allocate(void)
{
    if (allocations_left > 0)
        allocations_left--;
    return allocations_left != 0;
}

static void *counted_malloc(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return may_allocate() ? malloc(bytes) : NULL;
}

static void *counted_realloc(void *old, size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return may_allocate() ? realloc(old, bytes) : NULL;
}

static void counted_free(void *old, const char *file, int line)
{
    (void)file;
    (void)line;
    free(old);
}

/* Only possible before OpenSSL's first allocation. */
static int intercept_openssl(void)
{
    void *crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    __typeof__(CRYPTO_set_mem_functions) *set = NULL;
    void *address = crypto != NULL ? dlsym(crypto, "CRYPTO_set_mem_functions") : NULL;

    memcpy(&set, &address, sizeof address);
    return set != NULL && set(counted_malloc, counted_realloc, counted_free) == 1;
}

/* Lack of memory is no wrong secret, where OpenSSL says that it lacks memory. */
static void test_out_of_memory(void **state)
{
    size_t short_of_memory = 0;
    int done = 0;

    (void)state;
    for (long count = 1; !done; count++) {
        scene scene_;
        assert_ok(scene_open(&scene_, SCENE_SECRET, "group"));
        scene_shake(&scene_.client);
        while (scene_relay(&scene_, 1) > 0)
            ;
        allocations_left = count;
        scene_shake(&scene_.server);
        done = allocations_left > 0;
        allocations_left = -1;
        short_of_memory += scene_.server.status == LIG_E_NOMEM &&
                           strstr(scene_.server.text, "secure connection to the client") != NULL;
        assert_null(strstr(scene_.server.text, "malloc failure"));
        scene_close(&scene_);
    }
    assert_true(short_of_memory > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failure_stays),
        cmocka_unit_test(test_reads_after_a_failed_send),
        cmocka_unit_test(test_changes_keys_on_full_sockets),
        cmocka_unit_test(test_short_writes_on_a_full_socket),
        cmocka_unit_test(test_out_of_memory),
    };
    int intercepted = intercept_openssl();
    const ligi_openssl *openssl;

    if (ligi_openssl_load(&openssl) != LIG_OK) {
        printf("skipped: %s\n", lig_error_text());
        return 0;
    }
    if (!intercepted) {
        printf("OpenSSL's allocations cannot be counted\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
