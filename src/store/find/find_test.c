#include "base/test.h"
#include "store/search/layer_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/served_scene.h"

enum { LAYERS_MAX = 12 };
#define PACKED_BYTES (64 << 10)

/* A chain of layers with one tensor each; the tensor of layer i contains the number of the saved
 * model. */
typedef struct chain {
    char names[LAYERS_MAX][16], tensor_names[LAYERS_MAX][24];
    lig_layer layers[LAYERS_MAX];
    lig_input inputs[LAYERS_MAX];
    lig_call calls[LAYERS_MAX];
    float values[LAYERS_MAX][4];
    int64_t shapes[LAYERS_MAX];
    lig_tensor tensors[LAYERS_MAX + 1];
    lig_graph graph;
    char text[LAYERS_MAX + 1];
} chain;

static void make_chain(chain *c, const char *signatures, const char *prefix, float value)
{
    memset(c, 0, sizeof *c);
    snprintf(c->text, sizeof c->text, "%s", signatures);
    size_t count = strlen(signatures);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(c->names[i], sizeof c->names[i], "%s%u", prefix, i);
        snprintf(c->tensor_names[i], sizeof c->tensor_names[i], "%s%u.w", prefix, i);
        c->layers[i] = (lig_layer){c->names[i], &c->text[i], 1};
        c->inputs[i] = (lig_input){i - 1, 0};
        c->calls[i] = (lig_call){i, i > 0, &c->inputs[i]};
        c->shapes[i] = 1 + signatures[i] % 4;
        for (int j = 0; j < 4; j++)
            c->values[i][j] = value + (float)i;
        c->tensors[i] = (lig_tensor){.name = c->tensor_names[i],
                                     .data = c->values[i],
                                     .bytes = 4 * (uint64_t)c->shapes[i],
                                     .shape = &c->shapes[i],
                                     .ndim = 1,
                                     .dtype = LIG_FLOAT32};
    }
    c->graph = (lig_graph){"test/1", c->layers, c->calls, count, count};
}

/* `ballast` bytes more: a model of 64 KiB is stored in a pack, not in the catalog. */
static void save_heavy(lig_store *store, const char *name, const char *signatures, double metric,
                       const char *tag, int64_t ballast)
{
    static const uint8_t zeros[PACKED_BYTES];
    static chain c;
    make_chain(&c, signatures, "s", (float)metric);
    c.tensors[c.graph.layer_count] = (lig_tensor){.name = "ballast",
                                                  .data = (void *)zeros,
                                                  .bytes = (uint64_t)ballast,
                                                  .shape = &ballast,
                                                  .ndim = 1,
                                                  .dtype = LIG_UINT8};
    lig_metric metrics[] = {{"val_acc", metric}};
    lig_tag tags[] = {{"run", tag}};
    lig_save_options options = LIG_SAVE_INIT;
    options.metrics = metrics, options.metric_count = 1;
    options.tags = tags, options.tag_count = 1;
    options.graphs = &c.graph, options.graph_count = 1;
    assert_ok(
        lig_store_save(store, name, c.tensors, c.graph.layer_count + (ballast > 0), &options));
}

static void save_chain(lig_store *store, const char *name, const char *signatures, double metric,
                       const char *tag)
{
    save_heavy(store, name, signatures, metric, tag, 0);
}

/* Finds with default options; "" when nothing is shared. */
static const char *found(lig_store *store, const char *signatures, const lig_find_options *options,
                         size_t *layers)
{
    static char name[64];
    static chain c;
    lig_match **matches = NULL;
    size_t count = 99;
    make_chain(&c, signatures, "q", 0);
    assert_ok(lig_store_find(store, &c.graph, options, &matches, &count));
    name[0] = '\0';
    *layers = 0;
    if (count) {
        snprintf(name, sizeof name, "%s", matches[0]->model->name);
        *layers = matches[0]->layer_count;
    }
    lig_matches_destroy(matches, count);
    return name;
}

static lig_store *open_store(const char *uri)
{
    lig_store *store = NULL;
    assert_ok(lig_store_open(&store, uri));
    return store;
}

static void best_is_found(void **state)
{
    (void)state;
    lig_store *store = open_store("mem:");
    size_t layers;
    assert_string_equal(found(store, "iabc", NULL, &layers), "");
    save_chain(store, "short", "iabx", .9, "a");
    save_chain(store, "long", "iabcd", .1, "a");
    save_chain(store, "other", "xabcd", .99, "b");
    assert_string_equal(found(store, "iabcz", NULL, &layers), "long");
    assert_int_equal(layers, 4);
    lig_find_options options = LIG_FIND_INIT;
    options.prefer = "val_acc";
    assert_string_equal(found(store, "iabz", &options, &layers), "short");
    assert_int_equal(layers, 3);
    options.prefer = "-val_acc";
    assert_string_equal(found(store, "iabz", &options, &layers), "long");
    options.prefer = NULL;
    assert_string_equal(found(store, "iabz", &options, &layers), "long");
    const char *exclude[] = {"long", "nobody"};
    options.exclude = exclude, options.exclude_count = 2;
    assert_string_equal(found(store, "iabcz", &options, &layers), "short");
    options.exclude_count = 0;
    lig_tag tag = {"run", "b"};
    options.tags = &tag, options.tag_count = 1;
    assert_string_equal(found(store, "iabcz", &options, &layers), "");
    assert_string_equal(found(store, "xabcz", &options, &layers), "other");
    lig_store_close(store);
}

static void updates_and_retirement_are_seen(void **state)
{
    (void)state;
    lig_store *store = open_store("mem:");
    size_t layers;
    save_chain(store, "one", "iab", .1, "a");
    save_chain(store, "two", "iab", .2, "a");
    lig_find_options options = LIG_FIND_INIT;
    options.prefer = "val_acc";
    assert_string_equal(found(store, "iab", &options, &layers), "two");
    lig_metric better = {"val_acc", .5};
    lig_tag moved = {"run", "b"};
    lig_update update = LIG_UPDATE_INIT;
    update.metrics = &better, update.metric_count = 1;
    update.tags = &moved, update.tag_count = 1;
    update.name = "uno";
    assert_ok(lig_store_update(store, "one", &update));
    assert_string_equal(found(store, "iab", &options, &layers), "uno");
    lig_tag tag = {"run", "a"};
    options.tags = &tag, options.tag_count = 1;
    assert_string_equal(found(store, "iab", &options, &layers), "two");
    options.tag_count = 0;
    assert_ok(lig_store_retire(store, "uno"));
    assert_string_equal(found(store, "iab", &options, &layers), "two");
    assert_ok(lig_store_retire(store, "two"));
    assert_string_equal(found(store, "iab", &options, &layers), "");
    lig_store_close(store);
}

/* Packs that only a match held are removed with it. */
static int is_clean(lig_store *store)
{
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    int clean = report->problem_count == 0 && report->leftover_bytes == 0;
    lig_report_destroy(report);
    return clean;
}

/* A match loads under the requesting model's names, even if its model was removed meanwhile. */
static void a_match_holds_what_it_names(void **state)
{
    const char *uri = *state;
    lig_store *store = open_store(uri);
    save_heavy(store, "parent", "iabc", 7, "a", PACKED_BYTES);
    static chain c;
    make_chain(&c, "iabz", "q", 0);
    lig_match **matches;
    size_t count;
    assert_ok(lig_store_find(store, &c.graph, NULL, &matches, &count));
    assert_int_equal(count, 1);
    assert_int_equal(matches[0]->tensor_count, 3);
    assert_string_equal(matches[0]->tensors[2].name, "q2.w");
    assert_true(matches[0]->expires_ns > 0);
    assert_ok(lig_store_retire(store, "parent"));
    lig_report *report;
    assert_ok(lig_store_compact(store, &report));
    lig_report_destroy(report);
    assert_ok(lig_store_load_match(store, matches[0], c.tensors, 3));
    for (int i = 0; i < 3; i++)
        assert_true(c.values[i][0] == 7 + (float)i);
    assert_status(lig_store_load_match(store, matches[0], c.tensors, 4), LIG_E_MISMATCH);
    assert_says("'q3.w'");
    lig_store *other = open_store("mem:");
    assert_status(lig_store_load_match(other, matches[0], c.tensors, 3), LIG_E_INVALID);
    lig_store_close(other);
    lig_match_release(matches[0]);
    assert_true(matches[0]->expires_ns == 0);
    lig_matches_destroy(matches, count);
    scene_eventually(is_clean(store));
    assert_true(is_clean(store));
    lig_store_stats stats;
    assert_ok(lig_store_stat(store, &stats));
    assert_true(stats.packs == 0);
    lig_store_close(store);
}

/* The original's algorithm, model by model: compares prefixes of chains one layer at a time. */
typedef struct record {
    char name[16], text[LAYERS_MAX + 1];
    double metric;
    int live;
} record;

static size_t common(const char *a, const char *b)
{
    size_t count = 0;
    while (a[count] && a[count] == b[count])
        count++;
    return count;
}

static const record *scan(const record *records, size_t count, const char *asked, size_t *layers)
{
    const record *best = NULL;
    *layers = 0;
    for (size_t i = 0; i < count; i++) {
        size_t shared = records[i].live ? common(records[i].text, asked) : 0;
        if (shared == 0)
            continue;
        if (best == NULL || shared > *layers ||
            (shared == *layers && records[i].metric >= best->metric)) {
            best = &records[i];
            *layers = shared;
        }
    }
    return best;
}

static void random_text(char *text)
{
    size_t count = 2 + (size_t)rand() % (LAYERS_MAX - 2);
    text[0] = 'i';
    for (size_t i = 1; i < count; i++)
        text[i] = (char)('a' + rand() % 2);
    text[count] = '\0';
}

static void index_equals_a_scan(void **state)
{
    (void)state;
    enum { MODELS = 300 };
    static record records[MODELS];
    lig_store *store = open_store("mem:");
    srand(9);
    for (size_t i = 0; i < MODELS; i++) {
        snprintf(records[i].name, sizeof records[i].name, "m%zu", i);
        random_text(records[i].text);
        records[i].metric = rand() % 5;
        records[i].live = 1;
        save_chain(store, records[i].name, records[i].text, records[i].metric, "a");
        if (rand() % 3 == 0) {
            record *victim = &records[(size_t)rand() % (i + 1)];
            if (victim->live)
                assert_ok(lig_store_retire(store, victim->name));
            victim->live = 0;
        }
        char asked[LAYERS_MAX + 1];
        random_text(asked);
        lig_find_options options = LIG_FIND_INIT;
        options.prefer = "val_acc";
        size_t expected, layers;
        const record *best = scan(records, i + 1, asked, &expected);
        assert_string_equal(found(store, asked, &options, &layers), best ? best->name : "");
        assert_int_equal(layers, expected);
    }
    lig_report *report;
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
    lig_store_close(store);
}

static void several_come_in_order(void **state)
{
    (void)state;
    lig_store *store = open_store("mem:");
    save_chain(store, "two", "ia", .9, "a");
    save_chain(store, "four", "iabc", .1, "a");
    save_chain(store, "three", "iab", .1, "a");
    save_chain(store, "threes", "iabx", .2, "a");
    static chain c;
    make_chain(&c, "iabcd", "q", 0);
    lig_find_options options = LIG_FIND_INIT;
    options.limit = 3;
    options.prefer = "val_acc";
    lig_match **matches;
    size_t count;
    assert_ok(lig_store_find(store, &c.graph, &options, &matches, &count));
    assert_int_equal(count, 3);
    assert_string_equal(matches[0]->model->name, "four");
    assert_string_equal(matches[1]->model->name, "threes");
    assert_string_equal(matches[2]->model->name, "three");
    lig_matches_destroy(matches, count);
    lig_store_close(store);
}

static void graphs_survive_a_lost_catalog(void **state)
{
    scene_local_only();
    (void)state;
    char folder[] = "/tmp/find_testXXXXXX", command[96], uri[96];
    assert_non_null(mkdtemp(folder));
    snprintf(uri, sizeof uri, "file://%s", folder);
    lig_store *store = open_store(uri);
    size_t layers;
    save_heavy(store, "kept", "iabc", .3, "a", PACKED_BYTES);
    lig_store_close(store);
    snprintf(command, sizeof command, "rm -r %s/log %s/index.mdb*", folder, folder);
    assert_int_equal(system(command), 0);
    store = open_store(uri);
    lig_tag tag = {"run", "a"};
    lig_find_options options = LIG_FIND_INIT;
    options.tags = &tag, options.tag_count = 1;
    assert_string_equal(found(store, "iabz", &options, &layers), "kept");
    assert_int_equal(layers, 3);
    lig_store_close(store);
    assert_int_equal(system(command), 0);
    snprintf(uri, sizeof uri, "file://%s?mode=r", folder);
    store = open_store(uri);
    assert_string_equal(found(store, "iabz", &options, &layers), "kept");
    lig_store_close(store);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static const char *found_like(lig_store *store, const char *model, const lig_find_options *options)
{
    static char name[64];
    lig_match **matches = NULL;
    size_t count = 99;
    assert_ok(lig_store_find_like(store, model, options, &matches, &count));
    snprintf(name, sizeof name, "%s", count ? matches[0]->model->name : "");
    lig_matches_destroy(matches, count);
    return name;
}

static void a_stored_model_finds_others(void **state)
{
    (void)state;
    lig_store *store = open_store("mem:");
    lig_match **matches = NULL;
    size_t count = 0;
    save_chain(store, "first", "iabc", .1, "a");
    save_chain(store, "second", "iabx", .2, "a");
    assert_ok(lig_store_alias(store, "best", "first"));
    assert_string_equal(found_like(store, "first", NULL), "second");
    assert_string_equal(found_like(store, "best", NULL), "second");
    lig_find_options options = LIG_FIND_INIT;
    options.exclude = (const char *const[]){"second", "absent"}, options.exclude_count = 2;
    assert_string_equal(found_like(store, "best", &options), "");
    assert_int_equal(lig_store_find_like(store, "absent", NULL, &matches, &count), LIG_E_NOTFOUND);
    assert_int_equal(lig_store_find_like(store, NULL, NULL, &matches, &count), LIG_E_INVALID);
    assert_ok(lig_store_save(store, "bare", NULL, 0, NULL));
    assert_int_equal(lig_store_find_like(store, "bare", NULL, &matches, &count), LIG_E_INVALID);
    assert_non_null(strstr(lig_error_text(), "'bare' was saved without a graph"));
    lig_store_close(store);
}

int main(void)
{
    char folder[] = "/tmp/find_testXXXXXX", uri[64], command[64];
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(uri, sizeof uri, "file://%s", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_is_found),
        cmocka_unit_test(updates_and_retirement_are_seen),
        cmocka_unit_test_prestate(a_match_holds_what_it_names, "mem:"),
        cmocka_unit_test_prestate(a_match_holds_what_it_names, uri),
        cmocka_unit_test(index_equals_a_scan),
        cmocka_unit_test(several_come_in_order),
        cmocka_unit_test(a_stored_model_finds_others),
        cmocka_unit_test(graphs_survive_a_lost_catalog),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return failed + (system(command) != 0);
}
