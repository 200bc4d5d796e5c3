/* Small saves in groups: each is answered after the sync that makes it durable, and with its
 * outcome. */
#include "backend/registry.h"
#include "base/clock.h"
#include "file_volume.h"
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_save.h"
#include "store/serve/server/server_raw_testing.h"

#include <ligament/serve.h>
#include <ligament/store.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { CLIENTS = 12 };

/* The file volume, with a gate before its syncs and one before its lock. */
static const lig_volume_ops *file;
static pthread_mutex_t sync_gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_int at_gate, syncs, failing; /* syncs: those that have passed the gate */
static atomic_int locks_left;              /* so many succeed, then the catalog is locked */
static atomic_int lockers;                 /* threads that have found it locked */
static _Thread_local int has_waited;

static lig_status gated_sync(void *self, lig_catalog_pending *pending)
{
    at_gate++;
    pthread_mutex_lock(&sync_gate);
    pthread_mutex_unlock(&sync_gate);
    syncs++;
    lig_status status = file->catalog_sync(self, pending);
    return failing ? lig_fail(LIG_E_IO, "the disk is broken") : status;
}

static lig_status gated_lock(void *self, int64_t timeout_ns)
{
    if (atomic_fetch_sub(&locks_left, 1) > 0)
        return file->catalog_lock(self, timeout_ns);
    atomic_fetch_add(&locks_left, 1);
    lockers += !has_waited;
    has_waited = 1;
    sched_yield();
    return lig_fail(LIG_E_TIMEOUT, "process 1 holds the lock");
}

typedef struct fixture {
    char folder[64];
    lig_server *server;
    raw_client clients[CLIENTS];
} fixture;

static void open_server(fixture *self, uint32_t workers)
{
    char uri[128];
    lig_server_options options = LIG_SERVER_INIT;
    options.workers = workers;
    locks_left = 1000;
    at_gate = syncs = failing = lockers = 0;
    snprintf(uri, sizeof uri, "grouped:%s/store", self->folder);
    assert_ok(lig_server_open(&self->server, uri, &options));
    for (int i = 0; i < CLIENTS; i++)
        raw_open(&self->clients[i], lig_server_address(self->server), (uint8_t)(i + 1));
}

static int register_volume(void **state)
{
    static lig_volume_ops volume;
    static lig_backend_ops backend;
    (void)state;
    file = lig_backend_find("file")->volume;
    volume = *file;
    volume.catalog_sync = gated_sync;
    volume.catalog_lock = gated_lock;
    backend = *lig_backend_find("file");
    backend.volume = &volume;
    assert_ok(ligi_backend_register("grouped", &backend));
    return 0;
}

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-group-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    (void)pthread_mutex_trylock(&sync_gate); /* a test that fails leaves it closed */
    pthread_mutex_unlock(&sync_gate);
    locks_left = 1000;
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&self->clients[i]);
    lig_server_close(self->server);
    nftw(self->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(self);
    return 0;
}

static uint64_t send_save(raw_client *client, const char *name)
{
    const int64_t shape[] = {4};
    const lig_tensor tensor = {
        .name = "w", .bytes = 4, .shape = shape, .ndim = 1, .dtype = LIG_UINT8};
    const ligi_served_save what = {.name = name,
                                   .wants = LIGI_SERVED_WHOLE,
                                   .meta = "",
                                   .structure = "",
                                   .tensors = &tensor,
                                   .count = 1};
    ligi_writer body = {0};
    uint64_t id = ++client->next_id;
    ligi_served_save_put(&body, &what);
    client->answered = 0;
    client->replies = 0;
    raw_send(
        client,
        (ligi_served_head){.op = LIGI_SERVED_SAVE, .id = id, .number = ++client->next_sequence},
        &body, "abcd", 4);
    ligi_writer_fini(&body);
    return id;
}

/* The server has received all that the client sent before, and has answered nothing of it. */
static void expect_no_answer(raw_client *client)
{
    assert_ok(raw_ask(client, LIGI_SERVED_PING, NULL));
    assert_int_equal(client->replies, 1);
    client->replies = 0;
}

static void await(const atomic_int *count, int least)
{
    int64_t end_ns = ligi_now_ns() + RAW_NS;
    while (*count < least && ligi_now_ns() < end_ns)
        sched_yield();
    assert_true(*count >= least);
}

/* Both workers that run saves wait for the disk: the others gather, and share what follows. */
static void hold_up(fixture *self)
{
    char name[16];
    pthread_mutex_lock(&sync_gate);
    for (int i = 0; i < CLIENTS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        (void)send_save(&self->clients[i], name);
        if (i < 2)
            await(&at_gate, i + 1);
    }
    for (int i = 0; i < CLIENTS; i++)
        expect_no_answer(&self->clients[i]);
    assert_int_equal(at_gate, 2);
}

static void expect_saved(const fixture *self, int count)
{
    lig_model **models;
    size_t found;
    char uri[128];
    lig_store *store;
    snprintf(uri, sizeof uri, "file:%s/store?mode=r", self->folder);
    assert_ok(lig_store_open(&store, uri));
    assert_ok(lig_store_models(store, NULL, &models, &found));
    assert_int_equal(found, count);
    lig_models_destroy(models, found);
    lig_store_close(store);
}

static void test_saves_share_a_sync(void **state)
{
    fixture *self = *state;
    open_server(self, 0);
    hold_up(self);
    pthread_mutex_unlock(&sync_gate);
    for (int i = 0; i < CLIENTS; i++)
        assert_ok(raw_wait(&self->clients[i], 1));
    assert_true(syncs <= 4);
    expect_saved(self, CLIENTS);
}

static void test_a_lost_sync_fails_all_its_saves(void **state)
{
    fixture *self = *state;
    open_server(self, 0);
    hold_up(self);
    failing = 1;
    pthread_mutex_unlock(&sync_gate);
    for (int i = 0; i < CLIENTS; i++) {
        assert_status(raw_wait(&self->clients[i], 1), LIG_E_IO);
        assert_says("the disk is broken");
    }
    failing = 0;
    send_save(&self->clients[0], "later");
    assert_ok(raw_wait(&self->clients[0], self->clients[0].next_id));
}

/* A save that waits for another process does not hold up those that are done. */
static void test_a_blocked_save_lets_the_others_go(void **state)
{
    fixture *self = *state;
    open_server(self, 1);
    pthread_mutex_lock(&sync_gate);
    send_save(&self->clients[0], "first");
    await(&at_gate, 1);
    send_save(&self->clients[1], "second");
    expect_no_answer(&self->clients[1]);
    send_save(&self->clients[2], "blocked");
    expect_no_answer(&self->clients[2]);
    locks_left = 1;
    pthread_mutex_unlock(&sync_gate);
    assert_ok(raw_wait(&self->clients[0], 1));
    assert_ok(raw_wait(&self->clients[1], 1));
    expect_no_answer(&self->clients[2]);
    locks_left = 1000;
    assert_ok(raw_wait(&self->clients[2], 1));
}

/* Nor do blocked saves keep the workers that could run others, each of which has its own limit. */
static void test_blocked_saves_leave_their_places(void **state)
{
    fixture *self = *state;
    open_server(self, 6);
    locks_left = 0;
    for (int i = 0; i < 4; i++)
        send_save(&self->clients[i], i == 0 ? "a" : i == 1 ? "b" : i == 2 ? "c" : "d");
    await(&lockers, 4);
    locks_left = 1000;
    for (int i = 0; i < 4; i++)
        assert_ok(raw_wait(&self->clients[i], 1));
}

/* Requests that only read have workers, however many changes wait for another process. */
static void test_blocked_changes_leave_workers(void **state)
{
    enum { WORKERS = 4, BLOCKED = 3 };
    fixture *self = *state;
    char name[16];
    ligi_writer query = {0};
    open_server(self, WORKERS);
    ligi_served_query_put(&query, &(lig_query)LIG_QUERY_INIT);
    locks_left = 0;
    for (int i = 0; i + 1 < CLIENTS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        (void)send_save(&self->clients[i], name);
    }
    await(&lockers, BLOCKED);
    assert_ok(raw_ask(&self->clients[CLIENTS - 1], LIGI_SERVED_MODELS, &query));
    assert_int_equal(lockers, BLOCKED);
    locks_left = 1000;
    for (int i = 0; i + 1 < CLIENTS; i++)
        assert_ok(raw_wait(&self->clients[i], 1));
    ligi_writer_fini(&query);
}

/* What a save refuses is answered with its own text, between others that are done. */
static void test_each_save_has_its_outcome(void **state)
{
    fixture *self = *state;
    open_server(self, 1);
    pthread_mutex_lock(&sync_gate);
    send_save(&self->clients[0], "first");
    await(&at_gate, 1);
    send_save(&self->clients[1], "one");
    expect_no_answer(&self->clients[1]);
    send_save(&self->clients[2], "one");
    expect_no_answer(&self->clients[2]);
    send_save(&self->clients[3], "two");
    expect_no_answer(&self->clients[3]);
    pthread_mutex_unlock(&sync_gate);
    assert_ok(raw_wait(&self->clients[0], 1));
    assert_ok(raw_wait(&self->clients[1], 1));
    assert_status(raw_wait(&self->clients[2], 1), LIG_E_EXISTS);
    assert_says("model 'one' already exists");
    assert_ok(raw_wait(&self->clients[3], 1));
    expect_saved(self, 3);
}

#define group_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        group_test(test_saves_share_a_sync),
        group_test(test_a_lost_sync_fails_all_its_saves),
        group_test(test_a_blocked_save_lets_the_others_go),
        group_test(test_blocked_saves_leave_their_places),
        group_test(test_blocked_changes_leave_workers),
        group_test(test_each_save_has_its_outcome),
    };
    return cmocka_run_group_tests(tests, register_volume, NULL);
}
