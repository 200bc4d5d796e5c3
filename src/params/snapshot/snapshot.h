/* Snapshots (save and load): every node calls, node 0 leads. A call has steps. At the end of each
 * step every node reports to node 0 (REPORT) and learns that all nodes have completed it, or the
 * first error (DECISION). Rows are requested by unit (snapshot_plan.h) from the nodes that own
 * them; rows may move meanwhile, so a node that misses one asks again.
 *
 *   snapshot_agree.c  steps                 snapshot_rows.c   rows of a unit, on the asking side
 *   snapshot_save.c   lig_params_save       snapshot_serve.c  rows of a unit, on the owners' side
 *   snapshot_load.c   lig_params_load */
#ifndef LIGI_SNAPSHOT_H
#define LIGI_SNAPSHOT_H

#include "base/codec.h"
#include "params/snapshot/snapshot_message.h"
#include "params/snapshot/snapshot_plan.h"
#include "params/state/node.h"

#include <ligament/store.h>

/* What a node has reported to node 0. */
typedef struct ligi_snapshot_report {
    uint32_t call, step; /* `step` counts: 1 when the first is done */
    ligi_failure failure;
    ligi_writer data;
} ligi_snapshot_report;

/* The hashed keys known here, by table, unit and key. */
typedef struct ligi_snapshot_index {
    ligi_entry *entries;
    uint64_t count;   /* how many entries there were when it was built */
    uint64_t *starts; /* [units + 1] */
} ligi_snapshot_index;

struct ligi_snapshot_rows;

/* Guarded by the node's lock, unless stated otherwise. Created at first use. */
struct ligi_snapshot_state {
    uint32_t call; /* number of calls started here */
    int busy;
    uint32_t heard;                /* steps of this call that all nodes have done */
    ligi_failure failure;          /* error of this call, on any node; status LIG_OK: none */
    ligi_writer answer;            /* decision of node 0 in the last step */
    ligi_snapshot_report *reports; /* [node_count]; node 0 */
    uint32_t lost_call; /* the last failed call of node 0, and why: for nodes that arrive late */
    ligi_failure lost;
    ligi_snapshot_plan *plan; /* of this call; NULL: units cannot be requested */
    ligi_snapshot_index index;
    int writable;                     /* of this call: rows may be put */
    struct ligi_snapshot_rows *asked; /* target of responses; NULL: nothing is requested */
    uint32_t awaited;                 /* outstanding responses */
};

/* One call on one node; used by its thread only. */
typedef struct ligi_snapshot_call {
    lig_params *node;
    struct ligi_snapshot_state *snapshot;
    const char *verb, *uri, *model;
    uint64_t version;    /* load: the id of the model that all nodes read; 0: none */
    int64_t deadline_ns; /* INT64_MAX: none */
    uint32_t step;
    int given_up; /* `patience` has ended the call */
    lig_store *store;
    ligi_snapshot_plan plan;
} ligi_snapshot_call;

typedef struct ligi_agreement {
    const void *data; /* this node's report; borrowed */
    size_t bytes;
    /* Node 0, when all nodes have reported: said[i] is node i's data. Its failure fails the call on
     * all nodes; what it writes is sent to all. NULL: nothing to decide. */
    lig_status (*decide)(void *context, const lig_part_data *reports, ligi_writer *answer);
    void *context;
} ligi_agreement;

/* --- rows --- */

/* All rows of one unit: values and state. Guarded by the lock while responses are outstanding. */
typedef struct ligi_snapshot_rows {
    const ligi_snapshot_plan *plan;
    uint32_t table;
    uint64_t unit;   /* among all */
    uint64_t number; /* in its table */
    uint32_t count, found;
    uint32_t overflow; /* hashed: more arrived than were counted */
    int64_t *keys;     /* [count]; hashed: in order of arrival, or as in the model */
    uint64_t *offsets; /* [count + 1], of the bodies */
    uint32_t *order;   /* [count]: position of each in the model */
    uint8_t *here;     /* [count]: it has arrived; scattering: it is stored at its owner */
    uint16_t *given;   /* [count]: scattering: target node, + 1 */
    uint8_t *bodies;
    size_t key_room, offset_room, order_room, here_room, given_room, body_room;
    uint8_t *asking; /* [node_count]: a response is outstanding */
} ligi_snapshot_rows;

#endif
