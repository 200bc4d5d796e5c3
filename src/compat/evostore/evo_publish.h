/* Saving tensors of a model, and publishing it. */
#ifndef LIGI_EVO_PUBLISH_H
#define LIGI_EVO_PUBLISH_H

#include "evo_state.h"

/* Writes tensors (their names are ignored) as a part of model `id`. A part saved before with some
 * of the same tensors is replaced if all of its tensors are saved again, else LIG_E_EXISTS. */
lig_status ligi_evo_stage(ligi_evo_state *state, uint64_t id, const uint64_t *lids,
                          const lig_tensor *tensors, size_t count);

typedef struct ligi_evo_description {
    const uint64_t *edges;
    size_t words;
    const uint64_t *lids, *owners;
    size_t count;
    float val_acc; /* NaN: none */
} ligi_evo_description;

lig_status ligi_evo_publish(ligi_evo_state *state, uint64_t id, const ligi_evo_description *about);

#endif
