/* Saving and loading: every node calls, node 0 leads. A call has steps; at the end of each, all
 * tell node 0 how it went (SAY) and hear that all have come so far (HEAR), or the first sentence
 * of what went wrong. Rows are asked for by unit (snapshot_plan.h), from whoever has them; nothing
 * keeps them from moving meanwhile, so that whoever misses one asks again.
 *
 *   snapshot_agree.c   steps            snapshot_rows.c   rows of a unit, from and to their owners
 *   snapshot_save.c   lig_params_save  snapshot_load.c   lig_params_load */
#ifndef LIGI_SNAPSHOT_H
#define LIGI_SNAPSHOT_H

#include "base/codec.h"
#include "params/snapshot/snapshot_message.h"
#include "params/snapshot/snapshot_plan.h"
#include "params/state/node_state.h"

#include <ligament/store.h>

/* What a node has said to node 0. */
typedef struct ligi_said {
    uint32_t call, step; /* `step` counts: 1 when the first is over */
    ligi_failure failure;
    ligi_writer data;
} ligi_said;

/* Hashed keys that are known here, by table, unit and key. */
typedef struct ligi_keep_index {
    ligi_entry *entries;
    uint64_t count;   /* of the entries there were when it was made */
    uint64_t *starts; /* [units + 1] */
} ligi_keep_index;

struct ligi_rows;

/* Guarded by the node's lock, except what says otherwise. Made when first needed. */
struct ligi_keeping {
    uint32_t call; /* how many were begun here */
    int busy;
    uint32_t heard;       /* steps of this call that all have come through */
    ligi_failure failure; /* of this call, on any node; status LIG_OK: none */
    ligi_writer answer;   /* what node 0 said with the last step */
    ligi_said *said;      /* [node_count]; node 0 */
    uint32_t lost_call;   /* the last that went wrong on node 0, and why: for who comes too late */
    ligi_failure lost;
    ligi_keep_plan *plan; /* of this call; NULL: units cannot be asked for */
    ligi_keep_index index;
    int writable;            /* of this call: rows may be put */
    struct ligi_rows *asked; /* what answers are for; NULL: nothing is asked for */
    uint32_t awaited;        /* answers that have not come */
};

/* One call of one node; its thread's own. */
typedef struct ligi_keep_call {
    lig_params *node;
    struct ligi_keeping *keeping;
    const char *verb, *uri, *model;
    uint64_t version;    /* load: the id of the model, of which all nodes read one; 0: none */
    int64_t deadline_ns; /* INT64_MAX: none */
    uint32_t step;
    int given_up; /* the caller has no more patience */
    lig_store *store;
    ligi_keep_plan plan;
} ligi_keep_call;

/* LIG_E_BUSY while another is under way. */
lig_status ligi_keep_begin(ligi_keep_call *call, int64_t timeout_ns);
/* Begun: what node 0 said before this one came, or that a node is lost. No lock. */
lig_status ligi_keep_check(ligi_keep_call *call);
void ligi_keep_end(ligi_keep_call *call);

typedef struct ligi_agreement {
    const void *data; /* what this node has to say; borrowed */
    size_t bytes;
    /* Node 0, when all have come: said[i] is node i's data. Its failure is that of all; what it
     * writes all hear. NULL: nothing is to be decided. */
    lig_status (*decide)(void *context, const lig_part_data *said, ligi_writer *answer);
    void *context;
} ligi_agreement;

/* The first step: that all call the same. From here on units may be asked for, and with `writable`
 * rows may be put. */
lig_status ligi_keep_agree_call(ligi_keep_call *call, lig_status status, int writable);

/* Ends a step: `status` is this node's, with its sentence. OK when all nodes have come here well;
 * then keeping->answer is what node 0 said. Otherwise the call is over: the first failure, with the
 * name of its node. */
lig_status ligi_keep_agree(ligi_keep_call *call, lig_status status,
                           const ligi_agreement *agreement);

/* Like ligi_node_wait, with the call for context and its deadline; asks `patience` meanwhile, and
 * is LIG_E_TIMEOUT with a sentence when that has ended (given_up). */
lig_status ligi_keep_wait(ligi_keep_call *call, int (*until)(void *context));

/* Under the lock: the call need not go on. */
int ligi_keep_interrupted(const lig_params *node);
/* Why: with its sentence. No lock. */
lig_status ligi_keep_why(ligi_keep_call *call);

/* Sends a note with `count` pieces behind its front. Under the lock. */
lig_status ligi_keep_post(lig_params *node, uint32_t rank, ligi_keep_verb verb,
                          const ligi_note_front *front, const struct iovec *pieces, size_t count);
void ligi_keep_said(lig_params *node, uint32_t rank, const ligi_note *note);
void ligi_keep_heard(lig_params *node, const ligi_note *note);

/* --- rows --- */

/* The rows of one unit, whole: values and state. Guarded by the lock while answers are awaited. */
typedef struct ligi_rows {
    const ligi_keep_plan *plan;
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
} ligi_rows;

void ligi_rows_fini(ligi_rows *rows);
/* Makes room for a unit of the plan; keys are filled where they are dense. */
lig_status ligi_rows_begin(ligi_rows *rows, const ligi_keep_call *call, uint64_t unit);
uint8_t *ligi_rows_body(const ligi_rows *rows, uint32_t index); /* in the order of the model */
uint32_t ligi_rows_length(const ligi_rows *rows, uint32_t index);

/* Fetches all rows of the unit from whoever has them. */
lig_status ligi_rows_gather(ligi_rows *rows, ligi_keep_call *call);
/* Gives them to their owners; hashed keys that nobody has, to their homes. */
lig_status ligi_rows_scatter(ligi_rows *rows, ligi_keep_call *call);

/* Hashed: how many rows of each unit begin here; `counts` has plan->unit_count. */
lig_status ligi_keep_count(ligi_keep_call *call, uint64_t *counts);
lig_status ligi_keep_index_make(lig_params *node, const ligi_keep_plan *plan,
                                ligi_keep_index *index);
void ligi_keep_index_fini(ligi_keep_index *index);

/* From peers; under the lock. A failing status loses the peer. */
lig_status ligi_keep_get(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_rows(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_own(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_owned(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_put(lig_params *node, uint32_t rank, const ligi_note *note);
lig_status ligi_keep_taken(lig_params *node, uint32_t rank, const ligi_note *note);

#endif
