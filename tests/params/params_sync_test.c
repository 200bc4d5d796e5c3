/* Rows move and are copied because workers say what they will touch: as threads over inproc, as
 * processes over shm and tcp. */
#include "base/clock.h"
#include "base/test.h"
#include "params/params_scene.h"

#include <sched.h>

enum { KEYS = 240, LENGTH = 5, WORKERS = 2, ROUNDS = 200, BATCH = 20, MANY = 16000 };

static const lig_params_table rows[] = {{.name = "rows", .key_count = KEYS, .length = LENGTH}};
static const lig_params_table many[] = {{.key_count = MANY, .length = LENGTH}};
static const lig_params_table adagrad[] = {
    {.key_count = KEYS, .length = LENGTH, .optimizer = {.kind = LIG_PARAMS_ADAGRAD, .lr = 0.1}}};
static const lig_params_table adam[] = {
    {.key_count = KEYS,
     .length = LENGTH,
     .optimizer = {.kind = LIG_PARAMS_ADAM, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}}};

/* Keys whose home is `home`. */
static size_t keys_of(const scene_node *self, uint32_t home, int64_t *keys)
{
    size_t count = 0;

    for (int64_t key = home; key < KEYS; key += self->options.node_count)
        keys[count++] = key;
    return count;
}

static void fill(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count * LENGTH; i++)
        values[i] = value;
}

/* Until all keys are here. */
static int await_local(scene_node *self, lig_params_worker *worker, const int64_t *keys,
                       size_t count)
{
    float *values = malloc(count * LENGTH * sizeof *values);
    int64_t deadline = ligi_now_ns() + SCENE_MINUTE;
    int local = 0;

    while (!local) {
        PLAY_OK(lig_params_pull_if_local(worker, keys, count, values, count * LENGTH, &local));
        PLAY(local || ligi_now_ns() < deadline);
        sched_yield();
    }
    free(values);
    return 0;
}

/* Only the previous node wants a node's keys: they are relocated unchanged. */
static int play_moves(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    lig_params_stats stats;
    int64_t keys[KEYS], ticket;
    float values[KEYS * LENGTH], seen[KEYS * LENGTH];
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    size_t own = keys_of(self, self->options.rank, keys);
    for (size_t i = 0; i < own * LENGTH; i++)
        values[i] = (float)(keys[i / LENGTH] * 10 + (int64_t)(i % LENGTH));
    PLAY_OK(lig_params_begin_setup(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_set(worker, keys, own, values, own * LENGTH, &ticket));
    PLAY(ticket == LIG_PARAMS_LOCAL);
    PLAY_OK(lig_params_end_setup(worker, SCENE_MINUTE));
    size_t count = keys_of(self, (self->options.rank + 1) % self->options.node_count, keys);
    PLAY_OK(lig_params_intent(worker, keys, count, 1, 1000000));
    PLAY_OK(lig_params_intent(worker, keys, count, -5, 0)); /* ended: ignored */
    lig_params_advance_clock(worker);
    if ((line = await_local(self, worker, keys, count)) != 0)
        return line;
    PLAY_OK(lig_params_pull(worker, keys, count, seen, count * LENGTH, &ticket));
    PLAY(ticket == LIG_PARAMS_LOCAL);
    for (size_t i = 0; i < count * LENGTH; i++)
        PLAY(seen[i] == (float)(keys[i / LENGTH] * 10 + (int64_t)(i % LENGTH)));
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_stats_get(params, &stats));
    PLAY(stats.relocations_in == count && stats.relocations_out == own);
    PLAY(stats.replications == 0 && stats.rows_owned == count && stats.rows_copied == 0);
    PLAY(stats.intents == 2 * count && stats.rounds > 0);
    return scene_close_both(self, params, worker);
}

/* More rows than are asked for at a time, in one intent and in many: all of them come. */
static int play_many(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    lig_params_stats stats;
    static _Thread_local int64_t keys[MANY];
    size_t count = 0, once = MANY / 3;
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int64_t key = (self->options.rank + 1) % self->options.node_count; key < MANY;
         key += self->options.node_count)
        keys[count++] = key;
    PLAY(count > once);
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_intent(worker, keys, once, 1, 1000000));
    for (size_t at = once; at < count; at += BATCH)
        PLAY_OK(lig_params_intent(worker, keys + at, count - at < BATCH ? count - at : BATCH, 1,
                                  1000000));
    lig_params_advance_clock(worker);
    if ((line = await_local(self, worker, keys, count)) != 0)
        return line;
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_stats_get(params, &stats));
    PLAY(stats.relocations_in == count && stats.rows_owned == count);
    return scene_close_both(self, params, worker);
}

/* All want all keys for ever: everybody has them, and after a flush everybody has what all have
 * pushed. */
static int play_copies(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    lig_params_stats stats;
    int64_t keys[KEYS], ticket;
    float values[KEYS * LENGTH];
    int local = 0, line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int64_t key = 0; key < KEYS; key++)
        keys[key] = key;
    PLAY_OK(lig_params_intent(worker, keys, KEYS, 0, LIG_PARAMS_FOREVER_CLOCK));
    if ((line = await_local(self, worker, keys, KEYS)) != 0)
        return line;
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    for (int round = 1; round <= 20; round++) {
        fill(values, KEYS, 1);
        PLAY_OK(lig_params_push(worker, keys, KEYS, values, KEYS * LENGTH, &ticket));
        PLAY_OK(lig_params_flush(worker, SCENE_MINUTE));
        PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
        PLAY_OK(lig_params_pull_if_local(worker, keys, KEYS, values, KEYS * LENGTH, &local));
        for (size_t i = 0; local && i < KEYS * LENGTH; i++)
            PLAY(values[i] == (float)(round * (int)self->options.node_count));
        PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    }
    PLAY(local);
    PLAY_OK(lig_params_stats_get(params, &stats));
    PLAY(stats.rows_owned + stats.rows_copied == KEYS && stats.rounds > 0);
    return scene_close_both(self, params, worker);
}

/* set, push and pull of one key, in a row and without waiting, while others have replicas of it and
 * push to another element. */
static int play_order(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int64_t keys[KEYS], ticket, later, key = self->options.rank;
    float row[LENGTH], one[LENGTH] = {1}, hundred[LENGTH] = {100};
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    PLAY_OK(lig_params_intent(worker, keys, KEYS, 0, LIG_PARAMS_FOREVER_CLOCK));
    for (int round = 0; round < ROUNDS; round++, key = (key + self->options.node_count) % KEYS) {
        PLAY_OK(lig_params_set(worker, &key, 1, hundred, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, one, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, one, LENGTH, &ticket));
        PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
        PLAY_OK(lig_params_push(worker, &key, 1, one, LENGTH, &later));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        PLAY(row[0] == 102);
        PLAY_OK(lig_params_pull(worker, &key, 1, row, LENGTH, &ticket));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        PLAY(row[0] == 103);
        lig_params_advance_clock(worker);
    }
    PLAY_OK(lig_params_flush(worker, SCENE_MINUTE));
    return scene_close_both(self, params, worker);
}

/* Interest comes and goes at random; when it has all gone, so have the replicas. */
static int play_come_and_go(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    lig_params_stats stats;
    int64_t keys[BATCH], ticket, deadline = ligi_now_ns() + SCENE_MINUTE;
    float values[BATCH * LENGTH];
    unsigned seed = self->options.rank + 1;
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t now = lig_params_current_clock(worker);
        for (size_t i = 0; i < BATCH; i++)
            keys[i] = rand_r(&seed) % KEYS;
        PLAY_OK(lig_params_intent(worker, keys, BATCH, now + 1 + rand_r(&seed) % 9, now + 12));
        fill(values, BATCH, 1);
        PLAY_OK(lig_params_push(worker, keys, BATCH, values, BATCH * LENGTH, &ticket));
        if (round % 20 == 0)
            PLAY_OK(lig_params_wait_sync(worker, SCENE_MINUTE));
        lig_params_advance_clock(worker);
    }
    for (int i = 0; i < 20; i++)
        lig_params_advance_clock(worker);
    do {
        PLAY_OK(lig_params_stats_get(params, &stats));
        PLAY(stats.rows_copied == 0 || ligi_now_ns() < deadline);
        sched_yield();
    } while (stats.rows_copied > 0);
    PLAY_OK(lig_params_flush(worker, SCENE_MINUTE));
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    double sum = 0;
    for (int64_t key = 0; key < KEYS; key++) {
        PLAY_OK(lig_params_pull(worker, &key, 1, values, LENGTH, &ticket));
        PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
        sum += values[LENGTH - 1];
    }
    if (self->options.tables == rows)
        PLAY(sum == (double)ROUNDS * BATCH * self->options.node_count);
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    return scene_close_both(self, params, worker);
}

static int play_refused(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int64_t key = KEYS, ok = 1;
    int line = scene_open_both(self, &params, &worker);
    if (line)
        return line;
    PLAY(lig_params_intent(worker, &key, 1, 0, 1) == LIG_E_INVALID);
    key = -1;
    PLAY(lig_params_intent(worker, &key, 1, 0, 1) == LIG_E_INVALID);
    PLAY(lig_params_intent(worker, NULL, 1, 0, 1) == LIG_E_INVALID);
    PLAY(lig_params_intent(worker, &ok, 1, 5, 5) == LIG_E_INVALID);
    PLAY(lig_params_intent(worker, &ok, 1, 5, 3) == LIG_E_INVALID);
    PLAY_OK(lig_params_intent(worker, &ok, 1, LIG_PARAMS_FOREVER_CLOCK - 1, 0));
    PLAY_OK(lig_params_intent(worker, &ok, 0, 5, 0));
    PLAY_OK(lig_params_intent(worker, &ok, 1, INT64_MIN, INT64_MAX));
    return scene_close_both(self, params, worker);
}

/* --- who plays --- */

typedef struct cast {
    uint32_t nodes;
    const char *transport;
    const lig_params_table *table;
    uint32_t techniques;
} cast;

static int perform(const cast *who, scene_play play)
{
    scene stage;

    scene_init(&stage, who->nodes, who->transport, who->table, 1);
    for (uint32_t i = 0; i < who->nodes; i++)
        stage.nodes[i].options.techniques = who->techniques;
    return strcmp(who->transport, "inproc") == 0 ? scene_threads(&stage, play)
                                                 : scene_processes(&stage, play);
}

static void test_rows_move_where_they_are_wanted(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){2, "inproc", rows, 0}, play_moves), 0);
    assert_int_equal(perform(&(cast){3, "shm", rows, 0}, play_moves), 0);
    assert_int_equal(perform(&(cast){2, "tcp", rows, 0}, play_moves), 0);
}

static void test_more_rows_than_are_asked_for_at_a_time(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){2, "inproc", many, 0}, play_many), 0);
    assert_int_equal(perform(&(cast){2, "shm", many, 0}, play_many), 0);
    assert_int_equal(perform(&(cast){2, "tcp", many, LIG_PARAMS_RELOCATION_ONLY}, play_many), 0);
}

static void test_copies_have_what_was_flushed(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){2, "inproc", rows, 0}, play_copies), 0);
    assert_int_equal(perform(&(cast){3, "shm", rows, 0}, play_copies), 0);
    assert_int_equal(perform(&(cast){2, "tcp", rows, 0}, play_copies), 0);
    assert_int_equal(perform(&(cast){3, "shm", rows, LIG_PARAMS_REPLICATION_ONLY}, play_copies), 0);
}

static void test_set_on_a_copy_is_in_order(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){2, "inproc", rows, 0}, play_order), 0);
    assert_int_equal(perform(&(cast){3, "shm", rows, 0}, play_order), 0);
}

static void test_interest_comes_and_goes(void **unused)
{
    static const char *const transports[] = {"inproc", "shm", "tcp"};

    (void)unused;
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(perform(&(cast){3, transports[i % 3], rows, i / 3}, play_come_and_go), 0);
}

static void test_optimizers_move_and_copy(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){2, "inproc", adagrad, 0}, play_come_and_go), 0);
    assert_int_equal(perform(&(cast){2, "inproc", adam, 0}, play_come_and_go), 0);
}

static void test_intents_are_checked(void **unused)
{
    (void)unused;
    assert_int_equal(perform(&(cast){1, "inproc", rows, 0}, play_refused), 0);
    assert_int_equal(perform(&(cast){2, "inproc", rows, 0}, play_refused), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_move_where_they_are_wanted),
        cmocka_unit_test(test_more_rows_than_are_asked_for_at_a_time),
        cmocka_unit_test(test_copies_have_what_was_flushed),
        cmocka_unit_test(test_set_on_a_copy_is_in_order),
        cmocka_unit_test(test_interest_comes_and_goes),
        cmocka_unit_test(test_optimizers_move_and_copy),
        cmocka_unit_test(test_intents_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
