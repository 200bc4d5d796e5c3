/* The method `multilevel`: solve a coarse graph, then refine on the way back to the given one. */
#ifndef LIGI_MULTILEVEL_H
#define LIGI_MULTILEVEL_H

#include "pipe/methods/acyclic.h"

lig_status ligi_multilevel(const ligi_search *search, ligi_found *out);

#endif
