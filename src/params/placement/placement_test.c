/* The effect of single messages: the normal life of a row, and messages that no correct node
 * sends. */
#include "params/placement/placement_testing.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

enum { KEY = 1 }; /* its home is node 1 */

static void deliver_all(sim *s)
{
    for (int any = 1; any;) {
        any = 0;
        for (uint32_t i = 0; i < s->node_count * s->node_count; i++) {
            message *one = take_message(s, i / s->node_count, i % s->node_count);
            if (one == NULL)
                continue;
            uint64_t front = one->head.count * sizeof(ligi_sync_item);
            const ligi_params_parts parts = {.items =
                                                 (const ligi_sync_item *)(const void *)one->payload,
                                             .rows = one->payload + front,
                                             .rows_bytes = one->bytes - front};
            assert_ok(ligi_placement_arrived(&s->nodes[i % s->node_count].placement,
                                             i / s->node_count, &one->head, &parts));
            free_message(one);
            any = 1;
        }
    }
}

static void rounds(sim *s, int count)
{
    for (int i = 0; i < count; i++) {
        for (uint32_t n = 0; n < s->node_count; n++)
            sim_round(s, n, 1, 0);
        deliver_all(s);
    }
}

static ligi_row_state state_of(const sim *s, uint32_t node)
{
    return ligi_tables_state(s->nodes[node].tables, KEY);
}

static void want(sim *s, uint32_t node, int64_t start, int64_t end)
{
    uint32_t entry = KEY;

    assert_ok(ligi_agenda_put(&s->nodes[node].agendas[0], &entry, 1, start, end));
}

static sim *make(uint32_t nodes, lig_params_techniques techniques)
{
    sim *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->node_count = nodes;
    s->worker_count = 1;
    s->key_count = 8;
    s->techniques = techniques;
    sim_init(s, 1);
    return s;
}

static void done(sim *s)
{
    sim_fini(s);
    free(s);
}

static void a_row_and_its_replicas(void **state)
{
    sim *s = make(3, LIG_PARAMS_ALL);

    (void)state;
    want(s, 0, 0, 10);
    rounds(s, 2);
    assert_int_equal(state_of(s, 0), LIGI_ROW_OWNED); /* alone: it moves at once */
    assert_int_equal(state_of(s, 1), LIGI_ROW_ABSENT);
    assert_int_equal(ligi_tables_location(s->nodes[1].tables, KEY).node, 0);
    want(s, 2, 0, 5); /* its home forwards the request */
    rounds(s, 2);
    assert_int_equal(state_of(s, 0), LIGI_ROW_OWNED);
    assert_int_equal(state_of(s, 2), LIGI_ROW_REPLICA);
    assert_int_equal(s->nodes[1].placement.counts.forwarded, 1);
    s->nodes[2].clocks[0] = 5;
    rounds(s, 2);
    assert_int_equal(state_of(s, 2), LIGI_ROW_ABSENT);
    assert_int_equal(s->nodes[0].placement.subscribers.live, 0);
    want(s, 2, 5, 50);
    rounds(s, 2);
    s->nodes[0].clocks[0] = 10; /* one node is left: it gets the row */
    rounds(s, 4);
    assert_int_equal(state_of(s, 2), LIGI_ROW_OWNED);
    assert_int_equal(state_of(s, 0), LIGI_ROW_ABSENT);
    s->nodes[2].clocks[0] = 50; /* no node is left: the row stays */
    rounds(s, 4);
    assert_int_equal(state_of(s, 2), LIGI_ROW_OWNED);
    assert_int_equal(ligi_tables_location(s->nodes[1].tables, KEY).node, 2); /* its home was
                                                                              * notified */
    assert_int_equal(s->under_way, 0);
    done(s);
}

static void nothing_is_said_when_nothing_is_new(void **state)
{
    sim *s = make(2, LIG_PARAMS_ALL);

    (void)state;
    want(s, 0, 0, INT64_MAX);
    want(s, 1, 0, INT64_MAX);
    rounds(s, 3);
    assert_int_equal(state_of(s, 0) + state_of(s, 1), LIGI_ROW_REPLICA + LIGI_ROW_OWNED);
    for (uint32_t n = 0; n < 2; n++)
        sim_round(s, n, 1, 0);
    assert_int_equal(s->under_way, 0);
    want(s, 0, 0, 100); /* known already */
    sim_round(s, 0, 1, 0);
    assert_int_equal(s->under_way, 0);
    done(s);
}

static void where_nothing_moves(void **state)
{
    sim *s = make(2, LIG_PARAMS_REPLICATION_ONLY);

    (void)state;
    want(s, 0, 0, 10);
    rounds(s, 10);
    assert_int_equal(state_of(s, 0), LIGI_ROW_REPLICA);
    assert_int_equal(state_of(s, 1), LIGI_ROW_OWNED);
    done(s);
}

static void where_nothing_is_copied(void **state)
{
    sim *s = make(3, LIG_PARAMS_RELOCATION_ONLY);

    (void)state;
    want(s, 0, 0, 10);
    want(s, 2, 0, 10);
    rounds(s, 5);
    assert_int_equal(state_of(s, 0), LIGI_ROW_OWNED);
    assert_int_equal(state_of(s, 2), LIGI_ROW_ABSENT);
    s->nodes[0].clocks[0] = 10;
    rounds(s, 5);
    assert_int_equal(state_of(s, 2), LIGI_ROW_OWNED);
    done(s);
}

/* --- invalid messages --- */

typedef struct strange {
    ligi_params_message_kind message;
    uint32_t origin;
    ligi_sync_item item;
    uint64_t rows_bytes;
    lig_status status;
    const char *says;
} strange;

#define BODY (2 * sizeof(int64_t)) /* of two workers */

static const strange messages[] = {
    {LIGI_PARAMS_SYNC, 9, {KEY, 0, LIGI_ITEM_WANT, 0, 0}, 0, LIG_E_CORRUPT, "does not exist"},
    {LIGI_PARAMS_SYNC, 0, {99, 0, LIGI_ITEM_WANT, 0, 0}, 0, LIG_E_INVALID, "99"},
    {LIGI_PARAMS_SYNC, 0, {-1, 0, LIGI_ITEM_WANT, 0, 0}, 0, LIG_E_INVALID, "-1"},
    {LIGI_PARAMS_SYNC, 0, {KEY, 0, LIGI_ITEM_RELOCATED, 0, 0}, BODY, LIG_E_CORRUPT, "invalid item"},
    {LIGI_PARAMS_UPDATE, 0, {KEY, 0, LIGI_ITEM_DELTA, 0, 0}, BODY, LIG_E_CORRUPT, "invalid item"},
    {LIGI_PARAMS_UPDATE, 0, {KEY, 0, 77, 0, 0}, 0, LIG_E_CORRUPT, "invalid item"},
    {LIGI_PARAMS_LOCATION, 0, {KEY, 0, LIGI_ITEM_WANT, 0, 0}, 0, LIG_E_CORRUPT, "invalid item"},
    {LIGI_PARAMS_SYNC, 0, {KEY, 0, LIGI_ITEM_WANT, 0, 0}, 8, LIG_E_CORRUPT, "trailing"},
    {LIGI_PARAMS_UPDATE,
     0,
     {KEY, 1, LIGI_ITEM_RELOCATED, 0, 0},
     BODY - 1,
     LIG_E_CORRUPT,
     "invalid item"},
    {LIGI_PARAMS_UPDATE,
     0,
     {KEY, 1, LIGI_ITEM_RELOCATED, 0, 0},
     BODY,
     LIG_E_CORRUPT,
     "to its owner"},
    {LIGI_PARAMS_UPDATE, 0, {0, 0, LIGI_ITEM_RELOCATED, 0, 0}, BODY, LIG_E_CORRUPT, "to its owner"},
    {LIGI_PARAMS_UPDATE,
     0,
     {0, UINT64_C(1) << 48, LIGI_ITEM_RELOCATED, 0, 0},
     BODY,
     LIG_E_CORRUPT,
     "invalid item"},
    {LIGI_PARAMS_UPDATE, 0, {KEY, 1, LIGI_ITEM_REPLICA, 0, 0}, BODY, LIG_E_CORRUPT, "to its owner"},
    {LIGI_PARAMS_SYNC, 0, {KEY, 1, LIGI_ITEM_DELTA, 0, 0}, BODY, LIG_E_CORRUPT, "does not have"},
    {LIGI_PARAMS_SYNC, 0, {KEY, 0, LIGI_ITEM_DROP, 0, 0}, 0, LIG_E_CORRUPT, "does not have"},
    /* Late, but possible. */
    {LIGI_PARAMS_SYNC, 0, {KEY, 7, LIGI_ITEM_DROP, 0, 0}, 0, LIG_OK, ""},
    {LIGI_PARAMS_UPDATE, 0, {0, 1, LIGI_ITEM_FRESH, 0, 0}, BODY, LIG_OK, ""},
    {LIGI_PARAMS_UPDATE, 0, {0, 1, LIGI_ITEM_TAKEN, 0, 0}, 0, LIG_OK, ""},
    {LIGI_PARAMS_LOCATION, 0, {0, 1, LIGI_ITEM_HERE, 0, 0}, 0, LIG_OK, ""},
};

/* Node 1 owns KEY and not key 0. */
static void strange_messages_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        const strange *one = &messages[i];
        sim *s = make(2, LIG_PARAMS_ALL);
        uint8_t rows[64] = {0};
        const ligi_params_message head = {
            .kind = (uint8_t)one->message, .origin = one->origin, .count = 1};
        const ligi_params_parts parts = {
            .items = &one->item, .rows = rows, .rows_bytes = one->rows_bytes};
        lig_status status = ligi_placement_arrived(&s->nodes[1].placement, 0, &head, &parts);
        if (status != one->status)
            fail_msg("message %zu: %s (%s)", i, lig_status_name(status), lig_error_text());
        if (status != LIG_OK)
            assert_says(one->says);
        done(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_and_its_replicas),
        cmocka_unit_test(nothing_is_said_when_nothing_is_new),
        cmocka_unit_test(where_nothing_moves),
        cmocka_unit_test(where_nothing_is_copied),
        cmocka_unit_test(strange_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
