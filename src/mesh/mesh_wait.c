/* Waiting for a worker's requests, and their traces afterwards. */
#include "mesh/mesh_worker.h"

#include "mesh/device/exchange.h"
#include "mesh/device/graph_slots.h"
#include "mesh/mesh.h"

#include "base/clock.h"
#include "net/progress.h"

#include <string.h>

typedef struct await {
    lig_mesh *mesh;
    const ligi_request *request; /* a slot: it stays, but may be reused for another request */
    uint64_t serial;
} await;

/* Called in every round of polling, so it must not search. */
static int has_ended(void *context)
{
    const await *what = context;
    ligi_mesh_device_help(what->mesh);
    return what->request->state == LIGI_REQUEST_ENDED || what->request->serial != what->serial ||
           what->mesh->session.closed || what->mesh->session.broken;
}

static lig_status late(lig_mesh *mesh, const ligi_request *request)
{
    uint32_t s = 0;
    while (s + 1 < mesh->server_count && !request->shares[s].open)
        s++;
    return lig_fail(LIG_E_TIMEOUT, "timeout: server %u has not answered request %llu", s,
                    (unsigned long long)request->handler);
}

static void record(lig_mesh *mesh, const ligi_request *request)
{
    for (uint32_t s = 0; mesh->recorder.fd >= 0 && s < mesh->server_count; s++) {
        const ligi_share *share = &request->shares[s];
        ligi_trace_record entry = {.kind = LIG_MESH_WORKER,
                                   .peer = s,
                                   .serial = request->serial,
                                   .push_bytes = request->push_bytes,
                                   .pull_bytes = share->bytes,
                                   .offset_ns = ligi_clock_offset_get(&mesh->parties[s].offset)};
        memcpy(entry.stamps, share->stamps, sizeof entry.stamps);
        entry.stamps[0] = request->stamps[0];
        entry.stamps[1] = request->stamps[1];
        entry.stamps[7] = request->stamps[7];
        ligi_clock_offset_apply(&mesh->parties[s].offset, entry.stamps);
        ligi_trace_recorder_add(&mesh->recorder, &entry);
    }
}

/* The first waiter finalises the stamps. */
static void tell(lig_mesh *mesh, ligi_request *request)
{
    if (request->waited)
        return;
    const ligi_share *share = &request->shares[request->last];
    request->waited = 1;
    mesh->outbox.unwaited--;
    request->stamps[7] = ligi_mesh_stamp(mesh);
    if (request->status != LIG_OK)
        return;
    memcpy(&request->stamps[2], &share->stamps[2], 5 * sizeof request->stamps[0]);
    record(mesh, request);
    ligi_clock_offset_apply(&mesh->parties[request->last].offset, request->stamps);
}

static lig_status outcome(lig_mesh *mesh, ligi_request *request)
{
    if (request->state != LIGI_REQUEST_ENDED)
        return late(mesh, request);
    tell(mesh, request);
    ligi_mesh_ring(mesh);
    if (request->status == LIG_OK)
        return LIG_OK;
    return lig_fail(request->status, "%s", request->sentence ? request->sentence : "it failed");
}

/* Others may have had the lock: everything is checked again. */
static lig_status await_end(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns,
                            ligi_request **request)
{
    await what = {mesh, *request, (*request)->serial};
    lig_status waited = ligi_net_await(mesh->session.net, has_ended, &what, timeout_ns);
    if (waited != LIG_OK && waited != LIG_E_TIMEOUT)
        return waited;
    LIG_TRY(ligi_session_usable(&mesh->session));
    if ((*request)->serial == what.serial)
        return LIG_OK;
    return ligi_worker_requests_find(&mesh->outbox, handler, request);
}

static int is_filled(void *context)
{
    const await *what = context;
    ligi_mesh_device_help(what->mesh);
    return what->request->exchange == NULL || what->request->serial != what->serial;
}

/* Copies what servers have answered into tensors of device memory, and waits for it, or for the
 * stream that does. */
static lig_status fill(lig_mesh *mesh, ligi_request *request, int64_t deadline)
{
    await what = {mesh, request, request->serial};
    if (request->state != LIGI_REQUEST_ENDED || request->exchange == NULL)
        return LIG_OK;
    LIG_TRY(ligi_exchange_fill(request->exchange, (ligi_on_stream){0}));
    lig_status waited =
        ligi_net_await(mesh->session.net, is_filled, &what, ligi_time_left(deadline));
    if (waited == LIG_E_TIMEOUT)
        return lig_fail(waited,
                        "timeout: request %llu was answered, but the stream that fills its tensors "
                        "has not reached that point",
                        (unsigned long long)request->handler);
    LIG_TRY(waited);
    return ligi_session_usable(&mesh->session);
}

lig_status lig_mesh_wait(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns)
{
    ligi_request *request;
    LIG_TRY(ligi_mesh_enter(mesh));
    int64_t deadline = mesh->device ? ligi_time_until(timeout_ns) : 0;
    lig_status status = ligi_mesh_device_check(mesh);
    if (status == LIG_OK)
        status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK && request->state != LIGI_REQUEST_ENDED)
        status = await_end(mesh, handler, timeout_ns, &request);
    if (status == LIG_OK)
        status = fill(mesh, request, deadline);
    if (status == LIG_OK)
        status = outcome(mesh, request);
    ligi_mesh_leave(mesh);
    return status;
}

/* Requests without tensors in device memory have nothing that a stream could wait for. */
lig_status lig_mesh_wait_on(lig_mesh *mesh, uint64_t handler, void *stream, int64_t timeout_ns)
{
    ligi_request *request = NULL;
    LIG_TRY(ligi_mesh_enter(mesh));
    lig_status status = ligi_mesh_device_check(mesh);
    if (status == LIG_OK && ligi_captured_is_handler(handler)) {
        status = ligi_captured_wait(mesh->device, handler, stream);
        ligi_mesh_leave(mesh);
        return status;
    }
    if (status == LIG_OK)
        status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    int waits = status == LIG_OK && request->exchange != NULL;
    if (waits)
        status =
            ligi_exchange_fill(request->exchange, (ligi_on_stream){.given = 1, .stream = stream});
    if (waits && status == LIG_OK && request->state == LIGI_REQUEST_ENDED)
        status = outcome(mesh, request);
    ligi_mesh_leave(mesh);
    return waits || status != LIG_OK ? status : lig_mesh_wait(mesh, handler, timeout_ns);
}

int lig_mesh_done(lig_mesh *mesh, uint64_t handler)
{
    ligi_request *request;
    if (ligi_session_check(&mesh->session) != LIG_OK)
        return 1;
    (void)ligi_net_poll(mesh->session.net);
    if (ligi_mesh_enter(mesh) != LIG_OK)
        return 1;
    ligi_mesh_device_help(mesh);
    int done = ligi_worker_requests_find(&mesh->outbox, handler, &request) != LIG_OK ||
               request->state == LIGI_REQUEST_ENDED;
    ligi_mesh_leave(mesh);
    return done;
}

lig_status lig_mesh_cancel(lig_mesh *mesh, uint64_t handler)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK && request->state == LIGI_REQUEST_OPEN)
        ligi_worker_give_up(mesh, request, LIG_E_CLOSED, "the request was cancelled");
    ligi_mesh_leave(mesh);
    ligi_net_wake(mesh->session.net);
    return status;
}

lig_status lig_mesh_get_all_handlers(lig_mesh *mesh, uint64_t handler, uint64_t *handlers,
                                     size_t room, size_t *count)
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_find(&mesh->outbox, handler, &request);
    if (status == LIG_OK) {
        *count = request->waited ? 1 : request->handler_count;
        for (size_t i = 0; i < *count && i < room; i++)
            handlers[i] = handler + i;
    }
    ligi_mesh_leave(mesh);
    return status;
}

lig_status lig_mesh_fetch_trace(lig_mesh *mesh, uint64_t handler, uint64_t stamps[LIG_MESH_STAMPS])
{
    LIG_TRY(ligi_mesh_enter(mesh));
    ligi_request *request;
    lig_status status = ligi_worker_requests_with(&mesh->outbox, handler, &request);
    if (status == LIG_OK && !request->waited)
        status =
            lig_fail(LIG_E_BUSY, "wait for request %llu first: its trace is available afterwards",
                     (unsigned long long)handler);
    if (status == LIG_OK)
        memcpy(stamps, request->stamps, sizeof request->stamps);
    ligi_mesh_leave(mesh);
    return status;
}
