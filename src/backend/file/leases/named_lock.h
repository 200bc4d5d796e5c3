/* Locks by name: what one process at a time may write, for instance a training run.
 *
 * A lock is flock(LOCK_EX) on leases/run-<16 hex digits, a hash of the name>, which names its
 * holder (process, host, since when). The kernel releases it when the holder ends, however it ends;
 * a stopped process keeps it. A forked child closes its descriptor at once, so that it does not
 * keep the lock of a parent that died. NFS passes such locks on to the server, so that hosts see
 * each other's; if a mount does not, taking the lock fails. */
#ifndef LIGI_NAMED_LOCK_H
#define LIGI_NAMED_LOCK_H

#include "backend/file/file.h"

/* The volume's members. */
lig_status ligi_file_lock(void *self, const char *name, void **lock);
void ligi_file_unlock(void *lock);

/* Removes the lock file `file` in the folder leases/ when its holder has been dead for a while. */
void ligi_named_lock_clean(int leases_fd, const char *file);

#endif
