#include "store/serve/client/client_watch.h"

#include "base/error.h"
#include "net/progress.h"
#include "store/serve/client/client_request.h"
#include "store/serve/message/served_state.h"

#include <stdlib.h>

#define PARKED_NS UINT64_C(30000000000)
/* Events of one request. */
enum { EVENTS = 1024 };

static lig_status ask_watch(ligi_client *client, const ligi_served_watch *watch,
                            ligi_client_call *call, ligi_served_events *events)
{
    call->op = LIGI_SERVED_WATCH;
    call->interrupt = client->interrupt;
    ligi_served_watch_put(&call->body, watch);
    LIG_TRY(ligi_client_ask(client, call));
    return ligi_served_events_get(call->reply, call->reply_bytes, events);
}

lig_status ligi_client_version_begin(void *self, void **snapshot, uint64_t *version)
{
    ligi_client_call call = {0};
    ligi_served_events events = {0};
    lig_status status = ask_watch(self, &(ligi_served_watch){0}, &call, &events);
    *snapshot = NULL;
    *version = call.version;
    ligi_served_events_fini(&events);
    ligi_client_call_fini(&call);
    return status;
}

void ligi_client_version_end(void *snapshot)
{
    (void)snapshot;
}

/* Advances *since; *more: the visit has not ended. */
static lig_status visit_some(ligi_client *client, uint64_t *since, lig_catalog_visit visit,
                             void *context, int *more)
{
    ligi_client_call call = {0};
    ligi_served_events events = {0};
    lig_status status =
        ask_watch(client, &(ligi_served_watch){.since = *since, .limit = EVENTS}, &call, &events);
    *more = status == LIG_OK && events.count > 0 && events.until > *since;
    for (size_t i = 0; i < events.count && *more; i++) {
        const ligi_served_event *one = &events.events[i];
        *more = visit(context, one->version, one->date_ns, one->data, one->bytes) == 0;
    }
    *since = events.until;
    ligi_served_events_fini(&events);
    ligi_client_call_fini(&call);
    return status;
}

lig_status ligi_client_events(void *self, uint64_t since, lig_catalog_visit visit, void *context)
{
    int more = 1;
    while (more)
        LIG_TRY(visit_some(self, &since, visit, context, &more));
    return LIG_OK;
}

/* --- waiting --- */

/* Callers wait in slices of a tenth of a second. One request that waits at the server serves all of
 * them, so that a watch costs nothing while nothing happens. */
static lig_status park(ligi_client *client, uint64_t since)
{
    ligi_client_call *call;
    LIG_TRY(ligi_calloc(&call, 1, sizeof *call, "a watch"));
    call->op = LIGI_SERVED_WATCH;
    ligi_served_watch_put(&call->body, &(ligi_served_watch){.since = since, .wait_ns = PARKED_NS});
    lig_status status = ligi_client_start(client, call);
    ligi_net_lock(client->net);
    client->parking = 0;
    client->parked = status == LIG_OK ? call : NULL;
    ligi_net_unlock(client->net);
    if (status != LIG_OK) {
        ligi_client_call_fini(call);
        free(call);
    }
    return status;
}

typedef struct version_wait {
    const ligi_client *client;
    uint64_t since;
} version_wait;

static int has_changed(void *context)
{
    const version_wait *self = context;
    const ligi_client *client = self->client;
    return client->version > self->since || client->state != LIGI_CLIENT_UP ||
           (client->parked && client->parked->done);
}

/* The reply may be a failure: the caller's next request fails with it too. */
static void unpark(ligi_client *client, ligi_client_call *call)
{
    (void)ligi_client_finish(client, call);
    ligi_client_call_fini(call);
    free(call);
}

lig_status ligi_client_wait(void *self, uint64_t since, int64_t timeout_ns)
{
    ligi_client *client = self;
    version_wait waiting = {client, since};
    ligi_net_lock(client->net);
    int mine = client->parked == NULL && !client->parking && !has_changed(&waiting);
    client->parking |= mine;
    ligi_net_unlock(client->net);
    if (mine)
        LIG_TRY(park(client, since));
    lig_status status = ligi_net_wait(client->net, has_changed, &waiting, timeout_ns);
    ligi_net_lock(client->net);
    ligi_client_call *over = client->parked && client->parked->done ? client->parked : NULL;
    if (over)
        client->parked = NULL;
    ligi_net_unlock(client->net);
    if (over)
        unpark(client, over);
    return status;
}
