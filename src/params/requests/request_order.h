/* Determines which accesses of a worker must wait for which of its open requests: an access of a
 * key never overtakes an earlier one with which it does not commute. */
#ifndef LIGI_REQUEST_ORDER_H
#define LIGI_REQUEST_ORDER_H

#include "params/state/node.h"

enum { LIGI_REQUEST_ACCESSES = 3, LIGI_REQUEST_BUCKETS = 1 << 14 };

struct ligi_params_request_state {
    uint64_t last[LIGI_REQUEST_ACCESSES][LIGI_REQUEST_BUCKETS];
    uint8_t strict[LIG_PARAMS_TABLES_MAX]; /* a push does not commute with a push */
    int any_strict;
    /* For request_send.c. */
    uint32_t *heads;   /* [node_count + 1]: where the keys of each node begin */
    uint32_t *by_node; /* misses ordered by node */
    size_t by_node_room;
};

/* Waits for requests of this worker that an access of these keys must not overtake. */
lig_status ligi_params_request_order(lig_params_worker *worker, ligi_verb verb,
                                     const ligi_batch *batch);
/* 1 if there is none: nothing to wait for. */
int ligi_params_request_may(lig_params_worker *worker, ligi_verb verb, const ligi_batch *batch);
lig_status ligi_params_request_state_create(lig_params_worker *worker);
void ligi_params_request_state_destroy(lig_params_worker *worker);
/* 1 if two such accesses of one key do not commute: a set, or a push to an optimizer with state. */
int ligi_params_request_strict(const lig_params_worker *worker, ligi_verb verb, int64_t key);
/* Waits until the worker's tickets before `ended` have ended. */
lig_status ligi_params_request_wait_ended(lig_params_worker *worker, int64_t ended,
                                          int64_t timeout_ns);
/* The ticket requests the key from another node. */
void ligi_params_request_remember(lig_params_worker *worker, ligi_verb verb, int64_t key,
                                  int64_t ticket);

#endif
