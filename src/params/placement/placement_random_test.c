/* Random schedules of a whole job: every node is a placement with real tables; net, request_send.c
 * and request_serve.c are replaced by a few lines here. Messages arrive in any order across links
 * and in order on each. Every worker adds to its own element, so that the expected value is known
 * exactly at all times. */
#include "params/placement/owner_protocol.h"
#include "params/placement/placement_testing.h"
#include "params/placement/replica_protocol.h"
#include "params/tables/row_access.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

enum { OPEN_MAX = 6 };

typedef struct open_request {
    int is_open;
    ligi_verb verb;
    int64_t key;
    int64_t expected; /* of a pull: the worker's own element */
} open_request;

typedef struct person {
    open_request open[OPEN_MAX];
    int64_t model[KEYS_MAX]; /* the expected value of its own element */
} person;

typedef struct job {
    sim s;
    person people[NODES_MAX][WORKERS_MAX];
    uint64_t done, remote;
    /* The contents of replicas when an era ends, by worker and key. */
    int64_t at_era[NODES_MAX][WORKERS_MAX][KEYS_MAX];
    uint32_t era[NODES_MAX];
    int era_runs[NODES_MAX];
} job;

/* The only worker that writes this key (all elements, also with set); UINT32_MAX: all workers
 * push. */
static uint32_t writer_of(const job *j, int64_t key)
{
    return key % 4 == 3 ? (uint32_t)(key / 4) % (j->s.node_count * j->s.worker_count) : UINT32_MAX;
}

static uint32_t person_id(const job *j, uint32_t node, uint32_t worker)
{
    return node * j->s.worker_count + worker;
}

/* 1 if it was applied to a local row. */
static int try_here(job *j, uint32_t rank, ligi_verb verb, int64_t key, int64_t *row)
{
    sim_node *node = &j->s.nodes[rank];
    ligi_entry entries[1], noted[1];
    ligi_miss misses[1];
    uint64_t elements;
    ligi_batch batch = {.keys = &key,
                        .count = 1,
                        .values = row,
                        .entries = entries,
                        .misses = misses,
                        .noted = noted};

    assert_ok(ligi_tables_resolve(node->tables, &batch, &elements));
    if (verb == LIGI_PULL)
        ligi_tables_read(node->tables, &batch);
    else
        ligi_tables_write(node->tables, verb == LIGI_SET ? LIGI_WRITE_SET : LIGI_WRITE_PUSH,
                          &batch);
    if (batch.noted_count > 0)
        assert_ok(ligi_placement_note(&node->placement, noted, batch.noted_count));
    return batch.miss_count == 0;
}

static void finish(job *j, const request *r)
{
    person *p = &j->people[r->origin][r->worker];
    open_request *o = &p->open[r->slot];

    assert_true(o->is_open && o->key == r->key);
    if (r->verb == LIGI_PULL && r->row[person_id(j, r->origin, r->worker)] != o->expected)
        fail_msg("worker %u of node %u pulls key %d: %d, not %d", r->worker, r->origin, (int)r->key,
                 (int)r->row[person_id(j, r->origin, r->worker)], (int)o->expected);
    o->is_open = 0;
    j->done++;
}

/* Like request_serve.c: the owner applies it, other nodes forward it. */
static void asked(job *j, uint32_t rank, const request *r)
{
    sim_node *node = &j->s.nodes[rank];
    ligi_entry entry = (ligi_entry)r->key;
    request copy = *r;

    if (ligi_tables_state(node->tables, entry) != LIGI_ROW_OWNED) {
        ligi_row_location location = ligi_tables_location(node->tables, entry);
        if (++copy.hops > 1000)
            fail_msg("key %d is asked for without end", (int)r->key);
        message *on = send_message(&j->s, rank, location.node);
        on->kind = ASKED;
        on->asked = copy;
        return;
    }
    assert_true(try_here(j, rank, r->verb, r->key, copy.row));
    if (r->verb != LIGI_PULL)
        assert_ok(ligi_placement_written_by(&node->placement, entry, r->origin));
    copy.moves = ligi_tables_location(node->tables, entry).moves;
    if (r->origin == rank) {
        finish(j, &copy);
        return;
    }
    message *back = send_message(&j->s, rank, r->origin);
    back->kind = ANSWERED;
    back->asked = copy;
}

static void deliver(job *j, uint32_t from, uint32_t to)
{
    message *one = take_message(&j->s, from, to);
    sim_node *node = &j->s.nodes[to];

    if (one->kind == ASKED) {
        asked(j, to, &one->asked);
    } else if (one->kind == ANSWERED) {
        ligi_tables_location_update(node->tables, (ligi_entry)one->asked.key,
                                    (ligi_row_location){from, one->asked.moves});
        finish(j, &one->asked);
    } else {
        uint64_t front = one->head.count * sizeof(ligi_sync_item);
        const ligi_params_parts parts = {.items =
                                             (const ligi_sync_item *)(const void *)one->payload,
                                         .rows = one->payload + front,
                                         .rows_bytes = one->bytes - front};
        assert_ok(ligi_placement_arrived(&node->placement, from, &one->head, &parts));
    }
    free_message(one);
}

static int deliver_any(job *j)
{
    uint32_t n = j->s.node_count, pairs = n * n, at = below(&j->s, pairs);

    for (uint32_t i = 0; i < pairs; i++, at = (at + 1) % pairs)
        if (j->s.wires[at / n][at % n].first != NULL) {
            deliver(j, at / n, at % n);
            return 1;
        }
    return 0;
}

/* --- workers --- */

static int must_wait(const person *p, ligi_verb verb, int64_t key, uint32_t *slot)
{
    *slot = OPEN_MAX;
    for (uint32_t i = 0; i < OPEN_MAX; i++) {
        const open_request *o = &p->open[i];
        if (!o->is_open)
            *slot = i;
        else if (o->key == key && (o->verb != verb || verb == LIGI_SET))
            return 1;
    }
    return *slot == OPEN_MAX;
}

static ligi_verb choose_verb(job *j, uint32_t id, int64_t key)
{
    uint32_t writer = writer_of(j, key), dice = below(&j->s, 10);

    if (writer == UINT32_MAX)
        return dice < 5 ? LIGI_PUSH : LIGI_PULL;
    if (writer != id)
        return LIGI_PULL;
    return dice < 3 ? LIGI_SET : dice < 7 ? LIGI_PUSH : LIGI_PULL;
}

static void ask(job *j, uint32_t rank, uint32_t worker, request *r)
{
    sim_node *node = &j->s.nodes[rank];
    ligi_entry entry = (ligi_entry)r->key;

    if (r->verb == LIGI_SET)
        assert_ok(ligi_placement_surrender(&node->placement, entry));
    ligi_row_location location = ligi_tables_location(node->tables, entry);
    if (ligi_tables_state(node->tables, entry) == LIGI_ROW_DRAINING || location.node == rank)
        return; /* it tries again */
    person *p = &j->people[rank][worker];
    uint32_t id = person_id(j, rank, worker);
    open_request *o = &p->open[r->slot];
    *o = (open_request){1, r->verb, r->key, p->model[r->key]};
    if (r->verb == LIGI_PUSH)
        p->model[r->key] += r->row[id];
    else if (r->verb == LIGI_SET)
        p->model[r->key] = r->row[id];
    j->remote++;
    message *made = send_message(&j->s, rank, location.node);
    made->kind = ASKED;
    made->asked = *r;
}

static void act(job *j, uint32_t rank, uint32_t worker)
{
    person *p = &j->people[rank][worker];
    uint32_t id = person_id(j, rank, worker);
    request r = {.origin = rank, .worker = worker, .key = below(&j->s, j->s.key_count)};

    r.verb = choose_verb(j, id, r.key);
    if (must_wait(p, r.verb, r.key, &r.slot))
        return;
    if (r.verb != LIGI_PULL)
        r.row[id] = 1 + below(&j->s, 1000);
    if (!try_here(j, rank, r.verb, r.key, r.row)) {
        ask(j, rank, worker, &r);
        return;
    }
    if (r.verb == LIGI_PULL && r.row[id] != p->model[r.key])
        fail_msg("worker %u of node %u finds %d in key %d, not %d", worker, rank, (int)r.row[id],
                 (int)r.key, (int)p->model[r.key]);
    if (r.verb == LIGI_PUSH)
        p->model[r.key] += r.row[id];
    else if (r.verb == LIGI_SET)
        p->model[r.key] = r.row[id];
    j->done++;
}

static void intend(job *j, uint32_t rank, uint32_t worker)
{
    sim_node *node = &j->s.nodes[rank];
    uint32_t entries[4], count = 1 + below(&j->s, 4);
    int64_t start = node->clocks[worker] - 1 + below(&j->s, 6);

    for (uint32_t i = 0; i < count; i++)
        entries[i] = below(&j->s, j->s.key_count);
    assert_ok(ligi_agenda_put(&node->agendas[worker], entries, count, start,
                              start + 1 + below(&j->s, 5)));
}

/* --- invariants --- */

static uint32_t moving(const job *j, int64_t key)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < j->s.node_count * j->s.node_count; i++)
        for (const message *l = j->s.wires[i / j->s.node_count][i % j->s.node_count].first;
             l != NULL; l = l->next)
            for (uint32_t k = 0; l->kind == OF_PLACEMENT && k < l->head.count; k++) {
                const ligi_sync_item *item = (const ligi_sync_item *)(const void *)l->payload + k;
                count += item->key == key && item->kind == LIGI_ITEM_RELOCATED;
            }
    return count;
}

static sim_node *owner_of(job *j, int64_t key)
{
    sim_node *found = NULL;

    for (uint32_t i = 0; i < j->s.node_count; i++)
        if (ligi_tables_state(j->s.nodes[i].tables, (ligi_entry)key) == LIGI_ROW_OWNED) {
            assert_null(found);
            found = &j->s.nodes[i];
        }
    assert_int_equal(moving(j, key), found == NULL);
    return found;
}

static void check_always(job *j)
{
    for (int64_t key = 0; key < j->s.key_count; key++)
        (void)owner_of(j, key);
}

/* All pushes of an era that has ended are in the owners' rows. */
static void check_eras(job *j)
{
    for (uint32_t i = 0; i < j->s.node_count; i++) {
        if (!j->era_runs[i] || j->s.nodes[i].placement.unsettled[j->era[i] & 1] > 0)
            continue;
        j->era_runs[i] = 0;
        for (int64_t key = 0; key < j->s.key_count; key++) {
            int64_t row[PEOPLE_MAX];
            sim_node *owner = owner_of(j, key);
            if (owner == NULL || writer_of(j, key) != UINT32_MAX)
                continue;
            assert_true(ligi_tables_get_body(owner->tables, (ligi_entry)key, row));
            for (uint32_t w = 0; w < j->s.worker_count; w++)
                assert_true(row[person_id(j, i, w)] >= j->at_era[i][w][key]);
        }
    }
}

static void begin_era(job *j, uint32_t rank)
{
    person *p = j->people[rank];

    if (j->era_runs[rank])
        return;
    j->era[rank] = ligi_placement_next_era(&j->s.nodes[rank].placement);
    j->era_runs[rank] = 1;
    for (uint32_t w = 0; w < j->s.worker_count; w++)
        for (int64_t key = 0; key < j->s.key_count; key++) {
            int pushing = 0;
            for (int i = 0; i < OPEN_MAX; i++)
                pushing |= p[w].open[i].is_open && p[w].open[i].key == key;
            j->at_era[rank][w][key] = pushing ? 0 : p[w].model[key];
        }
}

static void settle_down(job *j)
{
    for (int quiet = 0; quiet < 6; quiet++) {
        while (deliver_any(j))
            quiet = 0;
        for (uint32_t i = 0; i < j->s.node_count; i++)
            sim_round(&j->s, i, 3, 0);
        check_eras(j);
        if (j->s.under_way > 0)
            quiet = 0;
    }
}

static void expected_row(const job *j, int64_t key, int64_t *row)
{
    uint32_t people = j->s.node_count * j->s.worker_count, writer = writer_of(j, key);

    for (uint32_t id = 0; id < people; id++)
        row[id] = writer == UINT32_MAX || writer == id
                      ? j->people[id / j->s.worker_count][id % j->s.worker_count].model[key]
                      : 0;
}

/* Nothing is in flight: all rows have their expected values, and exactly the interested nodes have
 * a row or wait for it. */
static void check_at_rest(job *j, int expect_replicas)
{
    int64_t expected[PEOPLE_MAX], row[PEOPLE_MAX];
    size_t bytes = j->s.node_count * j->s.worker_count * sizeof row[0];

    for (int64_t key = 0; key < j->s.key_count; key++) {
        ligi_entry entry = (ligi_entry)key;
        assert_non_null(owner_of(j, key));
        expected_row(j, key, expected);
        for (uint32_t i = 0; i < j->s.node_count; i++) {
            sim_node *node = &j->s.nodes[i];
            const ligi_mark *mark = &node->placement.marks[entry];
            int cares = ligi_placement_is_interested(&node->placement, entry);
            ligi_row_state state = ligi_tables_state(node->tables, entry);
            assert_true(state != LIGI_ROW_DRAINING);
            assert_int_equal((mark->flags & LIGI_MARK_REPLICA) != 0, state == LIGI_ROW_REPLICA);
            assert_true(!(mark->flags & LIGI_MARK_OWNED) || state == LIGI_ROW_OWNED);
            assert_false(mark->flags & (LIGI_MARK_UNSETTLED | LIGI_MARK_LEAVING));
            if (j->s.techniques != LIG_PARAMS_RELOCATION_ONLY) {
                assert_false(mark->flags & LIGI_MARK_WANTED);
                assert_true(!cares || state != LIGI_ROW_ABSENT);
            } else {
                assert_true(state != LIGI_ROW_REPLICA);
                assert_true(!cares || state == LIGI_ROW_OWNED || mark->flags & LIGI_MARK_WANTED);
            }
            if (state == LIGI_ROW_REPLICA)
                assert_true(cares && expect_replicas);
            if (state == LIGI_ROW_ABSENT)
                continue;
            assert_true(ligi_tables_get_body(node->tables, entry, row));
            if (memcmp(row, expected, bytes) != 0)
                fail_msg("key %d is wrong on node %u", (int)key, i);
        }
    }
    for (uint32_t i = 0; i < j->s.node_count; i++) {
        ligi_placement *placement = &j->s.nodes[i].placement;
        assert_int_equal(placement->unsettled[0] + placement->unsettled[1], 0);
        assert_int_equal(placement->dirty.count + placement->resting.count, 0);
        for (uint32_t w = 0; w < j->s.worker_count; w++)
            for (int o = 0; o < OPEN_MAX; o++)
                assert_false(j->people[i][w].open[o].is_open);
    }
}

/* --- schedules --- */

static void step(job *j)
{
    uint32_t rank = below(&j->s, j->s.node_count), worker = below(&j->s, j->s.worker_count);
    uint32_t dice = below(&j->s, 100);

    if (dice < 40)
        act(j, rank, worker);
    else if (dice < 75)
        (void)deliver_any(j);
    else if (dice < 85)
        sim_round(&j->s, rank, 1 + below(&j->s, 5), below(&j->s, 2) == 0);
    else if (dice < 92)
        intend(j, rank, worker);
    else if (dice < 98)
        j->s.nodes[rank].clocks[worker]++;
    else
        begin_era(j, rank);
}

static void run(uint64_t seed, lig_params_techniques techniques, int steps)
{
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    ligi_rng_init(&j->s.rng, seed, 1, 1);
    j->s.node_count = 2 + below(&j->s, NODES_MAX - 1);
    j->s.worker_count = 1 + below(&j->s, WORKERS_MAX);
    j->s.key_count = 4 + below(&j->s, KEYS_MAX - 3);
    j->s.techniques = techniques;
    sim_init(&j->s, seed);
    for (int i = 0; i < steps; i++) {
        step(j);
        if (i % 8 == 0)
            check_always(j);
        check_eras(j);
        if (below(&j->s, 2000) == 0) {
            settle_down(j);
            check_at_rest(j, 1);
        }
    }
    settle_down(j);
    check_at_rest(j, 1);
    for (uint32_t i = 0; i < j->s.node_count; i++)
        for (uint32_t w = 0; w < j->s.worker_count; w++)
            j->s.nodes[i].clocks[w] = INT64_MAX;
    settle_down(j);
    check_at_rest(j, 0);
    assert_true(j->done > 0 && j->remote > 0);
    sim_fini(&j->s);
    free(j);
}

static void many(lig_params_techniques techniques)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        run(seed, techniques, 3000);
}

static void relocation_and_replication(void **state)
{
    (void)state;
    many(LIG_PARAMS_ALL);
}

static void copying_alone(void **state)
{
    (void)state;
    many(LIG_PARAMS_REPLICATION_ONLY);
}

static void moving_alone(void **state)
{
    (void)state;
    many(LIG_PARAMS_RELOCATION_ONLY);
}

/* Two nodes that want one row forever, in a table that cannot be replicated: it stays with one of
 * them. */
static void no_row_moves_for_ever(void **state)
{
    sim s = {.node_count = 3,
             .worker_count = 1,
             .key_count = 4,
             .techniques = LIG_PARAMS_RELOCATION_ONLY};
    job *j = calloc(1, sizeof *j);
    uint32_t key = 0;
    uint64_t moves = 0;

    (void)state;
    assert_non_null(j);
    j->s = s;
    sim_init(&j->s, 3);
    for (uint32_t i = 1; i < 3; i++)
        assert_ok(ligi_agenda_put(&j->s.nodes[i].agendas[0], &key, 1, 0, INT64_MAX));
    for (int i = 0; i < 100; i++)
        settle_down(j);
    for (uint32_t i = 0; i < 3; i++)
        moves += j->s.nodes[i].placement.counts.relocations_in;
    assert_int_equal(moves, 1);
    sim_fini(&j->s);
    free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relocation_and_replication),
        cmocka_unit_test(copying_alone),
        cmocka_unit_test(moving_alone),
        cmocka_unit_test(no_row_moves_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
