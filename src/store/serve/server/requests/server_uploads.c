#include "store/serve/server/requests/server_uploads.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/requests/server_changes.h"
#include "store/serve/server/requests/server_saves.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/server_queue.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (UINT64_C(4) << 20) /* as a save asks its source for them */
enum { PIECES = 3, STRETCHES = 1024 };  /* asked for ahead; in one NEED */
enum { ACTIVE_MAX = 64, SESSION_ACTIVE_MAX = 4, DONE_EVERY = 16 };

enum piece_state { FREE, ASKED, LANDING, THERE };

/* What one NEED asks for. */
typedef struct piece {
    uint64_t tag;
    enum piece_state state; /* guarded by the uploads' lock */
    uint8_t *memory;
    struct iovec iov;
    ligi_served_stretch *stretches;
    size_t count;
    uint64_t bytes;
} piece;

struct ligi_served_upload {
    ligi_served_upload *next; /* in its session, under the endpoint's lock */
    lig_server *server;
    ligi_served_session *session; /* held */
    ligi_served_job *job, *reaping;
    lig_ticket *thread;
    ligi_served_saving saving;

    int committed, aborted, lost; /* guarded by the uploads' lock */

    /* the thread's own; the states of pieces are not */
    uint64_t next_tag;
    piece pieces[PIECES], hashes;
    size_t first, asked;    /* in `pieces`, a ring */
    size_t at;              /* stretch of the first that comes next */
    uint64_t at_bytes;      /* and where it is */
    size_t tensor, current; /* the next to be asked for; the one that is being written */
    uint64_t offset;        /* in `tensor` */
    uint64_t done_told;
};

/* --- the hooks' side, with the endpoint's lock --- */

static ligi_served_upload *find(ligi_served_session *session, uint64_t id)
{
    ligi_served_upload *upload = session->uploads;
    while (upload && upload->job->head.id != id)
        upload = upload->next;
    return upload;
}

static piece *find_piece(ligi_served_upload *upload, uint64_t tag)
{
    for (size_t i = 0; i < PIECES; i++)
        if (upload->pieces[i].state == ASKED && upload->pieces[i].tag == tag)
            return &upload->pieces[i];
    return upload->hashes.state == ASKED && upload->hashes.tag == tag ? &upload->hashes : NULL;
}

lig_status ligi_served_upload_land(ligi_served_session *session, uint64_t id, uint64_t tag,
                                   uint64_t payload_bytes, ligi_landing *landing)
{
    ligi_served_uploads *all = &session->server->uploads;
    ligi_served_upload *upload = find(session, id);
    if (upload == NULL)
        return LIG_OK;
    pthread_mutex_lock(&all->lock);
    piece *into = upload->aborted ? NULL : find_piece(upload, tag);
    uint64_t wanted = into ? into->bytes : payload_bytes;
    if (into && wanted == payload_bytes) {
        into->state = LANDING;
        into->iov = (struct iovec){into->memory, into->bytes};
        landing->iov = &into->iov;
        landing->count = 1;
        landing->token = upload;
        session->landing = upload;
    }
    pthread_mutex_unlock(&all->lock);
    if (wanted != payload_bytes)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: %llu bytes were sent for a save that asked for %llu",
                        (unsigned long long)payload_bytes, (unsigned long long)wanted);
    return LIG_OK;
}

static void set_landing(ligi_served_upload *upload, enum piece_state state)
{
    for (size_t i = 0; i < PIECES; i++)
        if (upload->pieces[i].state == LANDING)
            upload->pieces[i].state = state;
    if (upload->hashes.state == LANDING)
        upload->hashes.state = state;
}

void ligi_served_upload_landed(ligi_served_session *session)
{
    ligi_served_uploads *all = &session->server->uploads;
    pthread_mutex_lock(&all->lock);
    set_landing(session->landing, THERE);
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
        set_landing(upload, ASKED);
    }
    session->landing = NULL;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* --- the save's side --- */

static int is_over(const ligi_served_upload *upload)
{
    return upload->aborted || upload->lost;
}

static lig_status fail_over(const ligi_served_upload *upload)
{
    if (upload->lost)
        return lig_fail(LIG_E_CLOSED, "the connection to the client that saves '%s' was lost",
                        upload->saving.what.name);
    return lig_fail(LIG_E_CLOSED, "the save of '%s' was cancelled", upload->saving.what.name);
}

static int is_cancelled(void *context)
{
    ligi_served_upload *upload = context;
    pthread_mutex_lock(&upload->server->uploads.lock);
    int over = is_over(upload);
    pthread_mutex_unlock(&upload->server->uploads.lock);
    return over;
}

static int in_parts(const ligi_served_upload *upload)
{
    return (upload->saving.what.wants & LIGI_SERVED_IN_PARTS) != 0;
}

/* Only a client that has not offered its tensors yet may take longer than a lease to answer. The
 * lock is held; 0: it took longer. */
static int wait_change(ligi_served_upload *upload, const struct timespec *end)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (!in_parts(upload))
        return pthread_cond_timedwait(&all->changed, &all->lock, end) != ETIMEDOUT;
    return pthread_cond_wait(&all->changed, &all->lock) == 0;
}

static lig_status wait_there(ligi_served_upload *upload, const piece *what)
{
    ligi_served_uploads *all = &upload->server->uploads;
    int64_t lease_ns = upload->server->options.lease_ns;
    struct timespec end = ligi_deadline(lease_ns);
    int late = 0;
    pthread_mutex_lock(&all->lock);
    while (what->state != THERE && !is_over(upload) && !late) {
        if (wait_change(upload, &end))
            continue;
        late = upload->session->landing == NULL; /* data that arrive slowly are progress */
        end = ligi_deadline(lease_ns);
    }
    int there = what->state == THERE;
    pthread_mutex_unlock(&all->lock);
    if (late && !there)
        return lig_fail(LIG_E_TIMEOUT,
                        "timeout: the client that saves '%s' has sent nothing for %.3g s "
                        "(--lease-timeout)",
                        upload->saving.what.name, (double)lease_ns / 1e9);
    return there ? LIG_OK : fail_over(upload);
}

static lig_status piece_room(piece *what)
{
    if (what->stretches == NULL)
        LIG_TRY(ligi_calloc(&what->stretches, STRETCHES, sizeof *what->stretches, "a save"));
    if (what->memory == NULL)
        LIG_TRY(ligi_alloc(&what->memory, CHUNK_BYTES, "a buffer"));
    what->count = 0;
    what->bytes = 0;
    return LIG_OK;
}

static void tell(ligi_served_upload *upload, ligi_served_op op, ligi_writer *body)
{
    ligi_served_message message = {.head = {.op = (uint16_t)op, .id = upload->job->head.id},
                                   .body = body};
    ligi_served_send(upload->session, &message);
    ligi_writer_fini(body);
}

static lig_status ask(ligi_served_upload *upload, piece *what, uint32_t kind)
{
    ligi_served_need need = {.tag = ++upload->next_tag,
                             .kind = kind,
                             .stretches = what->stretches,
                             .count = what->count};
    ligi_writer body = {0};
    ligi_served_need_put(&body, &need);
    if (body.status != LIG_OK) {
        ligi_writer_fini(&body);
        return body.status;
    }
    pthread_mutex_lock(&upload->server->uploads.lock);
    what->tag = need.tag;
    what->state = ASKED;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    tell(upload, LIGI_SERVED_NEED, &body);
    return LIG_OK;
}

/* The next bytes that will be written; 0 when it cannot be known yet, or there are none. What is
 * stored already is known once all tensors, or those up to the current one, have been looked up. */
static int next_stretch(ligi_served_upload *upload, ligi_served_stretch *next)
{
    const ligi_plan *plan = &upload->saving.plan;
    size_t end = in_parts(upload) ? upload->current + 1 : plan->count;
    for (; upload->tensor < end; upload->tensor++, upload->offset = 0) {
        const ligi_slot *slot = &plan->slots[upload->tensor];
        uint64_t rest = plan->tensors[upload->tensor].bytes - upload->offset;
        if (slot->tied != SIZE_MAX || slot->pack || rest == 0)
            continue;
        *next = (ligi_served_stretch){upload->tensor, upload->offset,
                                      rest < CHUNK_BYTES ? rest : CHUNK_BYTES};
        return 1;
    }
    return 0;
}

static void gather(ligi_served_upload *upload, piece *into)
{
    ligi_served_stretch next;
    while (into->count < STRETCHES && next_stretch(upload, &next) &&
           next.bytes <= CHUNK_BYTES - into->bytes) {
        into->stretches[into->count++] = next;
        into->bytes += next.bytes;
        upload->offset += next.bytes;
    }
}

static lig_status ask_ahead(ligi_served_upload *upload)
{
    while (upload->asked < PIECES) {
        piece *next = &upload->pieces[(upload->first + upload->asked) % PIECES];
        LIG_TRY(piece_room(next));
        gather(upload, next);
        if (next->count == 0)
            break;
        LIG_TRY(ask(upload, next, LIGI_SERVED_NEED_BYTES));
        upload->asked++;
    }
    return LIG_OK;
}

static void leave_piece(ligi_served_upload *upload)
{
    piece *first = &upload->pieces[upload->first];
    if (upload->at < first->count)
        return;
    pthread_mutex_lock(&upload->server->uploads.lock);
    first->state = FREE;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    upload->first = (upload->first + 1) % PIECES;
    upload->asked--;
    upload->at = 0;
    upload->at_bytes = 0;
}

static lig_status fill(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out)
{
    ligi_served_upload *upload = context;
    const piece *first = &upload->pieces[upload->first];
    upload->current = index;
    LIG_TRY(ask_ahead(upload));
    const ligi_served_stretch *next = upload->asked ? &first->stretches[upload->at] : NULL;
    if (next == NULL || next->tensor != index || next->offset != offset || next->bytes != bytes)
        return lig_fail(LIG_E_INTERNAL, "bytes of tensor %zu of '%s' were not asked for", index,
                        upload->saving.what.name);
    LIG_TRY(wait_there(upload, first));
    memcpy(out, first->memory + upload->at_bytes, bytes);
    upload->at++;
    upload->at_bytes += bytes;
    leave_piece(upload);
    return LIG_OK;
}

/* One NEED for as many as fit. */
static lig_status hash_some(ligi_served_upload *upload, const ligi_hash_ask *asks, size_t count,
                            size_t *taken)
{
    const ligi_plan *plan = &upload->saving.plan;
    piece *what = &upload->hashes;
    size_t i = 0;
    LIG_TRY(piece_room(what));
    for (; i < count && i < STRETCHES; i++) {
        uint64_t offset = asks[i].first * LIG_BLOCK_BYTES, bytes = asks[i].count * LIG_BLOCK_BYTES;
        uint64_t rest = plan->tensors[asks[i].index].bytes - offset;
        uint64_t room = CHUNK_BYTES - what->bytes;
        if (asks[i].count > room / sizeof(uint64_t))
            break;
        what->stretches[what->count++] =
            (ligi_served_stretch){asks[i].index, offset, bytes < rest ? bytes : rest};
        what->bytes += asks[i].count * sizeof(uint64_t);
    }
    if (i == 0)
        return lig_fail(LIG_E_LIMIT, "tensor '%s' is too large for a served store",
                        plan->tensors[asks[0].index].name);
    *taken = i;
    LIG_TRY(ask(upload, what, LIGI_SERVED_NEED_HASHES));
    LIG_TRY(wait_there(upload, what));
    const uint8_t *at = what->memory;
    for (size_t k = 0; k < i; at += asks[k++].count * sizeof(uint64_t))
        memcpy(asks[k].hashes, at, asks[k].count * sizeof(uint64_t));
    return LIG_OK;
}

static lig_status hash(void *context, const ligi_hash_ask *asks, size_t count)
{
    ligi_served_upload *upload = context;
    for (size_t at = 0, taken = 0; at < count; at += taken)
        LIG_TRY(hash_some(upload, asks + at, count - at, &taken));
    pthread_mutex_lock(&upload->server->uploads.lock);
    upload->hashes.state = FREE;
    pthread_mutex_unlock(&upload->server->uploads.lock);
    return LIG_OK;
}

static lig_status wait_turn(void *context, size_t index)
{
    ligi_served_upload *upload = context;
    ligi_served_uploads *all = &upload->server->uploads;
    int last = index == upload->saving.plan.count && in_parts(upload);
    pthread_mutex_lock(&all->lock);
    while (last && !upload->committed && !is_over(upload))
        pthread_cond_wait(&all->changed, &all->lock);
    int over = is_over(upload);
    pthread_mutex_unlock(&all->lock);
    return over ? fail_over(upload) : LIG_OK;
}

static void tell_done(ligi_served_upload *upload, uint64_t count)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, count);
    upload->done_told = count;
    tell(upload, LIGI_SERVED_DONE, &body);
}

/* In parts a client may wait for each one before it offers the next. */
static void done(void *context, size_t index)
{
    ligi_served_upload *upload = context;
    if (in_parts(upload) || index + 1 - upload->done_told >= DONE_EVERY)
        tell_done(upload, index + 1);
}

/* --- its life --- */

/* Buffers have a limit: the others wait. A save in parts may last as long as its training, and is
 * not counted: a client may have many, and nobody waits for it. */
static lig_status begin_active(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (in_parts(upload))
        return LIG_OK;
    pthread_mutex_lock(&all->lock);
    while (!is_over(upload) &&
           (all->active >= ACTIVE_MAX || upload->session->active_uploads >= SESSION_ACTIVE_MAX))
        pthread_cond_wait(&all->changed, &all->lock);
    int over = is_over(upload);
    all->active += !over;
    upload->session->active_uploads += !over;
    pthread_mutex_unlock(&all->lock);
    return over ? fail_over(upload) : LIG_OK;
}

static void end_active(ligi_served_upload *upload)
{
    ligi_served_uploads *all = &upload->server->uploads;
    if (in_parts(upload))
        return;
    pthread_mutex_lock(&all->lock);
    all->active--;
    upload->session->active_uploads--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static lig_status save(ligi_served_upload *upload, ligi_served_call *call)
{
    ligi_served_saving *saving = &upload->saving;
    const ligi_source source = {.wait = wait_turn,
                                .fill = fill,
                                .hash = hash,
                                .done = done,
                                .cancelled = is_cancelled,
                                .context = upload,
                                .in_parts = in_parts(upload)};
    LIG_TRY(ligi_served_saving_prepare(saving, call, NULL));
    for (size_t i = 0; i < saving->plan.count; i++)
        saving->plan.tensors[i].data = NULL; /* it told the ties */
    saving->plan.once = &saving->once;
    tell_done(upload, 0);
    LIG_TRY(begin_active(upload));
    lig_status status = ligi_save_run(call->store, &saving->plan, &source);
    end_active(upload);
    return status;
}

static lig_status save_once(ligi_served_upload *upload, ligi_served_call *call)
{
    ligi_served_saving *saving = &upload->saving;
    saving->once = ligi_served_once_of(upload->job);
    LIG_TRY(ligi_store_writable(call->store));
    LIG_TRY(ligi_served_save_get(upload->job->body, upload->job->head.body_bytes, &saving->what));
    LIG_TRY(ligi_once_find(call->store, &saving->once));
    lig_status status = saving->once.repeated ? LIG_OK : save(upload, call);
    if (status != LIG_OK) {
        ligi_failure failure;
        ligi_failure_take(&failure, status);
        if (!saving->once.repeated)
            (void)ligi_once_find(call->store, &saving->once);
        if (!saving->once.repeated)
            return ligi_failure_publish(&failure);
    }
    return saving->once.repeated ? ligi_served_saving_repeat(saving, call)
                                 : ligi_served_saving_reply(saving, call);
}

/* From here on no hook finds it. Data that are arriving are waited for: until they have, or the
 * session ends. */
static void unlist(ligi_served_upload *upload)
{
    ligi_served_session *session = upload->session;
    ligi_served_uploads *all = &upload->server->uploads;
    ligi_net *net = upload->server->net;
    ligi_net_lock(net);
    while (session->landing == upload) {
        pthread_mutex_lock(&all->lock);
        ligi_net_unlock(net);
        pthread_cond_wait(&all->changed, &all->lock);
        pthread_mutex_unlock(&all->lock);
        ligi_net_lock(net);
    }
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

static void upload_free_pieces(ligi_served_upload *upload)
{
    for (size_t i = 0; i < PIECES; i++) {
        free(upload->pieces[i].memory);
        free(upload->pieces[i].stretches);
    }
    free(upload->hashes.memory);
    free(upload->hashes.stretches);
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
    ligi_failure_take(&failure, save_once(upload, &call));
    unlist(upload);
    ligi_served_saving_fini(&upload->saving, server->store);
    upload_free_pieces(upload);
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
    call->later = 1; /* the thread may be done with the job before this returns */
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
