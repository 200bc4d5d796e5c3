/* The methods by number, and `auto` over them. */
#ifndef LIGI_METHODS_H
#define LIGI_METHODS_H

#include "pipe/methods/mixed.h"

/* Runs one method (not `auto`). Memory is kept to as lig_pipe_measure counts it. LIG_E_LIMIT says
 * what cannot be met and what can. `even_stages` as in ligi_wish. `figures` are those of the
 * assignment. */
lig_status ligi_method_run(const ligi_measure_job *job, uint32_t method, double balance,
                           int even_stages, ligi_assignment *assignment, ligi_figures *figures);

#endif
