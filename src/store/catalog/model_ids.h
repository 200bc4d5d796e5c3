/* Ids of models, reserved in batches so that few saves commit twice. */
#ifndef LIGI_MODEL_IDS_H
#define LIGI_MODEL_IDS_H

#include "store/handle.h"

/* An id that no other model has. May commit; `interrupt` as for ligi_commit. */
lig_status ligi_model_ids_take(lig_store *store, const ligi_interrupt *interrupt, uint64_t *id);

#endif
