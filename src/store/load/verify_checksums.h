/* Compares stored tensors in memory with their checksums. */
#ifndef LIGI_VERIFY_CHECKSUMS_H
#define LIGI_VERIFY_CHECKSUMS_H

#include "store/load/model.h"

/* All tensors of the model, whose `data` has been set, on two threads when they are large.
 * LIG_E_CORRUPT names the first that does not match. */
lig_status ligi_verify_placed(const ligi_model *model, const void *secret);

#endif
