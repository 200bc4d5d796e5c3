/* A plan's figures. */
#ifndef LIGI_PLAN_FIGURES_H
#define LIGI_PLAN_FIGURES_H

#include "pipe/graph/stage_figures.h"
#include "pipe/search/constraints.h"

typedef struct ligi_figures {
    double bottleneck_ms;
    double cut_bytes;
    double relay_bytes;
    double step_ms;
    double bubble;
    double *device_ms; /* [device_count], or NULL */
    double *device_bytes;
} ligi_figures;

/* The input of every method. */
typedef struct ligi_measure_job {
    const lig_pipe_graph *input;
    const lig_pipe_options *options;
    const ligi_graph *graph;
} ligi_measure_job;

/* Computes everything from scratch. The arrays of `figures` must be set. */
lig_status ligi_measure(const ligi_measure_job *job, const ligi_assignment *assignment,
                        ligi_figures *figures);

/* The largest device_bytes / memory, 0 without limits. */
double ligi_measure_memory(const ligi_measure_job *job, const ligi_assignment *assignment,
                           const double *device_bytes, uint32_t *device);

/* Longest path of work through the graph. */
lig_status ligi_critical_ms(const ligi_graph *graph, double *critical_ms);

#endif
