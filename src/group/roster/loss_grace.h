/* The grace period before a suspected peer counts as lost. A link that has ended, or the group's
 * report, often precedes the reason; within this time another link or the group gives it. One
 * period for the mesh, params and snapshots. Pure; the end of a period is 0 while nobody is
 * suspected. */
#ifndef LIGI_LOSS_GRACE_H
#define LIGI_LOSS_GRACE_H

#include <stdint.h>

#define LIGI_LOSS_GRACE_NS INT64_C(200000000)

/* The end of a period that begins now. */
int64_t ligi_grace_end_ns(int64_t now_ns);
/* 1 if a peer was suspected, and its period has ended: it is lost. */
int ligi_grace_is_over(int64_t end_ns, int64_t now_ns);
/* When to look again: the end of the period if it is before `next_ns`. */
int64_t ligi_grace_next_ns(int64_t end_ns, int64_t next_ns);

#endif
