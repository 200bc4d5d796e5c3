/* The log of a store that several hosts write to (docs/decisions/0009): each commit is a segment of
 * its own, whose number is given by link(2), once and for good. Nobody writes to a segment again.
 * The file log/numbered says that the log is of this kind. */
#ifndef LIGI_NUMBERED_H
#define LIGI_NUMBERED_H

#include "backend/file/log/log_folder.h"

#define LIGI_NUMBERED_GRACE_S 300 /* nothing younger is removed */
#define LIGI_NUMBERED_FRESH_S 60  /* a view of the log's end is relied on for so long */

typedef struct ligi_numbering {
    uint8_t id[16]; /* of the log when it became numbered */
    uint64_t from;  /* segments from this version on have one record each */
} ligi_numbering;

/* LIG_E_NOTFOUND without a sentence when the log is an ordinary one; LIG_E_CORRUPT. */
lig_status ligi_numbering_read(const ligi_clog_folder *folder, ligi_numbering *numbering);
/* Makes the log a numbered one; when somebody was first, *numbering is his. */
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
/* Gives it its number, and removes the temporary name in any case. LIG_E_BUSY: somebody else's
 * segment has the number. LIG_E_IO: whether it has it is unknown. *late: so much time has passed on
 * the server that the number may have been another's, and removed. Not yet durable. */
lig_status ligi_numbered_draft_link(const ligi_clog_folder *folder,
                                    const ligi_numbered_draft *draft, int *late);

/* Makes sure that names which other hosts have made are found: their absence is remembered for a
 * while by network file systems. */
void ligi_numbered_revalidate(const ligi_clog_folder *folder);

/* A clock that goes on while the machine sleeps. */
int64_t ligi_numbered_now_ns(void);

#endif
