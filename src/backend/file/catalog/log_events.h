/* The events of commits, read from the log. */
#ifndef LIGI_LOG_EVENTS_H
#define LIGI_LOG_EVENTS_H

#include "backend/file/catalog/catalog.h"
#include "backend/file/log/file_log.h"

/* The volume's catalog_events and catalog_wait (backend.h). Only what is durable is shown, unless
 * nothing is synced here. */
lig_status ligi_log_events(ligi_file_catalog *catalog, uint64_t since, lig_catalog_visit visit,
                           void *context);
lig_status ligi_log_events_wait(ligi_file_catalog *catalog, uint64_t since, int64_t timeout_ns);

/* The events of versions (since, last]; `from` (its segment may be 0) is where the last call ended,
 * *reached where this one did. */
lig_status ligi_log_events_between(ligi_file_log *log, const ligi_log_position *from,
                                   uint64_t since, uint64_t last, lig_catalog_visit visit,
                                   void *context, ligi_log_position *reached);

#endif
