/* Removing packs of a remote volume (docs/decisions/0011): a commit condemns a pack permanently;
 * after a grace period it is deleted unless it is pinned. */
#ifndef LIGI_REMOTE_REMOVAL_H
#define LIGI_REMOTE_REMOVAL_H

#include "backend/remote/remote_volume.h"

/* Deletes condemned packs whose grace period is over and that are not pinned, and leftovers of dead
 * writers; sets when the next are due. The view is current. */
lig_status ligi_remote_sweep(ligi_remote_volume *volume);

/* The volume's members. */
lig_status ligi_remote_pack_claim(void *self, uint64_t id, void **pack);
lig_status ligi_remote_pack_remove(void *self, uint64_t id);
lig_status ligi_remote_pack_next(void *self, uint64_t after, uint64_t *id);

#endif
