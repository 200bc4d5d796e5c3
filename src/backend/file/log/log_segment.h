/* A new segment of a log that only one host writes to. Under LIGI_HEAD_WRITE. */
#ifndef LIGI_LOG_SEGMENT_H
#define LIGI_LOG_SEGMENT_H

#include "backend/file/log/file_log.h"
#include "base/codec.h"

/* Behind `after`, beginning with these records. `small`: with few blocks ahead of use. */
lig_status ligi_clog_segment_make(ligi_file_log *log, const ligi_clog_position *after,
                                  const ligi_writer *records, int small);

/* An empty one behind `at`, the end of the last one: it gets the blocks that are kept there
 * (ligi_clog_keep). On a full disk it is made from them if this `frees` space. */
lig_status ligi_clog_segment_follow(ligi_file_log *log, const ligi_clog_position *at, int frees);

/* Gives back what earlier segments than `segment` keep: a process may have been killed before it
 * did. */
void ligi_clog_segments_give_back(ligi_file_log *log, uint64_t segment);

/* Gives back what the last segment has beyond the room that is kept and the next segment. */
void ligi_clog_segment_trim(ligi_file_log *log, const ligi_clog_position *at);

#endif
