/* A member's calls on its group: who is a member. */
#ifndef LIGI_GROUP_INFO_H
#define LIGI_GROUP_INFO_H

#include "group/group.h"

/* From now on changes are reported to `hook` (NULL: none). Under one ligi_net_lock with a call of
 * ligi_group_members no change is missed. */
void ligi_group_watch(ligi_group *group, ligi_group_hook hook, void *context);

ligi_role ligi_group_role(const ligi_group *group);
uint32_t ligi_group_rank(const ligi_group *group);
uint32_t ligi_group_incarnation(const ligi_group *group);
/* The same random number in all members of one group: for the hello of data links. */
uint64_t ligi_group_id(const ligi_group *group);
int64_t ligi_group_liveness_ns(ligi_group *group); /* the coordinator's, once it is known */

/* 1 if this process was stopped for so long that it may have been expelled, and has not had time to
 * learn of it: a closed link of a peer is then not the reason. */
int ligi_group_waking(ligi_group *group);

/* Fills up to `capacity` members (servers by rank, workers by rank, the scheduler if one has
 * joined); returns the total. */
size_t ligi_group_members(ligi_group *group, ligi_member *members, size_t capacity);
/* One member; NOTFOUND for a seat that does not exist. */
lig_status ligi_group_member(ligi_group *group, ligi_role role, uint32_t rank, ligi_member *member);
/* Fills `blob` (LIGI_BLOB_BYTES_MAX) with the blob of the seat's current or last holder; *bytes is
 * 0 while it is awaited. */
lig_status ligi_group_blob(ligi_group *group, ligi_role role, uint32_t rank, void *blob,
                           size_t *bytes);
/* Checks the identity that a peer claims: OK, or PEER with an error text (stale, lost, unknown).
 * For the hello of data links, and for frames that carry an incarnation. */
lig_status ligi_group_check(ligi_group *group, ligi_role role, uint32_t rank, uint32_t incarnation);

#endif
