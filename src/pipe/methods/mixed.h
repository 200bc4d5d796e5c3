/* The methods that choose devices first and stages afterwards: `mixed` (Mixed-Pipe) and `metis`. */
#ifndef LIGI_MIXED_H
#define LIGI_MIXED_H

#include "pipe/methods/bins_to_stages.h"
#include "pipe/search/plan_figures.h"

/* Parameters of a method in addition to the job: see ligi_search. */
typedef struct ligi_wish {
    double balance;
    uint32_t effort;
    uint64_t seed;
    int even_stages;    /* stages that share a device should carry equal parts of its load */
    double room_factor; /* fraction of the devices' memory: less than 1 leaves room for what only a
                         * whole plan shows */
} ligi_wish;

/* Both fill the assignment; if it is impossible, *found is 0 and *nearest_ms the best seen. */
lig_status ligi_mixed(const ligi_measure_job *job, const ligi_wish *wish,
                      ligi_assignment *assignment, ligi_found *out);
lig_status ligi_metis_stages(const ligi_measure_job *job, const ligi_wish *wish,
                             ligi_assignment *assignment, ligi_found *out);

#endif
