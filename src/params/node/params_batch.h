/* A worker's scratch memory for a batch of keys. */
#ifndef LIGI_PARAMS_BATCH_H
#define LIGI_PARAMS_BATCH_H

#include "params/state/node.h"

/* Room for `count` keys in worker->scratch. */
lig_status ligi_params_batch_reserve(lig_params_worker *worker, size_t count);
void ligi_params_batch_fini(lig_params_worker *worker);

#endif
