/* Making commits durable. */
#ifndef LIGI_CLOG_SYNC_H
#define LIGI_CLOG_SYNC_H

#include "backend/file/log/file_log.h"

typedef struct ligi_clog_durable { /* the version to make durable */
    uint64_t version;
    uint32_t epoch;       /* of the head, when the version was published */
    ligi_clog_file *file; /* a segment that the caller has open; NULL: none */
} ligi_clog_durable;

/* Returns when all commits up to the version are durable. LIG_E_IO: a sync failed. LIG_E_BUSY,
 * without an error text: no sync of this segment can be trusted or awaited; it is poisoned, and the
 * tail (file_log.h) makes its commits durable in a new one. LIG_E_TIMEOUT. */
lig_status ligi_file_log_sync(ligi_file_log *log, const ligi_clog_durable *wanted,
                              int64_t timeout_ns);

#endif
