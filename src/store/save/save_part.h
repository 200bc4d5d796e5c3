/* Parts of a model that several processes write (include/ligament/part.h). */
#ifndef LIGI_SAVE_PART_H
#define LIGI_SAVE_PART_H

#include "store/save/save_write.h"

/* Creates the part from the written tensors. From then on a pin holds the packs that it needs,
 * including its own, so that the writer may release them. */
lig_status ligi_part_make(ligi_save_write *writing, lig_part **out);

/* A part that a server wrote and keeps until `lease` is released; its description is copied. */
lig_status ligi_part_remote(lig_store *store, ligi_lease lease, const void *bytes, size_t size,
                            lig_part **out);

/* A received part; strings and data are borrowed from its bytes. */
typedef struct ligi_part_read {
    ligi_manifest manifest;
    uint64_t *orders;          /* of each tensor */
    uint64_t pack, pack_bytes; /* 0: no pack was written, `data` has all new bytes */
    const uint8_t *data;
    size_t data_bytes;
} ligi_part_read;

/* Fills a zeroed part. LIG_E_CORRUPT, LIG_E_UNSUPPORTED, or LIG_E_MISMATCH if it belongs to another
 * store; call ligi_part_read_fini also after a failure. */
lig_status ligi_part_parse(const void *bytes, size_t size, const void *uuid, ligi_part_read *part);
void ligi_part_read_fini(ligi_part_read *part);

#endif
