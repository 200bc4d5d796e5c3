/* Reading a log that may be damaged: its intact parts, oldest first, and the damaged ones. */
#ifndef LIGI_SALVAGE_H
#define LIGI_SALVAGE_H

#include "backend/file/log/log_checkpoint.h"

typedef struct ligi_salvage {
    /* An item of the checkpoint that it begins with. */
    lig_status (*base)(void *context, const ligi_checkpoint_item *item, uint64_t checkpoint);
    /* An item of the record that begins at `at`. */
    lig_status (*item)(void *context, const ligi_clog_item *item, uint64_t version,
                       const ligi_clog_position *at);
    /* A damage, with an event of what is damaged, or NULL. */
    lig_catalog_problem problem;
    void *context;
    size_t damages;             /* counted */
    ligi_clog_position reached; /* behind the last version seen */
    int numbered;               /* a segment was complete when it got its number */
    uint64_t synced;            /* known to have been acknowledged before the log was read */
} ligi_salvage;

/* Passes on the newest checkpoint, or its intact part, and the log after it. */
lig_status ligi_salvage_run(ligi_file_log *log, ligi_salvage *salvage);

/* Reads all checkpoints and all segments, and reports only problems. LIG_E_NOTFOUND without an
 * error text if a file was removed meanwhile: then the problems reported so far are meaningless. */
lig_status ligi_salvage_verify(ligi_file_log *log, ligi_salvage *salvage);

/* The same while others commit, make checkpoints and remove what these cover. *sound is 0 for a log
 * that must be verified again when nobody changes it: what looks damaged may be a file that was
 * just replaced. */
lig_status ligi_salvage_sound(ligi_file_log *log, int *sound);

#endif
