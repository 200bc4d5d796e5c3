/* The background thread of a remote volume: renews leases, writes checkpoints, removes packs and
 * log entries when they are due. */
#ifndef LIGI_REMOTE_KEEPER_H
#define LIGI_REMOTE_KEEPER_H

#include "backend/remote/remote_volume.h"

/* Starts it unless it runs. */
lig_status ligi_keeper_start(ligi_remote_volume *volume);
/* Finishes the work in progress, and a checkpoint that is due. */
void ligi_keeper_stop(ligi_remote_volume *volume);

/* This process has committed `version`: a checkpoint may be due. */
void ligi_keeper_committed(ligi_remote_volume *volume, uint64_t version);
/* Packs were condemned: they are removed when their grace period ends. */
void ligi_keeper_sweep(ligi_remote_volume *volume);

/* Writes a checkpoint of the latest state if enough was committed since the last (`force`: in any
 * case), and removes what the checkpoint supersedes. */
lig_status ligi_keeper_checkpoint(ligi_remote_volume *volume, int force);

#endif
