#include "base/clock.h"
#include "base/error.h"
#include "store/catalog/catalog_view.h"
#include "store/catalog/commit_event.h"
#include "store/search/name_pattern.h"

#include <stdlib.h>
#include <string.h>

/* A batch ends with the commit that reaches this, so that one read of the log serves many calls. */
enum { BATCH_EVENTS = 256 };

typedef struct fetched_event {
    uint64_t version;
    int64_t date_ns;
    size_t at, bytes; /* in `bytes` of the watch */
} fetched_event;

struct lig_watch {
    lig_store *store; /* held */
    char *name;       /* NULL: all */
    uint64_t since;   /* whose commits were delivered completely, or had no matching events */

    fetched_event *events; /* of the commits that follow */
    size_t at, count, capacity;
    ligi_writer bytes;
    uint64_t fetched;  /* up to this version */
    uint32_t more;     /* of the commit whose event was delivered last */
    lig_status status; /* of the visit */
};

static int fits(const lig_watch *self, const lig_event *event)
{
    const char *name = self->name;
    return name == NULL || strcmp(name, event->name) == 0 || strcmp(name, event->other) == 0 ||
           ligi_pattern_fits(name, event->name) ||
           (event->other[0] && ligi_pattern_fits(name, event->other));
}

/* A batch can end only between two commits. */
static int take_event(void *context, uint64_t version, int64_t date_ns, const void *data,
                      size_t bytes)
{
    lig_watch *self = context;
    lig_event event;
    if (version != self->fetched && self->count >= BATCH_EVENTS)
        return 1;
    self->status = ligi_event_get(data, bytes, &event);
    if (self->status != LIG_OK)
        return 1;
    self->fetched = version;
    if (!fits(self, &event))
        return 0;
    self->status = ligi_grow(&self->events, &self->capacity, self->count + 1, sizeof *self->events,
                             "the events of a watch");
    if (self->status != LIG_OK)
        return 1;
    self->events[self->count] = (fetched_event){version, date_ns, self->bytes.bytes, bytes};
    ligi_put_bytes(&self->bytes, data, bytes);
    self->status = self->bytes.status;
    self->count += self->status == LIG_OK;
    return self->status != LIG_OK;
}

static lig_status visit(lig_watch *self, lig_catalog_visit visitor)
{
    ligi_volume *volume = self->store->volume;
    lig_status status = volume->ops->catalog_events(volume->self, self->since, visitor, self);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status,
                        "%s cannot be watched since version %llu: %s (list the models again, and "
                        "watch from now on)",
                        self->store->uri, (unsigned long long)self->since, lig_error_text());
    return status;
}

/* Fetches the commits after `since`. A commit may have no events, or none that match. The version
 * is read before the events, so that the watch does not wait for commits that it has already
 * covered. */
static lig_status fetch(lig_watch *self)
{
    uint64_t now;
    self->at = self->count = self->bytes.bytes = 0;
    self->fetched = self->since;
    self->status = LIG_OK;
    LIG_TRY(ligi_catalog_view_version(self->store, &now));
    lig_status status = visit(self, take_event);
    if (status == LIG_OK)
        status = self->status;
    if (status != LIG_OK) { /* a batch that was cut short is not delivered */
        self->count = 0;
        return status;
    }
    if (self->count < BATCH_EVENTS && self->fetched < now)
        self->fetched = now;
    if (self->count == 0)
        self->since = self->fetched;
    return LIG_OK;
}

static void deliver(lig_watch *self, lig_event *event)
{
    const fetched_event *one = &self->events[self->at++];
    if (self->more)
        self->more--;
    else
        while (self->at + self->more < self->count && one[self->more + 1].version == one->version)
            self->more++;
    *event = (lig_event){.version = one->version, .date_ns = one->date_ns, .more = self->more};
    /* It was parsed before, when it was fetched. */
    (void)ligi_event_get(self->bytes.data + one->at, one->bytes, event);
    if (self->at == self->count)
        self->since = self->fetched;
    else if (self->more == 0)
        self->since = one->version;
}

/* LIG_E_TIMEOUT, without an error text, at the end of a time slice. */
static lig_status wait_slice(lig_watch *self, int64_t left)
{
    lig_store *store = self->store;
    int64_t slice = left < 0 || left > LIGI_WAIT_SLICE_NS ? LIGI_WAIT_SLICE_NS : left;
    lig_status status = store->volume->ops->catalog_wait(store->volume->self, self->since, slice);
    if (status == LIG_OK || status == LIG_E_TIMEOUT)
        LIG_TRY(ligi_interrupt_check(&store->interrupt, "a change", store));
    return status;
}

static lig_status usable(const lig_watch *self)
{
    LIG_TRY(ligi_store_usable(self->store));
    if (self->store->closed)
        return lig_fail(LIG_E_CLOSED, "the store %s was closed", self->store->uri);
    return LIG_OK;
}

lig_status lig_watch_next(lig_watch *self, int64_t timeout_ns, lig_event *event)
{
    int64_t begin = ligi_now_ns();
    LIG_TRY(usable(self));
    while (self->at == self->count) {
        LIG_TRY(fetch(self));
        if (self->count)
            break;
        int64_t left = timeout_ns < 0 ? LIG_FOREVER : timeout_ns - (ligi_now_ns() - begin);
        if (timeout_ns >= 0 && left <= 0)
            return lig_fail(LIG_E_TIMEOUT, "no change of %s after version %llu within %.3g s",
                            self->store->uri, (unsigned long long)self->since,
                            (double)timeout_ns / 1e9);
        lig_status status = wait_slice(self, left);
        if (status != LIG_E_TIMEOUT)
            LIG_TRY(status);
        LIG_TRY(usable(self));
    }
    deliver(self, event);
    return LIG_OK;
}

uint64_t lig_watch_since(const lig_watch *self)
{
    return self->since;
}

void lig_watch_close(lig_watch *self)
{
    if (self == NULL)
        return;
    ligi_store_drop(self->store);
    ligi_writer_fini(&self->bytes);
    free(self->events);
    free(self->name);
    free(self);
}

/* Ends at the first event: it only tests whether the volume supports events. */
static int stop(void *context, uint64_t version, int64_t date_ns, const void *data, size_t bytes)
{
    (void)context, (void)version, (void)date_ns, (void)data, (void)bytes;
    return 1;
}

static lig_status open_watch(lig_watch *self, const char *name, uint64_t since)
{
    if (self->store->by_footers)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s cannot be watched: it has no catalog, and packs contain no events",
                        self->store->uri);
    if (name)
        LIG_TRY(ligi_strdup(&self->name, name));
    self->since = since;
    if (since == LIG_WATCH_NOW)
        LIG_TRY(ligi_catalog_view_version(self->store, &self->since));
    return visit(self, stop);
}

lig_status lig_store_watch(lig_store *store, const char *name, uint64_t since, lig_watch **out)
{
    lig_watch *self;
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a watch"));
    self->store = store;
    ligi_store_hold(store);
    lig_status status = open_watch(self, name, since);
    if (status == LIG_OK)
        *out = self;
    else
        lig_watch_close(self);
    return status;
}
