/* Compares two matches. Pure. */
#ifndef LIGI_MATCH_ORDER_H
#define LIGI_MATCH_ORDER_H

#include <stdint.h>

typedef struct ligi_candidate {
    uint64_t id;
    uint32_t layers; /* at most; */
    uint64_t bytes;  /* at most */
    double metric;   /* NaN: has none; negated if lower is better */
    double created;
} ligi_candidate;

/* 1 if `a` is better than `b`: more layers, then more bytes, then the metric, then newer. A total
 * order. */
int ligi_candidate_better(const ligi_candidate *a, const ligi_candidate *b);

#endif
