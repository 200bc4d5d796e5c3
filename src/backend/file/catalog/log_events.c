#include "backend/file/catalog/log_events.h"

#include "backend/file/catalog/catalog_gate.h"
#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <string.h>

#define STOP LIG_E_CLOSED /* of a visit: enough */

typedef struct event_visit {
    uint64_t since, last; /* versions (since, last] are shown */
    lig_catalog_visit visit;
    void *context;
    ligi_log_position reached;
} event_visit;

static uint64_t shown_version(ligi_file_catalog *self)
{
    return self->log.folder.sync ? ligi_head_synced(&self->log.head)
                                 : ligi_head_appended(&self->log.head);
}

static lig_status visit_record(void *context, const uint8_t *record, const ligi_log_header *header,
                               const ligi_log_position *at)
{
    event_visit *self = context;
    size_t next = LIGI_LOG_HEADER_BYTES;
    ligi_log_item item;

    if (header->version > self->last)
        return STOP;
    self->reached = (ligi_log_position){header->version, ligi_log_chain(header), at->segment,
                                        at->offset + header->bytes, at->offset};
    while (header->version > self->since &&
           ligi_log_item_next(record, header->bytes, &next, &item))
        if (item.kind == LIGI_LOG_EVENT &&
            self->visit(self->context, header->version, header->date_ns, item.value,
                        item.value_bytes) != 0)
            return STOP;
    return LIG_OK;
}

lig_status ligi_log_events_between(ligi_file_log *log, const ligi_log_position *from,
                                   uint64_t since, uint64_t last, lig_catalog_visit visit,
                                   void *context, ligi_log_position *reached)
{
    event_visit run = {.since = since, .last = last, .visit = visit, .context = context};
    ligi_log_position at = *from;
    ligi_log_end end;

    memset(reached, 0, sizeof *reached);
    if (since > last)
        return lig_fail(LIG_E_NOTFOUND,
                        "%s: the catalog is at version %" PRIu64 ", not yet at %" PRIu64,
                        log->folder.place, last, since);
    if (since == last)
        return LIG_OK;
    if (at.segment == 0 || at.version > since)
        LIG_TRY(ligi_file_log_before(log, since, &at));
    lig_status status = ligi_file_log_read(log, &at, visit_record, &run, &end);
    *reached = run.reached;
    return status == STOP ? LIG_OK : status;
}

lig_status ligi_log_events(ligi_file_catalog *self, uint64_t since, lig_catalog_visit visit,
                           void *context)
{
    ligi_log_position from, reached;

    pthread_mutex_lock(&self->lock);
    from = self->events;
    pthread_mutex_unlock(&self->lock);
    LIG_TRY(ligi_log_events_between(&self->log, &from, since, shown_version(self), visit, context,
                                    &reached));
    pthread_mutex_lock(&self->lock);
    if (reached.segment != 0)
        self->events = reached;
    pthread_mutex_unlock(&self->lock);
    return LIG_OK;
}

lig_status ligi_log_events_wait(ligi_file_catalog *self, uint64_t since, int64_t timeout_ns)
{
    int64_t deadline = ligi_now_ns() + timeout_ns;

    for (;;) {
        uint32_t seen = ligi_head_bell(&self->log.head);
        if (shown_version(self) > since)
            return LIG_OK;
        int64_t left = deadline - ligi_now_ns();
        if (left <= 0)
            return LIG_E_TIMEOUT;
        ligi_head_wait(&self->log.head, seen, left);
    }
}
