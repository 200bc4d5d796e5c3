/* The view of the catalog: read from the newest checkpoint and the log after it, brought up to date
 * at every snapshot. */
#ifndef LIGI_REMOTE_VIEW_H
#define LIGI_REMOTE_VIEW_H

#include "backend/remote/remote_volume.h"

/* Reads the log to its end, in a request that begins after this call: threads that wait share one.
 * A commit of this process whose outcome was unknown is settled: afterwards it is in the view, or
 * never will be. */
lig_status ligi_remote_refresh(ligi_remote_volume *volume);
/* A reference to the latest known state; ligi_remote_state_release. After a refresh, not before. */
ligi_remote_state *ligi_remote_latest(ligi_remote_volume *volume, int64_t *seen_ns);
/* Both. */
lig_status ligi_remote_view(ligi_remote_volume *volume, ligi_remote_state **state);

/* Makes a newer state the latest, and takes ownership of the caller's reference. `seen_ns`: see
 * ligi_log_end. */
void ligi_remote_publish(ligi_remote_volume *volume, ligi_remote_state *state, int64_t seen_ns);

/* A record with LIGI_REMOTE_RESTART was read or written: it replaces the damaged part. */
void ligi_remote_repaired(ligi_remote_volume *volume);

/* For a repair: `*state` is the catalog without its damaged parts; `problem` gets a description of
 * each damage. *end is the last commit that exists. */
lig_status ligi_remote_salvage(ligi_remote_volume *volume, lig_catalog_problem problem,
                               void *context, ligi_remote_state **state, uint64_t *end);

/* Checks the older checkpoints, which replace the newest one if that is damaged: `problem` receives
 * a message for each damaged one. `repair`: damaged ones, the newest included, are removed. */
lig_status ligi_remote_check_older(ligi_remote_volume *volume, int repair,
                                   lig_catalog_problem problem, void *context);

#endif
