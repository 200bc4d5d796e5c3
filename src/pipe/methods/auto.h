/* The method `auto`: runs several methods and picks the best result. */
#ifndef LIGI_AUTO_H
#define LIGI_AUTO_H

#include "pipe/methods/methods.h"

/* Runs several methods, picks the shortest simulated step (with `balance`, the smallest cut), and
 * fills which one it was. */
lig_status ligi_auto(const ligi_measure_job *job, ligi_assignment *assignment,
                     ligi_figures *figures, uint32_t *method);

#endif
