/* Reads whose connection ends in the middle of a reply. */
#include "store_scene.h"

#include <ligament/serve.h>

#include <arpa/inet.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 3 << 18, CUT = 1 << 20, STEP = 1 << 16 };

static float data[COUNT], back[COUNT];
static int64_t length = COUNT;

/* Passes the bytes of one connection at a time on to the server. */
typedef struct relay {
    char folder[64];
    lig_server *server;
    struct sockaddr_in to;
    int listening;
    pthread_t thread;
    atomic_int connections, cuts; /* the first ones end after CUT bytes of the server */
    char address[64];
} relay;

static int pass(int from, int to, uint8_t *bytes, size_t most, size_t *passed)
{
    ssize_t got = recv(from, bytes, most, 0);
    if (got <= 0)
        return 0;
    for (ssize_t at = 0; at < got;) {
        ssize_t sent = send(to, bytes + at, (size_t)(got - at), MSG_NOSIGNAL);
        if (sent <= 0)
            return 0;
        at += sent;
    }
    *passed += (size_t)got;
    return 1;
}

/* The client gets all bytes that were passed on: it closes the connection first. */
static void cut_off(int client, uint8_t *bytes)
{
    shutdown(client, SHUT_WR);
    while (recv(client, bytes, STEP, 0) > 0)
        ;
}

static void pump(int client, int server, size_t most)
{
    static uint8_t bytes[STEP];
    struct pollfd both[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    size_t up = 0, down = 0;
    int more = 1;
    while (more && down < most && poll(both, 2, -1) > 0) {
        size_t left = most - down;
        if (both[0].revents)
            more = pass(client, server, bytes, STEP, &up);
        if (more && both[1].revents)
            more = pass(server, client, bytes, left < STEP ? left : STEP, &down);
    }
    if (more)
        cut_off(client, bytes);
}

static void *run(void *context)
{
    relay *self = context;
    int client;
    while ((client = accept(self->listening, NULL, NULL)) >= 0) {
        int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int number = atomic_fetch_add(&self->connections, 1);
        if (connect(server, (struct sockaddr *)&self->to, sizeof self->to) == 0)
            pump(client, server, number < self->cuts ? CUT : SIZE_MAX);
        close(client);
        close(server);
    }
    return NULL;
}

static int setup(void **state)
{
    relay *self = calloc(1, sizeof *self);
    lig_server_options options = LIG_SERVER_INIT;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    char place[128], uri[128];
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-read-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    snprintf(place, sizeof place, "file://%s/store", self->folder);
    options.listen = "127.0.0.1:0";
    assert_ok(lig_server_open(&self->server, place, &options));
    const char *address = lig_server_address(self->server);
    self->to = own;
    self->to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    self->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(self->listening, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(listen(self->listening, 8), 0);
    assert_int_equal(getsockname(self->listening, (struct sockaddr *)&own, &bytes), 0);
    snprintf(self->address, sizeof self->address, "127.0.0.1:%d", ntohs(own.sin_port));
    assert_int_equal(pthread_create(&self->thread, NULL, run, self), 0);
    scene_fill(data, sizeof data, 3);
    snprintf(uri, sizeof uri, "ligament://%s", address);
    lig_store *store = NULL;
    lig_tensor one = scene_tensor("w", data, &length);
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_save(store, "m", &one, 1, NULL));
    lig_store_close(store);
    *state = self;
    return 0;
}

static int teardown(void **state)
{
    relay *self = *state;
    char command[128];
    shutdown(self->listening, SHUT_RDWR);
    pthread_join(self->thread, NULL);
    close(self->listening);
    lig_server_close(self->server);
    snprintf(command, sizeof command, "rm -rf '%s'", self->folder);
    int failed = system(command);
    free(self);
    return failed;
}

static lig_status load(relay *self, int cuts, int retry)
{
    char uri[128];
    lig_store *store = NULL;
    lig_tensor one = scene_tensor("w", back, &length);
    self->cuts = cuts;
    snprintf(uri, sizeof uri, "ligament://%s?transport=tcp&retry=%d", self->address, retry);
    assert_ok(lig_store_open(&store, uri));
    lig_status status = lig_store_load(store, "m", &one, 1);
    lig_store_close(store);
    return status;
}

/* The part that has arrived is received once more. */
static void test_cut(void **state)
{
    relay *self = *state;
    assert_ok(load(self, 2, 30));
    assert_memory_equal(back, data, sizeof data);
    assert_int_equal(self->connections, 3);
}

/* A request that loses every connection ends, although the server can be reached at any time. */
static void test_always_cut(void **state)
{
    assert_fails(load(*state, INT_MAX, 1), LIG_E_PEER);
    assert_non_null(strstr(lig_error_text(), "(tried for 1 s)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_always_cut, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
