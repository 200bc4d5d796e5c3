/* Writes the bytes of a save to the catalog or a pack. New bytes are gathered in memory as long
 * as they are small enough to be stored inline; the tensor that exceeds the limit starts a pack. */
#ifndef LIGI_SAVE_WRITE_H
#define LIGI_SAVE_WRITE_H

#include "store/catalog/change.h"
#include "store/load/model.h"
#include "store/save/save.h"

typedef struct ligi_save_write {
    lig_store *store;
    ligi_plan *plan;
    const ligi_source *source;
    const ligi_interrupt *interrupt; /* of its commits; NULL: the store's */
    int packed;                      /* a pack in any case */
    int inline_allowed;
    uint64_t new_bytes; /* placed so far */
    uint64_t at;        /* end of the last one */
    void *pack;         /* NULL: inline so far */
    uint64_t pack_id, pack_bytes;
    ligi_pack_trailer trailer;
    ligi_writer manifest; /* of a pack; an inline one is built when its id is known */
    ligi_writer data;     /* of an inline model */
    uint8_t *buffer;
    lig_ref *ref;      /* the committed model, if the plan requests it */
    ligi_model *model; /* its description, if the plan requests it */
} ligi_save_write;

/* store, plan and source are set, the rest is zero. Places and writes all tensors, and seals the
 * pack if there is one (pack_id is not 0). */
lig_status ligi_save_write_run(ligi_save_write *self);
/* Rebuilds `manifest`; before that, only the manifest of a pack exists. */
lig_status ligi_save_write_manifest(ligi_save_write *self);
/* Puts an inline model's manifest and data, and fills their location in the record. The plan has
 * its id.
 */
lig_status ligi_save_write_inline(ligi_save_write *self, ligi_change *change, ligi_record *record);
/* Releases the pack; one that was not sealed is discarded. */
void ligi_save_write_fini(ligi_save_write *self);

#endif
