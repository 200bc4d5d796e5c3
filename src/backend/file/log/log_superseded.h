/* The files of a log that a checkpoint supersedes, and when they are removed. The caller holds
 * LIGI_HEAD_CHECKPOINT. */
#ifndef LIGI_LOG_SUPERSEDED_H
#define LIGI_LOG_SUPERSEDED_H

#include "backend/file/log/file_log.h"

/* Removes checkpoints before the one that is kept, and segments that it covers; `left` bytes are
 * free on the disk. */
lig_status ligi_clog_superseded_remove(ligi_file_log *log, uint64_t left, size_t *removed);
/* Likewise, all that the last checkpoint supersedes, once it has been read and is intact. */
lig_status ligi_clog_superseded_verified(ligi_file_log *log, size_t *removed);
/* Likewise, in a numbered log. */
lig_status ligi_clog_superseded_numbered(ligi_file_log *log);
/* All files of the kind below the number. */
lig_status ligi_clog_superseded_below(ligi_file_log *log, ligi_name_kind kind, uint64_t number);

#endif
