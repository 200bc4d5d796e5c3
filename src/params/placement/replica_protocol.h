/* The side of a node that does not own a row: requests it, holds a replica, drops it, or becomes
 * the owner. */
#ifndef LIGI_REPLICA_PROTOCOL_H
#define LIGI_REPLICA_PROTOCOL_H

#include "params/placement/placement.h"

lig_status ligi_placement_surrender(ligi_placement *placement, ligi_entry entry);

/* Ends the current era: unsettled[*era & 1] reaches 0 when all pushes that are unsettled now are in
 * the owners' rows. Must not be called again before that. Noted deltas must have been sent. */
uint32_t ligi_placement_next_era(ligi_placement *placement);
lig_status ligi_placement_want(ligi_placement *placement, ligi_entry entry);    /* ABSENT */
lig_status ligi_placement_give_up(ligi_placement *placement, ligi_entry entry); /* REPLICA */
lig_status ligi_placement_send_delta(ligi_placement *placement,
                                     ligi_entry entry); /* if there is one */
void ligi_placement_unsettle(ligi_placement *placement, ligi_entry entry);
lig_status ligi_placement_from_owner(ligi_placement *placement,
                                     const ligi_placement_incoming *incoming,
                                     const ligi_sync_item *item, ligi_entry entry);

#endif
