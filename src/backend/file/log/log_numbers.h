/* Operations of a numbered log (numbered.h), and the parts of file_log.c that it needs. */
#ifndef LIGI_CLOG_NUMBERS_H
#define LIGI_CLOG_NUMBERS_H

#include "backend/file/log/file_log.h"

/* Determines from the contents of the folder whether the log is numbered: must be called first. */
lig_status ligi_file_log_numbering(ligi_file_log *log);
/* In a numbered log: 1 when another host may have committed behind `version`, the last known. */
int ligi_file_log_news(ligi_file_log *log, uint64_t version);

/* The segment, for ligi_clog_folder_release. LIG_E_NOTFOUND without an error text. */
lig_status ligi_clog_segment_file(ligi_file_log *log, uint64_t segment, ligi_clog_file **file);
/* Likewise, while this thread holds LIGI_HEAD_WRITE and has read to the tail: nobody replaces the
 * segment at the tail meanwhile. */
lig_status ligi_clog_tail_file(ligi_file_log *log, uint64_t segment, ligi_clog_file **file);
/* Moves the position behind a record. */
void ligi_clog_step(ligi_clog_position *at, const ligi_clog_header *header);

int ligi_clog_is_numbered(const ligi_file_log *log, uint64_t segment);
/* The position behind `version` when the next number may not be taken yet. */
ligi_clog_position ligi_clog_before_number(uint64_t version, uint64_t chain);

/* After a check that began at `began` and found nothing after the position: LIG_E_CORRUPT if that
 * is not the end. */
lig_status ligi_clog_confirm(ligi_file_log *log, const ligi_clog_position *at, int64_t began);

lig_status ligi_clog_append_number(ligi_file_log *log, ligi_clog_position *at, const void *record,
                                   const ligi_clog_header *header);

#endif
