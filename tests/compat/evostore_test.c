/* EvoStore's C functions, loaded as its scripts load them. */
#include "store_scene.h"

#include <ligament/evostore.h>

#include <dlfcn.h>
#include <math.h>
#include <sys/wait.h>

#define FUNCTION(name) static __typeof__(name) *evo_##name
FUNCTION(set_servers);
FUNCTION(get_prefix);
FUNCTION(get_composition);
FUNCTION(store_layers);
FUNCTION(read_layers);
FUNCTION(store_meta);
FUNCTION(update_ref_counter);
FUNCTION(get_num_time_stamps);
FUNCTION(get_time_stamps);
FUNCTION(clear_time_stamps);
FUNCTION(get_num_time_stamps_by_key);
FUNCTION(get_time_stamps_by_key);
FUNCTION(clear_time_stamps_by_key);
FUNCTION(lig_evostore_status);
FUNCTION(lig_evostore_stored);
static int (*evo_shutdown)(void);

#define FIND(name) assert_non_null(*(void **)&evo_##name = dlsym(library, #name))

static void load_library(void)
{
    void *library = dlopen("libligament_evostore.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail_msg("%s", dlerror());
    FIND(set_servers);
    FIND(get_prefix);
    FIND(get_composition);
    FIND(store_layers);
    FIND(read_layers);
    FIND(store_meta);
    FIND(update_ref_counter);
    FIND(get_num_time_stamps);
    FIND(get_time_stamps);
    FIND(clear_time_stamps);
    FIND(get_num_time_stamps_by_key);
    FIND(get_time_stamps_by_key);
    FIND(clear_time_stamps_by_key);
    FIND(lig_evostore_status);
    FIND(lig_evostore_stored);
    FIND(shutdown);
}

static void serve(const char *place)
{
    if (evo_get_prefix == NULL)
        load_library();
    assert_int_equal(evo_set_servers(place, strlen(place)), 0);
}

#define assert_true_or_text(call)                                                                  \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, lig_error_text());                                           \
    } while (0)

/* --- a chain of layers 1000, 2000, ... with two tensors each --- */

enum { LAYERS = 5, VALUES = 3000 };

typedef struct chain {
    uint64_t layers[LAYERS], edges[2 * LAYERS - 2], lids[2 * LAYERS], owners[2 * LAYERS];
    float values[2 * LAYERS][VALUES];
    unsigned char *data[2 * LAYERS];
    uint64_t sizes[2 * LAYERS];
} chain;

/* The layers before `changed` are the parent's. */
static void chain_make(chain *one, uint64_t id, int changed, const chain *parent)
{
    for (int i = 0; i < LAYERS; i++) {
        one->layers[i] = i < changed ? parent->layers[i] : (uint64_t)(i + 1) * 1000 + id * 100000;
        if (i > 0) {
            one->edges[2 * i - 2] = one->layers[i - 1];
            one->edges[2 * i - 1] = one->layers[i];
        }
        for (int j = 0; j < 2; j++) {
            int at = 2 * i + j;
            one->lids[at] = one->layers[i] + (uint64_t)j;
            one->owners[at] = id;
            one->sizes[at] = sizeof one->values[at];
            one->data[at] = (unsigned char *)one->values[at];
            scene_fill(one->values[at], sizeof one->values[at], id * 100 + (uint64_t)at);
        }
    }
}

static void store_tail(chain *one, uint64_t id, int first, float val_acc)
{
    assert_true_or_text(evo_store_layers(id, one->lids + 2 * first, one->sizes + 2 * first,
                                         one->data + 2 * first, 2 * (LAYERS - first)));
    assert_true_or_text(evo_store_meta(id, one->edges, 2 * LAYERS - 2, one->lids, one->owners,
                                       one->sizes, 2 * LAYERS, val_acc));
}

/* A child of `parent` that shares all layers before `changed`. Both are known to `find` a prefix of
 * that length. */
static void store_child(chain *child, uint64_t id, int changed, chain *parent, uint64_t parent_id)
{
    uint64_t found = 0, prefix[2 * LAYERS];
    chain_make(child, id, changed, parent);
    assert_int_equal(evo_get_prefix(child->edges, 2 * LAYERS - 2, &found, prefix), changed);
    assert_int_equal(found, parent_id);
    assert_memory_equal(prefix, child->layers, (size_t)changed * sizeof *prefix);
    assert_int_equal(evo_get_composition(parent_id, child->lids, child->owners, 2 * changed),
                     2 * changed);
    for (int i = 0; i < 2 * changed; i++)
        memcpy(child->values[i], parent->values[i], sizeof child->values[i]);
    store_tail(child, id, changed, NAN);
}

static void check_model(const chain *one, uint64_t id)
{
    static float back[2 * LAYERS][VALUES];
    unsigned char *data[2 * LAYERS];
    uint64_t owners[2 * LAYERS];
    for (int i = 0; i < 2 * LAYERS; i++)
        data[i] = (unsigned char *)back[i];
    memset(back, 0, sizeof back);
    assert_int_equal(evo_get_composition(id, one->lids, owners, 2 * LAYERS), 2 * LAYERS);
    assert_memory_equal(owners, one->owners, sizeof owners);
    assert_true_or_text(evo_read_layers(id, one->lids, data, 2 * LAYERS));
    assert_memory_equal(back, one->values, sizeof back);
}

static void test_generations(void **state)
{
    scene *places = *state;
    static chain a, b, c;
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    store_child(&b, 2, 3, &a, 1);
    store_child(&c, 3, 4, &b, 2);
    assert_int_equal(c.owners[0], 1);
    assert_int_equal(c.owners[6], 2);
    assert_int_equal(c.owners[9], 3);
    check_model(&a, 1);
    check_model(&b, 2);
    check_model(&c, 3);

    assert_true(evo_update_ref_counter(3, 1));
    assert_true(evo_update_ref_counter(3, -1)); /* a child goes: its ancestors stay published */
    assert_false(evo_update_ref_counter(3, -1));
    assert_int_equal(evo_lig_evostore_status(), LIG_E_NOTFOUND);
    check_model(&a, 1);
    check_model(&b, 2);
    assert_true(evo_update_ref_counter(1, -1)); /* an ancestor goes: what is inherited stays */
    check_model(&b, 2);
    uint64_t found, prefix[2 * LAYERS];
    assert_int_equal(evo_get_prefix(a.edges, 2 * LAYERS - 2, &found, prefix), 3);
    assert_int_equal(found, 2);

    lig_store *store;
    lig_store_stats stats;
    assert_int_equal(evo_shutdown(), 0);
    assert_ok(lig_store_open(&store, places->file));
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 1);
    assert_int_equal(stats.bytes, sizeof b.values);
    lig_store_close(store);
    check_model(&b, 2); /* the stores are opened again */
    evo_shutdown();
}

static uint64_t stored_bytes(const char *place)
{
    lig_store *store;
    lig_model *model;
    assert_ok(lig_store_open(&store, place));
    assert_ok(lig_store_model(store, "2", &model));
    uint64_t own = model->own_bytes;
    assert_string_equal(model->parent_name, "1");
    lig_model_destroy(model);
    lig_store_close(store);
    return own;
}

static void test_inherited_is_not_written(void **state)
{
    scene *places = *state;
    static chain a, b;
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, 0.5f);
    store_child(&b, 2, 3, &a, 1);
    evo_shutdown();
    assert_int_equal(stored_bytes(places->file), 4 * sizeof b.values[0]);
}

/* The parent is retired between the search and the store of the child. */
static void test_lease(void **state)
{
    scene *places = *state;
    static chain a, b;
    uint64_t found, prefix[2 * LAYERS];
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    chain_make(&b, 2, 3, &a);
    assert_int_equal(evo_get_prefix(b.edges, 2 * LAYERS - 2, &found, prefix), 3);
    assert_true(evo_update_ref_counter(1, -1));
    assert_int_equal(evo_get_composition(1, b.lids, b.owners, 6), 6);
    unsigned char *data[6];
    for (int i = 0; i < 6; i++)
        data[i] = (unsigned char *)b.values[i];
    assert_true_or_text(evo_read_layers(1, b.lids, data, 6));
    assert_memory_equal(b.values, a.values, 6 * sizeof a.values[0]);
    store_tail(&b, 2, 3, NAN);
    check_model(&b, 2);
    uint64_t owners[2];
    assert_int_equal(evo_get_composition(1, b.lids, owners, 2), 0); /* the lease is over */
    assert_int_equal(owners[0], 0);
    evo_shutdown();
}

static void test_better_model_wins(void **state)
{
    scene *places = *state;
    static chain a, b, c;
    uint64_t found, prefix[2 * LAYERS];
    serve(places->memory);
    chain_make(&a, 1, 0, NULL);
    chain_make(&b, 2, 3, &a);
    chain_make(&c, 3, 3, &a);
    store_tail(&a, 1, 0, 0.9f);
    store_tail(&b, 2, 0, 0.2f);
    assert_int_equal(evo_get_prefix(c.edges, 2 * LAYERS - 2, &found, prefix), 3);
    assert_int_equal(found, 1);
    assert_true(evo_update_ref_counter(1, -1));
    assert_int_equal(evo_get_prefix(c.edges, 2 * LAYERS - 2, &found, prefix), 3);
    assert_int_equal(found, 2);
    evo_shutdown();
}

/* Models without weights: only their composition is stored. */
static void test_announced(void **state)
{
    scene *places = *state;
    static chain a, b;
    uint64_t found, prefix[2 * LAYERS], owners[2 * LAYERS];
    unsigned char stored[2 * LAYERS];
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    assert_true_or_text(
        evo_store_meta(1, a.edges, 2 * LAYERS - 2, a.lids, a.owners, a.sizes, 2 * LAYERS, 0.5f));
    chain_make(&b, 2, 3, &a);
    assert_int_equal(evo_get_prefix(b.edges, 2 * LAYERS - 2, &found, prefix), 3);
    assert_int_equal(evo_get_composition(1, b.lids, b.owners, 6), 6);
    assert_int_equal(b.owners[0], 1);
    assert_int_equal(evo_lig_evostore_stored(1, b.lids, b.owners, 6, stored), 0);
    float before = b.values[0][0];
    unsigned char *data[1] = {(unsigned char *)b.values[0]};
    assert_true_or_text(evo_read_layers(1, b.lids, data, 1));
    assert_true(b.values[0][0] == before);
    store_tail(&b, 2, 3, NAN);
    assert_int_equal(evo_get_composition(2, b.lids, owners, 2 * LAYERS), 2 * LAYERS);
    assert_memory_equal(owners, b.owners, sizeof owners);
    assert_int_equal(evo_lig_evostore_stored(2, b.lids, b.owners, 2 * LAYERS, stored), 4);
    /* EvoStore's store_meta(id, config) names every tensor by the model's number. */
    for (int i = 0; i < LAYERS; i++)
        owners[i] = 7;
    assert_true_or_text(
        evo_store_meta(7, a.edges, 2 * LAYERS - 2, owners, owners, owners, LAYERS, NAN));
    evo_shutdown();
}

/* A model of the same number is replaced; who inherited from the old one keeps what it has. */
static void test_replaced(void **state)
{
    scene *places = *state;
    static chain a, b, again;
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    store_child(&b, 2, 3, &a, 1);
    chain_make(&again, 1, 0, NULL);
    for (int i = 0; i < 2; i++)
        scene_fill(again.values[i], sizeof again.values[i], 77);
    assert_true_or_text(evo_store_layers(1, again.lids, again.sizes, again.data, 2));
    assert_true_or_text(evo_store_layers(1, again.lids, again.sizes, again.data, 2));
    assert_true_or_text(evo_store_meta(1, again.edges, 2 * LAYERS - 2, again.lids, again.owners,
                                       again.sizes, 2 * LAYERS, NAN));
    check_model(&again, 1);
    check_model(&b, 2);
    evo_shutdown();
}

static void test_several_stores(void **state)
{
    scene *places = *state;
    static chain a, b;
    char list[300];
    int used = snprintf(list, sizeof list, "%s/one%c%s/other", places->folder, 0, places->folder);
    if (evo_get_prefix == NULL)
        load_library();
    assert_int_equal(evo_set_servers(list, (size_t)used), 0);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    store_child(&b, 2, 3, &a, 1);
    check_model(&a, 1);
    check_model(&b, 2);
    assert_true(evo_update_ref_counter(1, -1));
    check_model(&b, 2);
    assert_int_equal(evo_set_servers(list, (size_t)used), 0);
    evo_shutdown();
    lig_store *store;
    lig_store_stats stats;
    snprintf(list, sizeof list, "%s/one?mode=r", places->folder);
    assert_ok(lig_store_open(&store, list));
    assert_ok(lig_store_stat(store, &stats));
    assert_int_equal(stats.models, 1); /* 2 % 2 */
    lig_store_close(store);
}

static void test_failures(void **state)
{
    scene *places = *state;
    static chain a;
    uint64_t owners[2] = {5, 5}, found = 3, prefix[2 * LAYERS];
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    assert_int_equal(evo_get_prefix(a.edges, 2 * LAYERS - 2, &found, prefix), 0);
    assert_int_equal(evo_lig_evostore_status(), LIG_OK);
    assert_int_equal(evo_get_prefix(a.edges, 1, &found, prefix), 0);
    assert_int_equal(evo_lig_evostore_status(), LIG_OK);
    assert_false(evo_store_meta(1, a.edges, 4, a.lids, owners, a.sizes, 2, NAN));
    assert_int_equal(evo_lig_evostore_status(), LIG_E_NOTFOUND);
    assert_non_null(strstr(lig_error_text(), "tensor 101000 of model 5"));
    assert_int_equal(evo_get_composition(1, a.lids, owners, 2), 0);
    assert_false(evo_store_meta(1, a.edges, 0, a.lids, a.owners, a.sizes, 2, NAN));
    assert_int_equal(evo_lig_evostore_status(), LIG_E_INVALID);
    assert_false(evo_read_layers(9, a.lids, a.data, 2));
    assert_int_equal(evo_lig_evostore_status(), LIG_E_NOTFOUND);
    assert_true_or_text(evo_store_layers(1, a.lids, a.sizes, a.data, 4));
    assert_false(evo_store_layers(1, a.lids, a.sizes, a.data, 2));
    assert_int_equal(evo_lig_evostore_status(), LIG_E_EXISTS);
    assert_int_equal(evo_set_servers("", 0), 1);
    serve("nobody:there");
    assert_int_equal(evo_get_prefix(a.edges, 2 * LAYERS - 2, &found, prefix), 0);
    assert_int_equal(evo_lig_evostore_status(), LIG_E_NOTFOUND);
    evo_shutdown();
}

static void test_fork(void **state)
{
    scene *places = *state;
    static chain a, b;
    int status;
    serve(places->file);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    pid_t child = fork();
    if (child == 0) {
        store_child(&b, 2, 3, &a, 1);
        evo_shutdown();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    store_child(&b, 3, 3, &a, 2); /* of two that share as much, the newer */
    uint64_t owners[1];
    assert_int_equal(evo_get_composition(2, b.lids, owners, 1), 1);
    evo_shutdown();
}

static void test_time_stamps(void **state)
{
    scene *places = *state;
    static chain a;
    uint64_t stamps[64];
    serve(places->memory);
    evo_clear_time_stamps();
    assert_int_equal(evo_get_num_time_stamps(), 0);
    chain_make(&a, 1, 0, NULL);
    store_tail(&a, 1, 0, NAN);
    evo_update_ref_counter(1, -1);
    assert_int_equal(evo_get_num_time_stamps(), 6);
    assert_int_equal(evo_get_time_stamps(stamps), 6);
    for (int i = 1; i < 6; i++)
        assert_true(stamps[i] >= stamps[i - 1]);
    assert_int_equal(evo_get_num_time_stamps_by_key("store_meta"), 2);
    assert_int_equal(evo_get_time_stamps_by_key(stamps + 6, "store_meta"), 2);
    assert_memory_equal(stamps + 2, stamps + 6, 2 * sizeof *stamps);
    assert_true(evo_clear_time_stamps_by_key("store_meta"));
    assert_int_equal(evo_get_num_time_stamps_by_key("store_meta"), 0);
    assert_int_equal(evo_get_num_time_stamps_by_key("nothing"), -1);
    assert_int_equal(evo_get_time_stamps_by_key(stamps, "nothing"), -1);
    assert_false(evo_clear_time_stamps_by_key("nothing"));
    evo_clear_time_stamps();
    for (int i = 0; i < 65536 + 10; i++)
        evo_get_composition(1, a.lids, a.owners, 0);
    assert_int_equal(evo_get_num_time_stamps_by_key("get_composition"), 2 * 65536);
    evo_shutdown();
}

/* --- the prefix, against the rule as it is written --- */

enum { VERTICES = 12 };

typedef struct picture { /* edge[i][j]: from i to j */
    unsigned char edge[VERTICES][VERTICES];
} picture;

static int has_vertex(const picture *one, int v)
{
    for (int i = 0; i < VERTICES; i++)
        if (one->edge[v][i] || one->edge[i][v])
            return 1;
    return 0;
}

/* In both, with equal inputs, all of which are in the prefix: the smallest such set is grown from
 * nothing. */
static int slow_prefix(const picture *a, const picture *b, unsigned char in[VERTICES])
{
    int count = 0;
    memset(in, 0, VERTICES);
    for (int changed = 1; changed;) {
        changed = 0;
        for (int v = 0; v < VERTICES; v++) {
            int fits = !in[v] && has_vertex(a, v) && has_vertex(b, v);
            for (int u = 0; u < VERTICES; u++)
                fits = fits && a->edge[u][v] == b->edge[u][v] && (!a->edge[u][v] || in[u]);
            in[v] |= (unsigned char)fits;
            changed |= fits;
            count += fits;
        }
    }
    return count;
}

/* In a random order, some pairs twice. */
static int list_edges(const picture *one, uint64_t *seed, uint64_t *edges)
{
    int count = 0;
    for (int i = 0; i < VERTICES; i++)
        for (int j = 0; j < VERTICES; j++)
            for (int k = 0; one->edge[i][j] && k < 1 + (scene_random(seed) % 4 == 0); k++) {
                int at = (int)(scene_random(seed) % (uint64_t)(count + 1));
                edges[2 * count] = edges[2 * at];
                edges[2 * count + 1] = edges[2 * at + 1];
                edges[2 * at] = UINT64_MAX - (uint64_t)i;
                edges[2 * at + 1] = UINT64_MAX - (uint64_t)j;
                count++;
            }
    return 2 * count;
}

static void test_prefix_random(void **state)
{
    (void)state;
    uint64_t seed = 11, edges[2][4 * VERTICES * VERTICES], prefix[4 * VERTICES * VERTICES];
    uint64_t lids[2] = {5, 6}, owners[2] = {1, 1}, found;
    int total = 0;
    for (int round = 0; round < 400; round++) {
        picture pictures[2] = {{{{0}}}};
        char place[32];
        int words[2];
        int back = round % 5 == 0; /* with an edge back, so that there may be cycles */
        for (int i = 0; i < VERTICES; i++)
            for (int j = 0; j < VERTICES; j++)
                if ((j > i && scene_random(&seed) % 4 == 0) ||
                    (back && scene_random(&seed) % 60 == 0))
                    pictures[0].edge[i][j] = 1;
        pictures[0].edge[0][1] = 1;
        pictures[1] = pictures[0];
        for (int i = 0; i < (int)(scene_random(&seed) % 4); i++) {
            unsigned char *edge = &pictures[1].edge[scene_random(&seed) % (VERTICES - 1)]
                                                   [VERTICES - 1 - scene_random(&seed) % 8];
            *edge = !*edge;
        }
        pictures[1].edge[0][1] = 1;
        for (int i = 0; i < 2; i++)
            words[i] = list_edges(&pictures[i], &seed, edges[i]);
        snprintf(place, sizeof place, "mem:prefix%d", round);
        serve(place);
        assert_true_or_text(evo_store_meta(1, edges[0], words[0], lids, owners, owners, 2, NAN));
        unsigned char in[VERTICES];
        int wanted = slow_prefix(&pictures[0], &pictures[1], in);
        int count = evo_get_prefix(edges[1], words[1], &found, prefix);
        assert_int_equal(evo_lig_evostore_status(), LIG_OK);
        assert_int_equal(count, wanted);
        for (int i = 0; i < count; i++)
            assert_true(in[UINT64_MAX - prefix[i]]);
        total += count;
    }
    assert_true(total > 400);
    evo_shutdown();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_generations),    CASE(test_inherited_is_not_written),
        CASE(test_lease),          CASE(test_better_model_wins),
        CASE(test_announced),      CASE(test_replaced),
        CASE(test_several_stores), CASE(test_failures),
        CASE(test_fork),           CASE(test_time_stamps),
        CASE(test_prefix_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
