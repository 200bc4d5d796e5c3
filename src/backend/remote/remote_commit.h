/* Changing the catalog of a remote volume: one record in the engine's log. */
#ifndef LIGI_REMOTE_COMMIT_H
#define LIGI_REMOTE_COMMIT_H

#include "backend/remote/remote_volume.h"

/* Threads of a process take turns in order of arrival, so that a commit that takes long to prepare
 * does not starve. LIG_E_TIMEOUT. A thread that already has the turn fails with LIG_E_INVALID. */
lig_status ligi_remote_turn_take(ligi_remote_volume *volume, int64_t timeout_ns);
void ligi_remote_turn_end(ligi_remote_volume *volume);
int ligi_remote_turn_mine(ligi_remote_volume *volume);

/* The contents of a commit besides its id, version, chain and date, which are filled here. It
 * follows `base`, of which seen_ns is known (ligi_log_end). LIG_E_BUSY, without an error text, if
 * another commit followed it. */
lig_status ligi_remote_append(ligi_remote_volume *volume, ligi_remote_state *base, int64_t seen_ns,
                              ligi_remote_edit *edit);
/* Takes the number of a commit whose outcome is unknown. LIG_E_BUSY: that commit, or another,
 * already has the number. */
lig_status ligi_remote_settle_unknown(ligi_remote_volume *volume);

/* The volume's members. */
lig_status ligi_remote_catalog_commit(void *self, const lig_catalog_edit *edit);
lig_status ligi_remote_catalog_lock(void *self, int64_t timeout_ns);
void ligi_remote_catalog_unlock(void *self);

#endif
