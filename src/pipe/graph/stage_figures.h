/* From an assignment of units to the input of a schedule: one figure per stage. */
#ifndef LIGI_STAGE_FIGURES_H
#define LIGI_STAGE_FIGURES_H

#include "pipe/graph/graph.h"

/* An assignment of units: the result of every method. */
typedef struct ligi_assignment {
    uint32_t *stage;        /* [unit_count] */
    uint32_t *stage_device; /* [unit_count], the first stage_count are filled */
    uint32_t stage_count;
    uint32_t device_count;
} ligi_assignment;

/* Fills the arrays of `stages`. */
lig_status ligi_fold(const lig_pipe_graph *input, const lig_pipe_options *options,
                     const ligi_graph *graph, const ligi_assignment *assignment,
                     lig_pipe_stages *stages);

/* Fills the transfer times from send_bytes and the devices. */
void ligi_fold_transfers(const lig_pipe_options *options, lig_pipe_stages *stages);

/* Allocates the arrays of `stages` for `count` stages. */
lig_status ligi_stages_take(lig_pipe_stages *stages, uint32_t count, ligi_scratch *scratch);

#endif
