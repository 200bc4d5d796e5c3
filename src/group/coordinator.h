/* The coordinator: maintains the roster, receives from members, declares silent ones lost. */
#ifndef LIGI_COORDINATOR_H
#define LIGI_COORDINATOR_H

#include "group/group_state.h"

lig_status ligi_coordinator_create(ligi_group *group, const ligi_group_options *options);
void ligi_coordinator_destroy(ligi_coordinator *coordinator);
/* A message from this process's own member. */
lig_status ligi_coordinator_take_own(ligi_group *group, const void *data, size_t bytes);
/* The hooks of accepted links. */
lig_status ligi_coordinator_met(ligi_group *group, ligi_link *link);
lig_status ligi_coordinator_take(ligi_group *group, ligi_link *link, const void *data,
                                 size_t bytes);
void ligi_coordinator_lost(ligi_group *group, ligi_link *link, lig_status status,
                           const char *sentence);
lig_status ligi_coordinator_tick(ligi_group *group, int64_t now_ns);
/* Carries out one act, or ends one broken peer; 0 when there is nothing. */
int ligi_coordinator_work(ligi_group *group);
void ligi_coordinator_close(ligi_group *group, const char *reason);

#endif
