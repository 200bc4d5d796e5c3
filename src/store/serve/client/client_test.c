/* What only a served store has: connections, their loss, and what the server keeps for a client. */
#include "store_scene.h"

#include <ligament/serve.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { BIG = 3 << 18 };

static float big[BIG], back[BIG];
static int64_t length = BIG;

typedef struct served {
    char folder[64], place[128], address_file[128];
    lig_server *server;
} served;

static void start_with(served *self, lig_server_options options)
{
    options.address_file = self->address_file;
    assert_ok(lig_server_open(&self->server, self->place, &options));
}

static void start(served *self, const char *listen)
{
    lig_server_options options = LIG_SERVER_INIT;
    options.listen = listen;
    start_with(self, options);
}

static int setup(void **state)
{
    served *self = calloc(1, sizeof *self);
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-client-XXXXXX");
    if (mkdtemp(self->folder) == NULL)
        return -1;
    snprintf(self->place, sizeof self->place, "file://%s/store", self->folder);
    snprintf(self->address_file, sizeof self->address_file, "%s/address", self->folder);
    scene_fill(big, sizeof big, 7);
    start(self, NULL);
    *state = self;
    return 0;
}

static int teardown(void **state)
{
    served *self = *state;
    char command[128];
    lig_server_close(self->server);
    snprintf(command, sizeof command, "rm -rf '%s'", self->folder);
    int failed = system(command);
    free(self);
    return failed;
}

static lig_store *client(const served *self, const char *options)
{
    char uri[256];
    lig_store *store = NULL;
    snprintf(uri, sizeof uri, "ligament://%s%s", lig_server_address(self->server), options);
    assert_ok(lig_store_open(&store, uri));
    return store;
}

static lig_tensor tensor(void *data)
{
    return scene_tensor("w", data, &length);
}

static void save(lig_store *store, const char *name)
{
    lig_tensor one = tensor(big);
    assert_ok(lig_store_save(store, name, &one, 1, NULL));
}

static void load(lig_store *store, const char *name)
{
    lig_tensor one = tensor(back);
    memset(back, 0, sizeof back);
    assert_ok(lig_store_load(store, name, &one, 1));
    assert_memory_equal(back, big, sizeof big);
}

static void test_transports(void **state)
{
    static const char *const choices[] = {"tcp", "shm"};
    for (size_t i = 0; i < 2; i++) {
        char options[64], name[16], text[512], expected[32];
        snprintf(options, sizeof options, "?transport=%s", choices[i]);
        snprintf(name, sizeof name, "m/%s", choices[i]);
        snprintf(expected, sizeof expected, "served over %s", choices[i]);
        lig_store *store = client(*state, options);
        save(store, name);
        load(store, name);
        assert_ok(lig_store_describe(store, text, sizeof text));
        assert_memory_equal(text, expected, strlen(expected));
        lig_view *view;
        assert_ok(lig_store_map(store, name, 0, &view));
        assert_memory_equal(lig_view_model(view)->tensors[0].tensor.data, big, sizeof big);
        lig_store_close(store);
        assert_memory_equal(lig_view_model(view)->tensors[0].tensor.data, big, sizeof big);
        lig_view_destroy(view);
    }
}

/* The server asks for pieces of 4 MiB: some hold several tensors, some a part of one, and there are
 * more than it has memory for. */
static void test_pieces(void **state)
{
    enum { COUNT = 9 };
    static const int64_t sizes[COUNT] = {5 << 20, 3 << 20, 1,       4 << 20,      700000,
                                         6 << 20, 100,     2 << 20, (5 << 20) + 1};
    static const char *const names[COUNT] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    static const char *const choices[] = {"?transport=tcp", "?transport=shm"};
    for (uint64_t choice = 0; choice < 2; choice++) {
        lig_tensor saved[COUNT], loaded[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            size_t bytes = (size_t)sizes[i];
            saved[i] = (lig_tensor){.name = names[i],
                                    .data = malloc(bytes),
                                    .bytes = bytes,
                                    .shape = &sizes[i],
                                    .ndim = 1,
                                    .dtype = LIG_UINT8};
            loaded[i] = saved[i];
            loaded[i].data = calloc(1, bytes);
            scene_fill(saved[i].data, bytes, choice * COUNT + i);
        }
        lig_store *store = client(*state, choices[choice]);
        assert_ok(lig_store_save(store, choices[choice] + 1, saved, COUNT, NULL));
        assert_ok(lig_store_load(store, choices[choice] + 1, loaded, COUNT));
        for (size_t i = 0; i < COUNT; i++) {
            assert_memory_equal(loaded[i].data, saved[i].data, saved[i].bytes);
            free(saved[i].data);
            free(loaded[i].data);
        }
        lig_store_close(store);
    }
}

static void test_refusals(void **state)
{
    served *self = *state;
    lig_store *store;
    char uri[256];
    snprintf(uri, sizeof uri, "ligament://%s?mode=w", lig_server_address(self->server));
    assert_fails(lig_store_open(&store, uri), LIG_E_EXISTS);
    snprintf(uri, sizeof uri, "ligament://%s?nothing=1", lig_server_address(self->server));
    assert_fails(lig_store_open(&store, uri), LIG_E_INVALID);
    snprintf(uri, sizeof uri, "ligament://%s?transport=pigeon", lig_server_address(self->server));
    assert_fails(lig_store_open(&store, uri), LIG_E_INVALID);
    assert_fails(lig_store_open(&store, "ligament:"), LIG_E_INVALID);
    static const char *const portless[] = {"localhost", "localhost:", "localhost:http", "[::1]"};
    for (size_t i = 0; i < sizeof portless / sizeof *portless; i++) {
        snprintf(uri, sizeof uri, "ligament://%s", portless[i]);
        assert_fails(lig_store_open(&store, uri), LIG_E_INVALID);
        assert_non_null(strstr(lig_error_text(), "has no port (expected ligament://host:port"));
    }
    assert_fails(lig_store_open(&store, "ligament://@/nonexistent/address"), LIG_E_PEER);
    store = client(self, "?mode=r");
    lig_tensor one = tensor(big);
    assert_fails(lig_store_save(store, "m", &one, 1, NULL), LIG_E_DENIED);
    lig_store_close(store);
}

/* Without `retry` a lost server is an error at once, of every later call too. */
static void test_lost_server(void **state)
{
    served *self = *state;
    lig_store *store = client(self, "");
    save(store, "m");
    lig_ref *ref;
    assert_ok(lig_store_resolve(store, "m", &ref));
    lig_server_close(self->server);
    self->server = NULL;
    lig_store_stats stats;
    assert_fails(lig_store_stat(store, &stats), LIG_E_PEER);
    assert_fails(lig_store_retire(store, "m"), LIG_E_PEER);
    lig_ref_release(ref);
    lig_store_close(store);
}

/* With it, a request waits for the next server, which may listen elsewhere. */
static void test_retry(void **state)
{
    served *self = *state;
    lig_store *store = NULL;
    char uri[256];
    snprintf(uri, sizeof uri, "ligament://@%s?retry=30", self->address_file);
    assert_ok(lig_store_open(&store, uri));
    save(store, "m");
    lig_server_close(self->server);
    start(self, NULL);
    load(store, "m");
    lig_server_close(self->server);
    start(self, NULL);
    save(store, "n");
    load(store, "n");
    lig_store_close(store);
}

/* A save that was running when its server ended is given up after `retry` seconds. */
static void test_retry_ends(void **state)
{
    served *self = *state;
    lig_store *store = client(self, "?retry=1");
    lig_tensor one = tensor(NULL);
    lig_save *begun;
    lig_ticket *ticket = NULL;
    assert_ok(lig_save_begin(&begun, store, "m", &one, 1, NULL));
    lig_server_close(self->server);
    self->server = NULL;
    lig_status status = lig_save_offer(begun, big, NULL);
    if (status == LIG_OK) {
        status = lig_save_commit(begun, &ticket);
    } else {
        lig_save_abort(begun);
    }
    if (status == LIG_OK)
        status = lig_ticket_wait(ticket, LIG_FOREVER);
    assert_fails(status, LIG_E_PEER);
    lig_ticket_destroy(ticket);
    lig_store_close(store);
}

static int interrupt(void *context)
{
    ++*(int *)context;
    return 1;
}

/* Opening waits for a server as long as `retry` says, unless the hook ends it. */
static void test_open_interrupted(void **state)
{
    served *self = *state;
    lig_store *store;
    char uri[256];
    int calls = 0;
    snprintf(uri, sizeof uri, "ligament://@%s?retry=3600", self->address_file);
    lig_server_close(self->server);
    self->server = NULL;
    assert_fails(lig_store_open_interruptible(&store, uri, interrupt, &calls), LIG_E_CLOSED);
    assert_int_equal(calls, 1);
}

typedef struct opener {
    char uri[256];
    lig_store *store;
    lig_status status;
} opener;

static void *open_patiently(void *context)
{
    opener *self = context;
    self->status = lig_store_open(&self->store, self->uri);
    return NULL;
}

/* With `retry` a client waits until a full server has a place. */
static void test_full_server(void **state)
{
    served *self = *state;
    lig_server_options options = LIG_SERVER_INIT;
    lig_server_stats stats = {0};
    opener late = {.status = LIG_E_INTERNAL};
    pthread_t thread;
    lig_server_close(self->server);
    options.max_clients = 1;
    start_with(self, options);
    lig_store *first = client(self, "?transport=tcp");
    snprintf(late.uri, sizeof late.uri, "ligament://%s?transport=tcp",
             lig_server_address(self->server));
    assert_fails(lig_store_open(&late.store, late.uri), LIG_E_BUSY);
    strcat(late.uri, "&retry=600");
    assert_int_equal(pthread_create(&thread, NULL, open_patiently, &late), 0);
    while (stats.refused < 2 && late.status == LIG_E_INTERNAL) {
        assert_ok(lig_server_stat(self->server, &stats));
        sched_yield();
    }
    lig_store_close(first);
    pthread_join(thread, NULL);
    assert_int_equal(late.status, LIG_OK);
    save(late.store, "m");
    lig_store_close(late.store);
}

/* A client that moves to shared memory needs no second place; another client does. */
static void test_last_place(void **state)
{
    served *self = *state;
    lig_server_options options = LIG_SERVER_INIT;
    lig_store *other;
    char uri[256];
    lig_server_close(self->server);
    options.max_clients = 1;
    start_with(self, options);
    lig_store *store = client(self, "?transport=shm");
    save(store, "m");
    for (int i = 0; i < 2; i++) {
        snprintf(uri, sizeof uri, "ligament://%s?transport=%s", lig_server_address(self->server),
                 i ? "tcp" : "shm");
        assert_fails(lig_store_open(&other, uri), LIG_E_BUSY);
    }
    lig_store_close(store);
}

/* What a client holds ends with its release, and with its connection. */
static void test_leases(void **state)
{
    served *self = *state;
    lig_store *store = client(self, ""), *other = client(self, "");
    lig_server_stats stats;
    save(store, "m");
    lig_ref *ref, *second;
    assert_ok(lig_store_resolve(store, "m", &ref));
    assert_ok(lig_store_resolve(store, "m", &second));
    assert_ok(lig_store_retire(other, "m"));
    lig_tensor one = tensor(back);
    memset(back, 0, sizeof back);
    assert_ok(lig_ref_load(ref, &one, 1));
    assert_memory_equal(back, big, sizeof big);
    assert_ok(lig_server_stat(self->server, &stats));
    assert_int_equal(stats.held, 2);
    lig_ref_release(ref);
    lig_store_stats counts;
    assert_ok(lig_store_stat(store, &counts)); /* behind the release, on the same connection */
    lig_ref_release(second);
    lig_store_close(store);
    lig_store_close(other);
}

static void expect_held(const served *self, uint64_t wanted)
{
    lig_server_stats stats = {.held = UINT64_MAX};
    for (long i = 0; i < 10000000 && stats.held != wanted; i++) { /* a release has no answer */
        assert_ok(lig_server_stat(self->server, &stats));
        sched_yield();
    }
    assert_int_equal(stats.held, wanted);
}

/* Another server holds again what the one before held. */
static void test_held_again(void **state)
{
    enum { MANY = 70 }; /* more than are asked for at one time */
    served *self = *state;
    lig_store *store = NULL;
    char uri[256];
    lig_ref *ref, *gone, *more[MANY];
    lig_store_stats counts;
    snprintf(uri, sizeof uri, "ligament://@%s?retry=60", self->address_file);
    assert_ok(lig_store_open(&store, uri));
    save(store, "m");
    *(uint8_t *)big ^= 1; /* bytes of its own */
    save(store, "gone");
    assert_ok(lig_store_resolve(store, "m", &ref));
    assert_ok(lig_store_resolve(store, "gone", &gone));
    for (int i = 0; i < MANY; i++)
        assert_ok(lig_store_resolve(store, "m", &more[i]));
    lig_server_close(self->server);
    lig_store *local;
    lig_report *report;
    assert_ok(lig_store_open(&local, self->place));
    assert_ok(lig_store_retire(local, "gone"));
    assert_ok(lig_store_compact(local, &report));
    lig_report_destroy(report);
    start(self, NULL);
    assert_ok(lig_store_stat(store, &counts)); /* on the new connection */
    expect_held(self, MANY + 1);
    assert_ok(lig_store_retire(local, "m"));
    lig_store_close(local);
    *(uint8_t *)big ^= 1;
    lig_tensor one = tensor(back);
    memset(back, 0, sizeof back);
    assert_ok(lig_ref_load(ref, &one, 1));
    assert_memory_equal(back, big, sizeof big);
    assert_fails(lig_ref_load(gone, &one, 1), LIG_E_NOTFOUND);
    for (int i = 0; i < MANY; i++)
        lig_ref_release(more[i]);
    expect_held(self, 1);
    lig_ref_release(gone);
    lig_ref_release(ref);
    expect_held(self, 0);
    lig_store_close(store);
}

static void write_secret(const char *path, int byte)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (int i = 0; i < 64; i++)
        fputc(byte, file);
    assert_int_equal(fchmod(fileno(file), 0600), 0);
    assert_int_equal(fclose(file), 0);
}

/* A client with `retry` connects again with the secret that its file has by then. */
static void test_another_secret(void **state)
{
    served *self = *state;
    char path[160], options[256];
    lig_server_options given = LIG_SERVER_INIT;
    snprintf(path, sizeof path, "%s/secret", self->folder);
    snprintf(options, sizeof options, "?retry=60&transport=tcp&secret_file=%s", path);
    write_secret(path, 'a');
    lig_server_close(self->server);
    given.secret_file = path;
    assert_ok(lig_server_open(&self->server, self->place, &given));
    lig_store *store = client(self, options);
    save(store, "m");
    write_secret(path, 'b');
    assert_ok(lig_server_reload(self->server));
    load(store, "m");
    lig_store_close(store);
}

/* --- many threads --- */

enum { THREADS = 6, ROUNDS = 12 };

typedef struct loader {
    lig_store *store;
    pthread_t thread;
    float *values;
    int failed;
} loader;

static void *load_often(void *context)
{
    loader *self = context;
    for (int i = 0; i < ROUNDS && !self->failed; i++) {
        lig_tensor one = tensor(self->values);
        memset(self->values, 0, sizeof big);
        self->failed = lig_store_load(self->store, "m", &one, 1) != LIG_OK ||
                       memcmp(self->values, big, sizeof big) != 0;
        if (self->failed)
            print_error("%s\n", lig_error_text());
    }
    return NULL;
}

/* Together they want more than a session may have in flight: they wait for each other. */
static void test_flight(void **state)
{
    served *self = *state;
    lig_server_options options = LIG_SERVER_INIT;
    options.max_bytes_in_flight = UINT64_C(128) << 20;
    lig_server_close(self->server);
    assert_ok(lig_server_open(&self->server, self->place, &options));
    lig_store *store = client(self, "?transport=tcp");
    loader loaders[THREADS] = {{0}};
    save(store, "m");
    for (int i = 0; i < THREADS; i++) {
        loaders[i].store = store;
        loaders[i].values = malloc(sizeof big);
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, load_often, &loaders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(loaders[i].thread, NULL);
        assert_int_equal(loaders[i].failed, 0);
        free(loaders[i].values);
    }
    lig_store_close(store);
}

typedef struct saver {
    char uri[256];
    atomic_int saved, failed;
} saver;

enum { SAVES = 24 };

/* Small ones and big ones. A save that was done twice would fail: the name is taken. */
static void *save_often(void *context)
{
    saver *self = context;
    lig_store *store = NULL;
    self->failed = lig_store_open(&store, self->uri) != LIG_OK;
    for (int i = 0; i < SAVES && !self->failed; i++) {
        char name[16];
        int64_t few = 100;
        lig_tensor one = i % 3 ? scene_tensor("w", big, &few) : tensor(big);
        snprintf(name, sizeof name, "s/%d", i);
        if (lig_store_save(store, name, &one, 1, NULL) != LIG_OK) {
            print_error("%s: %s\n", name, lig_error_text());
            self->failed = 1;
        }
        self->saved++;
    }
    lig_store_close(store);
    return NULL;
}

static void test_exactly_once(void **state)
{
    served *self = *state;
    saver saving = {.saved = 0};
    pthread_t thread;
    snprintf(saving.uri, sizeof saving.uri, "ligament://@%s?retry=60", self->address_file);
    assert_int_equal(pthread_create(&thread, NULL, save_often, &saving), 0);
    for (int i = 1; i <= 6; i++) {
        while (saving.saved < i * SAVES / 8 && !saving.failed)
            sched_yield();
        lig_server_close(self->server);
        start(self, NULL);
    }
    pthread_join(thread, NULL);
    assert_int_equal(saving.failed, 0);
    lig_store *store = client(self, "");
    lig_store_stats stats;
    lig_report *report;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, SAVES);
    for (int i = 0; i < SAVES; i += 3) {
        char name[16];
        snprintf(name, sizeof name, "s/%d", i);
        load(store, name);
    }
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
    lig_store_close(store);
}

static size_t stamp_count(lig_store *store, const char *name)
{
    int64_t *stamps;
    size_t count;
    assert_ok(lig_store_time_stamps(store, name, &stamps, &count));
    lig_time_stamps_destroy(stamps);
    return count;
}

/* What the server does is measured there, also for others; loads are the client's own. */
static void test_stamps(void **state)
{
    lig_store *store = client(*state, ""), *other = client(*state, "");
    save(store, "m");
    load(store, "m");
    assert_int_equal(stamp_count(other, "save"), 2);
    assert_int_equal(stamp_count(other, "load"), 0);
    assert_int_equal(stamp_count(store, "load"), 2);
    assert_ok(lig_store_clear_time_stamps(other, NULL));
    assert_int_equal(stamp_count(store, "save"), 0);
    lig_store_close(store);
    lig_store_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_transports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retry_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_secret, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flight, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exactly_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stamps, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
