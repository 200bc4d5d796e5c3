/* Queries about a node: sizes, learning rates, statistics. */
#ifndef LIGI_PARAMS_INFO_H
#define LIGI_PARAMS_INFO_H

#include "params/state/node.h"

void ligi_params_counts_add(const ligi_params_counts *counts, lig_params_stats *stats);

#endif
