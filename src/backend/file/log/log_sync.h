/* Making commits durable. */
#ifndef LIGI_CLOG_SYNC_H
#define LIGI_CLOG_SYNC_H

#include "backend/file/log/file_log.h"

/* Returns when all commits up to `version`, which was published in `epoch`, are durable. LIG_E_IO:
 * the outcome of those that were not yet is unknown; LIG_E_TIMEOUT: likewise, a process that syncs
 * does not end. */
lig_status ligi_file_log_sync(ligi_file_log *log, uint64_t version, uint32_t epoch,
                              int64_t timeout_ns);

#endif
