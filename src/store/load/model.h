/* A loaded model description: the public part, and the location of its bytes. */
#ifndef LIGI_MODEL_H
#define LIGI_MODEL_H

#include "store/catalog/catalog_view.h"

typedef struct ligi_model {
    lig_model shown; /* first: a lig_model returned to the caller is one of these */
    ligi_record record;
    ligi_manifest manifest;
    void *record_bytes, *manifest_bytes; /* storage of the strings */
    size_t record_size, manifest_size;
    const uint8_t *inline_data; /* of an inline model; after the manifest in manifest_bytes */
    size_t inline_bytes;
} ligi_model;

/* From a record; without its tensors and structure. */
lig_status ligi_model_list(const lig_catalog_item *item, const void *secret, ligi_model **out);
/* The same for an item of an open view, with the parent's current name. For a parent that no longer
 * exists, or that the store's scope hides, the recorded name is used. */
lig_status ligi_model_list_in(const ligi_catalog_view *view, const lig_catalog_item *item,
                              ligi_model **out);
/* Adds the tensors to a listed model. Sets `*gone` if its pack does not exist. */
lig_status ligi_model_fill(lig_store *store, const ligi_catalog_view *view, ligi_model *model,
                           int *gone);
/* Adds the tensors from a manifest in memory, which is followed by the data of an inline model.
 * Takes ownership of the bytes, even on failure. */
lig_status ligi_model_adopt(ligi_model *model, void *bytes, size_t manifest_bytes,
                            size_t inline_bytes);
/* Adds the tensors from bytes that another process sent: copied, and checked like those of a
 * pack. */
typedef struct ligi_sent_manifest {
    const void *manifest, *inlined;
    size_t manifest_bytes, inline_bytes;
} ligi_sent_manifest;
lig_status ligi_model_receive(ligi_model *model, const ligi_sent_manifest *sent);
/* A second description of a model with its tensors, built from the same bytes. */
lig_status ligi_model_copy(const ligi_model *model, const void *secret, ligi_model **out);
/* Frees the tensors: the model is then as in a list. */
void ligi_model_trim(ligi_model *model);
/* The approximate size of its memory. */
uint64_t ligi_model_memory(const ligi_model *model);
void ligi_model_free(ligi_model *model);

#endif
