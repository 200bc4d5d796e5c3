/* Loading into the tensors of the caller. */
#ifndef LIGI_LOAD_TENSORS_H
#define LIGI_LOAD_TENSORS_H

#include "store/handle.h"

/* lig_store_load, and LIG_E_MISMATCH if the model has other tensors too. */
lig_status ligi_store_load_exact(lig_store *store, const char *model, const lig_tensor *tensors,
                                 size_t count);

#endif
