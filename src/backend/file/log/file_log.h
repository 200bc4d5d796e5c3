/* The log of commits of a file volume (docs/decisions/0008): reading from a position, appending,
 * syncing. Positions belong to the caller: the index keeps the one it has reached. Shared. */
#ifndef LIGI_FILE_LOG_H
#define LIGI_FILE_LOG_H

#include "backend/file/log/head/head.h"
#include "backend/file/log/log_folder.h"
#include "backend/file/log/numbered.h"
#include "backend/log/log_record.h"

/* After record `version`: where the next one is, or will be. */
typedef struct ligi_clog_position {
    uint64_t version, chain;
    uint64_t segment, offset;
    uint64_t last; /* where that record begins; 0: in an earlier segment */
} ligi_clog_position;

typedef struct ligi_file_log {
    ligi_clog_folder folder;
    ligi_head head; /* no page for a reader */
    uint8_t id[16];
    uint64_t segment_bytes; /* after which the next one is started */
    uint64_t witnessed;     /* known to have existed, in addition to what the head page shows */
    uint64_t numbered;      /* segments from this one on are numbered (numbered.h); 0: none is */
    uint64_t keep;          /* under LIGI_HEAD_WRITE: what commits that free all space would take */
    _Atomic int64_t confirmed_ns; /* when the end of a numbered log was known last */
    int thorough; /* bytes after zeros are examined, too: for the first reading of a log */
} ligi_file_log;

/* A whole record that fits the chain; `at` is the position before it. */
typedef lig_status (*ligi_clog_visit)(void *context, const uint8_t *record,
                                      const ligi_clog_header *header, const ligi_clog_position *at);

typedef struct ligi_clog_visitor {
    ligi_clog_visit visit;
    void *context;
} ligi_clog_visitor;

/* Why reading ended. */
typedef enum ligi_clog_end {
    LIGI_CLOG_AT_END, /* nothing was written after it */
    LIGI_CLOG_CUT,    /* invalid data that was never acknowledged */
    LIGI_CLOG_DAMAGED /* invalid data that had been synced */
} ligi_clog_end;

/* A log that continues no other has a new id. */
lig_status ligi_file_log_new_id(ligi_file_log *log);
/* Creates the first segment of a log that follows `version` with this chain. */
lig_status ligi_file_log_create(ligi_file_log *log, const ligi_clog_position *after);

/* The position behind `version`, whose chain is known (from a checkpoint). */
lig_status ligi_file_log_find(ligi_file_log *log, ligi_clog_position *at);

/* 1 when the log still has the record before the position, or the segment that begins there. */
int ligi_file_log_reaches(ligi_file_log *log, const ligi_clog_position *at);

/* Visits the records after *at, which advances with each. Changes nothing. LIG_E_CORRUPT, in a
 * numbered log, also if it has continued and no longer has what follows the position (a checkpoint
 * has it). */
lig_status ligi_file_log_read(ligi_file_log *log, ligi_clog_position *at, ligi_clog_visit visit,
                              void *context, ligi_clog_end *end);

/* The same under LIGI_HEAD_WRITE, for a caller that is going to append: a record cut short is
 * zeroed, and a segment whose sync failed is replaced by a new one; the visitor is then called
 * again for the copied records, with their new positions. LIG_E_CORRUPT when the log is damaged. */
lig_status ligi_file_log_tail(ligi_file_log *log, ligi_clog_position *at,
                              const ligi_clog_visitor *visitor);

/* Under LIGI_HEAD_WRITE, at the tail: makes room, so that *at may change its segment. `frees`: also
 * from what is kept for a full disk. The visitor (NULL: none) as for tail. */
lig_status ligi_file_log_reserve(ligi_file_log *log, ligi_clog_position *at, uint64_t bytes,
                                 int frees, const ligi_clog_visitor *visitor, int64_t timeout_ns);
/* Writes the record at the position, for which there is room; *at moves on. Not yet durable, and
 * not published. In a numbered log LIG_E_BUSY if another host was first, and LIG_E_IO if that is
 * unknown. */
lig_status ligi_file_log_append(ligi_file_log *log, ligi_clog_position *at, const void *record,
                                const ligi_clog_header *header);
/* Starts a new segment at the tail, under LIGI_HEAD_WRITE; what came before is durable then.
 * `frees`: for a commit or checkpoint that frees space, on a full disk too. */
lig_status ligi_file_log_roll(ligi_file_log *log, ligi_clog_position *at, int frees,
                              const ligi_clog_visitor *visitor, int64_t timeout_ns);

#endif
