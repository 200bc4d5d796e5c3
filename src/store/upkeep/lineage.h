/* Ancestors and children of a model, which may itself have been removed. */
#ifndef LIGI_LINEAGE_H
#define LIGI_LINEAGE_H

#include "store/handle.h"

lig_status ligi_lineage_of(lig_store *store, uint64_t id, uint64_t parent, lig_lineage **out);

#endif
