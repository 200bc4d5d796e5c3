/* A model that was read: what users see, and where its bytes are. */
#ifndef LIGI_MODEL_H
#define LIGI_MODEL_H

#include "store/ledger.h"

typedef struct ligi_model {
    lig_model shown; /* first: a lig_model that we gave out is one of these */
    ligi_record record;
    ligi_manifest manifest;
    void *record_bytes, *manifest_bytes; /* what the strings point into */
    const uint8_t *inline_data;          /* of an inline model; part of manifest_bytes */
    size_t inline_bytes;
} ligi_model;

/* Reads record and manifest of the model under `name`. Free with ligi_model_free. */
lig_status ligi_model_read(lig_store *store, const char *name, ligi_model **out);
/* From an open ledger; without its tensors and structure. */
lig_status ligi_model_list(const lig_catalog_item *item, const void *secret, ligi_model **out);
/* Adds the tensors to one that was listed. `*gone` is set when its pack was not there. */
lig_status ligi_model_fill(lig_store *store, const ligi_ledger *ledger, ligi_model *model,
                           int *gone);
void ligi_model_free(ligi_model *model);

/* Does `act` with the model under `name`. When that fails because a pack has gone (act sets *gone),
 * the name is looked up again: the model may have been replaced meanwhile. */
typedef lig_status (*ligi_act)(void *context, lig_store *store, ligi_model *model, int *gone);
lig_status ligi_model_with(lig_store *store, const char *name, ligi_act act, void *context);

#endif
