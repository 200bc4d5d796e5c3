/* Quotas, models that are kept by number, and retired ones that come back. */
#include "base/test.h"
#include "store/handle.h"
#include "store/upkeep/retire.h"

#include <ligament/serve.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONG = 1 << 18 };
#define BYTES ((uint64_t)LONG * 4)
#define HOUR_NS INT64_C(3600000000000)

static float data[LONG], back[LONG];
static int64_t length = LONG;
static const lig_server_rule quotas[] = {{"team/", 3 * BYTES + BYTES / 2}},
                             keeps[] = {{"run/", 2}, {"run/a/", 1}};

typedef struct fixture {
    lig_server *server;
    lig_store *local, *store;
} fixture;

static int set_up(void **state)
{
    static int number;
    char place[64], uri[128];
    fixture *self = calloc(1, sizeof *self);
    lig_server_options options = LIG_SERVER_INIT;
    options.quotas = quotas;
    options.quota_count = 1;
    options.keeps = keeps;
    options.keep_count = 2;
    options.undelete_ns = HOUR_NS;
    snprintf(place, sizeof place, "mem:retention-%ld-%d", (long)getpid(), ++number);
    assert_ok(lig_store_open(&self->local, place));
    assert_ok(lig_server_open(&self->server, place, &options));
    snprintf(uri, sizeof uri, "ligament://%s?transport=tcp", lig_server_address(self->server));
    assert_ok(lig_store_open(&self->store, uri));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    lig_store_close(self->store);
    lig_server_close(self->server);
    lig_store_close(self->local);
    free(self);
    return 0;
}

static lig_tensor tensor_of(float *memory, int64_t *count)
{
    return (lig_tensor){.name = "w",
                        .data = memory,
                        .bytes = (uint64_t)*count * 4,
                        .shape = count,
                        .ndim = 1,
                        .dtype = LIG_FLOAT32};
}

static lig_status save(lig_store *store, const char *name, float first, uint32_t flags)
{
    lig_tensor tensor = tensor_of(data, &length);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = flags;
    for (int i = 0; i < LONG; i++)
        data[i] = first + (float)i;
    return lig_store_save(store, name, &tensor, 1, &options);
}

static int exists(lig_store *store, const char *name)
{
    lig_model *model;
    lig_status status = lig_store_model(store, name, &model);
    if (status == LIG_OK)
        lig_model_destroy(model);
    return status == LIG_OK;
}

static void expect_sound(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    if (report->problem_count)
        fail_msg("%s", report->problems[0]);
    lig_report_destroy(report);
}

static void test_a_quota_counts_what_was_written(void **state)
{
    fixture *self = *state;
    assert_ok(save(self->store, "team/a", 1, 0));
    assert_ok(save(self->store, "team/b", 2, 0));
    assert_ok(save(self->store, "team/same", 1, 0)); /* shared with the first */
    assert_ok(save(self->store, "team/c", 3, 0));
    assert_status(save(self->store, "team/d", 4, 0), LIG_E_IO);
    assert_int_equal(lig_error_number(), EDQUOT);
    assert_says("'team/*'");
    assert_says("'team/d'");
    assert_ok(save(self->store, "other/d", 4, 0));
    assert_ok(save(self->store, "team/c", 5, LIG_SAVE_REPLACE));
    assert_ok(lig_store_retire(self->store, "team/c")); /* its bytes are kept */
    assert_status(save(self->store, "team/d", 6, 0), LIG_E_IO);
    assert_ok(lig_store_retire_now(self->store, "team/c"));
    assert_ok(save(self->store, "team/d", 6, 0));
    expect_sound(self->local);
}

static void expect_quota(lig_status status)
{
    assert_status(status, LIG_E_IO);
    assert_int_equal(lig_error_number(), EDQUOT);
}

/* A pack whose writer is gone counts for the model that uses it. */
static void test_sharing_does_not_evade_a_quota(void **state)
{
    fixture *self = *state;
    char first[32], second[32];
    for (int i = 0; i < 3; i++) {
        snprintf(first, sizeof first, "team/first-%d", i);
        snprintf(second, sizeof second, "team/second-%d", i);
        assert_ok(save(self->store, first, (float)(i + 1), 0));
        assert_ok(save(self->store, second, (float)(i + 1), 0));
        assert_ok(lig_store_retire_now(self->store, first));
    }
    expect_quota(save(self->store, "team/more", 9, 0));
    lig_report *report;
    assert_ok(lig_store_compact(self->store, &report));
    lig_report_destroy(report);
    expect_quota(save(self->store, "team/more", 9, 0));
    assert_ok(lig_store_retire_now(self->store, "team/second-0"));
    assert_ok(save(self->store, "team/more", 9, 0));
    expect_quota(save(self->store, "team/yet-more", 10, 0));
    expect_sound(self->local);
}

static void test_a_model_is_not_moved_above_a_quota(void **state)
{
    fixture *self = *state;
    lig_update update = LIG_UPDATE_INIT;
    for (int i = 0; i < 3; i++)
        assert_ok(save(self->store, (const char *[]){"team/a", "team/b", "team/c"}[i],
                       (float)(i + 1), 0));
    assert_ok(save(self->store, "other/d", 4, 0));
    update.name = "team/d";
    expect_quota(lig_store_update(self->store, "other/d", &update));
    update.name = "team/e";
    assert_ok(lig_store_update(self->store, "team/c", &update)); /* counts there already */
    assert_ok(lig_store_retire(self->store, "other/d"));
    expect_quota(lig_store_restore(self->store, "other/d", "team/d"));
    assert_ok(lig_store_retire(self->store, "team/a"));
    assert_ok(lig_store_restore(self->store, "team/a", "team/f"));
    expect_sound(self->local);
}

static void test_all_retired_models_of_a_name_are_removed(void **state)
{
    fixture *self = *state;
    int64_t few = 4;
    for (int i = 0; i < 65; i++) { /* more than one commit removes */
        lig_tensor tensor = tensor_of(data, &few);
        assert_ok(lig_store_save(self->store, "again", &tensor, 1, NULL));
        assert_ok(lig_store_retire(self->store, "again"));
    }
    assert_ok(lig_store_retire_now(self->store, "again"));
    assert_status(lig_store_restore(self->store, "again", NULL), LIG_E_NOTFOUND);
    assert_status(lig_store_retire_now(self->store, "again"), LIG_E_NOTFOUND);
}

static void test_the_newest_are_kept(void **state)
{
    fixture *self = *state;
    assert_ok(save(self->store, "run/1", 1, 0));
    assert_ok(lig_store_alias(self->store, "run/best", "run/1"));
    assert_ok(save(self->store, "run/2", 2, 0));
    assert_ok(save(self->store, "run/3", 3, 0));
    assert_true(exists(self->local, "run/2"));
    assert_ok(save(self->store, "run/a/4", 4, 0));
    assert_false(exists(self->local, "run/2"));
    assert_true(exists(self->local, "run/1")); /* it has an alias */
    assert_true(exists(self->local, "run/3"));
    assert_ok(save(self->store, "run/a/5", 5, 0));
    assert_false(exists(self->local, "run/a/4"));
    assert_true(exists(self->local, "run/3"));
    assert_ok(save(self->store, "else/1", 6, 0));
    assert_ok(lig_store_restore(self->store, "run/2", "kept"));
    assert_true(exists(self->local, "kept"));
    expect_sound(self->local);
}

static void test_a_retired_model_comes_back(void **state)
{
    fixture *self = *state;
    lig_tensor tensor = tensor_of(back, &length);
    lig_report *report;
    assert_ok(save(self->store, "m", 1, 0));
    assert_ok(lig_store_alias(self->store, "alias", "m"));
    assert_ok(lig_store_retire(self->store, "m"));
    assert_false(exists(self->store, "m"));
    assert_false(exists(self->store, "alias"));
    expect_sound(self->local);
    assert_ok(lig_store_compact(self->store, &report));
    lig_report_destroy(report);
    assert_ok(save(self->store, "m", 2, 0));
    assert_status(lig_store_restore(self->store, "m", NULL), LIG_E_EXISTS);
    assert_says("--as");
    assert_status(lig_store_restore(self->store, "none", NULL), LIG_E_NOTFOUND);
    assert_ok(lig_store_restore(self->store, "m", "old"));
    assert_status(lig_store_restore(self->store, "m", "older"), LIG_E_NOTFOUND);
    assert_ok(lig_store_load(self->store, "old", &tensor, 1));
    assert_int_equal((int)back[0], 1);
    expect_sound(self->local);
    assert_ok(lig_store_retire(self->local, "old")); /* a local store keeps nothing */
    assert_status(lig_store_restore(self->local, "old", NULL), LIG_E_NOTFOUND);
    expect_sound(self->local);
}

/* A model of a few bytes is in the catalog; one with a graph is found by search again. */
static void test_small_models_and_graphs_come_back(void **state)
{
    fixture *self = *state;
    int64_t few = 4;
    lig_tensor tensor = tensor_of(data, &few);
    const lig_layer layer = {.name = "w", .signature = "dense 3", .signature_bytes = 7};
    const lig_call call = {.layer = 0};
    const lig_graph graph = {
        .kind = "test", .layers = &layer, .calls = &call, .layer_count = 1, .call_count = 1};
    lig_save_options options = LIG_SAVE_INIT;
    lig_match **matches;
    size_t count;
    options.graphs = &graph;
    options.graph_count = 1;
    for (int i = 0; i < 4; i++)
        data[i] = (float)(7 * i);
    assert_ok(lig_store_save(self->store, "small", &tensor, 1, &options));
    assert_ok(lig_store_retire(self->store, "small"));
    assert_ok(lig_store_find(self->store, &graph, NULL, &matches, &count));
    assert_int_equal(count, 0);
    lig_matches_destroy(matches, count);
    expect_sound(self->local);
    assert_ok(lig_store_restore(self->store, "small", NULL));
    assert_ok(lig_store_find(self->store, &graph, NULL, &matches, &count));
    assert_int_equal(count, 1);
    lig_matches_destroy(matches, count);
    tensor.data = back;
    assert_ok(lig_store_load(self->store, "small", &tensor, 1));
    assert_memory_equal(back, data, 16);
    expect_sound(self->local);
}

static void test_what_is_overdue_is_removed(void **state)
{
    fixture *self = *state;
    lig_store_stats stats;
    uint64_t freed = 0;
    assert_ok(save(self->store, "m", 1, 0));
    assert_ok(lig_store_retire(self->store, "m"));
    assert_ok(ligi_retired_purge(self->local, &freed));
    assert_int_equal(freed, 0);
    assert_ok(lig_store_stat(self->local, &stats));
    assert_int_equal(stats.packs, 1);
    assert_ok(lig_store_restore(self->store, "m", NULL));
    self->local->undelete_ns = 1;
    assert_ok(lig_store_retire(self->local, "m"));
    assert_ok(ligi_retired_purge(self->local, &freed));
    assert_true(freed >= BYTES);
    assert_ok(lig_store_stat(self->local, &stats));
    assert_int_equal(stats.packs, 0);
    assert_status(lig_store_restore(self->store, "m", NULL), LIG_E_NOTFOUND);
    expect_sound(self->local);
}

static void test_rules_that_cannot_be(void **state)
{
    lig_server *server;
    lig_server_options options = LIG_SERVER_INIT;
    const lig_server_rule no_slash = {"team", 5}, none = {"team/", 0};
    (void)state;
    options.quotas = &no_slash;
    options.quota_count = 1;
    assert_status(lig_server_open(&server, "mem:", &options), LIG_E_INVALID);
    assert_says("'team'");
    options.quota_count = 0;
    options.keeps = &none;
    options.keep_count = 1;
    assert_status(lig_server_open(&server, "mem:", &options), LIG_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_quota_counts_what_was_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sharing_does_not_evade_a_quota, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_model_is_not_moved_above_a_quota, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_retired_models_of_a_name_are_removed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_newest_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_retired_model_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_models_and_graphs_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_overdue_is_removed, set_up, tear_down),
        cmocka_unit_test(test_rules_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
