/* Threads read and write while rows are written, relocated and replicated: nothing is torn, lost or
 * applied twice. */
#include "params/rows/row.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"
#include "params/tables/table_testing.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KEYS = 64, LENGTH = 37, BATCH = 32, THREADS = 3, TURNS = LIGI_ROW_ATOMIC ? 400 : 8000 };

#define TAG (INT64_C(1) << 40) /* a row is its key times this, plus the pushes */

typedef struct storm {
    ligi_tables *nodes[2];
    _Atomic int working; /* workers that have not finished */
    _Atomic int torn;
    uint64_t pushed[THREADS][KEYS];
} storm;

typedef struct worker {
    storm *storm;
    uint32_t number;
    uint64_t seed;
    int64_t keys[BATCH];
    int64_t values[BATCH * LENGTH];
    table_room room;
} worker;

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
}

static void init_storm(storm *self, uint32_t node_count)
{
    lig_params_table table = {.key_count = KEYS, .length = LENGTH};

    memset(self, 0, sizeof *self);
    for (uint32_t i = 0; i < node_count; i++)
        self->nodes[i] = tables_of(&table, 1, LIG_INT64, i, node_count);
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t row[LENGTH];
        for (int e = 0; e < LENGTH; e++)
            row[e] = key * TAG;
        assert_int_equal(write_keys(self->nodes[key % node_count], LIGI_WRITE_SET, &key, 1, row),
                         0);
    }
    atomic_init(&self->working, THREADS);
}

static void fini_storm(storm *self)
{
    ligi_tables_destroy(self->nodes[0]);
    ligi_tables_destroy(self->nodes[1]);
}

/* Runs THREADS workers, and `other` (may be NULL) until they are done. */
static void run_storm(storm *self, void *(*work)(void *), void *(*other)(void *))
{
    worker *workers = calloc(THREADS, sizeof *workers);
    pthread_t threads[THREADS + 1];

    assert_non_null(workers);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].storm = self;
        workers[i].number = i;
        workers[i].seed = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    if (other)
        assert_int_equal(pthread_create(&threads[THREADS], NULL, other, self), 0);
    for (uint32_t i = 0; i < THREADS + (other != NULL); i++)
        pthread_join(threads[i], NULL);
    free(workers);
}

static void draw_keys(worker *self)
{
    for (int i = 0; i < BATCH; i++)
        self->keys[i] = (int64_t)(draw(&self->seed) % KEYS);
}

/* All elements of a row are always equal and belong to the key. */
static void check_rows(worker *self)
{
    for (size_t i = 0; i < BATCH; i++) {
        const int64_t *row = self->values + i * LENGTH;
        int bad = row[0] / TAG != self->keys[i];
        for (int e = 1; e < LENGTH; e++)
            bad |= row[e] != row[0];
        atomic_fetch_add(&self->storm->torn, bad);
    }
}

static void *write_or_read(void *argument)
{
    worker *self = argument;
    uint64_t elements;

    for (int turn = 0; turn < TURNS; turn++) {
        draw_keys(self);
        ligi_batch *batch = batch_of(&self->room, self->keys, BATCH, self->values);
        if (ligi_tables_resolve(self->storm->nodes[0], batch, &elements) || elements == 0)
            atomic_fetch_add(&self->storm->torn, 1);
        if (self->number == 0) {
            ligi_tables_read(self->storm->nodes[0], batch);
            check_rows(self);
            continue;
        }
        ligi_write_kind kind = turn % 2 ? LIGI_WRITE_SET : LIGI_WRITE_PUSH;
        for (int i = 0; i < BATCH * LENGTH; i++)
            self->values[i] = turn + (kind == LIGI_WRITE_SET ? self->keys[i / LENGTH] * TAG : 0);
        ligi_tables_write(self->storm->nodes[0], kind, batch);
    }
    return NULL;
}

static void rows_are_not_torn(void **state)
{
    storm *self = malloc(sizeof *self);

    (void)state;
    assert_non_null(self);
    init_storm(self, 1);
    run_storm(self, write_or_read, NULL);
    assert_int_equal(self->torn, 0);
    fini_storm(self);
    free(self);
}

/* Pushes 1 to all rows of a batch, wherever each row is located. */
static void push_somewhere(worker *self)
{
    storm *all = self->storm;
    ligi_batch *batch = batch_of(&self->room, self->keys, BATCH, self->values);
    uint64_t elements;

    for (int i = 0; i < BATCH; i++)
        all->pushed[self->number][self->keys[i]]++;
    for (int i = 0; i < BATCH * LENGTH; i++)
        self->values[i] = 1;
    if (ligi_tables_resolve(all->nodes[0], batch, &elements))
        atomic_fetch_add(&all->torn, 1);
    ligi_tables_write(all->nodes[0], LIGI_WRITE_PUSH, batch);
    for (uint32_t i = 1; batch->miss_count; i++)
        ligi_tables_write_misses(all->nodes[all->nodes[1] ? i % 2 : 0], LIGI_WRITE_PUSH, batch);
}

static void read_somewhere(worker *self)
{
    storm *all = self->storm;
    ligi_batch *batch = batch_of(&self->room, self->keys, BATCH, self->values);
    uint64_t bytes;

    ligi_tables_read(all->nodes[0], batch);
    for (uint32_t i = 0; all->nodes[1] && batch->miss_count; i++) {
        const void *region = ligi_tables_region(all->nodes[1], &bytes);
        ligi_tables_read_peer(all->nodes[0], region, UINT32_MAX, batch);
        ligi_tables_read_misses(all->nodes[i % 2], batch);
    }
    check_rows(self);
}

static void *push_and_read(void *argument)
{
    worker *self = argument;

    for (int turn = 0; turn < TURNS; turn++) {
        draw_keys(self);
        push_somewhere(self);
        read_somewhere(self);
    }
    atomic_fetch_sub(&self->storm->working, 1);
    return NULL;
}

static void check_sums(storm *self)
{
    int64_t row[LENGTH], other[LENGTH];

    for (int64_t key = 0; key < KEYS; key++) {
        uint64_t sum = (uint64_t)(key * TAG);
        for (int i = 0; i < THREADS; i++)
            sum += self->pushed[i][key];
        size_t first = read_keys(self->nodes[0], &key, 1, row);
        if (self->nodes[1]) {
            size_t second = read_keys(self->nodes[1], &key, 1, first ? row : other);
            assert_true(first + second <= 1);
            assert_true(first || second || memcmp(row, other, sizeof row) == 0);
        }
        for (int e = 0; e < LENGTH; e++)
            assert_int_equal(row[e], sum);
    }
    assert_int_equal(self->torn, 0);
}

static void sums_are_exact(void **state)
{
    storm *self = malloc(sizeof *self);

    (void)state;
    assert_non_null(self);
    init_storm(self, 1);
    run_storm(self, push_and_read, NULL);
    check_sums(self);
    fini_storm(self);
    free(self);
}

static void *move_rows(void *argument)
{
    storm *self = argument;
    int64_t body[LENGTH];
    uint64_t seed = 99;

    while (atomic_load(&self->working)) {
        ligi_entry entry = (ligi_entry)(draw(&seed) % KEYS);
        uint32_t from = ligi_tables_state(self->nodes[0], entry) == LIGI_ROW_OWNED ? 0 : 1;
        uint64_t moves = ligi_tables_leave(self->nodes[from], entry, !from, body);
        if (ligi_tables_install_owned(self->nodes[!from], entry, moves, body, 0))
            atomic_fetch_add(&self->torn, 1);
    }
    return NULL;
}

static void moving_loses_nothing(void **state)
{
    storm *self = malloc(sizeof *self);

    (void)state;
    assert_non_null(self);
    init_storm(self, 2);
    run_storm(self, push_and_read, move_rows);
    check_sums(self);
    assert_int_equal(ligi_tables_counts_get(self->nodes[0]).owned +
                         ligi_tables_counts_get(self->nodes[1]).owned,
                     KEYS);
    fini_storm(self);
    free(self);
}

/* One step of the life of a replica at `other` of a row that `owner` has. */
static void tend_replica(ligi_tables *owner, ligi_tables *other, ligi_entry entry, uint64_t choice)
{
    int64_t body[LENGTH], delta[LENGTH];
    ligi_row_state state = ligi_tables_state(other, entry);

    if (state == LIGI_ROW_ABSENT) {
        ligi_tables_share(owner, entry, 1);
        ligi_tables_take_fresh(owner, entry, body);
        ligi_tables_install_replica(other, entry, body, 0);
        return;
    }
    if (choice % 4 == 0) {
        ligi_tables_take_fresh(owner, entry, body);
        ligi_tables_install_replica(other, entry, body, 0);
    }
    if (ligi_tables_take_pending(other, entry, delta))
        ligi_tables_add_delta(owner, entry, delta);
    if (choice % 4 == 1) { /* the row moves to its only subscriber */
        uint32_t rank = ligi_tables_location(owner, entry).node;
        uint64_t moves = ligi_tables_leave(owner, entry, !rank, body);
        ligi_tables_install_owned(other, entry, moves, body, 1);
        return;
    }
    if (choice % 4 == 2)
        ligi_tables_drop(other, entry);
    ligi_tables_take_fresh(owner, entry, body);
    if (ligi_tables_state(other, entry) == LIGI_ROW_REPLICA)
        ligi_tables_install_replica(other, entry, body, 1);
    else
        ligi_tables_confirm(other, entry);
}

static ligi_tables *owner_of(storm *self, ligi_entry entry)
{
    return self->nodes[ligi_tables_state(self->nodes[0], entry) != LIGI_ROW_OWNED];
}

static void *copy_rows(void *argument)
{
    storm *self = argument;
    uint64_t seed = 7;

    while (atomic_load(&self->working)) {
        ligi_entry entry = (ligi_entry)(draw(&seed) % KEYS);
        ligi_tables *owner = owner_of(self, entry);
        ligi_tables *other = self->nodes[owner == self->nodes[0]];
        tend_replica(owner, other, entry, draw(&seed));
    }
    return NULL;
}

static void replicas_lose_nothing(void **state)
{
    storm *self = malloc(sizeof *self);

    (void)state;
    assert_non_null(self);
    init_storm(self, 2);
    run_storm(self, push_and_read, copy_rows);
    for (ligi_entry entry = 0; entry < KEYS; entry++) { /* until no messages are left */
        ligi_tables *owner = owner_of(self, entry);
        ligi_tables *other = self->nodes[owner == self->nodes[0]];
        do
            tend_replica(owner, other, entry, 3);
        while (ligi_tables_has_pending(other, entry) || ligi_tables_has_sent(other, entry));
    }
    check_sums(self);
    fini_storm(self);
    free(self);
}

/* All threads access the same new keys. */
static void *meet_keys(void *argument)
{
    worker *self = argument;
    storm *all = self->storm;
    uint64_t elements;

    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BATCH; i++)
            self->keys[i] = (int64_t)(draw(&self->seed) % 997) * 1000003;
        for (int i = 0; i < BATCH * LENGTH; i++)
            self->values[i] = 1;
        ligi_batch *batch = batch_of(&self->room, self->keys, BATCH, self->values);
        if (ligi_tables_resolve(all->nodes[0], batch, &elements))
            atomic_fetch_add(&all->torn, 1);
        ligi_tables_write(all->nodes[0], LIGI_WRITE_PUSH, batch);
        if (batch->miss_count)
            atomic_fetch_add(&all->torn, 1);
    }
    return NULL;
}

static void hashed_keys_meet(void **state)
{
    lig_params_table table = {.key_count = 997, .length = LENGTH};
    ligi_tables_options options = {&table, 1, LIG_INT64, LIG_PARAMS_HASHED, 0, 1, NULL};
    storm *self = calloc(1, sizeof *self);
    int64_t sum = 0, row[LENGTH];

    (void)state;
    assert_non_null(self);
    assert_ok(ligi_tables_create(&self->nodes[0], &options));
    run_storm(self, meet_keys, NULL);
    assert_int_equal(self->torn, 0);
    for (ligi_entry entry = 0; entry < ligi_tables_entry_count(self->nodes[0]); entry++) {
        int64_t key = ligi_tables_key(self->nodes[0], entry);
        assert_int_equal(read_keys(self->nodes[0], &key, 1, row), 0);
        sum += row[LENGTH - 1];
    }
    assert_int_equal(sum, THREADS * TURNS * BATCH);
    fini_storm(self);
    free(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_not_torn),    cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(moving_loses_nothing), cmocka_unit_test(replicas_lose_nothing),
        cmocka_unit_test(hashed_keys_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
