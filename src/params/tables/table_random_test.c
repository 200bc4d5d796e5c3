/* Two nodes perform random operations; a model of plain numbers gives the expected rows. */
#include "params/tables/key_home.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"
#include "params/tables/table_testing.h"

enum { KEYS = 24, LONGEST = 9, STEPS = 60000 };

typedef struct twin { /* of one row; elements are all `value x (element + 1)` */
    uint32_t owner;
    ligi_row_state other; /* at the node that does not own it */
    int64_t value;        /* the owner's */
    int64_t base, sent, pending;
    int has_sent, has_pending;
    int64_t under_way; /* a delta that was taken but not yet added by the owner */
    int in_flight;
    uint64_t moves;
} twin;

typedef struct world {
    ligi_tables *nodes[2];
    int64_t keys[KEYS];
    uint32_t lengths[KEYS];
    twin rows[KEYS];
    uint64_t seed;
} world;

static uint64_t draw(world *self, uint64_t limit)
{
    self->seed = self->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (self->seed >> 33) % limit;
}

static ligi_entry entry_in(world *self, uint32_t node, int i)
{
    ligi_entry entry;

    assert_ok(ligi_tables_entry(self->nodes[node], self->keys[i], &entry));
    return entry;
}

static void fill_row(world *self, int i, int64_t value, int64_t *row)
{
    for (uint32_t e = 0; e < self->lengths[i]; e++)
        row[e] = value * (e + 1);
}

static void expect_row(world *self, int i, const int64_t *row, int64_t value)
{
    for (uint32_t e = 0; e < self->lengths[i]; e++)
        assert_int_equal(row[e], value * (e + 1));
}

static void look(world *self, int i)
{
    twin *row = &self->rows[i];
    int64_t got[LONGEST];

    assert_int_equal(read_keys(self->nodes[row->owner], &self->keys[i], 1, got), 0);
    expect_row(self, i, got, row->value);
    size_t missing = read_keys(self->nodes[!row->owner], &self->keys[i], 1, got);
    assert_int_equal(missing, row->other != LIGI_ROW_REPLICA);
    if (!missing)
        expect_row(self, i, got, row->base + row->sent + row->pending);
    ligi_entry entry = entry_in(self, !row->owner, i);
    assert_int_equal(ligi_tables_state(self->nodes[!row->owner], entry), row->other);
    assert_int_equal(ligi_tables_has_sent(self->nodes[!row->owner], entry), row->has_sent);
    assert_int_equal(ligi_tables_has_pending(self->nodes[!row->owner], entry), row->has_pending);
}

static void write(world *self, int i)
{
    twin *row = &self->rows[i];
    uint32_t node = (uint32_t)draw(self, 2);
    int set = draw(self, 4) == 0;
    int64_t value = (int64_t)draw(self, 1000) - 500, given[LONGEST];
    int done = node == row->owner || (row->other == LIGI_ROW_REPLICA && !set);

    fill_row(self, i, value, given);
    assert_int_equal(write_keys(self->nodes[node], set ? LIGI_WRITE_SET : LIGI_WRITE_PUSH,
                                &self->keys[i], 1, given),
                     !done);
    if (node == row->owner) {
        row->value = set ? value : row->value + value;
    } else if (done) {
        row->pending += value;
        row->has_pending = 1;
    }
}

/* The owner's current row is sent to the other node: it includes that node's delta unless the delta
 * is still in flight. */
static void copy(world *self, int i)
{
    twin *row = &self->rows[i];
    int64_t body[LONGEST];
    int included = row->has_sent && !row->in_flight;

    ligi_tables_share(self->nodes[row->owner], entry_in(self, row->owner, i), 1);
    ligi_tables_take_fresh(self->nodes[row->owner], entry_in(self, row->owner, i), body);
    assert_ok(ligi_tables_install_replica(self->nodes[!row->owner], entry_in(self, !row->owner, i),
                                          body, included));
    row->base = row->value;
    row->other = LIGI_ROW_REPLICA;
    if (included)
        row->sent = row->has_sent = 0;
}

static void move(world *self, int i)
{
    twin *row = &self->rows[i];
    int64_t body[LONGEST];
    int included = row->has_sent && !row->in_flight;
    uint64_t moves = ligi_tables_leave(self->nodes[row->owner], entry_in(self, row->owner, i),
                                       !row->owner, body);

    assert_int_equal(moves, row->moves + 1);
    assert_ok(ligi_tables_install_owned(self->nodes[!row->owner], entry_in(self, !row->owner, i),
                                        moves, body, included));
    *row = (twin){.owner = !row->owner,
                  .value = row->value + (included ? 0 : row->sent) + row->pending,
                  .moves = moves};
}

static void send(world *self, int i)
{
    twin *row = &self->rows[i];
    int64_t delta[LONGEST];
    int due = row->has_pending && !row->has_sent;
    ligi_entry entry = entry_in(self, !row->owner, i);

    assert_int_equal(ligi_tables_take_pending(self->nodes[!row->owner], entry, delta), due);
    if (!due)
        return;
    expect_row(self, i, delta, row->pending);
    row->under_way = row->sent = row->pending;
    row->has_sent = row->in_flight = 1;
    row->pending = row->has_pending = 0;
}

static void arrive(world *self, int i)
{
    twin *row = &self->rows[i];
    int64_t delta[LONGEST];

    if (!row->in_flight)
        return;
    fill_row(self, i, row->under_way, delta);
    ligi_tables_add_delta(self->nodes[row->owner], entry_in(self, row->owner, i), delta);
    row->value += row->under_way;
    row->in_flight = 0;
}

static void confirm(world *self, int i)
{
    twin *row = &self->rows[i];

    if (!row->has_sent || row->in_flight)
        return;
    row->base += row->sent;
    row->sent = row->has_sent = 0;
    if (row->other == LIGI_ROW_DRAINING && !row->has_pending)
        row->other = LIGI_ROW_ABSENT;
    assert_int_equal(ligi_tables_confirm(self->nodes[!row->owner], entry_in(self, !row->owner, i)),
                     row->other);
}

static void drop(world *self, int i)
{
    twin *row = &self->rows[i];

    if (row->other != LIGI_ROW_REPLICA)
        return;
    row->other = row->has_sent || row->has_pending ? LIGI_ROW_DRAINING : LIGI_ROW_ABSENT;
    assert_int_equal(ligi_tables_drop(self->nodes[!row->owner], entry_in(self, !row->owner, i)),
                     row->other);
}

static void run(world *self)
{
    static void (*const steps[])(world *, int) = {write, write,  write,   look, copy, send,
                                                  send,  arrive, confirm, drop, move};

    for (int i = 0; i < KEYS; i++)
        self->rows[i].owner = ligi_tables_home(self->nodes[0], self->keys[i]);
    for (int step = 0; step < STEPS; step++)
        steps[draw(self, sizeof steps / sizeof *steps)](self, (int)draw(self, KEYS));
    for (int i = 0; i < KEYS; i++)
        look(self, i);
    ligi_tables_destroy(self->nodes[0]);
    ligi_tables_destroy(self->nodes[1]);
}

static void dense_of_many_lengths(void **state)
{
    static const uint32_t lengths[10] = {1, 2, 1, 9, 3, 2, 1, 9, 9, 4};
    lig_params_table tables[] = {{.name = "a", .key_count = 14, .length = 3},
                                 {.name = "b", .key_count = 10, .lengths = lengths}};
    world self = {.seed = 1};

    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        self.nodes[i] = tables_of(tables, 2, LIG_INT64, i, 2);
    for (int i = 0; i < KEYS; i++) {
        self.keys[i] = i;
        self.lengths[i] = i < 14 ? 3 : lengths[i - 14];
    }
    run(&self);
}

static void hashed_of_two_tables(void **state)
{
    lig_params_table tables[] = {{.name = "a", .key_count = 12, .length = 4},
                                 {.name = "b", .key_count = 12, .length = 7}};
    world self = {.seed = 2};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        ligi_tables_options options = {tables, 2, LIG_INT64, LIG_PARAMS_HASHED, i, 2, NULL};
        assert_ok(ligi_tables_create(&self.nodes[i], &options));
    }
    for (int i = 0; i < KEYS; i++) {
        self.keys[i] = (int64_t)(i % 2) << LIG_PARAMS_HASHED_SHIFT | (i * INT64_C(123456789123));
        self.lengths[i] = i % 2 ? 7 : 4;
        entry_in(&self, ligi_tables_home(self.nodes[0], self.keys[i]), i);
    }
    run(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_of_many_lengths),
        cmocka_unit_test(hashed_of_two_tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
