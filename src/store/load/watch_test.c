#include "backend/registry.h"
#include "store_scene.h"

#include <pthread.h>
#include <sys/wait.h>

#define SOON INT64_C(60000000000) /* longer than any wait that ends by an event */

static int64_t length = 100;

static lig_status save_flags(lig_store *store, const char *name, float value, uint32_t flags)
{
    float data[100];
    for (int i = 0; i < 100; i++)
        data[i] = value;
    lig_tensor tensor = scene_tensor("t", data, &length);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = flags;
    return lig_store_save(store, name, &tensor, 1, &options);
}

static lig_status save(lig_store *store, const char *name)
{
    return save_flags(store, name, 1, 0);
}

static uint64_t id_of(lig_store *store, const char *name)
{
    lig_model *model;
    assert_ok(lig_store_model(store, name, &model));
    uint64_t id = model->id;
    lig_model_destroy(model);
    return id;
}

static uint64_t version_of(lig_store *store)
{
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    return stats.version;
}

static lig_watch *watched(lig_store *store, const char *name, uint64_t since)
{
    lig_watch *watch = NULL;
    assert_ok(lig_store_watch(store, name, since, &watch));
    return watch;
}

/* The next event is available without waiting, and is this one. */
static lig_event expect(lig_watch *watch, int kind, const char *name, const char *other)
{
    lig_event event;
    assert_ok(lig_watch_next(watch, 0, &event));
    assert_int_equal(event.kind, kind);
    assert_string_equal(event.name, name);
    assert_string_equal(event.other, other);
    assert_true(event.date_ns > INT64_C(1500000000) * 1000000000);
    return event;
}

static void expect_end(lig_watch *watch)
{
    lig_event event;
    assert_fails(lig_watch_next(watch, 0, &event), LIG_E_TIMEOUT);
    assert_non_null(strstr(lig_error_text(), "no change of"));
}

/* The tests that run on every kind of store; a store whose volume has no events is skipped. */
static lig_store *opened(void **state, int on_file)
{
    const scene *places = *state;
    lig_store *store;
    lig_watch *watch;
    assert_ok(lig_store_open(&store, on_file ? places->file : places->memory));
    lig_status status = lig_store_watch(store, NULL, LIG_WATCH_NOW, &watch);
    if (status == LIG_E_UNSUPPORTED && on_file) {
        lig_store_close(store);
        return NULL;
    }
    assert_ok(status);
    lig_watch_close(watch);
    return store;
}

static void each_kind(lig_store *store)
{
    lig_update update = LIG_UPDATE_INIT;
    lig_tag tag = {"a", "b"};
    lig_report *report;
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    expect_end(watch);
    assert_ok(save(store, "first"));
    uint64_t first = id_of(store, "first");
    lig_event event = expect(watch, LIG_EVENT_SAVED, "first", "");
    assert_int_equal(event.model, first);
    assert_int_equal(event.version, version_of(store));
    assert_int_equal(event.more, 0);
    expect_end(watch);

    assert_ok(lig_store_alias(store, "prod", "first"));
    assert_int_equal(expect(watch, LIG_EVENT_ALIAS, "prod", "first").model, first);
    assert_ok(save_flags(store, "first", 2, LIG_SAVE_REPLACE));
    uint64_t second = id_of(store, "first");
    event = expect(watch, LIG_EVENT_REPLACED, "first", "");
    assert_int_equal(event.model, second);
    assert_int_equal(event.more, 1);
    lig_event moved = expect(watch, LIG_EVENT_ALIAS, "prod", "first");
    assert_int_equal(moved.model, second);
    assert_int_equal(moved.version, event.version);
    assert_int_equal(moved.more, 0);

    update.tags = &tag, update.tag_count = 1;
    assert_ok(lig_store_update(store, "prod", &update));
    assert_int_equal(expect(watch, LIG_EVENT_UPDATED, "first", "").model, second);
    update.name = "renamed";
    assert_ok(lig_store_update(store, "first", &update));
    assert_int_equal(expect(watch, LIG_EVENT_UPDATED, "renamed", "first").model, second);
    assert_ok(lig_store_alias(store, "other", "renamed"));
    expect(watch, LIG_EVENT_ALIAS, "other", "renamed");
    assert_ok(lig_store_alias(store, "other", NULL));
    assert_int_equal(expect(watch, LIG_EVENT_ALIAS, "other", "").model, 0);

    assert_fails(lig_store_retire(store, "nobody"), LIG_E_NOTFOUND);
    assert_ok(lig_store_check(store, LIG_CHECK_REPAIR, &report));
    lig_report_destroy(report);
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    expect_end(watch);
    assert_ok(lig_store_retire(store, "prod"));
    event = expect(watch, LIG_EVENT_RETIRED, "renamed", "");
    assert_int_equal(event.model, second);
    assert_int_equal(expect(watch, LIG_EVENT_ALIAS, "prod", "").model, 0);
    expect_end(watch);
    lig_watch_close(watch);
}

static void test_each_kind(void **state)
{
    for (int on_file = 0; on_file < 2; on_file++) {
        lig_store *store = opened(state, on_file);
        if (store)
            each_kind(store);
        lig_store_close(store);
    }
}

/* A model in a pack commits twice at first: ids are reserved without an event. */
static void test_parts_and_packs(void **state)
{
    lig_store *store = opened(state, 0);
    static float large[40000];
    int64_t whole = 40000;
    lig_tensor tensor = scene_tensor("t", large, &whole);
    lig_save_options options = LIG_SAVE_INIT;
    lig_part *part = NULL;
    lig_part_data data;
    lig_watch *watch = watched(store, NULL, 0);
    scene_fill(large, sizeof large, 1);
    assert_ok(lig_store_save(store, "packed", &tensor, 1, NULL));
    expect(watch, LIG_EVENT_SAVED, "packed", "");
    expect_end(watch);
    scene_fill(large, sizeof large, 2);
    options.part = &part;
    assert_ok(lig_store_save(store, "joined", &tensor, 1, &options));
    expect_end(watch);
    assert_ok(lig_part_bytes(part, &data.data, &data.bytes));
    assert_ok(lig_store_join(store, "joined", &data, 1, NULL));
    lig_part_close(part, store);
    assert_int_equal(expect(watch, LIG_EVENT_SAVED, "joined", "").model, id_of(store, "joined"));
    expect_end(watch);
    assert_int_equal(lig_watch_since(watch), version_of(store));
    lig_watch_close(watch);
    lig_store_close(store);
}

static void names(lig_store *store)
{
    lig_update update = LIG_UPDATE_INIT;
    assert_ok(save(store, "run/1"));
    assert_ok(save(store, "odd[1]"));
    assert_ok(save(store, "else"));
    assert_ok(lig_store_alias(store, "best", "run/1"));
    update.name = "kept";
    assert_ok(lig_store_update(store, "run/1", &update));
    assert_ok(lig_store_retire(store, "else"));

    lig_watch *watch = watched(store, "run/*", 0);
    expect(watch, LIG_EVENT_SAVED, "run/1", "");
    expect(watch, LIG_EVENT_ALIAS, "best", "run/1");
    expect(watch, LIG_EVENT_UPDATED, "kept", "run/1");
    expect_end(watch);
    assert_int_equal(lig_watch_since(watch), version_of(store)); /* past what does not fit */
    lig_watch_close(watch);
    watch = watched(store, "odd[1]", 0);
    expect(watch, LIG_EVENT_SAVED, "odd[1]", "");
    expect_end(watch);
    lig_watch_close(watch);
    watch = watched(store, "best", 0);
    expect(watch, LIG_EVENT_ALIAS, "best", "run/1");
    expect_end(watch);
    lig_watch_close(watch);
    watch = watched(store, "nothing", 0);
    expect_end(watch);
    lig_watch_close(watch);
}

static void test_names(void **state)
{
    for (int on_file = 0; on_file < 2; on_file++) {
        lig_store *store = opened(state, on_file);
        if (store)
            names(store);
        lig_store_close(store);
    }
}

/* A watch that ends anywhere is continued from lig_watch_since without loss; only a partly
 * delivered commit is repeated. */
static void resume(lig_store *store)
{
    assert_ok(save(store, "m"));
    assert_ok(lig_store_alias(store, "a", "m"));
    assert_ok(lig_store_alias(store, "b", "m"));
    uint64_t before = version_of(store);
    assert_ok(lig_store_retire(store, "m"));
    assert_ok(save(store, "n"));

    lig_watch *watch = watched(store, NULL, before);
    assert_int_equal(expect(watch, LIG_EVENT_RETIRED, "m", "").more, 2);
    assert_int_equal(lig_watch_since(watch), before);
    lig_event event;
    assert_ok(lig_watch_next(watch, 0, &event));
    assert_int_equal(event.more, 1);
    assert_int_equal(lig_watch_since(watch), before);
    assert_ok(lig_watch_next(watch, 0, &event));
    assert_int_equal(event.more, 0);
    assert_int_equal(lig_watch_since(watch), event.version);
    lig_watch_close(watch);
    watch = watched(store, NULL, event.version);
    expect(watch, LIG_EVENT_SAVED, "n", "");
    expect_end(watch);
    lig_watch_close(watch);
    assert_fails(lig_store_watch(store, NULL, version_of(store) + 1, &watch), LIG_E_NOTFOUND);
    assert_non_null(strstr(lig_error_text(), "list the models again"));
}

static void test_resume(void **state)
{
    for (int on_file = 0; on_file < 2; on_file++) {
        lig_store *store = opened(state, on_file);
        if (store)
            resume(store);
        lig_store_close(store);
    }
}

/* The volume in memory keeps 1 MiB of events: 4 KiB each here. */
static void test_too_old(void **state)
{
    if (!SCENE_IN_FOLDER)
        skip(); /* a log that is kept by time */
    lig_store *store = opened(state, 0);
    char name[4001];
    lig_event event;
    memset(name, 'n', 4000);
    name[4000] = '\0';
    assert_ok(save(store, "m"));
    lig_watch *slow = watched(store, NULL, LIG_WATCH_NOW), *watch = NULL;
    uint64_t since = version_of(store);
    for (int i = 0; i < 300; i++)
        assert_ok(lig_store_alias(store, name, "m"));
    assert_fails(lig_store_watch(store, NULL, since, &watch), LIG_E_NOTFOUND);
    assert_null(watch);
    assert_non_null(strstr(lig_error_text(), "list the models again"));
    assert_fails(lig_watch_next(slow, 0, &event), LIG_E_NOTFOUND);
    assert_fails(lig_watch_next(slow, 0, &event), LIG_E_NOTFOUND);
    assert_non_null(strstr(lig_error_text(), "list the models again"));
    lig_watch_close(slow);
    watch = watched(store, NULL, version_of(store));
    expect_end(watch);
    lig_watch_close(watch);
    lig_store_close(store);
}

/* --- a catalog rebuilt from the packs' footers --- */

/* `mem`, but its catalog is that of another volume. */
static const lig_volume_ops *mem;
static lig_volume_ops split_volume;
static lig_backend_ops split;
static void *empty;

static lig_status split_begin(void *self, void **snapshot, uint64_t *version)
{
    (void)self;
    return mem->catalog_begin(empty, snapshot, version);
}

static lig_status split_commit(void *self, const lig_catalog_edit *edit)
{
    (void)self;
    return mem->catalog_commit(empty, edit);
}

static lig_status split_events(void *self, uint64_t since, lig_catalog_visit visit, void *context)
{
    (void)self;
    return mem->catalog_events(empty, since, visit, context);
}

static void register_split(void)
{
    const lig_backend_ops *backend = lig_backend_find("mem");
    split = *backend;
    mem = backend->volume;
    split_volume = *mem;
    split_volume.catalog_begin = split_begin;
    split_volume.catalog_commit = split_commit;
    split_volume.catalog_events = split_events;
    split.volume = &split_volume;
    assert_ok(ligi_backend_register("split", &split));
}

static void test_lost_catalog(void **state)
{
    scene_local_only();
    lig_store *store = opened(state, 0), *made;
    static float large[40000];
    int64_t whole = 40000;
    lig_tensor tensor = scene_tensor("t", large, &whole);
    char uri[64];
    const lig_backend_ops *backend;
    for (int i = 0; i < 2; i++) {
        scene_fill(large, sizeof large, (uint64_t)i);
        assert_ok(lig_store_save(store, i ? "b" : "a", &tensor, 1, NULL));
    }
    uint64_t ids[2] = {id_of(store, "a"), id_of(store, "b")};
    register_split();
    assert_ok(ligi_backend_open_raw("mem", "", &backend, &empty));
    snprintf(uri, sizeof uri, "split:%s", strchr(((const scene *)*state)->memory, ':') + 1);
    assert_ok(lig_store_open(&made, uri));
    lig_watch *watch = watched(made, NULL, 0);
    for (uint32_t i = 0; i < 2; i++) {
        lig_event event;
        assert_ok(lig_watch_next(watch, 0, &event));
        assert_int_equal(event.kind, LIG_EVENT_SAVED);
        assert_int_equal(event.model, ids[event.name[0] - 'a']);
        assert_int_equal(event.more, 1 - i);
        ids[event.name[0] - 'a'] = 0;
    }
    expect_end(watch);
    lig_watch_close(watch);
    lig_store_close(made);
    ligi_backend_close_raw(backend, empty);
    lig_store_close(store);
}

/* --- waiting --- */

static int stop_third(void *context)
{
    return ++*(int *)context == 3;
}

static void test_interrupt(void **state)
{
    lig_store *store = opened(state, 0);
    int calls = 0;
    lig_event event;
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    lig_store_set_interrupt(store, stop_third, &calls);
    assert_fails(lig_watch_next(watch, LIG_FOREVER, &event), LIG_E_CLOSED);
    assert_int_equal(calls, 3);
    assert_non_null(strstr(lig_error_text(), "interrupted"));
    assert_ok(save(store, "m"));
    expect(watch, LIG_EVENT_SAVED, "m", "");
    lig_watch_close(watch);
    lig_store_close(store);
}

static void *wait_next(void *context)
{
    lig_event event;
    return (void *)(uintptr_t)lig_watch_next(context, LIG_FOREVER, &event);
}

/* Closing the store ends a wait; the state that the watch needs stays valid. */
static void test_closed(void **state)
{
    lig_store *store = opened(state, 0);
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    pthread_t thread;
    void *status;
    lig_event event;
    assert_int_equal(pthread_create(&thread, NULL, wait_next, watch), 0);
    lig_store_close(store);
    pthread_join(thread, &status);
    assert_int_equal((uintptr_t)status, LIG_E_CLOSED);
    assert_fails(lig_watch_next(watch, 0, &event), LIG_E_CLOSED);
    assert_non_null(strstr(lig_error_text(), "was closed"));
    lig_watch_close(watch);
    lig_watch_close(NULL);
}

static void test_fork(void **state)
{
    lig_store *store = opened(state, 0);
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    pid_t child = fork();
    if (child == 0) {
        lig_event event;
        int right = lig_watch_next(watch, 0, &event) == LIG_E_CLOSED;
        lig_watch_close(watch);
        lig_store_close(store);
        _exit(right ? 0 : 1);
    }
    int ended;
    waitpid(child, &ended, 0);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
    lig_watch_close(watch);
    lig_store_close(store);
}

/* --- concurrent writers and watchers --- */

enum { WRITERS = 3, ROUNDS = 40 };

typedef struct writer {
    lig_store *store;
    int number;
    lig_status status;
} writer;

/* Three commits per round; the last has two events. */
static void *write_rounds(void *argument)
{
    writer *self = argument;
    char name[32], alias[32];
    for (int i = 0; i < ROUNDS && self->status == LIG_OK; i++) {
        snprintf(name, sizeof name, "w%d/%d", self->number, i);
        snprintf(alias, sizeof alias, "latest%d", self->number);
        self->status = save_flags(self->store, name, (float)i, 0);
        if (self->status == LIG_OK)
            self->status = lig_store_alias(self->store, alias, name);
        if (self->status == LIG_OK)
            self->status = lig_store_retire(self->store, name);
    }
    return NULL;
}

/* Step k of a writer: saved, alias, retired, alias removed, and so on. */
static void check_step(const lig_event *event, int *steps)
{
    static const int kinds[] = {LIG_EVENT_SAVED, LIG_EVENT_ALIAS, LIG_EVENT_RETIRED,
                                LIG_EVENT_ALIAS};
    int alias = event->kind == LIG_EVENT_ALIAS;
    int number = event->name[alias ? strlen("latest") : 1] - '0';
    int step = steps[number]++;
    char name[32];
    snprintf(name, sizeof name, "w%d/%d", number, step / 4);
    assert_int_equal(event->kind, kinds[step % 4]);
    assert_int_equal(event->more, step % 4 == 2);
    if (step % 4 == 1)
        assert_string_equal(event->other, name);
    else if (step % 4 == 3)
        assert_int_equal(event->model, 0);
    else
        assert_string_equal(event->name, name);
}

static void crowd(lig_store *store)
{
    writer writers[WRITERS];
    pthread_t threads[WRITERS];
    int steps[WRITERS] = {0};
    uint64_t last = 0;
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (writer){store, i, LIG_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, write_rounds, &writers[i]), 0);
    }
    for (int i = 0; i < WRITERS * ROUNDS * 4; i++) {
        lig_event event;
        assert_ok(lig_watch_next(watch, SOON, &event));
        assert_true(event.version >= last);
        last = event.version;
        check_step(&event, steps);
        if (i % 50 == 49 && event.more == 0) { /* continue with another watch */
            uint64_t since = lig_watch_since(watch);
            lig_watch_close(watch);
            watch = watched(store, NULL, since);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].status, LIG_OK);
        assert_int_equal(steps[i], ROUNDS * 4);
    }
    expect_end(watch);
    lig_watch_close(watch);
}

static void test_crowd(void **state)
{
    for (int on_file = 0; on_file < 2; on_file++) {
        lig_store *store = opened(state, on_file);
        if (store)
            crowd(store);
        lig_store_close(store);
    }
}

/* More than one batch is waiting. */
static void test_many(void **state)
{
    lig_store *store = opened(state, 0);
    const int count = SCENE_IN_FOLDER ? 1000 : 200; /* a service may keep fewer commits */
    char name[32];
    assert_ok(save(store, "m"));
    lig_watch *watch = watched(store, NULL, LIG_WATCH_NOW);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a%d", i);
        assert_ok(lig_store_alias(store, name, "m"));
    }
    assert_ok(lig_store_retire(store, "m"));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a%d", i);
        expect(watch, LIG_EVENT_ALIAS, name, "m");
    }
    lig_event event = expect(watch, LIG_EVENT_RETIRED, "m", "");
    assert_int_equal(event.more, count);
    for (uint32_t more = (uint32_t)count; more--;) {
        assert_ok(lig_watch_next(watch, 0, &event));
        assert_int_equal(event.more, more);
    }
    expect_end(watch);
    lig_watch_close(watch);
    lig_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_kind), TEST(test_parts_and_packs), TEST(test_names),     TEST(test_resume),
        TEST(test_too_old),   TEST(test_lost_catalog),    TEST(test_interrupt), TEST(test_closed),
        TEST(test_fork),      TEST(test_crowd),           TEST(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
