/* Builds the index from the last checkpoint and the log. */
#ifndef LIGI_REBUILD_H
#define LIGI_REBUILD_H

#include "backend/file/catalog/catalog_gate.h"

/* No other process has the log open. Finds the log, or starts one; then the index is the one left
 * by the last user, or a new one. For a damaged log, builds an index of the intact part and sets
 * ligi_head_damaged. */
lig_status ligi_rebuild(ligi_file_catalog *catalog);

#endif
