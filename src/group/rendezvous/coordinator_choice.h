/* Which process becomes the coordinator of a group, and how the others find it. */
#ifndef LIGI_COORDINATOR_CHOICE_H
#define LIGI_COORDINATOR_CHOICE_H

#include "group/group.h"

/* By address: becomes the coordinator or follows it, as options->coordinator says; member 0 follows
 * if the address is in use already. */
lig_status ligi_group_rendezvous(ligi_group *group, const ligi_group_options *options,
                                 int64_t timeout_ns);

/* Listens at `address` and maintains the roster. */
lig_status ligi_group_coordinate(ligi_group *group, const ligi_group_options *options,
                                 const char *address);
/* Starts connecting to the coordinator. */
lig_status ligi_group_follow(ligi_group *group, const char *address, int64_t timeout_ns);

#endif
