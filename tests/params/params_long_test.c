/* Rows that are much longer than a message: everything that short rows can do, as threads over
 * inproc and as processes over shm and tcp. 2^21 elements; `params_long_test soak`: 2^26. */
#include "base/clock.h"
#include "base/test.h"
#include "params/params_scene.h"

#include <sched.h>

enum { LONG_KEYS = 2, SHORT = 40, SHORT_LENGTH = 3, PUSHES = 3 };
static uint32_t length = 1u << 21;

/* Long rows are the first keys, so that each node is the home of one. */
static float element(int64_t key, uint64_t i)
{
    return (float)((key + 1) * 1000 + (int64_t)(i % 997));
}

static void fill_row(float *row, int64_t key, float more)
{
    for (uint64_t i = 0; i < length; i++)
        row[i] = element(key, i) + more;
}

static int is_row(const float *row, int64_t key, float more)
{
    for (uint64_t i = 0; i < length; i++)
        if (row[i] != element(key, i) + more)
            return 0;
    return 1;
}

static int all_are(const float *row, float value)
{
    for (uint64_t i = 0; i < length; i++)
        if (row[i] != value)
            return 0;
    return 1;
}

typedef struct part { /* of one node */
    scene_node *node;
    lig_params *params;
    lig_params_worker *worker;
    float *row;
    int64_t own, other; /* the long keys */
} part;

static int part_open(scene_node *self, part *made)
{
    *made = (part){.node = self, .own = self->options.rank, .other = 1 - self->options.rank};
    made->row = malloc((size_t)length * sizeof *made->row);
    PLAY(made->row != NULL);
    return scene_open_both(self, &made->params, &made->worker);
}

static int part_close(scene_node *self, part *made)
{
    free(made->row);
    return scene_close_both(self, made->params, made->worker);
}

static int pull_row(part *made, int64_t key, int64_t *ticket)
{
    scene_node *self = made->node;
    PLAY_OK(lig_params_pull(made->worker, &key, 1, made->row, length, ticket));
    PLAY_OK(lig_params_wait(made->worker, *ticket, 10 * SCENE_MINUTE));
    return 0;
}

static int push_value(part *made, int64_t key, float value)
{
    scene_node *self = made->node;
    int64_t ticket;
    for (uint64_t i = 0; i < length; i++)
        made->row[i] = value;
    PLAY_OK(lig_params_push(made->worker, &key, 1, made->row, length, &ticket));
    PLAY_OK(lig_params_wait(made->worker, ticket, 10 * SCENE_MINUTE));
    return 0;
}

static int await_here(part *made, int64_t key)
{
    scene_node *self = made->node;
    int64_t deadline = ligi_now_ns() + 10 * SCENE_MINUTE;
    for (int local = 0; !local; sched_yield()) {
        PLAY_OK(lig_params_pull_if_local(made->worker, &key, 1, made->row, length, &local));
        PLAY(local || ligi_now_ns() < deadline);
    }
    return 0;
}

#define TRY_PART(call)                                                                             \
    do {                                                                                           \
        int failed_line = (call);                                                                  \
        if (failed_line != 0)                                                                      \
            return failed_line;                                                                    \
    } while (0)

/* Set by the other node, pulled with short rows in one call, pushed to by both. */
static int play_accesses(scene_node *self)
{
    part made;
    int64_t keys[] = {2, 0, 3, 1}, ticket;
    uint64_t elements = 2 * (uint64_t)length + 2 * SHORT_LENGTH;
    TRY_PART(part_open(self, &made));
    PLAY_OK(lig_params_begin_setup(made.worker, 10 * SCENE_MINUTE));
    fill_row(made.row, made.other, 0);
    PLAY_OK(lig_params_set(made.worker, &made.other, 1, made.row, length, &ticket));
    PLAY(ticket >= 0);
    PLAY_OK(lig_params_wait(made.worker, ticket, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_end_setup(made.worker, 10 * SCENE_MINUTE));
    float *rows = malloc(elements * sizeof *rows);
    PLAY(rows != NULL);
    PLAY_OK(lig_params_pull(made.worker, keys, 4, rows, elements, &ticket));
    PLAY(ticket >= 0);
    PLAY_OK(lig_params_wait(made.worker, ticket, 10 * SCENE_MINUTE));
    PLAY(rows[0] == 0 && rows[SHORT_LENGTH + (uint64_t)length] == 0);
    PLAY(is_row(rows + SHORT_LENGTH, 0, 0));
    PLAY(is_row(rows + 2 * SHORT_LENGTH + length, 1, 0));
    free(rows);
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    TRY_PART(push_value(&made, made.other, 2));
    TRY_PART(push_value(&made, made.own, 3));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    TRY_PART(pull_row(&made, made.own, &ticket));
    PLAY(ticket == LIG_PARAMS_LOCAL && is_row(made.row, made.own, 5));
    TRY_PART(pull_row(&made, made.other, &ticket));
    PLAY(ticket >= 0 && is_row(made.row, made.other, 5));
    return part_close(self, &made);
}

/* Each wants the other's row, and gets it; then both want both, and each has a replica. */
static int play_intents(scene_node *self)
{
    part made;
    int64_t both[] = {0, 1}, ticket;
    lig_params_stats stats;
    TRY_PART(part_open(self, &made));
    fill_row(made.row, made.own, 0);
    PLAY_OK(lig_params_begin_setup(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_set(made.worker, &made.own, 1, made.row, length, &ticket));
    PLAY_OK(lig_params_end_setup(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_intent(made.worker, &made.other, 1, 1, 2));
    lig_params_advance_clock(made.worker);
    TRY_PART(await_here(&made, made.other));
    PLAY(is_row(made.row, made.other, 0));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_stats_get(made.params, &stats));
    PLAY(stats.relocations_in == 1 && stats.relocations_out == 1 && stats.replications == 0);
    PLAY_OK(lig_params_intent(made.worker, both, 2, 2, 1000));
    lig_params_advance_clock(made.worker);
    for (int key = 0; key < 2; key++)
        TRY_PART(await_here(&made, key));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    for (int i = 0; i < PUSHES; i++)
        for (int key = 0; key < 2; key++)
            TRY_PART(push_value(&made, key, 1));
    PLAY_OK(lig_params_flush(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    for (int key = 0; key < 2; key++) {
        TRY_PART(pull_row(&made, key, &ticket));
        PLAY(is_row(made.row, key, 2 * PUSHES));
    }
    return part_close(self, &made);
}

/* One step of every optimizer with gradients of ones, on the owner's row and on a replica. */
static int play_optimizers(scene_node *self)
{
    part made;
    int64_t ticket;
    uint32_t kind = self->options.tables[0].optimizer.kind;
    TRY_PART(part_open(self, &made));
    if (kind != LIG_PARAMS_ADAM) { /* whose rows are never replicas */
        PLAY_OK(lig_params_intent(made.worker, &made.other, 1, 0, 1000));
        PLAY_OK(lig_params_intent(made.worker, &made.own, 1, 0, 1000));
        TRY_PART(await_here(&made, made.other));
    }
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    TRY_PART(push_value(&made, made.other, 1));
    PLAY_OK(lig_params_flush(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    TRY_PART(pull_row(&made, made.own, &ticket));
    PLAY(all_are(made.row, made.row[0]));
    PLAY(made.row[0] > -0.50001f && made.row[0] < -0.49999f);
    return part_close(self, &made);
}

/* What was saved is there again when it has been overwritten. */
static int play_snapshot(scene_node *self)
{
    part made;
    int64_t ticket;
    const char *uri = self->context;
    TRY_PART(part_open(self, &made));
    fill_row(made.row, made.own, 0);
    PLAY_OK(lig_params_begin_setup(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_set(made.worker, &made.own, 1, made.row, length, &ticket));
    PLAY_OK(lig_params_intent(made.worker, &made.other, 1, 1, 1000)); /* not where they began */
    PLAY_OK(lig_params_end_setup(made.worker, 10 * SCENE_MINUTE));
    lig_params_advance_clock(made.worker);
    TRY_PART(await_here(&made, made.other));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_save(made.params, uri, "long", 10 * SCENE_MINUTE));
    TRY_PART(push_value(&made, made.other, 7));
    PLAY_OK(lig_params_flush(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(made.worker, 10 * SCENE_MINUTE));
    PLAY_OK(lig_params_load(made.params, uri, "long", 10 * SCENE_MINUTE));
    for (int key = 0; key < 2; key++) {
        TRY_PART(pull_row(&made, key, &ticket));
        PLAY(is_row(made.row, key, 0));
    }
    return part_close(self, &made);
}

/* `first`: 0 for threads and processes, 1 for processes, 2 for processes over tcp alone. */
static void run_play(scene_play play, const lig_params_table *table, void *context, int first)
{
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (int i = first; i < 3; i++) {
        scene made;
        scene_init(&made, 2, transports[i], table, 1);
        for (int n = 0; n < 2; n++) {
            made.nodes[n].context = context;
            made.nodes[n].options.liveness_ns = 2 * SCENE_MINUTE; /* a long row is copied at once */
            made.nodes[n].options.timeout_ns = 10 * SCENE_MINUTE;
        }
        assert_int_equal(i == 0 ? scene_threads(&made, play) : scene_processes(&made, play), 0);
    }
}

/* Two long rows and some short ones, or the long ones alone. */
static uint32_t lengths[LONG_KEYS + SHORT];

static lig_params_table mixed(void)
{
    for (int i = 0; i < LONG_KEYS + SHORT; i++)
        lengths[i] = i < LONG_KEYS ? length : SHORT_LENGTH;
    return (lig_params_table){.key_count = LONG_KEYS + SHORT, .lengths = lengths};
}

static void test_accesses(void **state)
{
    (void)state;
    lig_params_table table = mixed();
    run_play(play_accesses, &table, NULL, 0);
}

static void test_intents(void **state)
{
    (void)state;
    lig_params_table table = mixed();
    run_play(play_intents, &table, NULL, 0);
}

static void test_optimizers(void **state)
{
    (void)state;
    for (uint32_t kind = LIG_PARAMS_SGD; kind <= LIG_PARAMS_ADAM; kind++) {
        lig_params_table table = {
            .key_count = LONG_KEYS,
            .length = length,
            .optimizer = {.kind = kind, .lr = 0.5, .eps = 1e-10, .beta1 = 0.9, .beta2 = 0.99}};
        run_play(play_optimizers, &table, NULL, 2);
    }
}

static void test_snapshots(void **state)
{
    char folder[] = "/tmp/params-long-XXXXXX", remove[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    lig_params_table table = mixed();
    run_play(play_snapshot, &table, folder, 1);
    table = (lig_params_table){.key_count = LONG_KEYS,
                               .length = length,
                               .optimizer = {.kind = LIG_PARAMS_ADAM, .lr = 0, .eps = 1}};
    run_play(play_snapshot, &table, folder, 2);
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    assert_int_equal(system(remove), 0);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_intents),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_snapshots),
    };
    if (count > 1 && strcmp(arguments[1], "soak") == 0)
        length = 1u << 26;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
