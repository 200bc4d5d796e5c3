/* lig_params_push_sums: gradients of equal keys are summed before they are pushed. */
#ifndef LIGI_PARAMS_SUMS_H
#define LIGI_PARAMS_SUMS_H

#include "params/state/node.h"

/* Frees the worker's memory for sums. */
void ligi_params_sums_fini(lig_params_worker *worker);

#endif
