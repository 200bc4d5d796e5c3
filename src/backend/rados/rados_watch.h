/* Notices of commits: watch and notify. A notice may be lost; the version in the log is
 * authoritative. */
#ifndef LIGI_RADOS_WATCH_H
#define LIGI_RADOS_WATCH_H

#include "backend/rados/rados.h"

lig_status ligi_rados_news_init(ligi_rados *e);
/* Ends the watch and waits for notices in flight; `forked`: frees memory only. */
void ligi_rados_news_fini(ligi_rados *e, int forked);
/* Notifies other processes without waiting for them. */
void ligi_rados_notify(ligi_rados *e, uint64_t version);
lig_status ligi_rados_log_wait(void *self, uint64_t since, int64_t timeout_ns);

#endif
