#include "params/rows/table_state.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"
#include "params/tables/table_testing.h"

#include <pthread.h>

static const lig_params_table plain4 = {.key_count = 10, .length = 4};

static void reads_what_was_written(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 0, 1);
    int64_t keys[] = {3, 9, 3};
    float values[12], sums[12];

    (void)state;
    for (int i = 0; i < 12; i++)
        values[i] = (float)i;
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, keys, 3, values), 0);
    assert_int_equal(read_keys(tables, keys, 3, sums), 0);
    for (int i = 0; i < 4; i++) {
        assert_true(sums[i] == values[i] + values[8 + i]);
        assert_true(sums[4 + i] == values[4 + i]);
        assert_true(sums[8 + i] == sums[i]);
    }
    assert_int_equal(write_keys(tables, LIGI_WRITE_SET, keys, 1, values), 0);
    assert_int_equal(read_keys(tables, keys, 1, sums), 0);
    assert_memory_equal(sums, values, 16);
    assert_int_equal(read_keys(tables, keys, 0, NULL), 0);
    ligi_tables_destroy(tables);
}

static void refuses_keys(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 0, 1);
    static const int64_t bad[] = {-1, 10, INT64_MIN, INT64_MAX, INT64_C(1) << 32};
    table_room room;
    uint64_t elements = 77;
    ligi_entry entry = 77;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t keys[] = {1, bad[i]};
        assert_status(ligi_tables_resolve(tables, batch_of(&room, keys, 2, NULL), &elements),
                      LIG_E_INVALID);
        assert_says("0 .. 9");
        assert_status(ligi_tables_entry(tables, bad[i], &entry), LIG_E_INVALID);
        assert_int_equal(ligi_tables_length_of_key(tables, bad[i]), 0);
        assert_int_equal(ligi_tables_known(tables, bad[i], &entry), 0);
    }
    assert_int_equal(elements, 77);
    assert_int_equal(entry, 77);
    ligi_tables_destroy(tables);
}

static void homes_are_spread(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 1, 3);
    int64_t keys[10];
    float values[40];
    table_room room;
    uint64_t elements;

    (void)state;
    for (int i = 0; i < 10; i++)
        keys[i] = i;
    assert_ok(ligi_tables_resolve(tables, batch_of(&room, keys, 10, values), &elements));
    assert_int_equal(elements, 40);
    ligi_tables_read(tables, &room.batch);
    assert_int_equal(room.batch.miss_count, 7); /* 1, 4, 7 are here */
    assert_int_equal(room.misses[1].position, 2);
    assert_int_equal(room.misses[1].entry, 2);
    assert_int_equal(room.misses[1].at, 8);
    assert_int_equal(ligi_tables_counts_get(tables).owned, 3);
    assert_int_equal(ligi_tables_location(tables, 5).node, 2);
    assert_false(ligi_tables_all_here(tables, &room.batch));
    ligi_tables_destroy(tables);
}

static void rows_of_many_lengths(void **state)
{
    static const uint32_t lengths[] = {1, 5, 1, 100};
    lig_params_table both[] = {
        {.name = "a", .key_count = 3, .length = 2},
        {.name = "b", .key_count = 4, .lengths = lengths},
    };
    ligi_tables *tables = tables_of(both, 2, LIG_INT64, 0, 1);
    int64_t keys[] = {6, 4, 0, 5}, values[108], sums[108];
    uint64_t elements;
    uint32_t table;

    (void)state;
    assert_ok(ligi_tables_lengths(tables, keys, 4, &elements));
    assert_int_equal(elements, 108);
    for (int i = 0; i < 108; i++)
        values[i] = i * INT64_C(10000000000);
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, keys, 4, values), 0);
    assert_int_equal(read_keys(tables, keys, 4, sums), 0);
    assert_memory_equal(values, sums, sizeof values);
    assert_int_equal(ligi_tables_uniform(tables), 0);
    assert_int_equal(ligi_tables_offset(tables, 1), 3);
    assert_int_equal(ligi_tables_length(tables, 6), 100);
    assert_ok(ligi_tables_find(tables, "b", &table));
    assert_int_equal(table, 1);
    assert_status(ligi_tables_find(tables, "c", &table), LIG_E_NOTFOUND);
    assert_says("'a', 'b'");
    ligi_tables_destroy(tables);
}

static void hashed_keys(void **state)
{
    lig_params_table both[] = {
        {.name = "a", .key_count = 3, .length = 2},
        {.name = "b", .key_count = 2, .length = 3, .init = {LIG_PARAMS_CONSTANT, 0, 7, 0, 0}},
    };
    ligi_tables_options options = {both, 2, LIG_INT32, LIG_PARAMS_HASHED, 0, 1, NULL};
    ligi_tables *tables = NULL;
    int64_t second = INT64_C(1) << 56;
    int64_t keys[] = {123456789012345, second | 5, 0}, third[] = {second | 6, second | 7};
    int32_t values[7] = {1, 2, 3, 4, 5, 6, 7}, sums[7];
    table_room room;
    uint64_t elements;
    ligi_entry entry;

    (void)state;
    assert_ok(ligi_tables_create(&tables, &options));
    assert_int_equal(ligi_tables_known(tables, keys[0], &entry), 0);
    assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, keys, 3, values), 0);
    assert_int_equal(read_keys(tables, keys, 3, sums), 0);
    assert_int_equal(sums[0], 1);
    assert_int_equal(sums[2], 10);
    assert_int_equal(sums[6], 7);
    assert_int_equal(ligi_tables_entry_count(tables), 3);
    assert_true(ligi_tables_known(tables, second | 5, &entry));
    assert_int_equal(ligi_tables_key(tables, entry), second | 5);
    assert_int_equal(ligi_tables_slab(tables, entry)->table, 1);
    assert_status(ligi_tables_resolve(tables, batch_of(&room, third, 2, sums), &elements),
                  LIG_E_LIMIT);
    assert_says("'b' is full: key_count is 2");
    assert_false(ligi_tables_known(tables, third[0], &entry)); /* all or none */
    int64_t again[] = {second | 6, second | 6, second | 5};
    assert_ok(ligi_tables_resolve(tables, batch_of(&room, again, 3, sums), &elements));
    assert_true(ligi_tables_known(tables, second | 6, &entry));
    third[0] = INT64_C(2) << 56;
    assert_status(ligi_tables_resolve(tables, batch_of(&room, third, 1, sums), &elements),
                  LIG_E_INVALID);
    third[0] = -1;
    assert_status(ligi_tables_resolve(tables, batch_of(&room, third, 1, sums), &elements),
                  LIG_E_INVALID);
    ligi_tables_destroy(tables);
}

/* Sizes of the longest rows; their memory is reserved and not touched. */
static void has_long_rows(void **state)
{
    static const uint32_t lengths[] = {3, LIG_PARAMS_LENGTH_MAX, 3, 1u << 26};
    const uint64_t length = LIG_PARAMS_LENGTH_MAX;
    const uint64_t states[] = {0, 0, length, 1, 2 * length + 1};

    (void)state;
    for (uint32_t kind = LIG_PARAMS_ADD; kind <= LIG_PARAMS_ADAM; kind++) {
        const lig_params_table table = {
            .key_count = 4, .lengths = lengths, .optimizer = {.kind = kind}};
        ligi_tables *tables = tables_of(&table, 1, LIG_FLOAT64, 0, 1);
        int64_t keys[] = {1, 1, 3, 0};
        uint64_t elements;
        assert_ok(ligi_tables_lengths(tables, keys, 4, &elements));
        assert_int_equal(elements, 2 * length + (1u << 26) + 3);
        assert_int_equal(ligi_tables_length(tables, 1), length);
        assert_int_equal(ligi_tables_length(tables, 2), 3);
        assert_int_equal(ligi_tables_slab(tables, 1)->state_count, states[kind]);
        assert_int_equal(ligi_tables_body_bytes(tables, 1), 8 * (length + states[kind]));
        assert_int_equal(ligi_tables_delta_bytes(tables, 1), 8 * (length + states[kind]));
        assert_int_equal(ligi_tables_body_bytes_max(tables), 8 * (length + states[kind]));
        ligi_tables_destroy(tables);
    }
}

static void refuses_tables(void **state)
{
    static const uint32_t lengths[] = {1, 0};
    static const struct {
        lig_params_table table;
        uint32_t dtype, flags;
        lig_status status;
    } cases[] = {
        {{.key_count = 0, .length = 1}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 0}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = LIG_PARAMS_LENGTH_MAX + 1}, LIG_FLOAT32, 0, LIG_E_LIMIT},
        {{.key_count = UINT64_C(1) << 20, .length = LIG_PARAMS_LENGTH_MAX},
         LIG_FLOAT64,
         0,
         LIG_E_LIMIT},
        {{.key_count = UINT32_MAX - 1, .length = LIG_PARAMS_LENGTH_MAX},
         LIG_FLOAT64,
         LIG_PARAMS_HASHED,
         LIG_E_LIMIT},
        {{.key_count = UINT64_C(1) << 32, .length = 1}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 2, .lengths = lengths}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .lengths = lengths}, LIG_FLOAT32, LIG_PARAMS_HASHED, LIG_E_INVALID},
        {{.key_count = 1, .length = 1}, LIG_INT8, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1}, 999, 0, LIG_E_INVALID},
        {{.name = "", .key_count = 1, .length = 1}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .optimizer = {.kind = 5}}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .optimizer = {.kind = 1}}, LIG_INT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .optimizer = {.kind = 1, .lr = -1}},
         LIG_FLOAT32,
         0,
         LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .optimizer = {.kind = 4, .beta1 = 1}},
         LIG_FLOAT32,
         0,
         LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .init = {.kind = 4}}, LIG_FLOAT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .init = {.kind = 2, .a = 1, .b = 1}},
         LIG_FLOAT32,
         0,
         LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .init = {.kind = 1, .a = 0.5}}, LIG_INT32, 0, LIG_E_INVALID},
        {{.key_count = 1, .length = 1, .init = {.kind = 1, .a = 1e300}},
         LIG_FLOAT32,
         0,
         LIG_E_INVALID},
    };
    ligi_tables *tables = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_tables_options options = {
            &cases[i].table, 1, cases[i].dtype, cases[i].flags, 0, 1, NULL};
        assert_status(ligi_tables_create(&tables, &options), cases[i].status);
    }
    lig_params_table twins[] = {plain4, plain4};
    ligi_tables_options options = {twins, 2, LIG_FLOAT32, 0, 0, 1, NULL};
    assert_status(ligi_tables_create(&tables, &options), LIG_E_EXISTS);
    assert_null(tables);
}

static void places_only_get_newer(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 0, 3);

    (void)state;
    assert_int_equal(ligi_tables_location(tables, 4).node, 1);
    assert_true(ligi_tables_location_update(tables, 4, (ligi_row_location){2, 5}));
    assert_false(ligi_tables_location_update(tables, 4, (ligi_row_location){0, 5}));
    assert_false(ligi_tables_location_update(tables, 4, (ligi_row_location){0, 4}));
    assert_false(ligi_tables_location_update(tables, 4, (ligi_row_location){3, 6}));
    assert_int_equal(ligi_tables_location(tables, 4).node, 2);
    assert_int_equal(ligi_tables_location(tables, 4).moves, 5);
    ligi_tables_destroy(tables);
}

static void rows_move(void **state)
{
    lig_params_table table = {
        .key_count = 10, .length = 3, .optimizer = {.kind = LIG_PARAMS_ADAGRAD, .lr = 1}};
    ligi_tables *from = tables_of(&table, 1, LIG_FLOAT32, 0, 2);
    ligi_tables *to = tables_of(&table, 1, LIG_FLOAT32, 1, 2);
    int64_t key = 4;
    float gradient[3] = {1, 2, 3}, before[3], after[3];
    float body[16], there[16];

    (void)state;
    assert_int_equal(ligi_tables_body_bytes(from, 4), 16 + 12);
    assert_int_equal(write_keys(from, LIGI_WRITE_PUSH, &key, 1, gradient), 0);
    assert_int_equal(read_keys(from, &key, 1, before), 0);
    assert_int_equal(read_keys(to, &key, 1, after), 1);
    assert_int_equal(ligi_tables_leave(from, 4, 1, body), 1);
    assert_int_equal(read_keys(from, &key, 1, after), 1);
    assert_int_equal(ligi_tables_location(from, 4).node, 1);
    assert_ok(ligi_tables_install_owned(to, 4, 1, body, 0));
    assert_int_equal(read_keys(to, &key, 1, after), 0);
    assert_memory_equal(before, after, sizeof before);
    assert_true(ligi_tables_get_body(to, 4, there));
    assert_memory_equal(body, there, 28);
    assert_int_equal(ligi_tables_counts_get(from).owned, 4);
    assert_int_equal(ligi_tables_counts_get(to).owned, 6);
    assert_int_equal(ligi_tables_leave(to, 4, 0, body), 2);
    ligi_tables_destroy(from);
    ligi_tables_destroy(to);
}

/* The whole life of a replica: pushes on both nodes, deltas, fresh rows, draining. */
static void replicas_converge(void **state)
{
    lig_params_table table = {.key_count = 2, .length = 1};
    ligi_tables *owner = tables_of(&table, 1, LIG_INT32, 0, 2);
    ligi_tables *other = tables_of(&table, 1, LIG_INT32, 1, 2);
    int64_t key = 0;
    int32_t body, delta, value, one = 1, ten = 10;

    (void)state;
    ligi_tables_share(owner, 0, 1);
    assert_int_equal(ligi_tables_take_fresh(owner, 0, &body), 0);
    assert_ok(ligi_tables_install_replica(other, 0, &body, 0));
    assert_int_equal(write_keys(other, LIGI_WRITE_PUSH, &key, 1, &one), 0);
    assert_int_equal(write_keys(other, LIGI_WRITE_SET, &key, 1, &one), 1); /* goes to the owner */
    assert_int_equal(write_keys(owner, LIGI_WRITE_PUSH, &key, 1, &ten), 0);
    assert_int_equal(ligi_tables_take_pending(other, 0, &delta), 1);
    assert_int_equal(delta, 1);
    assert_int_equal(ligi_tables_take_pending(other, 0, &delta), 0);
    assert_int_equal(write_keys(other, LIGI_WRITE_PUSH, &key, 1, &one), 0);
    assert_int_equal(ligi_tables_take_pending(other, 0, &delta), 0); /* one under way at a time */
    assert_int_equal(ligi_tables_take_fresh(owner, 0, &body), 1);    /* 10, without the delta */
    assert_int_equal(ligi_tables_add_delta(owner, 0, &delta), 1);
    assert_ok(ligi_tables_install_replica(other, 0, &body, 0));
    assert_int_equal(read_keys(other, &key, 1, &value), 0);
    assert_int_equal(value, 12);
    assert_int_equal(ligi_tables_take_fresh(owner, 0, &body), 1); /* 11, with it */
    assert_ok(ligi_tables_install_replica(other, 0, &body, 1));
    assert_int_equal(read_keys(other, &key, 1, &value), 0);
    assert_int_equal(value, 12);
    assert_int_equal(ligi_tables_drop(other, 0), LIGI_ROW_DRAINING);
    assert_int_equal(read_keys(other, &key, 1, &value), 1);
    assert_int_equal(ligi_tables_take_pending(other, 0, &delta), 1);
    ligi_tables_add_delta(owner, 0, &delta);
    assert_true(ligi_tables_has_sent(other, 0));
    assert_int_equal(ligi_tables_confirm(other, 0), LIGI_ROW_ABSENT);
    assert_int_equal(read_keys(owner, &key, 1, &value), 0);
    assert_int_equal(value, 12);
    assert_int_equal(ligi_tables_counts_get(other).copied, 0);
    assert_ok(ligi_tables_install_replica(other, 0, &value, 0));
    assert_false(ligi_tables_has_pending(other, 0));
    assert_int_equal(ligi_tables_drop(other, 0), LIGI_ROW_ABSENT);
    ligi_tables_destroy(owner);
    ligi_tables_destroy(other);
}

static void a_replica_becomes_owned(void **state)
{
    lig_params_table table = {.key_count = 2, .length = 1};
    int64_t key = 0;
    int32_t body = 100, delta, value, one = 1, two = 2;

    (void)state;
    for (int included = 0; included < 2; included++) {
        ligi_tables *tables = tables_of(&table, 1, LIG_INT32, 1, 2);
        assert_ok(ligi_tables_install_replica(tables, 0, &body, 0));
        assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, &key, 1, &one), 0);
        assert_int_equal(ligi_tables_take_pending(tables, 0, &delta), 1);
        assert_int_equal(write_keys(tables, LIGI_WRITE_PUSH, &key, 1, &two), 0);
        assert_ok(ligi_tables_install_owned(tables, 0, 3, &body, included));
        assert_int_equal(read_keys(tables, &key, 1, &value), 0);
        assert_int_equal(value, included ? 102 : 103);
        assert_int_equal(ligi_tables_location(tables, 0).node, 1);
        assert_false(ligi_tables_has_sent(tables, 0));
        ligi_tables_destroy(tables);
    }
}

static void first_writes_are_noted(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 0, 2);
    int64_t keys[] = {0, 2, 0};
    float values[12] = {0};
    char body[64];
    table_room room;
    uint64_t elements;

    (void)state;
    ligi_tables_share(tables, 0, 1);
    for (int round = 0; round < 2; round++) {
        assert_ok(ligi_tables_resolve(tables, batch_of(&room, keys, 3, values), &elements));
        ligi_tables_write(tables, LIGI_WRITE_PUSH, &room.batch);
        assert_int_equal(room.batch.noted_count, 1);
        assert_int_equal(room.noted[0], 0);
        room.batch.noted_count = 0;
        ligi_tables_write(tables, LIGI_WRITE_PUSH, &room.batch);
        assert_int_equal(room.batch.noted_count, 0);
        assert_int_equal(ligi_tables_take_fresh(tables, 0, body), 1);
    }
    ligi_tables_share(tables, 0, 0);
    ligi_tables_write(tables, LIGI_WRITE_PUSH, &room.batch);
    assert_int_equal(room.batch.noted_count, 0);
    ligi_tables_destroy(tables);
}

static void peers_are_read(void **state)
{
    ligi_tables *mine = tables_of(&plain4, 1, LIG_FLOAT32, 0, 2);
    ligi_tables *theirs = tables_of(&plain4, 1, LIG_FLOAT32, 1, 2);
    int64_t keys[] = {1, 0, 3, 2};
    float values[16], given[4] = {1, 2, 3, 4};
    table_room room;
    uint64_t elements, bytes;
    uint32_t *region = ligi_tables_region(theirs, &bytes);

    (void)state;
    assert_int_equal(write_keys(theirs, LIGI_WRITE_SET, keys + 2, 1, given), 0);
    assert_ok(ligi_tables_resolve(mine, batch_of(&room, keys, 4, values), &elements));
    ligi_tables_read(mine, &room.batch);
    assert_int_equal(room.batch.miss_count, 2);
    ligi_tables_read_peer(mine, region, 0, &room.batch);
    assert_int_equal(room.batch.miss_count, 2);
    region[1] = UINT32_MAX; /* a slot beyond all rows */
    ligi_tables_read_peer(mine, region, 1, &room.batch);
    assert_int_equal(room.batch.miss_count, 1);
    assert_int_equal(room.misses[0].position, 0);
    assert_memory_equal(values + 8, given, sizeof given);
    assert_ok(ligi_tables_install_replica(mine, 3, given, 0));
    assert_int_equal(write_keys(mine, LIGI_WRITE_PUSH, keys + 2, 1, given), 0);
    assert_int_equal(ligi_tables_drop(mine, 3), LIGI_ROW_DRAINING);
    room.misses[0] = (ligi_miss){8, 2, 3};
    ligi_tables_read_peer(mine, region, 1, &room.batch); /* would lack the local pushes */
    assert_int_equal(room.batch.miss_count, 1);
    ligi_tables_destroy(mine);
    ligi_tables_destroy(theirs);
}

static void watched(void *context, ligi_entry entry, ligi_row_state state)
{
    int *seen = context;

    seen[0]++;
    seen[1] = (int)entry;
    seen[2] = (int)state;
}

static void changes_are_told(void **state)
{
    ligi_tables *tables = tables_of(&plain4, 1, LIG_FLOAT32, 0, 2);
    int seen[3] = {0};
    char body[64];

    (void)state;
    ligi_tables_watch(tables, watched, seen);
    ligi_tables_leave(tables, 2, 1, body);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 2);
    assert_int_equal(seen[2], LIGI_ROW_ABSENT);
    assert_ok(ligi_tables_install_replica(tables, 2, body, 0));
    assert_ok(ligi_tables_install_replica(tables, 2, body, 0));
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[2], LIGI_ROW_REPLICA);
    ligi_tables_watch(tables, NULL, NULL);
    ligi_tables_drop(tables, 2);
    assert_int_equal(seen[0], 2);
    ligi_tables_destroy(tables);
}

enum { LONG = 1024 };

/* Installs the row of key 0 as soon as that of key 1 has been written. */
static void *bring(void *context)
{
    ligi_tables *tables = context;
    float *row = calloc(LONG, sizeof *row);
    int64_t key = 1;

    assert_non_null(row);
    while (row[0] == 0)
        assert_int_equal(read_keys(tables, &key, 1, row), 0);
    assert_ok(ligi_tables_install_owned(tables, 0, 1, row, 0));
    free(row);
    return NULL;
}

/* A row that arrives between two writes of one call must not receive the second before the
 * first. */
static void what_was_missed_waits_its_turn(void **state)
{
    lig_params_table table = {.key_count = 2 * ROOM, .length = LONG};
    float *values = calloc((size_t)ROOM * LONG, sizeof *values), found[LONG];
    table_room *room = malloc(sizeof *room);
    int64_t keys[ROOM];
    ligi_seen_set seen_set = {0};
    pthread_t thread;

    (void)state;
    assert_true(room != NULL && values != NULL);
    assert_ok(ligi_seen_set_reserve(&seen_set, ROOM));
    for (size_t i = 0; i < ROOM; i++) {
        keys[i] = i != 0 && i != ROOM - 1 ? (int64_t)(2 * i - 1) : 0;
        values[i * LONG] = (float)(i + 1);
    }
    for (int round = 0; round < 20; round++) {
        ligi_tables *tables = tables_of(&table, 1, LIG_FLOAT32, 1, 2);
        batch_of(room, keys, ROOM, values)->seen_set = &seen_set;
        assert_int_equal(pthread_create(&thread, NULL, bring, tables), 0);
        ligi_tables_write(tables, LIGI_WRITE_SET, &room->batch);
        assert_int_equal(room->batch.miss_count, 2);
        pthread_join(thread, NULL);
        ligi_tables_write_misses(tables, LIGI_WRITE_SET, &room->batch);
        assert_int_equal(room->batch.miss_count, 0);
        assert_int_equal(read_keys(tables, keys, 1, found), 0);
        assert_true(found[0] == ROOM);
        ligi_tables_destroy(tables);
    }
    ligi_seen_set_fini(&seen_set);
    free(room);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(refuses_keys),
        cmocka_unit_test(homes_are_spread),
        cmocka_unit_test(rows_of_many_lengths),
        cmocka_unit_test(hashed_keys),
        cmocka_unit_test(has_long_rows),
        cmocka_unit_test(refuses_tables),
        cmocka_unit_test(places_only_get_newer),
        cmocka_unit_test(rows_move),
        cmocka_unit_test(replicas_converge),
        cmocka_unit_test(a_replica_becomes_owned),
        cmocka_unit_test(first_writes_are_noted),
        cmocka_unit_test(peers_are_read),
        cmocka_unit_test(changes_are_told),
        cmocka_unit_test(what_was_missed_waits_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
