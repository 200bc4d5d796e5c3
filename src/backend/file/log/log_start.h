/* Where reading a log begins: at a segment that a checkpoint may supersede meanwhile. */
#ifndef LIGI_LOG_START_H
#define LIGI_LOG_START_H

#include "backend/file/log/file_log.h"

/* Version 0: the first segment; otherwise the last one that begins at or before `version`. 0: there
 * is none. */
lig_status ligi_clog_choose_segment(ligi_file_log *log, uint64_t version, uint64_t *segment);

/* The position before the first record of the oldest segment, whose id the log takes: while it is
 * opened, or under LIGI_HEAD_WRITE. LIG_E_NOTFOUND without an error text if there is no segment; a
 * numbered log begins without one. */
lig_status ligi_file_log_first(ligi_file_log *log, ligi_clog_position *at);
/* A position at or before `version` from which later versions can be read. LIG_E_NOTFOUND, with an
 * error text, when the log no longer has them. */
lig_status ligi_file_log_before(ligi_file_log *log, uint64_t version, ligi_clog_position *at);

#endif
