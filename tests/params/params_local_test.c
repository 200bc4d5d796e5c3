/* A test for local rows returns all or nothing, and never stale values: rows leave and come
 * back meanwhile, and what the worker itself has sent is on its way. */
#include "base/test.h"
#include "params/params_scene.h"
#include "params/rows/row.h"
#include "params/rows/row_kernels.h"
#include "params/rows/table_state.h"
#include "params/state/node.h"
#include "params/state/node_wait.h"
#include "params/tables/row_install.h"

enum { KEYS = 128, LENGTH = 32, BATCH = 24, TURNS = LIGI_ROW_ATOMIC ? 1000 : 10000 };

#define TAG (INT64_C(1) << 40) /* a row is its key times this, and how often it has changed */
#define UNTOUCHED (-1)

static const lig_params_table table[] = {{.key_count = KEYS, .length = LENGTH}};

typedef struct twin { /* what the rows of node 0 are, and between which changes */
    lig_params *node;
    uint64_t seed;
    _Atomic int over;
    _Atomic int64_t begun[KEYS], ended[KEYS];
} twin;

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
}

static int64_t draw_key(uint64_t *seed) /* its home is node 0 */
{
    return (int64_t)(draw(seed) % (KEYS / 2)) * 2;
}

/* As if it had been with the other node, and changed there. */
static void move_row(twin *self, int64_t key)
{
    ligi_tables *tables = self->node->tables;
    ligi_entry entry = (ligi_entry)key;
    int64_t body[LENGTH];

    ligi_node_lock(self->node);
    uint64_t moves = ligi_tables_leave(tables, entry, 1, body);
    int64_t change = atomic_load(&self->begun[key]) + 1;
    atomic_store(&self->begun[key], change);
    for (int i = 0; i < LENGTH; i++)
        body[i] = key * TAG + change;
    if (ligi_tables_install_owned(tables, entry, moves + 1, body, 0) != LIG_OK)
        abort();
    atomic_store(&self->ended[key], change);
    ligi_node_unlock(self->node);
}

static void *move_rows(void *context)
{
    twin *self = context;

    while (!atomic_load(&self->over))
        move_row(self, draw_key(&self->seed));
    return NULL;
}

static int check_nothing(scene_node *self, const int64_t *values)
{
    for (size_t i = 0; i < BATCH * LENGTH; i++)
        PLAY(values[i] == UNTOUCHED);
    return 0;
}

static int check_row(scene_node *self, int64_t key, const int64_t *row, int64_t least)
{
    const twin *right = self->context;

    for (size_t i = 1; i < LENGTH; i++)
        PLAY(row[i] == row[0]); /* torn */
    PLAY(row[0] / TAG == key);
    PLAY(row[0] % TAG >= least); /* stale */
    PLAY(row[0] % TAG <= atomic_load(&right->begun[key]));
    return 0;
}

static int look(scene_node *self, lig_params_worker *worker, uint64_t *seed)
{
    const twin *right = self->context;
    int64_t keys[BATCH], least[BATCH], values[BATCH * LENGTH];
    int local, line = 0;

    for (size_t i = 0; i < BATCH * LENGTH; i++)
        values[i] = UNTOUCHED;
    for (size_t i = 0; i < BATCH; i++) {
        keys[i] = draw_key(seed);
        least[i] = atomic_load(&right->ended[keys[i]]);
    }
    PLAY_OK(lig_params_pull_if_local(worker, keys, BATCH, values, BATCH * LENGTH, &local));
    if (!local)
        return check_nothing(self, values);
    for (size_t i = 0; i < BATCH && line == 0; i++)
        line = check_row(self, keys[i], values + i * LENGTH, least[i]);
    return line;
}

static int look_while_rows_move(scene_node *self, lig_params_worker *worker)
{
    twin *right = self->context;
    uint64_t seed = 1;
    pthread_t mover;
    int line = 0;

    for (int64_t key = 0; key < KEYS; key += 2)
        move_row(right, key); /* each has its tag */
    PLAY(pthread_create(&mover, NULL, move_rows, right) == 0);
    for (int turn = 0; turn < TURNS && line == 0; turn++)
        line = look(self, worker, &seed);
    atomic_store(&right->over, 1);
    pthread_join(mover, NULL);
    return line;
}

static int play_storm(scene_node *self)
{
    twin *right = self->context;
    lig_params *params;
    lig_params_worker *worker;
    int line = scene_open_both(self, &params, &worker);

    if (line == 0 && self->options.rank == 0) {
        right->node = params;
        line = look_while_rows_move(self, worker);
    }
    return line ? line : scene_close_both(self, params, worker);
}

static void rows_that_leave_meanwhile(void **state)
{
    static twin right;
    scene now;

    (void)state;
    scene_init(&now, 2, "inproc", table, 1);
    now.nodes[0].options.dtype = now.nodes[1].options.dtype = LIG_INT64;
    now.nodes[0].context = &right;
    assert_int_equal(scene_threads(&now, play_storm), 0);
}

/* --- a row that goes after the look --- */

static struct { /* takes a row away as soon as somebody begins to read rows */
    lig_params *node;
    const ligi_row_kernels *right;
    ligi_row_kernels kernels;
    ligi_entry entry;
    uint64_t moves;
    int64_t body[LENGTH];
} thief;

static void steal_and_gather(const ligi_row_sweep *sweep)
{
    ligi_node_lock(thief.node);
    thief.moves = ligi_tables_leave(thief.node->tables, thief.entry, 1, thief.body);
    ligi_node_unlock(thief.node);
    thief.right->gather(sweep);
}

static void thief_comes(lig_params *params, int64_t key)
{
    thief.node = params;
    thief.entry = (ligi_entry)key;
    thief.right = params->tables->kernels;
    thief.kernels = *thief.right;
    thief.kernels.gather = steal_and_gather;
    params->tables->kernels = &thief.kernels;
}

/* With the row where it was. */
static lig_status thief_goes(void)
{
    thief.node->tables->kernels = thief.right;
    ligi_node_lock(thief.node);
    lig_status status =
        ligi_tables_install_owned(thief.node->tables, thief.entry, thief.moves + 1, thief.body, 0);
    ligi_node_unlock(thief.node);
    return status;
}

static int look_and_then_miss(scene_node *self, lig_params *params, lig_params_worker *worker)
{
    int64_t keys[BATCH], values[BATCH * LENGTH];
    int local = 1;

    for (int64_t i = 0; i < BATCH; i++)
        keys[i] = 2 * i;
    for (size_t i = 0; i < BATCH * LENGTH; i++)
        values[i] = UNTOUCHED;
    thief_comes(params, keys[BATCH / 2]);
    lig_status pulled =
        lig_params_pull_if_local(worker, keys, BATCH, values, BATCH * LENGTH, &local);
    PLAY(thief.moves == 1);
    PLAY_OK(thief_goes());
    PLAY_OK(pulled);
    PLAY(!local);
    int line = check_nothing(self, values);
    if (line)
        return line;
    PLAY_OK(lig_params_pull_if_local(worker, keys, BATCH, values, BATCH * LENGTH, &local));
    PLAY(local);
    for (size_t i = 0; i < BATCH * LENGTH; i++)
        PLAY(values[i] == 0);
    return 0;
}

static int play_miss(scene_node *self)
{
    lig_params *params;
    lig_params_worker *worker;
    int line = scene_open_both(self, &params, &worker);

    if (line == 0 && self->options.rank == 0)
        line = look_and_then_miss(self, params, worker);
    return line ? line : scene_close_both(self, params, worker);
}

static void a_row_that_goes_after_the_look(void **state)
{
    scene now;

    (void)state;
    scene_init(&now, 2, "inproc", table, 1);
    now.nodes[0].options.dtype = now.nodes[1].options.dtype = LIG_INT64;
    assert_int_equal(scene_threads(&now, play_miss), 0);
}

/* --- what the worker itself has sent --- */

/* The row comes here while a push of ours to it is not answered, and does not have it. */
static int look_behind_a_push(scene_node *self, lig_params *params, lig_params_worker *worker)
{
    lig_params **peer = self->context;
    ligi_entry entry = 1; /* whose home is node 1 */
    int64_t key = 1, ticket, ones[LENGTH], seen[LENGTH], body[LENGTH] = {0};
    int local = 0;

    for (size_t i = 0; i < LENGTH; i++)
        ones[i] = 1;
    ligi_node_lock(*peer); /* which answers nothing */
    lig_status pushed = lig_params_push(worker, &key, 1, ones, LENGTH, &ticket);
    ligi_node_lock(params);
    lig_status came = ligi_tables_install_owned(params->tables, entry, 1, body, 0);
    ligi_node_unlock(params);
    lig_status pulled = lig_params_pull_if_local(worker, &key, 1, seen, LENGTH, &local);
    ligi_node_lock(params);
    if (came == LIG_OK)
        ligi_tables_leave(params->tables, entry, 1, body);
    ligi_node_unlock(params);
    ligi_node_unlock(*peer);
    PLAY_OK(pushed);
    PLAY_OK(came);
    PLAY_OK(pulled);
    PLAY(ticket != LIG_PARAMS_LOCAL);
    PLAY(!local);
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY_OK(lig_params_pull(worker, &key, 1, seen, LENGTH, &ticket));
    PLAY_OK(lig_params_wait(worker, ticket, SCENE_MINUTE));
    PLAY(seen[0] == 1 && seen[LENGTH - 1] == 1);
    return 0;
}

static int play_push(scene_node *self)
{
    lig_params **peer = self->context;
    lig_params *params;
    lig_params_worker *worker;
    int line = scene_open_both(self, &params, &worker);

    if (line)
        return line;
    if (self->options.rank == 1)
        *peer = params;
    PLAY_OK(lig_params_worker_barrier(worker, SCENE_MINUTE));
    if (self->options.rank == 0 && (line = look_behind_a_push(self, params, worker)) != 0)
        return line;
    return scene_close_both(self, params, worker);
}

static void rows_that_are_written_to(void **state)
{
    lig_params *peer = NULL;
    scene now;

    (void)state;
    scene_init(&now, 2, "inproc", table, 1);
    for (int i = 0; i < 2; i++) {
        now.nodes[i].options.dtype = LIG_INT64;
        now.nodes[i].context = &peer;
    }
    assert_int_equal(scene_threads(&now, play_push), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_that_goes_after_the_look),
        cmocka_unit_test(rows_that_leave_meanwhile),
        cmocka_unit_test(rows_that_are_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
