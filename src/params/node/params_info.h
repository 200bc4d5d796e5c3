/* What a node says of itself: sizes, learning rates, figures. */
#ifndef LIGI_PARAMS_INFO_H
#define LIGI_PARAMS_INFO_H

#include "params/state/node_state.h"

void ligi_params_counts_add(const ligi_params_counts *counts, lig_params_stats *stats);

#endif
