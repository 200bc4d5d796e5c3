/* Blocks of remote packs on a local disk: a folder that processes share. A pack never changes, so a
 * block is valid as long as its bytes match the check next to it, or the hashes of the reader;
 * other blocks, and files of another form, are ignored. Losing any of it only costs time. */
#ifndef LIGI_PACK_CACHE_H
#define LIGI_PACK_CACHE_H

#include "backend/remote/storage_engine.h"

typedef struct ligi_remote_cache ligi_remote_cache;

/* The parts of the service that a read needs. */
typedef struct ligi_cached_pack {
    const ligi_engine_ops *ops;
    void *engine;
    uint64_t id;
    int verified; /* `arrived` compares all bytes in use with hashes: LIG_E_CORRUPT */
} ligi_cached_pack;

/* Like ops->object_read of the pack, but reads cached blocks from the cache, and adds whole blocks
 * that are missing. A cache that cannot be written to is only slower. `arrived` is called by
 * several threads at once, and again for a range that it found to be LIG_E_CORRUPT. **Shared**. */
lig_status ligi_remote_cache_read(ligi_remote_cache *cache, const ligi_cached_pack *pack,
                                  const ligi_object_range *ranges, size_t count,
                                  ligi_object_arrived arrived, void *context);

#endif
