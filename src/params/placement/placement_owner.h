/* What an owner does: hears who is interested, what was pushed to copies, and tells. */
#ifndef LIGI_PLACEMENT_OWNER_H
#define LIGI_PLACEMENT_OWNER_H

#include "params/placement/placement.h"

/* See ligi_sync_written_by. */
lig_status ligi_steward_written_by(ligi_steward *steward, ligi_entry entry, uint32_t origin);
lig_status ligi_steward_consider(ligi_steward *steward, ligi_entry entry); /* OWNED: who gets it? */
lig_status ligi_steward_refresh(ligi_steward *steward, ligi_entry entry);  /* OWNED */
lig_status ligi_steward_to_owner(ligi_steward *steward, const ligi_incoming *incoming,
                                 const ligi_item *item, ligi_entry entry);

#endif
