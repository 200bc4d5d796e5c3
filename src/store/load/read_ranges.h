/* Bytes of a model's tensors into memory: ranges gathered, sorted by pack and offset, one read a
 * pack. */
#ifndef LIGI_READ_RANGES_H
#define LIGI_READ_RANGES_H

#include "store/load/model.h"
#include "store/load/pins.h"

typedef struct ligi_part {
    uint64_t pack;
    size_t tensor; /* index in the model: for the sentence */
    lig_range range;
} ligi_part;

typedef struct ligi_fetch {
    lig_store *store;
    const ligi_model *model;
    int verify;
    int warm;              /* what is read will probably be read again */
    int *gone;             /* set when a pack was not there */
    const ligi_maps *maps; /* where a pack may be that is not there; NULL: nowhere */
    ligi_part *parts;
    size_t count, capacity;
    lig_range *ranges;
    size_t range_capacity;
} ligi_fetch;

/* Adds bytes [offset, offset + bytes) of a stored tensor, into memory at `data`, of the same kind
 * as the memory of `like` (NULL: host memory). When verifying, both ends lie between blocks or at
 * the tensor's end. */
lig_status ligi_fetch_add(ligi_fetch *fetch, size_t tensor, uint64_t offset, uint64_t bytes,
                          void *data, const lig_tensor *like);
/* Reads all that was added, and forgets it. */
lig_status ligi_fetch_run(ligi_fetch *fetch);
void ligi_fetch_fini(ligi_fetch *fetch);

#endif
