#include "store/find/match_order.h"

#include <math.h>

int ligi_candidate_better(const ligi_candidate *a, const ligi_candidate *b)
{
    if (a->layers != b->layers)
        return a->layers > b->layers;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes;
    if (isnan(a->metric) != isnan(b->metric))
        return isnan(b->metric);
    if (!isnan(a->metric) && a->metric != b->metric)
        return a->metric > b->metric;
    if (a->created != b->created)
        return a->created > b->created;
    return a->id > b->id;
}
