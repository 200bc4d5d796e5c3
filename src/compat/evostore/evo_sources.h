/* Finds the bytes of (tensor, owner): in the model of a lease, or in any model whose composition
 * contains them. */
#ifndef LIGI_EVO_SOURCES_H
#define LIGI_EVO_SOURCES_H

#include "evo_state.h"

typedef struct ligi_evo_sources { /* the models that one call has read */
    ligi_evo_state *state;
    ligi_evo_known **known;
    size_t count, room;
    int all; /* contains every model of every store */
} ligi_evo_sources;

typedef struct ligi_evo_source {
    const ligi_evo_known *known; /* NULL: no model has it, and it was announced as absent (owner
                                  * 0) */
    const ligi_evo_entry *entry;
} ligi_evo_source;

/* One tensor that is being read; `into` has no name. */
typedef struct ligi_evo_read {
    uint64_t lid, owner;
    lig_tensor into;
} ligi_evo_read;

void ligi_evo_sources_init(ligi_evo_sources *sources, ligi_evo_state *state);
void ligi_evo_sources_fini(ligi_evo_sources *sources);

/* Model `id` as it is in its store; NULL if there is none. Borrowed from the sources. */
lig_status ligi_evo_sources_model(ligi_evo_sources *sources, uint64_t id,
                                  const ligi_evo_known **known);

/* `hint` is a model that probably has it. LIG_E_NOTFOUND if no model has it and owner is not 0. */
lig_status ligi_evo_sources_find(ligi_evo_sources *sources, uint64_t hint, uint64_t lid,
                                 uint64_t owner, ligi_evo_source *source);

/* Fills the tensors, grouped by source; those that were never saved are unchanged. */
lig_status ligi_evo_sources_read(ligi_evo_sources *sources, uint64_t hint,
                                 const ligi_evo_read *reads, size_t count);

/* Fills tensors under their stored names. */
lig_status ligi_evo_source_load(const ligi_evo_known *known, const lig_tensor *tensors,
                                size_t count);

#endif
