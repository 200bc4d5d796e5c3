#include "store/serve/server/requests/server_watch.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/catalog/catalog_view.h"
#include "store/catalog/commit_event.h"
#include "store/serve/message/served_state.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/workers/server_queue.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_NS INT64_C(200000000) /* how soon deadlines, CANCEL and shutdown are noticed */
enum { EVENTS_MAX = 4096 };

/* --- the events of a request --- */

typedef struct collecting {
    ligi_served_events out;
    size_t capacity, limit;
    ligi_writer bytes; /* of the events, which point into it only in the end */
    const char *scope; /* only events of models whose names begin like this; NULL: all */
    lig_status status;
} collecting;

static int in_scope(const collecting *self, const char *name)
{
    return name && strncmp(name, self->scope, strlen(self->scope)) == 0;
}

/* Changes the event to what a role with a prefix may see; 0: nothing of it. A model that leaves the
 * prefix is reported as retired. */
static int show(const collecting *self, lig_event *event)
{
    int named = in_scope(self, event->name);
    int other = event->other[0] == '\0' || in_scope(self, event->other);
    if (event->kind == LIG_EVENT_ALIAS)
        return named && other;
    if (named && !other)
        event->other = "";
    if (named || event->other[0] == '\0' || !other)
        return named;
    *event = (lig_event){.kind = LIG_EVENT_RETIRED, .model = event->model, .name = event->other};
    return 1;
}

/* Appends an event, as the role may see it. The version progresses in any case. */
static lig_status put_event(collecting *self, const void *data, size_t bytes, size_t *put)
{
    lig_event event;
    size_t before = self->bytes.bytes;
    *put = 0;
    if (self->scope == NULL) {
        ligi_put_bytes(&self->bytes, data, bytes);
    } else {
        LIG_TRY(ligi_event_get(data, bytes, &event));
        if (show(self, &event))
            ligi_event_put(&self->bytes, &event);
    }
    *put = self->bytes.bytes - before;
    return self->bytes.status;
}

/* It can end only between two commits. */
static int collect(void *context, uint64_t version, int64_t date_ns, const void *data, size_t bytes)
{
    collecting *self = context;
    ligi_served_events *out = &self->out;
    if (version != out->until && out->count >= self->limit)
        return 1;
    self->status =
        ligi_grow(&out->events, &self->capacity, out->count + 1, sizeof *out->events, "events");
    if (self->status != LIG_OK)
        return 1;
    out->until = version;
    self->status = put_event(self, data, bytes, &bytes);
    if (self->status == LIG_OK && bytes)
        out->events[out->count++] = (ligi_served_event){version, date_ns, NULL, bytes};
    return self->status != LIG_OK;
}

static lig_status collect_all(lig_store *store, const ligi_served_watch *asked, collecting *self)
{
    const ligi_volume *volume = store->volume;
    LIG_TRY(volume->ops->catalog_events(volume->self, asked->since, collect, self));
    LIG_TRY(self->status);
    const uint8_t *at = self->bytes.data;
    for (size_t i = 0; i < self->out.count; at += self->out.events[i++].bytes)
        self->out.events[i].data = at;
    return LIG_OK;
}

/* The version is read before the events, so all events that it covers are present. */
static lig_status answer(ligi_served_call *call, const ligi_served_watch *asked, uint64_t now)
{
    collecting self = {.out = {.until = asked->since},
                       .scope = ligi_served_scope(call->session),
                       .limit = asked->limit < EVENTS_MAX ? asked->limit : EVENTS_MAX};
    lig_status status = asked->limit ? collect_all(call->store, asked, &self) : LIG_OK;
    if (status == LIG_OK) {
        if ((asked->limit == 0 || self.out.count < self.limit) && self.out.until < now)
            self.out.until = now;
        call->version = now > self.out.until ? now : self.out.until;
        ligi_served_events_put(&call->body, &self.out);
    }
    ligi_served_events_fini(&self.out);
    ligi_writer_fini(&self.bytes);
    return status;
}

/* --- waiting --- */

static int is_due(const ligi_served_job *job, uint64_t wait_ns)
{
    if (wait_ns > LIGI_SERVED_WAIT_NS_MAX)
        wait_ns = LIGI_SERVED_WAIT_NS_MAX;
    return (uint64_t)(ligi_now_ns() - job->received_ns) >= wait_ns;
}

/* 1: the watching thread has the job. */
static int park(ligi_served_call *call)
{
    ligi_served_watches *watches = &call->server->watches;
    pthread_mutex_lock(&watches->lock);
    int parked = !watches->closed;
    if (parked) {
        call->later = 1;
        call->job->next = watches->parked;
        watches->parked = call->job;
        pthread_cond_signal(&watches->changed);
    }
    pthread_mutex_unlock(&watches->lock);
    return parked;
}

lig_status ligi_served_watch_run(ligi_served_call *call)
{
    ligi_served_watch asked;
    uint64_t now;
    LIG_TRY(ligi_served_watch_get(call->job->body, call->job->head.body_bytes, &asked));
    if (call->store->by_footers)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s cannot be watched: it has no catalog, and packs contain no events",
                        call->store->uri);
    LIG_TRY(ligi_catalog_view_version(call->store, &now));
    int waits = now <= asked.since && !is_due(call->job, asked.wait_ns) &&
                !atomic_load(&call->job->cancelled);
    if (waits && asked.limit) /* an invalid `since` is reported at once */
        LIG_TRY(answer(call, &asked, now));
    call->body.bytes = 0;
    if (waits && park(call))
        return LIG_OK;
    return answer(call, &asked, now);
}

static void put_back(ligi_served_watches *watches, ligi_served_job *job)
{
    pthread_mutex_lock(&watches->lock);
    job->next = watches->parked;
    watches->parked = job;
    pthread_mutex_unlock(&watches->lock);
}

/* A worker processes those that may have an answer again. */
static void wake(lig_server *server, ligi_served_job *all, uint64_t version, int closed)
{
    for (ligi_served_job *job = all, *next; job; job = next) {
        ligi_served_watch asked = {0};
        next = job->next;
        (void)ligi_served_watch_get(job->body, job->head.body_bytes, &asked);
        if (closed || version > asked.since || is_due(job, asked.wait_ns) ||
            atomic_load(&job->cancelled) || atomic_load(&job->session->ended))
            ligi_served_queue_put(&server->queue, job);
        else
            put_back(&server->watches, job);
    }
}

/* Waits for the first to be put aside; NULL at the end. */
static ligi_served_job *take_parked(ligi_served_watches *watches, int *closed)
{
    pthread_mutex_lock(&watches->lock);
    while (watches->parked == NULL && !watches->closed)
        pthread_cond_wait(&watches->changed, &watches->lock);
    ligi_served_job *all = watches->parked;
    watches->parked = NULL;
    *closed = watches->closed;
    pthread_mutex_unlock(&watches->lock);
    return all;
}

static int has_parked(ligi_served_watches *watches)
{
    pthread_mutex_lock(&watches->lock);
    int some = watches->parked != NULL;
    pthread_mutex_unlock(&watches->lock);
    return some;
}

static lig_status run(void *context, lig_ticket *ticket)
{
    lig_server *server = context;
    const ligi_volume *volume = server->store->volume;
    uint64_t version = 0;
    (void)ticket;
    for (int closed = 0; !closed;) {
        ligi_served_job *all = take_parked(&server->watches, &closed);
        if (!closed) /* an unreadable catalog is reported to the waiting clients */
            (void)ligi_catalog_view_version(server->store, &version);
        wake(server, all, version, closed);
        if (!closed && has_parked(&server->watches))
            (void)volume->ops->catalog_wait(volume->self, version, SLICE_NS);
    }
    return LIG_OK;
}

lig_status ligi_served_watches_start(lig_server *server)
{
    return ligi_ticket_start(run, NULL, server, &server->watches.thread);
}

void ligi_served_watches_stop(lig_server *server)
{
    ligi_served_watches *watches = &server->watches;
    if (watches->thread == NULL)
        return;
    pthread_mutex_lock(&watches->lock);
    watches->closed = 1;
    pthread_cond_broadcast(&watches->changed);
    pthread_mutex_unlock(&watches->lock);
    (void)lig_ticket_wait(watches->thread, LIG_FOREVER);
    lig_ticket_destroy(watches->thread);
    watches->thread = NULL;
}
