/* The packs that this process writes or claims. */
#ifndef LIGI_HELD_PACKS_H
#define LIGI_HELD_PACKS_H

#include "backend/file/catalog/catalog.h"

/* Records that a pack of this store has a writer or claimer in this process, because file locks of
 * network file systems belong to the process: LIG_E_BUSY if it has one already. `on` 0 removes the
 * record. No pack has id 0. */
lig_status ligi_file_pack_hold(ligi_file_catalog *catalog, uint64_t id, int on);

#endif
