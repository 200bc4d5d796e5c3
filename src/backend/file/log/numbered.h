/* The log of a store that several hosts write to (docs/decisions/0009): each commit is a separate
 * segment, whose number is assigned permanently by link(2). A segment is never written again. The
 * file log/numbered marks the log as numbered. */
#ifndef LIGI_NUMBERED_H
#define LIGI_NUMBERED_H

#include "backend/file/log/log_folder.h"

#define LIGI_NUMBERED_GRACE_S 300 /* newer files are not removed */
#define LIGI_NUMBERED_FRESH_S 60  /* how long a view of the log's end is valid */

typedef struct ligi_numbering {
    uint8_t id[16]; /* of the log when it became numbered */
    uint64_t from;  /* segments from this version on have one record each */
} ligi_numbering;

/* LIG_E_NOTFOUND without an error text if the log is an ordinary one; LIG_E_CORRUPT. */
lig_status ligi_numbering_read(const ligi_clog_folder *folder, ligi_numbering *numbering);
/* Converts the log to a numbered one; if another process was first, *numbering is that
 * process's. */
lig_status ligi_numbering_make(ligi_clog_folder *folder, ligi_numbering *numbering);

/* A segment that waits for its number: durable, under a temporary name. */
typedef struct ligi_numbered_draft {
    char name[LIGI_CLOG_NAME_BYTES];
    uint64_t number, writer;
    int64_t made_s; /* by the server's clock */
} ligi_numbered_draft;

/* header->writer is chosen here. After a failure there is nothing to discard. */
lig_status ligi_numbered_draft_make(const ligi_clog_folder *folder, ligi_segment_header *header,
                                    const void *record, size_t bytes, ligi_numbered_draft *draft);
/* Gives it its number, and removes the temporary name in any case. LIG_E_BUSY: another segment has
 * the number. LIG_E_IO: the outcome is unknown. *late: so much time has passed on the server that
 * another segment may have had the number and been removed. Not yet durable. */
lig_status ligi_numbered_draft_link(const ligi_clog_folder *folder,
                                    const ligi_numbered_draft *draft, int *late);

/* Makes sure that names which other hosts have made are found: their absence is remembered for a
 * while by network file systems. */
void ligi_numbered_revalidate(const ligi_clog_folder *folder);

/* A clock that continues while the machine is suspended. */
int64_t ligi_numbered_now_ns(void);

#endif
