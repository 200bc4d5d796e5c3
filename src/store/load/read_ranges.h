/* Reads bytes of a model's tensors into memory: ranges are gathered and sorted by pack and offset,
 * with one read per pack. */
#ifndef LIGI_READ_RANGES_H
#define LIGI_READ_RANGES_H

#include "store/load/model.h"
#include "store/load/pins.h"

typedef struct ligi_part {
    uint64_t pack;
    size_t tensor; /* index in the model: for the error text */
    lig_range range;
} ligi_part;

typedef struct ligi_fetch {
    lig_store *store;
    const ligi_model *model;
    int verify;
    int warm;              /* the data will probably be read again */
    int *gone;             /* set if a pack does not exist */
    const ligi_maps *maps; /* mappings of packs that may have been removed; NULL: none */
    ligi_part *parts;
    size_t count, capacity;
    lig_range *ranges;
    size_t range_capacity;
} ligi_fetch;

/* Adds bytes [offset, offset + bytes) of a stored tensor, into memory at `data`, of the same kind
 * as the memory of `like` (NULL: host memory). When verifying, both ends are at block boundaries or
 * at the tensor's end. */
lig_status ligi_fetch_add(ligi_fetch *fetch, size_t tensor, uint64_t offset, uint64_t bytes,
                          void *data, const lig_tensor *like);
/* Reads everything that was added, and clears the list. */
lig_status ligi_fetch_run(ligi_fetch *fetch);
void ligi_fetch_fini(ligi_fetch *fetch);

#endif
