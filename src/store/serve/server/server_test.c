/* A server in this process, used through ligament:// by stores in this process. */
#include "base/test.h"

#include <ligament/serve.h>
#include <ligament/store.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct fixture {
    char folder[64], uri[128], address[256];
    lig_server *server;
    lig_store *store; /* remote */
} fixture;

static void start(fixture *self, const lig_server_options *options)
{
    assert_ok(lig_server_open(&self->server, self->uri, options));
    snprintf(self->address, sizeof self->address, "ligament://%s",
             lig_server_address(self->server));
}

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-server-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    snprintf(self->uri, sizeof self->uri, "file://%s/store", self->folder);
    start(self, NULL);
    assert_ok(lig_store_open(&self->store, self->address));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    char command[128];
    lig_store_close(self->store);
    lig_server_close(self->server);
    snprintf(command, sizeof command, "rm -r %s", self->folder);
    (void)!system(command);
    free(self);
    return 0;
}

static void fill(uint8_t *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(seed >> 56);
    }
}

static void save_bytes(lig_store *store, const char *name, size_t bytes, uint64_t seed)
{
    uint8_t *data = malloc(bytes);
    const int64_t shape[] = {(int64_t)bytes};
    lig_tensor tensor = {
        .name = "w", .data = data, .bytes = bytes, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    fill(data, bytes, seed);
    assert_ok(lig_store_save(store, name, &tensor, 1, NULL));
    free(data);
}

static void expect_bytes(lig_store *store, const char *name, size_t bytes, uint64_t seed)
{
    uint8_t *data = malloc(bytes), *wanted = malloc(bytes);
    const int64_t shape[] = {(int64_t)bytes};
    lig_tensor tensor = {
        .name = "w", .data = data, .bytes = bytes, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    assert_ok(lig_store_load(store, name, &tensor, 1));
    fill(wanted, bytes, seed);
    assert_memory_equal(data, wanted, bytes);
    free(data);
    free(wanted);
}

static void test_small_and_large(void **state)
{
    fixture *self = *state;
    lig_store_stats stats;
    save_bytes(self->store, "small", 1000, 1);
    save_bytes(self->store, "large", 30000000, 2);
    expect_bytes(self->store, "small", 1000, 1);
    expect_bytes(self->store, "large", 30000000, 2);
    assert_ok(lig_store_stat(self->store, &stats));
    assert_int_equal(stats.models, 2);
}

/* All workers note theirs in one place, so that a server's memory does not grow with them. */
static void test_time_stamps(void **state)
{
    fixture *self = *state;
    int64_t *stamps;
    size_t count;
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        save_bytes(self->store, name, 100, (uint64_t)i);
    }
    assert_ok(lig_store_time_stamps(self->store, "save", &stamps, &count));
    assert_int_equal(count, 80);
    for (size_t i = 0; i < count; i += 2)
        assert_true(stamps[i] <= stamps[i + 1]);
    lig_time_stamps_destroy(stamps);
    assert_ok(lig_store_clear_time_stamps(self->store, NULL));
    assert_ok(lig_store_time_stamps(self->store, "save", &stamps, &count));
    assert_int_equal(count, 0);
    lig_time_stamps_destroy(stamps);
}

static void *stop(void *context)
{
    fixture *self = context;
    assert_ok(lig_server_stop(self->server, INT64_C(60000000000)));
    return NULL;
}

/* A save that has begun is finished: its client offers and commits while the server stops. */
static void test_a_stop_waits_for_what_runs(void **state)
{
    fixture *self = *state;
    static uint8_t data[3000000];
    const int64_t shape[] = {sizeof data};
    const lig_tensor tensor = {
        .name = "w", .bytes = sizeof data, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    lig_save *save;
    lig_ticket *ticket;
    lig_store *other = NULL, *local;
    pthread_t stopping;
    fill(data, sizeof data, 5);
    assert_ok(lig_save_begin(&save, self->store, "last", &tensor, 1, NULL));
    assert_int_equal(pthread_create(&stopping, NULL, stop, self), 0);
    while (lig_store_open(&other, self->address) == LIG_OK) /* until it has begun to stop */
        lig_store_close(other);
    assert_ok(lig_save_offer(save, data, NULL));
    assert_ok(lig_save_commit(save, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    pthread_join(stopping, NULL);
    assert_ok(lig_store_open(&local, self->uri));
    expect_bytes(local, "last", sizeof data, 5);
    lig_store_close(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_small_and_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_time_stamps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_stop_waits_for_what_runs, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
