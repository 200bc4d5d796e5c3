/* Saves of several nodes: loaded on any number of them they are exact; what goes wrong on one node
 * is said on all, and the save before stays. */
#include "params/params_peers.h"
#include "params/rows/key_index.h"

#include <sched.h>
#include <sys/resource.h>

enum { KEYS = 30000, LENGTH = 12, ODD = 500, TOUCHED = 4 * ODD };

typedef struct scene {
    peers_store at;
    const char *model, *next; /* `next`: what is saved after it was loaded */
    int hashed, moving;
    uint32_t bad; /* the node that goes wrong */
    uint64_t seed;
} scene;

static void scene_open(scene *made)
{
    *made = (scene){.model = "m"};
    peers_store_open(&made->at);
}

static uint32_t odd_lengths[ODD];
static const lig_params_optimizer adagrad = {.kind = LIG_PARAMS_ADAGRAD, .lr = .1, .eps = 1e-8};
static const lig_params_optimizer adam = {
    .kind = LIG_PARAMS_ADAM, .lr = .1, .eps = 1e-8, .beta1 = .9, .beta2 = .99};

static void make_tables(lig_params_table *tables)
{
    lig_params_init init = {.kind = LIG_PARAMS_NORMAL, .b = 1, .seed = 3};
    for (uint32_t i = 0; i < ODD; i++)
        odd_lengths[i] = 1 + i % 9;
    tables[0] = (lig_params_table){
        .name = "a", .key_count = KEYS, .length = LENGTH, .optimizer = adagrad, .init = init};
    tables[1] = (lig_params_table){
        .name = "b", .key_count = ODD, .lengths = odd_lengths, .optimizer = adam, .init = init};
    tables[2] = (lig_params_table){.name = "c", .key_count = 2, .length = 1};
}

static void run_job(scene *made, uint32_t nodes, int (*run)(peers *job, lig_params *node))
{
    lig_params_table tables[3];
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run, .context = made};
    make_tables(tables);
    if (made->hashed) {
        tables[1].lengths = NULL;
        tables[1].length = 4;
        job.options.flags = LIG_PARAMS_HASHED;
    }
    job.options.node_count = nodes;
    job.options.tables = tables;
    job.options.table_count = 3;
    job.options.transport = nodes == 3 ? "tcp" : "shm";
    peers_run(&job);
}

/* --- what a worker does: every key once, so that the number of nodes and the order do not matter
 * --- */

static int64_t key_of(const scene *made, lig_params *node, uint64_t number)
{
    int64_t offset;
    const char *table = number % 4 == 0 ? "b" : "a";
    peer_ok(lig_params_offset(node, table, &offset));
    if (made->hashed)
        return offset + (int64_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> 20);
    return offset + (int64_t)(number % 4 == 0 ? number / 4 : number * 7919 % KEYS);
}

static void touch(const scene *made, lig_params *node, lig_params_worker *worker, uint64_t seed)
{
    uint32_t rank = lig_params_rank(node), nodes = lig_params_node_count(node);
    for (uint64_t i = rank; i < TOUCHED; i += nodes) {
        int64_t key = key_of(made, node, i), ticket;
        uint32_t length = lig_params_length(node, key);
        float values[LENGTH];
        for (uint32_t j = 0; j < length; j++)
            values[j] = (float)((i * 31 + j * 17 + seed) % 101) / 50 - 1;
        if (made->moving)
            peer_ok(lig_params_intent(worker, &key, 1, lig_params_current_clock(worker),
                                      LIG_PARAMS_FOREVER_CLOCK));
        peer_ok(lig_params_push(worker, &key, 1, values, length, &ticket));
        lig_params_advance_clock(worker);
    }
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
}

static lig_params_worker *worker_of(lig_params *node)
{
    lig_params_worker *worker = NULL;
    peer_ok(lig_params_worker_open(&worker, node, 0));
    return worker;
}

static int leave(lig_params *node, lig_params_worker *worker)
{
    peer_ok(lig_params_worker_finalize(worker, PEERS_TIMEOUT_NS));
    lig_params_worker_close(worker);
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static int train_and_save(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    touch(made, node, worker, made->seed);
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_save(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    return leave(node, worker);
}

/* Owners and replicas alike have what the model has. */
static void check_rows(const scene *made, lig_params *node, lig_params_worker *worker)
{
    static float saved[KEYS * LENGTH];
    int64_t shape[2] = {KEYS, LENGTH};
    lig_tensor tensor = {.name = "a",
                         .data = saved,
                         .bytes = sizeof saved,
                         .shape = shape,
                         .ndim = 2,
                         .dtype = LIG_FLOAT32};
    lig_store *store;
    peer_ok(lig_store_open(&store, made->at.uri));
    peer_ok(lig_store_load(store, made->model, &tensor, 1));
    lig_store_close(store);
    for (int64_t key = 0; key < KEYS; key++) {
        float values[LENGTH];
        int64_t ticket;
        peer_ok(lig_params_pull(worker, &key, 1, values, LENGTH, &ticket));
        peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
        if (memcmp(values, saved + key * LENGTH, sizeof values) != 0)
            peer_fail("node %u: key %lld is %g and not %g", lig_params_rank(node), (long long)key,
                      values[0], saved[key * LENGTH]);
    }
}

/* Also with rows that have gone elsewhere, and have replicas. */
static int load_and_save(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    made->moving = 1;
    touch(made, node, worker, 99);
    for (uint64_t i = 0; i < 300; i++) { /* all want these */
        int64_t key = key_of(made, node, i);
        peer_ok(lig_params_intent(worker, &key, 1, 0, LIG_PARAMS_FOREVER_CLOCK));
    }
    peer_ok(lig_params_wait_sync(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_load(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    if (!made->hashed)
        check_rows(made, node, worker);
    peer_ok(lig_params_save(node, made->at.uri, made->next, PEERS_TIMEOUT_NS));
    return leave(node, worker);
}

static int load_and_train(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    peer_ok(lig_params_load(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    touch(made, node, worker, made->seed);
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_save(node, made->at.uri, made->next, PEERS_TIMEOUT_NS));
    return leave(node, worker);
}

/* --- what is in the store --- */

static void check_equal(const scene *made, const char *a, const char *b)
{
    lig_store *store;
    lig_diff *diff;
    lig_report *report;
    assert_ok(lig_store_open(&store, made->at.uri));
    assert_ok(lig_store_diff(store, a, b, &diff));
    for (size_t i = 0; i < diff->count; i++)
        if (diff->tensors[i].change != LIG_CHANGE_NONE)
            fail_msg("'%s' differs in %s and %s", diff->tensors[i].name, a, b);
    assert_true(diff->count >= 7);
    lig_diff_destroy(diff);
    assert_ok(lig_store_check(store, 0, &report));
    assert_int_equal(report->problem_count, 0);
    lig_report_destroy(report);
    lig_store_close(store);
}

static void check_own(const scene *made, const char *model, uint64_t least, uint64_t most)
{
    lig_store *store;
    lig_model *found;
    assert_ok(lig_store_open(&store, made->at.uri));
    assert_ok(lig_store_model(store, model, &found));
    if (found->own_bytes < least || found->own_bytes > most)
        fail_msg("'%s' has %llu bytes of its own, of %llu", model,
                 (unsigned long long)found->own_bytes, (unsigned long long)found->bytes);
    lig_model_destroy(found);
    lig_store_close(store);
}

/* --- tests --- */

/* One node, two and four say the same of what each of them saved, and so does the job that goes on
 * after it. */
static void any_number(int hashed)
{
    const char *replicas[3] = {"copy1", "copy2", "copy4"}, *nexts[3] = {"next1", "next2", "next3"};
    const uint32_t nodes[3] = {1, 2, 4};
    scene made;
    scene_open(&made);
    made.hashed = hashed;
    run_job(&made, 3, train_and_save);
    for (int i = 0; i < 3; i++) {
        made.next = replicas[i];
        run_job(&made, nodes[i], load_and_save);
        check_equal(&made, "m", replicas[i]);
        if (!hashed)
            check_own(&made, replicas[i], 0, 200000); /* what is too small to be shared */
    }
    made.seed = 5;
    for (uint32_t i = 0; i < 3; i++) {
        made.next = nexts[i];
        run_job(&made, i + 1, load_and_train);
        check_equal(&made, "next1", nexts[i]);
    }
    peers_store_close(&made.at);
}

static void test_dense(void **state)
{
    (void)state;
    any_number(0);
}

static void test_hashed(void **state)
{
    (void)state;
    any_number(1);
}

/* Hashed keys that all fall into one unit, more than a message holds. */
enum { CROWD = 2400, CROWDED_LENGTH = 1000, CROWDED_ROOM = 40000 };

static int64_t crowded_key(int64_t after)
{
    do
        after++;
    while (ligi_key_index_hash(after) >> 56 != 0);
    return after;
}

static int crowd(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    int64_t key = 0, ticket;
    if (made->moving)
        peer_ok(lig_params_load(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    for (int i = 0; i < CROWD; i++) {
        float values[CROWDED_LENGTH], expected[CROWDED_LENGTH];
        key = crowded_key(key);
        for (int j = 0; j < CROWDED_LENGTH; j++)
            expected[j] = values[j] = (float)(i * 1000 + j);
        if (made->moving) {
            peer_ok(lig_params_pull(worker, &key, 1, values, CROWDED_LENGTH, &ticket));
            peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
            peer_true(memcmp(values, expected, sizeof values) == 0);
        } else if (job->rank == 0) {
            peer_ok(lig_params_push(worker, &key, 1, values, CROWDED_LENGTH, &ticket));
        }
    }
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
    peer_ok(lig_params_worker_barrier(worker, PEERS_TIMEOUT_NS));
    if (!made->moving)
        peer_ok(lig_params_save(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    return leave(node, worker);
}

static void test_crowded(void **state)
{
    (void)state;
    lig_params_table table = {.key_count = CROWDED_ROOM, .length = CROWDED_LENGTH};
    scene made;
    scene_open(&made);
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = crowd, .context = &made};
    job.options.tables = &table;
    job.options.table_count = 1;
    job.options.flags = LIG_PARAMS_HASHED;
    job.options.node_count = 2;
    peers_run(&job);
    made.moving = 1;
    job.options.node_count = 3;
    peers_run(&job);
    peers_store_close(&made.at);
}

/* The limit is above what net takes for its own memory, which counts as a file, and below what a
 * node writes. */
enum { WIDE_KEYS = 30000, WIDE = 400, LIMIT = 20 << 20 };

static void push_all(lig_params *node, lig_params_worker *worker)
{
    float values[WIDE];
    for (int i = 0; i < WIDE; i++)
        values[i] = (float)i;
    for (int64_t key = lig_params_rank(node); key < WIDE_KEYS; key += lig_params_node_count(node)) {
        int64_t ticket;
        values[0] = (float)key;
        peer_ok(lig_params_push(worker, &key, 1, values, WIDE, &ticket));
    }
    peer_ok(lig_params_wait_all(worker, PEERS_TIMEOUT_NS));
}

/* Every node hears the sentence of the one whose disk is full. */
static int save_on_full_disk(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    push_all(node, worker);
    peer_ok(lig_params_save(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    push_all(node, worker);
    if (job->rank == made->bad) {
        struct rlimit limit = {LIMIT, LIMIT};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    lig_status status = lig_params_save(node, made->at.uri, made->model, PEERS_TIMEOUT_NS);
    peer_true(status == LIG_E_IO);
    char reports[32];
    snprintf(reports, sizeof reports, "node %u: ", made->bad);
    peer_true(job->rank == made->bad || made->bad == 0 || strstr(lig_error_text(), reports));
    return leave(node, worker);
}

static int load_what_was_before(peers *job, lig_params *node)
{
    scene *made = job->context;
    lig_params_worker *worker = worker_of(node);
    peer_ok(lig_params_load(node, made->at.uri, made->model, PEERS_TIMEOUT_NS));
    for (int64_t key = 0; key < WIDE_KEYS; key++) {
        float values[WIDE];
        int64_t ticket;
        peer_ok(lig_params_pull(worker, &key, 1, values, WIDE, &ticket));
        peer_ok(lig_params_wait(worker, ticket, PEERS_TIMEOUT_NS));
        peer_true(values[0] == (float)key && values[7] == 7);
    }
    return leave(node, worker);
}

static void test_full_disk(void **state)
{
    (void)state;
    lig_params_table table = {.key_count = WIDE_KEYS, .length = WIDE};
    for (uint32_t bad = 0; bad < 2; bad++) {
        scene made;
        scene_open(&made);
        peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .context = &made};
        made.bad = bad;
        job.options.node_count = 2;
        job.options.tables = &table;
        job.options.table_count = 1;
        job.run = save_on_full_disk;
        peers_run(&job);
        job.run = load_what_was_before;
        peers_run(&job);
        peers_store_close(&made.at);
    }
}

/* A node that calls something else, that is not there in time, or that has other ideas of the
 * place: all fail, and can go on. */
static int disagree(peers *job, lig_params *node)
{
    scene *made = job->context;
    char elsewhere[200];
    int odd_one = job->rank == made->bad;
    snprintf(elsewhere, sizeof elsewhere, "%s%u", made->at.uri, odd_one);
    lig_status status = lig_params_save(node, made->at.uri, odd_one ? "n" : "m", PEERS_TIMEOUT_NS);
    peer_true(status == LIG_E_MISMATCH);
    status = lig_params_save(node, elsewhere, "m", PEERS_TIMEOUT_NS);
    peer_true(status == LIG_E_MISMATCH);
    peer_true(strstr(lig_error_text(), "another store") != NULL);
    status = lig_params_load(node, odd_one ? "nosuch:place" : made->at.uri, "m", PEERS_TIMEOUT_NS);
    peer_true(status == LIG_E_NOTFOUND);
    peer_ok(
        lig_params_barrier(node, PEERS_TIMEOUT_NS)); /* who is late hears of the last call alone */
    if (!odd_one) {
        status = lig_params_save(node, made->at.uri, "m", 50000000);
        peer_true(status == LIG_E_TIMEOUT);
    }
    peer_ok(lig_params_barrier(node, PEERS_TIMEOUT_NS));
    if (odd_one) {
        status = lig_params_save(node, made->at.uri, "m", PEERS_TIMEOUT_NS);
        peer_true(status == LIG_E_TIMEOUT);
    }
    peer_ok(lig_params_save(node, made->at.uri, "m", PEERS_TIMEOUT_NS));
    peer_ok(lig_params_shutdown(node, PEERS_TIMEOUT_NS));
    return 0;
}

static void test_disagreement(void **state)
{
    (void)state;
    scene made;
    scene_open(&made);
    for (made.bad = 0; made.bad < 3; made.bad++)
        run_job(&made, 3, disagree);
    peers_store_close(&made.at);
}

/* Node 1 fails and is gone at once; node 0 comes to the call when node 2 has heard why. */
static int fail_and_go(peers *job, lig_params *node)
{
    scene *made = job->context;
    _Atomic int64_t *heard = &job->shared->numbers[0];
    while (job->rank == 0 && atomic_load(heard) == 0)
        sched_yield();
    const char *uri = job->rank == 1 ? "nosuch:place" : made->at.uri;
    lig_status status = lig_params_save(node, uri, "m", PEERS_TIMEOUT_NS);
    if (job->rank == 1)
        _exit(status != LIG_E_NOTFOUND);
    atomic_store(heard, 1);
    if (status != LIG_E_NOTFOUND || strstr(lig_error_text(), "node 1: ") == NULL)
        peer_fail("node %u hears '%s'", job->rank, lig_error_text());
    return 0;
}

static void test_who_fails_may_go(void **state)
{
    (void)state;
    scene made;
    scene_open(&made);
    run_job(&made, 3, fail_and_go);
    peers_store_close(&made.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),        cmocka_unit_test(test_hashed),
        cmocka_unit_test(test_crowded),      cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_disagreement), cmocka_unit_test(test_who_fails_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
