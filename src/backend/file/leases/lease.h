/* The right to write to a place on a file system that machines share: the file `writer` names its
 * holder (host, boot, process). Its change time, which is the server's, is the heartbeat, renewed
 * by a small thread. A holder whose process is gone from this machine, or that has been silent for
 * the length of the lease, is replaced. Shared. */
#ifndef LIGI_LEASE_H
#define LIGI_LEASE_H

#include <ligament/base.h>

typedef struct ligi_lease ligi_lease;

/* LIG_E_BUSY names the holder. Borrows folder_fd and place for the call. */
lig_status ligi_lease_take(ligi_lease **lease, int folder_fd, const char *place, int64_t lease_s);
/* NULL is fine. */
void ligi_lease_release(ligi_lease *lease);
/* LIG_E_BUSY when somebody else has it now. */
lig_status ligi_lease_check(ligi_lease *lease);

#endif
