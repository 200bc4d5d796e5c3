/* The state of the process: stores, unpublished parts, leases. All functions are called under
 * the one lock. */
#ifndef LIGI_EVO_STATE_H
#define LIGI_EVO_STATE_H

#include "evo_names.h"

#include "base/clock.h"
#include "store/stamps_ring.h"

#define EVO_HELD_MAX 64

/* In the order of their names, which is the order of all timestamps. */
typedef enum ligi_evo_call {
    EVO_GET_COMPOSITION,
    EVO_GET_PREFIX,
    EVO_READ_LAYERS,
    EVO_STORE_LAYERS,
    EVO_STORE_META,
    EVO_UPDATE_REF_COUNTER,
    EVO_CALLS
} ligi_evo_call;

/* A model whose composition is known: leased by a match, or one that is in a store now. */
typedef struct ligi_evo_known {
    uint64_t id;
    lig_store *store;
    const lig_model *model;
    lig_match **matches; /* of one; NULL: `ref` holds the model */
    lig_ref *ref;
    ligi_evo_composition composition;
} ligi_evo_known;

/* Tensors of a model that is not published yet. */
typedef struct ligi_evo_part {
    uint64_t id;
    lig_part *part;
    uint64_t *lids; /* ascending */
    size_t count;
} ligi_evo_part;

typedef struct ligi_evo_state {
    char *servers; /* NUL after each; NULL: not set */
    size_t servers_bytes;
    lig_store **stores; /* open when store_count is not 0 */
    size_t store_count;
    int stopped;                       /* the servers were ended, and nothing was opened since */
    ligi_evo_known held[EVO_HELD_MAX]; /* the oldest first */
    size_t held_count;
    ligi_evo_part *parts; /* the oldest first */
    size_t part_count;
    ligi_stamps_ring times[EVO_CALLS];
    int called[EVO_CALLS];
    /* The timestamps counted by get_num_time_stamps, for get_time_stamps: those of servers grow
     * meanwhile. */
    int64_t *taken; /* NULL: nothing is taken */
    size_t taken_count;
    ligi_evo_call taken_first, taken_end; /* of these functions */
} ligi_evo_state;

/* Takes ownership of a list of stores; open ones are closed if the list differs. */
lig_status ligi_evo_state_servers(ligi_evo_state *state, const char *servers, size_t size);

/* Opens the stores if they are not open. */
lig_status ligi_evo_state_open(ligi_evo_state *state);
void ligi_evo_state_close(ligi_evo_state *state);
/* For a forked child: open stores belong to the parent and may be inconsistent. Frees nothing. */
void ligi_evo_state_forget(ligi_evo_state *state);
void ligi_evo_taken_drop(ligi_evo_state *state);
lig_store *ligi_evo_state_store(const ligi_evo_state *state, uint64_t id);

/* Takes ownership of `known`, and releases the oldest if there are too many. */
void ligi_evo_state_hold(ligi_evo_state *state, const ligi_evo_known *known);
void ligi_evo_state_release(ligi_evo_state *state, size_t index);

/* Drops a part, or all parts of a model. */
void ligi_evo_state_drop_part(ligi_evo_state *state, size_t index);
void ligi_evo_state_drop_parts(ligi_evo_state *state, uint64_t id);
/* Whether an unpublished part of the model has the tensor. */
int ligi_evo_state_staged(const ligi_evo_state *state, uint64_t id, uint64_t lid);

lig_status ligi_evo_known_open(lig_store *store, const char *name, ligi_evo_known *out);
/* Takes ownership of `matches`, also on failure. */
lig_status ligi_evo_known_lease(lig_store *store, lig_match **matches, ligi_evo_known *out);
void ligi_evo_known_close(ligi_evo_known *known);

#endif
