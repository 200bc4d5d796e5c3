/* What a search found, for the rooms that use a match. */
#ifndef LIGI_FIND_H
#define LIGI_FIND_H

#include "store/handle.h"

/* The model behind a match, as a ref. LIG_E_INVALID when it was found in another store. */
lig_status ligi_match_ref(const lig_store *store, const lig_match *shown, const lig_ref **ref);

#endif
