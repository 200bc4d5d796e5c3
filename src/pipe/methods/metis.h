/* libmetis, loaded at run time: not needed at build time. */
#ifndef LIGI_METIS_H
#define LIGI_METIS_H

#include "pipe/search/constraints.h"

/* Fills bin[unit], 0 .. goal->device_count - 1, with loads proportional to the devices' speeds;
 * `imbalance` is 1.03 for three per cent. LIG_E_UNSUPPORTED if the library is not installed. */
lig_status ligi_metis(const ligi_graph *graph, const ligi_goal *goal, double imbalance,
                      uint64_t seed, uint32_t *bin);

#endif
