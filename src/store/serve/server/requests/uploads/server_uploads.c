#include "store/serve/server/requests/uploads/server_uploads.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/requests/server_changes.h"
#include "store/serve/server/requests/uploads/server_upload_room.h"
#include "store/serve/server/requests/uploads/server_upload_source.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"
#include "store/serve/server/workers/server_queue.h"

#include <errno.h>
#include <stdlib.h>

enum { OPEN_MAX = 64, SESSION_OPEN_MAX = 16 };

/* --- the hooks' side, with the endpoint's lock --- */

static ligi_served_upload *find(ligi_served_session *session, uint64_t id)
{
    ligi_served_upload *upload = session->uploads;
    while (upload && upload->job->head.id != id)
        upload = upload->next;
    return upload;
}

static ligi_served_piece *find_piece(ligi_served_upload *upload, uint64_t tag)
{
    for (size_t i = 0; i < LIGI_SERVED_PIECES; i++)
        if (upload->pieces[i].state == LIGI_PIECE_ASKED && upload->pieces[i].tag == tag)
            return &upload->pieces[i];
    return upload->hashes.state == LIGI_PIECE_ASKED && upload->hashes.tag == tag ? &upload->hashes
                                                                                 : NULL;
}

lig_status ligi_served_upload_land(ligi_served_session *session, uint64_t id, uint64_t tag,
                                   uint64_t payload_bytes, ligi_landing *landing)
{
    ligi_served_uploads *all = &session->server->uploads;
    ligi_served_upload *upload = find(session, id);
    if (upload == NULL)
        return LIG_OK;
    pthread_mutex_lock(&all->lock);
    ligi_served_piece *into = upload->aborted ? NULL : find_piece(upload, tag);
    uint64_t wanted = into ? into->bytes : payload_bytes;
    if (into && wanted == payload_bytes) {
        into->state = LIGI_PIECE_LANDING;
        into->iov = (struct iovec){into->memory, into->bytes};
        landing->iov = &into->iov;
        landing->count = 1;
        landing->token = upload;
        session->landing = upload;
    }
    pthread_mutex_unlock(&all->lock);
    if (wanted != payload_bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: %llu bytes were sent for a save that requested %llu",
                        (unsigned long long)payload_bytes, (unsigned long long)wanted);
    return LIG_OK;
}

static void set_landing(ligi_served_upload *upload, enum ligi_served_piece_state state)
{
    for (size_t i = 0; i < LIGI_SERVED_PIECES; i++)
        if (upload->pieces[i].state == LIGI_PIECE_LANDING)
            upload->pieces[i].state = state;
    if (upload->hashes.state == LIGI_PIECE_LANDING)
        upload->hashes.state = state;
}

void ligi_served_upload_landed(ligi_served_session *session)
{
    ligi_served_uploads *all = &session->server->uploads;
    pthread_mutex_lock(&all->lock);
    set_landing(session->landing, LIGI_PIECE_THERE);
    session->landing = NULL;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static void mark(ligi_served_session *session, uint64_t id, int abort)
{
    ligi_served_uploads *all = &session->server->uploads;
    ligi_served_upload *upload = find(session, id);
    if (upload == NULL)
        return;
    pthread_mutex_lock(&all->lock);
    upload->committed |= !abort;
    upload->aborted |= abort;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

void ligi_served_upload_commit(ligi_served_session *session, uint64_t id)
{
    mark(session, id, 0);
}

void ligi_served_upload_abort(ligi_served_session *session, uint64_t id)
{
    mark(session, id, 1);
}

void ligi_served_uploads_lost(ligi_served_session *session)
{
    ligi_served_uploads *all = &session->server->uploads;
    pthread_mutex_lock(&all->lock);
    for (ligi_served_upload *upload = session->uploads; upload; upload = upload->next) {
        upload->lost = 1;
        set_landing(upload, LIGI_PIECE_ASKED);
    }
    session->landing = NULL;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* --- its life --- */

/* A save in parts has a thread and buffers for as long as the client likes. */
static lig_status begin_open(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (!ligi_served_upload_in_parts(upload))
        return LIG_OK;
    pthread_mutex_lock(&all->lock);
    int full = all->open >= OPEN_MAX || upload->session->open_uploads >= SESSION_OPEN_MAX;
    all->open += !full;
    upload->session->open_uploads += !full;
    pthread_mutex_unlock(&all->lock);
    if (!full)
        return LIG_OK;
    atomic_fetch_add(&upload->server->refused, 1);
    return lig_fail(LIG_E_BUSY,
                    "too many unfinished saves: the server's limit is %d per client and %d in "
                    "total (finish some first)",
                    SESSION_OPEN_MAX, OPEN_MAX);
}

static void end_open(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (!ligi_served_upload_in_parts(upload))
        return;
    pthread_mutex_lock(&all->lock);
    all->open--;
    upload->session->open_uploads--;
    pthread_mutex_unlock(&all->lock);
}

static lig_status run_plan(ligi_served_upload *upload, ligi_served_call *call)
{
    const ligi_source source = ligi_served_upload_source(upload);
    ligi_served_upload_tell_done(upload, 0);
    LIG_TRY(ligi_served_upload_enter(upload));
    return ligi_save_run(call->store, &upload->saving.plan, &source);
}

static lig_status save(ligi_served_upload *upload, ligi_served_call *call)
{
    ligi_served_saving *saving = &upload->saving;
    LIG_TRY(ligi_served_saving_prepare(saving, call, NULL));
    for (size_t i = 0; i < saving->plan.count; i++)
        saving->plan.tensors[i].data = NULL; /* it told the ties */
    saving->plan.once = &saving->once;
    LIG_TRY(begin_open(upload));
    lig_status status = run_plan(upload, call);
    end_open(upload);
    return status;
}

static lig_status save_once(ligi_served_upload *upload, ligi_served_call *call)
{
    ligi_served_saving *saving = &upload->saving;
    saving->once = ligi_served_once_of(upload->job);
    LIG_TRY(ligi_store_writable(call->store));
    LIG_TRY(ligi_served_save_get(upload->job->body, upload->job->head.body_bytes, &saving->what));
    LIG_TRY(ligi_once_find(call->store, &saving->once));
    if (!saving->once.repeated)
        LIG_TRY(ligi_served_once_end(call->store, &saving->once, save(upload, call)));
    return saving->once.repeated ? ligi_served_saving_repeat(saving, call)
                                 : ligi_served_saving_reply(saving, call);
}

/* A limited role needs a handle that sees its models only. Refs may keep it. */
static lig_status take_handle(ligi_served_call *call)
{
    const char *scope = ligi_served_scope(call->session);
    if (scope == NULL)
        return LIG_OK;
    LIG_TRY(ligi_store_clone(call->server->store, &call->store));
    call->store->scope = scope;
    return LIG_OK;
}

static void leave_handle(ligi_served_call *call)
{
    if (call->store == call->server->store)
        return;
    call->store->scope = NULL;
    ligi_store_drop(call->store);
    call->store = call->server->store;
}

/* The endpoint's lock is held, and released meanwhile. Returns whether the data arrive too slowly:
 * others wait for their buffers. */
static int wait_landed(ligi_served_upload *upload, struct timespec *end)
{
    ligi_served_uploads *all = &upload->server->uploads;
    ligi_net *net = upload->server->net;
    int late = 0;
    pthread_mutex_lock(&all->lock);
    ligi_net_unlock(net);
    if (pthread_cond_timedwait(&all->changed, &all->lock, end) == ETIMEDOUT) {
        late = ligi_served_upload_is_awaited(upload);
        *end = ligi_deadline(upload->server->options.lease_ns);
    }
    pthread_mutex_unlock(&all->lock);
    ligi_net_lock(net);
    return late;
}

/* From here on no hook finds it. Data that are arriving are waited for: until they have, or the
 * session ends. */
static void unlist(ligi_served_upload *upload)
{
    ligi_served_session *session = upload->session;
    ligi_net *net = upload->server->net;
    struct timespec end = ligi_deadline(upload->server->options.lease_ns);
    ligi_net_lock(net);
    while (session->landing == upload)
        if (wait_landed(upload, &end) && session->landing == upload)
            ligi_served_session_end(session, "the data of a save arrived too slowly");
    ligi_served_upload **at = &session->uploads;
    while (*at != upload)
        at = &(*at)->next;
    *at = upload->next;
    ligi_net_unlock(net);
}

static void reap(ligi_served_job *job)
{
    ligi_served_upload *upload = job->context;
    (void)lig_ticket_wait(upload->thread, LIG_FOREVER);
    lig_ticket_destroy(upload->thread);
    free(upload);
    ligi_served_job_free(job);
}

static lig_status run(void *context, lig_ticket *ticket)
{
    ligi_served_upload *upload = context;
    lig_server *server = upload->server;
    ligi_served_uploads *all = &server->uploads;
    ligi_served_call call = {
        .server = server, .store = server->store, .session = upload->session, .job = upload->job};
    ligi_failure failure;
    (void)ticket;
    lig_status status = take_handle(&call);
    ligi_failure_take(&failure, status == LIG_OK ? save_once(upload, &call) : status);
    unlist(upload);
    ligi_served_saving_fini(&upload->saving, server->store);
    leave_handle(&call);
    ligi_served_upload_free_pieces(upload);
    ligi_served_upload_leave(upload);
    ligi_served_job *reaping = upload->reaping;
    ligi_served_session *session = upload->session;
    ligi_served_request_end(&call, ligi_failure_publish(&failure));
    ligi_served_session_drop(session);
    ligi_served_queue_put(&server->queue, reaping);
    pthread_mutex_lock(&all->lock);
    all->count--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return LIG_OK;
}

/* The endpoint's lock is held. */
static lig_status list(ligi_served_upload *upload)
{
    ligi_served_session *session = upload->session;
    ligi_served_uploads *all = &upload->server->uploads;
    if (session->link == NULL)
        return lig_fail(LIG_E_CLOSED, "the session has ended");
    upload->next = session->uploads;
    session->uploads = upload;
    pthread_mutex_lock(&all->lock);
    all->count++;
    pthread_mutex_unlock(&all->lock);
    return LIG_OK;
}

static lig_status launch(ligi_served_upload *upload)
{
    ligi_net *net = upload->server->net;
    upload->reaping = ligi_served_job_make(NULL, reap, upload);
    if (upload->reaping == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a save");
    ligi_net_lock(net);
    lig_status status = list(upload);
    ligi_net_unlock(net);
    LIG_TRY(status);
    status = ligi_ticket_start(run, NULL, upload, &upload->thread);
    if (status == LIG_OK)
        return LIG_OK;
    unlist(upload);
    pthread_mutex_lock(&upload->server->uploads.lock);
    upload->server->uploads.count--;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    return status;
}

lig_status ligi_served_upload_start(ligi_served_call *call)
{
    ligi_served_upload *upload;
    LIG_TRY(ligi_calloc(&upload, 1, sizeof *upload, "a save"));
    upload->server = call->server;
    upload->session = call->session;
    upload->job = call->job;
    ligi_served_session_hold(upload->session);
    call->later = 1; /* the thread may have freed the job before this returns */
    lig_status status = launch(upload);
    if (status != LIG_OK) {
        call->later = 0;
        ligi_served_session_drop(upload->session);
        if (upload->reaping)
            ligi_served_job_free(upload->reaping);
        free(upload);
    }
    return status;
}

lig_status ligi_served_uploads_drain(lig_server *server, int64_t timeout_ns)
{
    ligi_served_uploads *all = &server->uploads;
    struct timespec end = ligi_deadline(timeout_ns);
    int late = 0;
    pthread_mutex_lock(&all->lock);
    while (all->count && !late)
        late = pthread_cond_timedwait(&all->changed, &all->lock, &end) == ETIMEDOUT;
    size_t left = all->count;
    pthread_mutex_unlock(&all->lock);
    return left ? lig_fail(LIG_E_TIMEOUT, "timeout: %zu saves are still running", left) : LIG_OK;
}
