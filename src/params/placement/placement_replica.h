/* What a node does that is not a row's owner: asks for it, has a copy, gives it up, becomes the
 * owner. */
#ifndef LIGI_PLACEMENT_REPLICA_H
#define LIGI_PLACEMENT_REPLICA_H

#include "params/placement/placement.h"

lig_status ligi_steward_surrender(ligi_steward *steward, ligi_entry entry);

/* What is unsettled now belongs to an era that ends: unsettled[*era & 1] falls to 0 when all of it
 * is in the owners' rows. Not again before that. What was noted must have been told. */
uint32_t ligi_steward_next_era(ligi_steward *steward);
lig_status ligi_steward_want(ligi_steward *steward, ligi_entry entry);       /* ABSENT */
lig_status ligi_steward_give_up(ligi_steward *steward, ligi_entry entry);    /* COPY */
lig_status ligi_steward_send_delta(ligi_steward *steward, ligi_entry entry); /* if there is one */
void ligi_steward_unsettle(ligi_steward *steward, ligi_entry entry);
lig_status ligi_steward_from_owner(ligi_steward *steward, const ligi_incoming *incoming,
                                   const ligi_item *item, ligi_entry entry);

#endif
