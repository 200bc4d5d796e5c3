#include "backend/file/catalog/log_events.h"

#include "backend/file/catalog/catalog_gate.h"
#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_start.h"
#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <string.h>

#define LOOK_NS INT64_C(100000000)
#define READS_MAX 3
#define STOP LIG_E_CLOSED /* of a visit: enough */

typedef struct event_visit {
    uint64_t since, last; /* versions (since, last] are shown */
    lig_catalog_visit visit;
    void *context;
    ligi_clog_position reached;
} event_visit;

static uint64_t shown_version(ligi_file_catalog *self)
{
    return self->log.folder.sync ? ligi_head_synced(&self->log.head)
                                 : ligi_head_appended(&self->log.head);
}

static lig_status visit_record(void *context, const uint8_t *record, const ligi_clog_header *header,
                               const ligi_clog_position *at)
{
    event_visit *self = context;
    size_t next = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    if (header->version > self->last)
        return STOP;
    self->reached = (ligi_clog_position){header->version, ligi_clog_chain(header), at->segment,
                                         at->offset + header->bytes, at->offset};
    while (header->version > self->since &&
           ligi_clog_item_next(record, header->bytes, &next, &item))
        if (item.kind == LIGI_CLOG_EVENT &&
            self->visit(self->context, header->version, header->date_ns, item.value,
                        item.value_bytes) != 0)
            return STOP;
    return LIG_OK;
}

/* STOP, or LIG_OK after the last version. */
static lig_status read_events(ligi_file_log *log, ligi_clog_position *at, event_visit *run)
{
    ligi_clog_end end;

    LIG_TRY(ligi_file_log_read(log, at, visit_record, run, &end));
    if (at->version >= run->last)
        return LIG_OK;
    return lig_fail(LIG_E_CORRUPT,
                    "%s: the log lacks version %" PRIu64 " (run ligament check --repair)",
                    log->folder.place, at->version + 1);
}

lig_status ligi_clog_events_between(ligi_file_log *log, ligi_clog_events_range *range,
                                    lig_catalog_visit visit, void *context)
{
    event_visit run = {
        .since = range->since, .last = range->last, .visit = visit, .context = context};
    ligi_clog_position at = range->reached;

    memset(&range->reached, 0, sizeof range->reached);
    if (range->since > range->last)
        return lig_fail(LIG_E_NOTFOUND,
                        "%s: the catalog is at version %" PRIu64 ", not yet at %" PRIu64,
                        log->folder.place, range->last, range->since);
    if (range->since == range->last)
        return LIG_OK;
    if (at.segment == 0 || at.version > range->since)
        LIG_TRY(ligi_file_log_before(log, range->since, &at));
    lig_status status = read_events(log, &at, &run);
    for (int i = 0; i < READS_MAX && status == LIG_E_CORRUPT; i++) {
        /* The position may be in a segment that was removed: continues after what was shown. */
        if (run.reached.segment != 0)
            run.since = run.reached.version;
        LIG_TRY(ligi_file_log_before(log, run.since, &at));
        status = read_events(log, &at, &run);
    }
    range->reached = run.reached;
    return status == STOP ? LIG_OK : status;
}

lig_status ligi_clog_events(ligi_file_catalog *self, uint64_t since, lig_catalog_visit visit,
                            void *context)
{
    ligi_clog_events_range range = {.since = since, .last = shown_version(self)};

    pthread_mutex_lock(&self->lock);
    range.reached = self->events;
    pthread_mutex_unlock(&self->lock);
    LIG_TRY(ligi_clog_events_between(&self->log, &range, visit, context));
    pthread_mutex_lock(&self->lock);
    if (range.reached.segment != 0)
        self->events = range.reached;
    pthread_mutex_unlock(&self->lock);
    return LIG_OK;
}

/* Commits of other hosts do not ring the bell here. */
static lig_status look_elsewhere(ligi_file_catalog *self, int64_t *looked)
{
    if (self->log.numbered == 0 || ligi_now_ns() - *looked < LOOK_NS)
        return LIG_OK;
    *looked = ligi_now_ns();
    return ligi_file_log_news(&self->log, ligi_head_appended(&self->log.head))
               ? ligi_file_catalog_settle(self)
               : LIG_OK;
}

/* Neither does a process that was killed during its commit. A live one holds the write lock, or
 * rings soon. 1 if the log was checked. */
static int adopt(ligi_file_catalog *self)
{
    int64_t now = ligi_now_ns();

    pthread_mutex_lock(&self->lock);
    int due = now - self->adopted_ns >= LOOK_NS;
    if (due)
        self->adopted_ns = now;
    pthread_mutex_unlock(&self->lock);
    return due && !ligi_head_damaged(&self->log.head) && ligi_file_catalog_adopt(self) == LIG_OK;
}

lig_status ligi_clog_events_wait(ligi_file_catalog *self, uint64_t since, int64_t timeout_ns)
{
    int64_t deadline = ligi_now_ns() + timeout_ns, looked = 0;

    for (;;) {
        LIG_TRY(look_elsewhere(self, &looked));
        uint32_t seen = ligi_head_bell(&self->log.head);
        if (shown_version(self) > since)
            return LIG_OK;
        if (adopt(self))
            continue;
        int64_t left = deadline - ligi_now_ns();
        if (left <= 0)
            return LIG_E_TIMEOUT;
        ligi_head_wait(&self->log.head, seen, left);
    }
}
