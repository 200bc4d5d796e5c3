/* The events of commits, read from the log. */
#ifndef LIGI_CLOG_EVENTS_H
#define LIGI_CLOG_EVENTS_H

#include "backend/file/catalog/catalog.h"
#include "backend/file/log/file_log.h"

/* The volume's catalog_events and catalog_wait (backend.h). Only durable commits are shown, unless
 * commits are not synced here. */
lig_status ligi_clog_events(ligi_file_catalog *catalog, uint64_t since, lig_catalog_visit visit,
                            void *context);
lig_status ligi_clog_events_wait(ligi_file_catalog *catalog, uint64_t since, int64_t timeout_ns);

typedef struct ligi_clog_events_range {
    uint64_t since, last;       /* versions (since, last] */
    ligi_clog_position reached; /* where the last call ended (segment 0: none), and this one does */
} ligi_clog_events_range;

lig_status ligi_clog_events_between(ligi_file_log *log, ligi_clog_events_range *range,
                                    lig_catalog_visit visit, void *context);

#endif
