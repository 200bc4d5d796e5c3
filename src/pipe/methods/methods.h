/* The methods by number, and `auto` over them. */
#ifndef LIGI_METHODS_H
#define LIGI_METHODS_H

#include "pipe/methods/mixed.h"

/* Runs one method (not `auto`). Memory limits hold as lig_pipe_measure counts it. On LIG_E_LIMIT
 * the message states the violated limit and what can be achieved. `even_stages` as in ligi_wish.
 * `figures` are those of the assignment. */
lig_status ligi_method_run(const ligi_measure_job *job, uint32_t method, double balance,
                           int even_stages, ligi_assignment *assignment, ligi_figures *figures);

#endif
