/* A member's side: messages to and from the coordinator. */
#ifndef LIGI_MEMBER_H
#define LIGI_MEMBER_H

#include "group/group_state.h"

/* Sends a message to the coordinator (NULL join: none). A failure ends the group, here or by
 * `lost`. */
void ligi_member_say(ligi_group *group, const ligi_group_message *message, const ligi_join *join);
lig_status ligi_member_take(ligi_group *group, const void *data, size_t bytes);
/* Ends the group with this thread's error text; only the first call has an effect. */
void ligi_member_end(ligi_group *group, ligi_group_change change, lig_status status);
/* The link to the coordinator is up: asks to join. */
lig_status ligi_member_ask(ligi_group *group);
void ligi_member_tick(ligi_group *group, int64_t now_ns);
/* Ends the barriers that this process waits in. */
void ligi_member_settle(ligi_group *group, const ligi_failure *failure);
ligi_told *ligi_member_seat(const ligi_group *group, ligi_role role, uint32_t rank);

#endif
