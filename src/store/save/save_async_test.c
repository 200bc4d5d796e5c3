#include "store_scene.h"

#include <pthread.h>

enum { TENSORS = 8, LENGTH = 300000 };

static float values[TENSORS][LENGTH], back[LENGTH];
static int64_t length = LENGTH;
static char names[TENSORS][8];
static lig_tensor tensors[TENSORS];

static lig_store *opened(const char *uri)
{
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, uri));
    return store;
}

static void make_tensors(void)
{
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        scene_fill(values[i], sizeof values[i], (uint64_t)i);
        tensors[i] = scene_tensor(names[i], values[i], &length);
    }
}

static void check_model(lig_store *store, const char *name)
{
    for (int i = 0; i < TENSORS; i++) {
        lig_tensor tensor = tensors[i];
        tensor.data = back;
        assert_ok(lig_store_load(store, name, &tensor, 1));
        scene_fill(values[i], sizeof values[i], (uint64_t)i);
        assert_memory_equal(back, values[i], sizeof back);
    }
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
}

static void on_both(void **state, void (*body)(const char *uri))
{
    scene *places = *state;
    make_tensors();
    body(places->memory);
    make_tensors();
    body(places->file);
}

/* A tensor whose memory is free again may be overwritten while the rest is still being saved. */
static void overwrite(const char *uri)
{
    lig_store *store = opened(uri);
    lig_ticket *ticket;
    char model[8] = "m";
    lig_tensor given[TENSORS];
    memcpy(given, tensors, sizeof given);
    assert_ok(lig_store_save_start(store, model, given, TENSORS, NULL, &ticket));
    memset(given, 0, sizeof given);
    memset(model, 'x', sizeof model - 1);
    uint64_t done = 0;
    while (done < TENSORS) {
        uint64_t before = done;
        assert_ok(lig_ticket_progress(ticket, done, LIG_FOREVER, &done));
        assert_true(done > before);
        for (uint64_t i = before; i < done; i++)
            memset(values[i], 0, sizeof values[i]);
    }
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    assert_ok(lig_ticket_wait(ticket, 0));
    lig_ticket_destroy(ticket);
    check_model(store, "m");
    lig_store_close(store);
}

static void test_overwrite(void **state)
{
    on_both(state, overwrite);
}

/* One piece of memory carries all tensors, one after the other. */
static void offer(const char *uri)
{
    lig_store *store = opened(uri);
    lig_save *save;
    lig_ticket *ticket;
    lig_tensor described[TENSORS];
    memcpy(described, tensors, sizeof described);
    for (int i = 0; i < TENSORS; i++)
        described[i].data = NULL;
    assert_ok(lig_save_begin(&save, store, "m", described, TENSORS, NULL));
    memset(described, 0xAA, sizeof described);
    uint64_t done = 0;
    for (uint64_t i = 0; i < TENSORS; i++) {
        assert_fails(lig_save_commit(save, &ticket), LIG_E_INVALID);
        memcpy(back, values[i], sizeof back);
        assert_ok(lig_save_offer(save, back, NULL));
        assert_ok(lig_save_progress(save, i, LIG_FOREVER, &done));
        assert_int_equal(done, i + 1);
        memset(back, 0, sizeof back);
    }
    assert_fails(lig_save_offer(save, back, NULL), LIG_E_INVALID);
    lig_model *model;
    assert_fails(lig_store_model(store, "m", &model), LIG_E_NOTFOUND);
    assert_ok(lig_save_commit(save, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    check_model(store, "m");
    lig_store_close(store);
}

static void test_offer(void **state)
{
    on_both(state, offer);
}

static void offer_strided(const char *uri)
{
    static float turned[3][4], read[4][3];
    int64_t shape[2] = {4, 3}, strides[2] = {1, 4};
    lig_tensor tensor = {
        .name = "t", .bytes = sizeof turned, .shape = shape, .ndim = 2, .dtype = LIG_FLOAT32};
    lig_store *store = opened(uri);
    lig_save *save;
    lig_ticket *ticket;
    scene_fill(turned, sizeof turned, 5);
    assert_ok(lig_save_begin(&save, store, "m", &tensor, 1, NULL));
    assert_ok(lig_save_offer(save, turned, strides));
    assert_ok(lig_save_commit(save, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    tensor.data = read;
    assert_ok(lig_store_load(store, "m", &tensor, 1));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            assert_memory_equal(&read[i][j], &turned[j][i], 4);
    lig_store_close(store);
}

static void test_offer_strided(void **state)
{
    on_both(state, offer_strided);
}

/* Descriptions that name the same memory are tied; what is offered for the second is not looked at.
 */
static void offer_tied(const char *uri)
{
    lig_store *store = opened(uri);
    lig_save *save;
    lig_ticket *ticket;
    lig_tensor described[2] = {tensors[0], tensors[1]};
    described[1].data = described[0].data;
    assert_ok(lig_save_begin(&save, store, "m", described, 2, NULL));
    assert_ok(lig_save_offer(save, values[0], NULL));
    assert_ok(lig_save_offer(save, values[1], NULL));
    assert_ok(lig_save_commit(save, &ticket));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    lig_model *model;
    assert_ok(lig_store_model(store, "m", &model));
    assert_int_equal(model->tensors[1].tied, 0);
    lig_model_destroy(model);
    lig_tensor second = tensors[1];
    second.data = back;
    assert_ok(lig_store_load(store, "m", &second, 1));
    assert_memory_equal(back, values[0], sizeof back);
    lig_store_close(store);
}

static void test_offer_tied(void **state)
{
    on_both(state, offer_tied);
}

static void expect_empty(lig_store *store)
{
    lig_store_stats stats;
    lig_report *report;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 0);
    assert_int_equal(stats.packs, 0);
    assert_ok(lig_store_compact(store, &report));
    assert_int_equal(report->freed_bytes, 0);
    lig_report_destroy(report);
}

static void abort_save(const char *uri)
{
    lig_store *store = opened(uri);
    lig_save *save;
    for (int offers = 0; offers <= TENSORS; offers++) {
        assert_ok(lig_save_begin(&save, store, "m", tensors, TENSORS, NULL));
        for (int i = 0; i < offers; i++)
            assert_ok(lig_save_offer(save, values[i], NULL));
        uint64_t done;
        if (offers)
            assert_ok(lig_save_progress(save, (uint64_t)offers - 1, LIG_FOREVER, &done));
        assert_fails(lig_save_progress(save, (uint64_t)offers, 1000, &done), LIG_E_TIMEOUT);
        lig_save_abort(save);
        expect_empty(store);
    }
    lig_save_abort(NULL);
    lig_store_close(store);
}

static void test_abort(void **state)
{
    on_both(state, abort_save);
}

static void cancel(const char *uri)
{
    lig_store *store = opened(uri);
    for (int i = 0; i < 20; i++) {
        lig_ticket *ticket;
        assert_ok(lig_store_save_start(store, "m", tensors, TENSORS, NULL, &ticket));
        uint64_t done;
        if (i % 2)
            assert_ok(lig_ticket_progress(ticket, (uint64_t)i % TENSORS, LIG_FOREVER, &done));
        lig_ticket_cancel(ticket);
        lig_status status = lig_ticket_wait(ticket, LIG_FOREVER);
        lig_ticket_destroy(ticket);
        if (status == LIG_OK) /* it was past its commit point */
            assert_ok(lig_store_retire(store, "m"));
        else
            assert_int_equal(status, LIG_E_CLOSED);
        expect_empty(store);
    }
    lig_store_close(store);
}

static void test_cancel(void **state)
{
    on_both(state, cancel);
}

static void close_early(const char *uri)
{
    lig_store *keeper = opened(uri), *store = opened(uri);
    lig_ticket *ticket;
    assert_ok(lig_store_save_start(store, "m", tensors, TENSORS, NULL, &ticket));
    lig_store_close(store);
    assert_true(lig_ticket_done(ticket) || lig_ticket_wait(ticket, LIG_FOREVER) == LIG_OK);
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    lig_ticket_destroy(ticket);
    check_model(keeper, "m");
    lig_store_close(keeper);
}

static void test_close_waits(void **state)
{
    on_both(state, close_early);
}

/* What was begun and not committed ends with the store; its lig_save is still there to be ended. */
static void close_begun(const char *uri)
{
    lig_store *keeper = opened(uri), *store = opened(uri);
    lig_save *first, *second;
    lig_ticket *ticket;
    assert_ok(lig_save_begin(&first, store, "m", tensors, TENSORS, NULL));
    assert_ok(lig_save_begin(&second, store, "n", tensors, TENSORS, NULL));
    assert_ok(lig_save_offer(first, values[0], NULL));
    lig_store_close(store);
    uint64_t done;
    assert_ok(lig_save_progress(first, TENSORS, LIG_FOREVER, &done));
    assert_ok(lig_save_progress(second, TENSORS, LIG_FOREVER, &done));
    assert_fails(lig_save_offer(second, values[0], NULL), LIG_E_CLOSED);
    assert_ok(lig_save_commit(first, &ticket));
    assert_fails(lig_ticket_wait(ticket, LIG_FOREVER), LIG_E_CLOSED);
    lig_ticket_destroy(ticket);
    lig_save_abort(second);
    expect_empty(keeper);
    lig_store_close(keeper);
}

static void test_close_begun(void **state)
{
    on_both(state, close_begun);
}

/* The name is taken while the save is under way: one of the two gets it, the other is told. */
static void race(const char *uri)
{
    lig_store *store = opened(uri);
    lig_ticket *tickets[6];
    int won = 0;
    for (int i = 0; i < 6; i++) {
        tickets[i] = NULL;
        lig_status status = lig_store_save_start(store, "m", tensors, TENSORS, NULL, &tickets[i]);
        if (status != LIG_OK)
            assert_int_equal(status, LIG_E_EXISTS);
    }
    for (int i = 0; i < 6; i++) {
        if (tickets[i] == NULL)
            continue;
        lig_status status = lig_ticket_wait(tickets[i], LIG_FOREVER);
        if (status != LIG_OK)
            assert_int_equal(status, LIG_E_EXISTS);
        won += status == LIG_OK;
        lig_ticket_destroy(tickets[i]);
    }
    assert_int_equal(won, 1);
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.packs, 1);
    check_model(store, "m");
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    for (int i = 0; i < 6; i++)
        assert_ok(lig_store_save_start(store, "m", tensors, TENSORS, &options, &tickets[i]));
    for (int i = 0; i < 6; i++) {
        assert_ok(lig_ticket_wait(tickets[i], LIG_FOREVER));
        lig_ticket_destroy(tickets[i]);
    }
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.packs, 1);
    check_model(store, "m");
    lig_store_close(store);
}

static void test_race(void **state)
{
    on_both(state, race);
}

/* Several threads save on one store at once, as a whole and in parts: each its own model, whose
 * bytes tell whose it is, and all of them one name. */
enum { SAVERS = 3, ROUNDS = 4, SAVED = 50000 };

typedef struct saver {
    lig_store *store;
    int number;
    float memory[SAVED];
} saver;

static lig_status save_whole(const saver *self, const char *name, const lig_tensor *tensor,
                             lig_ticket **ticket)
{
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    return lig_store_save_start(self->store, name, tensor, 1, &options, ticket);
}

static lig_status save_offered(const saver *self, const char *name, const lig_tensor *tensor,
                               lig_ticket **ticket)
{
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    lig_save *save;
    lig_status status = lig_save_begin(&save, self->store, name, tensor, 1, &options);
    if (status != LIG_OK)
        return status;
    status = lig_save_offer(save, self->memory, NULL);
    if (status == LIG_OK)
        return lig_save_commit(save, ticket);
    lig_save_abort(save);
    return status;
}

static void *save_rounds(void *context)
{
    saver *self = context;
    int64_t shape = SAVED;
    char name[16];
    snprintf(name, sizeof name, "m%d", self->number);
    scene_fill(self->memory, sizeof self->memory, (uint64_t)self->number);
    lig_tensor tensor = scene_tensor("t", self->memory, &shape);
    for (int i = 0; i < ROUNDS; i++) {
        lig_ticket *mine = NULL, *shared = NULL;
        if (save_whole(self, i % 2 ? "shared" : name, &tensor, &mine) != LIG_OK ||
            save_offered(self, i % 2 ? name : "shared", &tensor, &shared) != LIG_OK)
            return (void *)"start";
        lig_status status = lig_ticket_wait(mine, LIG_FOREVER);
        lig_status other = lig_ticket_wait(shared, LIG_FOREVER);
        lig_ticket_destroy(mine);
        lig_ticket_destroy(shared);
        if (status != LIG_OK || other != LIG_OK)
            return (void *)"save";
    }
    return NULL;
}

static void threads(const char *uri)
{
    static saver savers[SAVERS];
    static float read[SAVED];
    int64_t shape = SAVED;
    pthread_t ids[SAVERS];
    lig_store *store = opened(uri);
    for (int i = 0; i < SAVERS; i++) {
        savers[i].store = store;
        savers[i].number = i;
        assert_int_equal(pthread_create(&ids[i], NULL, save_rounds, &savers[i]), 0);
    }
    for (int i = 0; i < SAVERS; i++) {
        void *failed;
        pthread_join(ids[i], &failed);
        if (failed != NULL)
            fail_msg("a thread failed at %s", (const char *)failed);
    }
    lig_tensor tensor = scene_tensor("t", read, &shape);
    int same = 0;
    for (int i = 0; i < SAVERS; i++) {
        assert_ok(lig_store_load(store, (const char *[]){"m0", "m1", "m2"}[i], &tensor, 1));
        assert_memory_equal(read, savers[i].memory, sizeof read);
    }
    assert_ok(lig_store_load(store, "shared", &tensor, 1));
    for (int i = 0; i < SAVERS; i++)
        same += memcmp(read, savers[i].memory, sizeof read) == 0;
    assert_int_equal(same, 1);
    lig_store_close(store);
}

static void test_threads(void **state)
{
    on_both(state, threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_overwrite, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_offer, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_offer_strided, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_offer_tied, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_abort, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_cancel, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_close_waits, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_close_begun, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_race, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(test_threads, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
