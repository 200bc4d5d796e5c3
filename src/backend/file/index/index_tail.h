/* The end of the log that the index lacks (index/recent.h): snapshots show it, and commits are
 * appended there without the index, which is written for many of them at once. */
#ifndef LIGI_INDEX_TAIL_H
#define LIGI_INDEX_TAIL_H

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/index/recent.h"

/* The commits behind an index that stands at `index`, up to `version` or further; UINT64_MAX: to
 * the log's end, under LIGI_HEAD_WRITE. *recent is for ligi_recent_drop; NULL when there are none,
 * or fewer than wanted: then the index has to catch up. `epoch` is the head's before the index was
 * looked at. */
void ligi_mdb_tail_read(ligi_file_catalog *catalog, const ligi_clog_position *index, uint32_t epoch,
                        uint64_t version, ligi_recent **recent);

/* The version of the index; 0 if it is unknown. */
int ligi_mdb_tail_index(ligi_file_catalog *catalog, ligi_clog_position *index);

/* Under LIGI_HEAD_WRITE: 1 and *at is the log's end when a record of about `bytes` bytes may be
 * appended there without the index. 0 if the index must be written: it is far enough behind, or the
 * log must be repaired first. */
int ligi_mdb_tail_end(ligi_file_catalog *catalog, uint64_t bytes, ligi_clog_position *at);
/* The record that was appended at `at`. */
void ligi_mdb_tail_add(ligi_file_catalog *catalog, const uint8_t *record,
                       const ligi_clog_header *header, const ligi_clog_position *at);

#endif
