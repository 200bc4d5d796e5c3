/* The method `exact`: branch and bound over all acyclic assignments. */
#ifndef LIGI_EXACT_H
#define LIGI_EXACT_H

#include "pipe/methods/acyclic.h"

/* Starts from the assignment in out->stage if out->found, and ends with the best (bottleneck, cut),
 * or the smallest cut within `balance`. *proven is 0 if `steps_most` did not suffice; out->stage is
 * then the best seen. */
lig_status ligi_exact(const ligi_search *search, uint64_t steps_most, ligi_found *out, int *proven);

#endif
