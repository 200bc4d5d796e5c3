/* From bins (which device) to stages (in which order): the second half of `metis` and `mixed`. */
#ifndef LIGI_BINS_TO_STAGES_H
#define LIGI_BINS_TO_STAGES_H

#include "pipe/graph/stage_figures.h"
#include "pipe/methods/acyclic.h"

/* Fills the assignment's stages from bin[unit] (a device each): acyclic, each within one bin, at
 * most `stages_most`; if the bins would need more, small neighbours are merged, on the device of
 * the heavier one. */
lig_status ligi_bins_to_stages(const ligi_graph *graph, const uint32_t *bin, uint32_t stages_most,
                               ligi_assignment *assignment);

#endif
