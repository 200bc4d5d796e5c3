/* The owner's side of placement: interest of other nodes, deltas from replicas, updates to
 * replicas. */
#ifndef LIGI_OWNER_PROTOCOL_H
#define LIGI_OWNER_PROTOCOL_H

#include "params/placement/placement.h"

/* See ligi_sync_written_by. */
lig_status ligi_placement_written_by(ligi_placement *placement, ligi_entry entry, uint32_t origin);
lig_status ligi_placement_consider(ligi_placement *placement,
                                   ligi_entry entry); /* OWNED: decides which node gets the row. */
lig_status ligi_placement_refresh(ligi_placement *placement, ligi_entry entry); /* OWNED */
lig_status ligi_placement_to_owner(ligi_placement *placement,
                                   const ligi_placement_incoming *incoming,
                                   const ligi_sync_item *item, ligi_entry entry);

#endif
