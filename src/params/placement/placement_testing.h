/* Nodes without a network: placements with their own tables, and links that a test delivers as it
 * chooses, each in order. */
#ifndef LIGI_PLACEMENT_TESTING_H
#define LIGI_PLACEMENT_TESTING_H

#include "base/test.h"
#include "params/placement/placement.h"
#include "params/sampling/draw.h"
#include "params/tables/table.h"

#include <stdlib.h>

enum { NODES_MAX = 5, WORKERS_MAX = 2, PEOPLE_MAX = NODES_MAX * WORKERS_MAX, KEYS_MAX = 24 };

typedef enum message_source { OF_PLACEMENT, ASKED, ANSWERED } message_source;

/* A request of one key, and its answer. */
typedef struct request {
    uint32_t origin, worker, slot;
    ligi_verb verb;
    int64_t key;
    uint64_t moves;
    uint32_t hops;
    int64_t row[PEOPLE_MAX];
} request;

typedef struct message {
    struct message *next;
    message_source kind;
    ligi_params_message head;
    uint8_t *payload;
    uint64_t bytes;
    request asked;
} message;

typedef struct wire {
    message *first, **last;
    uint32_t count;
} wire;

typedef struct sim_node {
    ligi_placement placement;
    ligi_tables *tables;
    ligi_agenda agendas[WORKERS_MAX];
    int64_t clocks[WORKERS_MAX];
    struct sim *sim;
    uint32_t rank;
} sim_node;

typedef struct sim {
    uint32_t node_count, worker_count, key_count;
    lig_params_techniques techniques;
    sim_node nodes[NODES_MAX];
    wire wires[NODES_MAX][NODES_MAX];
    uint64_t under_way;
    ligi_rng rng;
} sim;

static inline uint32_t below(sim *s, uint32_t count)
{
    return (uint32_t)ligi_rng_below(&s->rng, count);
}

static inline message *send_message(sim *s, uint32_t from, uint32_t to)
{
    wire *w = &s->wires[from][to];
    message *made = calloc(1, sizeof *made);

    assert_non_null(made);
    assert_true(from != to && to < s->node_count);
    *w->last = made;
    w->last = &made->next;
    w->count++;
    s->under_way++;
    return made;
}

static inline message *take_message(sim *s, uint32_t from, uint32_t to)
{
    wire *w = &s->wires[from][to];
    message *taken = w->first;

    if (taken == NULL)
        return NULL;
    w->first = taken->next;
    if (w->first == NULL)
        w->last = &w->first;
    w->count--;
    s->under_way--;
    return taken;
}

static inline void free_message(message *gone)
{
    free(gone->payload);
    free(gone);
}

static inline lig_status sim_take(void *context, uint64_t bytes, ligi_send_buffer **buffer)
{
    ligi_send_buffer *made = calloc(1, sizeof *made);

    (void)context;
    assert_non_null(made);
    made->data = malloc(bytes);
    made->room = bytes;
    assert_non_null(made->data);
    *buffer = made;
    return LIG_OK;
}

static inline void sim_drop(void *context, ligi_send_buffer *buffer)
{
    (void)context;
    free(buffer->data);
    free(buffer);
}

static inline lig_status sim_send(void *context, uint32_t to, const ligi_params_outgoing *outgoing)
{
    sim_node *node = context;
    message *made = send_message(node->sim, node->rank, to);

    assert_true(outgoing->message.count > 0);
    made->kind = OF_PLACEMENT;
    made->head = outgoing->message;
    made->bytes = outgoing->buffer->bytes;
    made->payload = outgoing->buffer->data;
    free(outgoing->buffer);
    return LIG_OK;
}

static inline void sim_init(sim *s, uint64_t seed)
{
    uint32_t people = s->node_count * s->worker_count;
    const lig_params_table table = {.key_count = s->key_count, .length = people};

    ligi_rng_init(&s->rng, seed, 0, 0);
    for (uint32_t i = 0; i < s->node_count; i++) {
        sim_node *node = &s->nodes[i];
        const ligi_tables_options options = {.tables = &table,
                                             .table_count = 1,
                                             .dtype = LIG_INT64,
                                             .rank = i,
                                             .node_count = s->node_count};
        node->sim = s;
        node->rank = i;
        assert_ok(ligi_tables_create(&node->tables, &options));
        const ligi_placement_options own = {.tables = node->tables,
                                            .rank = i,
                                            .node_count = s->node_count,
                                            .techniques = s->techniques,
                                            .send_ops = {sim_take, sim_drop, sim_send, node}};
        assert_ok(ligi_placement_init(&node->placement, &own));
        for (uint32_t w = 0; w < s->worker_count; w++)
            ligi_agenda_init(&node->agendas[w]);
        for (uint32_t j = 0; j < s->node_count; j++)
            s->wires[i][j].last = &s->wires[i][j].first;
    }
}

static inline void sim_fini(sim *s)
{
    for (uint32_t i = 0; i < s->node_count; i++) {
        message *left;
        for (uint32_t j = 0; j < s->node_count; j++)
            while ((left = take_message(s, i, j)) != NULL)
                free_message(left);
        ligi_placement_fini(&s->nodes[i].placement);
        ligi_tables_destroy(s->nodes[i].tables);
        for (uint32_t w = 0; w < s->worker_count; w++)
            ligi_agenda_fini(&s->nodes[i].agendas[w]);
    }
}

/* As sync_round.c does it, in one piece or in pieces of one entry. */
static inline void sim_round(sim *s, uint32_t rank, int64_t window, int crumbs)
{
    sim_node *node = &s->nodes[rank];
    ligi_intent_segment *segment;
    size_t budget = SIZE_MAX;
    int through;

    assert_ok(ligi_placement_rested(&node->placement));
    for (uint32_t w = 0; w < s->worker_count; w++) {
        ligi_agenda *agenda = &node->agendas[w];
        int64_t clock = node->clocks[w];
        ligi_agenda_gather(agenda, clock);
        while ((segment = ligi_agenda_begin(agenda, clock, window)) != NULL)
            do {
                budget = crumbs ? 1 : SIZE_MAX;
                assert_ok(ligi_placement_begin(&node->placement, w, segment, &budget, &through));
            } while (!through);
        while ((segment = ligi_agenda_end(agenda, clock)) != NULL) {
            do {
                budget = crumbs ? 1 : SIZE_MAX;
                assert_ok(ligi_placement_end(&node->placement, segment, &budget, &through));
            } while (!through);
            ligi_agenda_free(agenda, segment);
        }
        (void)ligi_agenda_rest(agenda, clock, window);
    }
    budget = crumbs ? 1 + below(s, 3) : SIZE_MAX;
    assert_ok(ligi_placement_spread(&node->placement, &budget));
    assert_ok(ligi_sync_send_flush(&node->placement.sender));
}

#endif
