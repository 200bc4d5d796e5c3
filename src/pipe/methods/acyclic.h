/* The method `acyclic`: intervals of several orders, then moves, annealing and FM. Also the final
 * phase of other methods. */
#ifndef LIGI_ACYCLIC_H
#define LIGI_ACYCLIC_H

#include "pipe/graph/random.h"
#include "pipe/search/moves.h"

typedef struct ligi_search {
    const ligi_graph *graph;
    ligi_goal *goal; /* cap_ms is set by the search */
    double balance;  /* as in lig_pipe_options */
    uint32_t effort; /* >= 1 */
    uint64_t seed;
} ligi_search;

typedef struct ligi_found {
    uint32_t *stage; /* [unit_count], the caller's */
    int found;
    double nearest_ms; /* if nothing was found: the smallest bottleneck seen; INFINITY if memory or
                        * separated pairs allow no assignment */
} ligi_found;

/* Intervals of the given order: smallest bottleneck, then cut; or the smallest cut within
 * `balance`. */
lig_status ligi_contiguous(const ligi_search *search, ligi_found *out);

lig_status ligi_acyclic(const ligi_search *search, ligi_found *out);

/* Balances any assignment in out->stage (down to the cap of `balance`, or as far as possible, which
 * becomes the cap), then lowers its cut. */
lig_status ligi_settle(const ligi_search *search, ligi_random *random, ligi_found *out);

/* Sets goal->cap_ms for `balance`. */
void ligi_cap_balance(const ligi_search *search);

#endif
