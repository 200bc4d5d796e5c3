/* Making the index from the last checkpoint and the log. */
#ifndef LIGI_REBUILD_H
#define LIGI_REBUILD_H

#include "backend/file/catalog/catalog_gate.h"

/* Nobody else has the log open. Finds the log, or starts one; then the index is the one that was
 * left by the last user, or a new one. A damaged log gives an index of what is left of it; then
 * ligi_head_damaged. */
lig_status ligi_rebuild(ligi_file_catalog *catalog);

#endif
