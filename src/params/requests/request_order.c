#include "params/requests/request_order.h"

#include "params/rows/optimizer.h"
#include "params/state/node_wait.h"
#include "params/tables/table_info.h"

#include <stdlib.h>

/* For each kind of access a table, indexed by the hash of a key, stores the latest
 * ticket of this worker that requested it: 24 bits of hash to tell keys of a bucket apart, 40 bits
 * of ticket number plus one. If two keys collide in a bucket it becomes MANY: an access of any key
 * there then waits. */
enum { BUCKETS = LIGI_REQUEST_BUCKETS, TICKET_BITS = 40 };
#define TICKET_MASK ((UINT64_C(1) << TICKET_BITS) - 1)
#define MANY (UINT64_C(0xffffff) << TICKET_BITS)

typedef enum access { READS = 0, ADDS = 1, SETS = 2, ACCESSES = LIGI_REQUEST_ACCESSES } access;

lig_status ligi_params_request_state_create(lig_params_worker *worker)
{
    lig_params *node = worker->node;
    struct ligi_params_request_state *requests;
    LIG_TRY(ligi_calloc(&requests, 1, sizeof *requests, "a worker"));
    lig_status status =
        ligi_calloc(&requests->heads, node->node_count + 1, sizeof *requests->heads, "a worker");
    if (status != LIG_OK) {
        free(requests);
        return status;
    }
    for (uint32_t i = 0; i < ligi_tables_count(node->tables); i++) {
        requests->strict[i] =
            (uint8_t)ligi_optimizer_ordered(ligi_tables_optimizer(node->tables, i));
        requests->any_strict |= requests->strict[i];
    }
    worker->requests = requests;
    return LIG_OK;
}

void ligi_params_request_state_destroy(lig_params_worker *worker)
{
    if (worker->requests == NULL)
        return;
    free(worker->requests->heads);
    free(worker->requests->by_node);
    free(worker->requests);
    worker->requests = NULL;
}

static uint64_t mix(int64_t key)
{
    uint64_t x = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static access access_of(const lig_params_worker *worker, ligi_verb verb, int64_t key)
{
    const struct ligi_params_request_state *requests = worker->requests;
    if (verb != LIGI_PUSH)
        return verb == LIGI_PULL ? READS : SETS;
    if (!requests->any_strict)
        return ADDS;
    int table = ligi_tables_table_of_key(worker->node->tables, key);
    return table >= 0 && requests->strict[table] ? SETS : ADDS;
}

int ligi_params_request_strict(const lig_params_worker *worker, ligi_verb verb, int64_t key)
{
    return access_of(worker, verb, key) == SETS;
}

/* The latest ticket that an access must not overtake, plus one; 0: none. */
static uint64_t youngest(const struct ligi_params_request_state *requests, access kind, int64_t key)
{
    static const uint8_t against[ACCESSES][ACCESSES] = {
        [READS] = {0, 1, 1}, [ADDS] = {1, 0, 1}, [SETS] = {1, 1, 1}};
    uint64_t hash = mix(key), tag = hash >> 40 << TICKET_BITS, found = 0;
    for (int other = 0; other < ACCESSES; other++) {
        uint64_t last = requests->last[other][hash & (BUCKETS - 1)];
        uint64_t whose = last & ~TICKET_MASK;
        if (against[kind][other] && (whose == tag || whose == MANY) && (last & TICKET_MASK) > found)
            found = last & TICKET_MASK;
    }
    return found;
}

void ligi_params_request_remember(lig_params_worker *worker, ligi_verb verb, int64_t key,
                                  int64_t ticket)
{
    struct ligi_params_request_state *requests = worker->requests;
    uint64_t hash = mix(key), tag = hash >> 40 << TICKET_BITS;
    uint64_t *last = &requests->last[access_of(worker, verb, key)][hash & (BUCKETS - 1)];
    uint64_t ended = (uint64_t)atomic_load_explicit(&worker->tickets.ended, memory_order_relaxed);
    int busy = (*last & TICKET_MASK) > (ended & TICKET_MASK);
    if (busy && (*last & ~TICKET_MASK) != tag)
        tag = MANY;
    *last = tag | (((uint64_t)ticket + 1) & TICKET_MASK);
}

/* The latest ticket that precedes any key of the batch, plus one; 0: none is open. */
static uint64_t must_end(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch)
{
    uint64_t found = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t key = batch->keys[i];
        uint64_t one = youngest(worker->requests, access_of(worker, verb, key), key);
        found = one > found ? one : found;
    }
    uint64_t ended = (uint64_t)atomic_load_explicit(&worker->tickets.ended, memory_order_acquire);
    return found > (ended & TICKET_MASK) ? found : 0;
}

int ligi_params_request_may(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch)
{
    return must_end(worker, verb, batch) == 0;
}

typedef struct await {
    lig_params_worker *worker;
    int64_t ended; /* the tickets before this one */
} await;

static int have_ended(void *context)
{
    const await *what = context;
    return atomic_load_explicit(&what->worker->tickets.ended, memory_order_relaxed) >= what->ended;
}

lig_status ligi_params_request_wait_ended(lig_params_worker *worker, int64_t ended,
                                          int64_t timeout_ns)
{
    await what = {worker, ended};
    lig_status status = ligi_node_wait(worker->node, have_ended, &what, timeout_ns);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(LIG_E_TIMEOUT, "request %lld of worker %u timed out",
                        (long long)atomic_load(&worker->tickets.ended), worker->id);
    return status;
}

lig_status ligi_params_request_order(lig_params_worker *worker, ligi_verb verb,
                                     const ligi_batch *batch)
{
    uint64_t last = must_end(worker, verb, batch);
    if (last == 0)
        return LIG_OK;
    int64_t ended = atomic_load_explicit(&worker->tickets.ended, memory_order_relaxed);
    int64_t number = (int64_t)(((uint64_t)ended & ~TICKET_MASK) | last);
    return ligi_params_request_wait_ended(worker, number, worker->node->timeout_ns);
}
