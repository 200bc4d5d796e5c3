/* Barriers of a group, as a member calls them. Which barriers pass is decided by the coordinator:
 * group/roster/barrier_release.h. */
#ifndef LIGI_BARRIER_WAIT_H
#define LIGI_BARRIER_WAIT_H

#include "group/group.h"

/* Returns when all members of the roles in `mask` (including the caller's) have called it with the
 * same mask and flags (a later stage: see there). TIMEOUT names the missing members; this process
 * is then no longer counted. */
lig_status ligi_group_barrier(ligi_group *group, uint32_t mask, uint32_t flags, int64_t timeout_ns);
/* Ends barriers, current and future, with CLOSED and that text; otherwise the group continues. */
void ligi_group_part(ligi_group *group, const char *sentence);

#endif
