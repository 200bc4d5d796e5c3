/* Snapshots (save and load): every node calls, node 0 leads. A call has steps. At the end of each
 * step every node reports to node 0 (REPORT) and learns that all have come so far, or the first
 * error (DECISION). Rows are requested by unit (snapshot_plan.h) from the nodes that own them;
 * rows may move meanwhile, so a node that misses one asks again.
 *
 *   snapshot_agree.c  steps                 snapshot_rows.c   rows of a unit, on the asking side
 *   snapshot_save.c   lig_params_save       snapshot_serve.c  rows of a unit, on the owners' side
 *   snapshot_load.c   lig_params_load */
#ifndef LIGI_SNAPSHOT_H
#define LIGI_SNAPSHOT_H

#include "base/codec.h"
#include "params/snapshot/snapshot_message.h"
#include "params/snapshot/snapshot_plan.h"
#include "params/state/node_state.h"

#include <ligament/store.h>

/* What a node has said to node 0. */
typedef struct ligi_snapshot_report {
    uint32_t call, step; /* `step` counts: 1 when the first is over */
    ligi_failure failure;
    ligi_writer data;
} ligi_snapshot_report;

/* Hashed keys that are known here, by table, unit and key. */
typedef struct ligi_snapshot_index {
    ligi_entry *entries;
    uint64_t count;   /* of the entries there were when it was made */
    uint64_t *starts; /* [units + 1] */
} ligi_snapshot_index;

struct ligi_snapshot_rows;

/* Guarded by the node's lock, except what says otherwise. Made when first needed. */
struct ligi_snapshot_state {
    uint32_t call; /* how many were begun here */
    int busy;
    uint32_t heard;                /* steps of this call that all have come through */
    ligi_failure failure;          /* of this call, on any node; status LIG_OK: none */
    ligi_writer answer;            /* what node 0 said with the last step */
    ligi_snapshot_report *reports; /* [node_count]; node 0 */
    uint32_t lost_call; /* the last that went wrong on node 0, and why: for who comes too late */
    ligi_failure lost;
    ligi_snapshot_plan *plan; /* of this call; NULL: units cannot be asked for */
    ligi_snapshot_index index;
    int writable;                     /* of this call: rows may be put */
    struct ligi_snapshot_rows *asked; /* what answers are for; NULL: nothing is asked for */
    uint32_t awaited;                 /* answers that have not come */
};

/* One call of one node; its thread's own. */
typedef struct ligi_snapshot_call {
    lig_params *node;
    struct ligi_snapshot_state *snapshot;
    const char *verb, *uri, *model;
    uint64_t version;    /* load: the id of the model, of which all nodes read one; 0: none */
    int64_t deadline_ns; /* INT64_MAX: none */
    uint32_t step;
    int given_up; /* the caller has no more patience */
    lig_store *store;
    ligi_snapshot_plan plan;
} ligi_snapshot_call;

typedef struct ligi_agreement {
    const void *data; /* what this node has to say; borrowed */
    size_t bytes;
    /* Node 0, when all have come: said[i] is node i's data. Its failure is that of all; what it
     * writes all hear. NULL: nothing is to be decided. */
    lig_status (*decide)(void *context, const lig_part_data *reports, ligi_writer *answer);
    void *context;
} ligi_agreement;

/* --- rows --- */

/* The rows of one unit, whole: values and state. Guarded by the lock while answers are awaited. */
typedef struct ligi_snapshot_rows {
    const ligi_snapshot_plan *plan;
    uint32_t table;
    uint64_t unit;   /* among all */
    uint64_t number; /* in its table */
    uint32_t count, found;
    uint32_t overflow; /* hashed: more came than were counted */
    int64_t *keys;     /* [count]; hashed: as they came, or as the model has them */
    uint64_t *offsets; /* [count + 1], of the bodies */
    uint32_t *order;   /* [count]: which of them is the first of the model, ... */
    uint8_t *here;     /* [count]: it has come; scattering: it is where it belongs */
    uint16_t *given;   /* [count]: scattering: to which node, + 1 */
    uint8_t *bodies;
    size_t key_room, offset_room, order_room, here_room, given_room, body_room;
    uint8_t *asking; /* [node_count]: an answer is awaited */
} ligi_snapshot_rows;

#endif
