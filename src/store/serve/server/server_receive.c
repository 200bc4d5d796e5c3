#include "store/serve/server/server_receive.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/serve/server/requests/server_descriptors.h"
#include "store/serve/server/requests/server_retention.h"
#include "store/serve/server/requests/uploads/server_uploads.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"
#include "store/serve/server/workers/server_driver.h"
#include "store/serve/server/workers/server_queue.h"

#include <stdlib.h>
#include <string.h>

#define TICK_NS INT64_C(1000000000)
enum { SEQUELS_MAX = 65536 }; /* messages without a reply that may wait for a worker */

/* --- a client connects --- */

static lig_status welcome(const ligi_served_session *session, ligi_reply *reply)
{
    const lig_server *server = session->server;
    const lig_store *store = server->store;
    ligi_served_welcome said = {
        .flags = store->mode == 'r' ? LIGI_SERVED_READ_ONLY : 0,
        .volume_flags = store->volume->ops->flags(store->volume->self),
        .session = session->number,
        .lease_ns = (uint64_t)server->options.lease_ns,
        .flight_bytes_max = server->client_bytes_max,
        .read_bytes_max = LIGI_SERVED_READ_BYTES_MAX,
        .request_max = LIGI_SERVED_REQUESTS_MAX,
        .card = server->card,
        .card_bytes = server->card_bytes <= LIGI_SERVED_CARD_BYTES_MAX ? server->card_bytes : 0};
    if (ligi_served_descriptors_work(session))
        said.flags |= LIGI_SERVED_DESCRIPTORS;
    memcpy(said.uuid, store->uuid, sizeof said.uuid);
    memcpy(said.pass, session->pass, sizeof said.pass);
    if (ligi_served_scope(session))
        said.flags |= LIGI_SERVED_LIMITED;
    else
        memcpy(said.secret, store->secret, sizeof said.secret);
    ligi_writer writer = {0};
    ligi_served_welcome_put(&writer, &said);
    lig_status status = writer.status;
    if (status == LIG_OK && writer.bytes > sizeof reply->data)
        status = lig_fail(LIG_E_INTERNAL, "the welcome has %zu bytes", writer.bytes);
    if (status == LIG_OK) {
        memcpy(reply->data, writer.data, writer.bytes);
        reply->bytes = writer.bytes;
    }
    ligi_writer_fini(&writer);
    return status;
}

/* A client that moves from TCP to shared memory has two sessions for a moment. */
static int is_moving(const ligi_served_session *session)
{
    size_t others = 0;
    for (const ligi_served_session *one = session->after; one; one = one->after)
        others += memcmp(one->client, session->client, sizeof one->client) == 0;
    return others == 1;
}

/* The session has been listed already. */
static lig_status check_place(const ligi_served_session *session)
{
    lig_server *server = session->server;
    if (server->session_count <= server->options.max_clients || is_moving(session))
        return LIG_OK;
    atomic_fetch_add(&server->refused, 1);
    return lig_fail(LIG_E_BUSY, "the server has %u clients, its limit (--max-clients)",
                    server->session_count - 1);
}

static lig_status on_met(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply)
{
    lig_server *server = context;
    ligi_served_session *session;
    if (atomic_load(&server->stopping))
        return lig_fail(LIG_E_CLOSED, "the server is shutting down");
    LIG_TRY(ligi_served_session_open(server, link, hello, &session));
    lig_status status = check_place(session);
    if (status == LIG_OK)
        status = ligi_served_pass_make(session);
    if (status == LIG_OK)
        status = welcome(session, reply);
    if (status != LIG_OK) { /* net closes the link itself */
        session->link = NULL;
        server->sessions = session->after;
        if (session->after)
            session->after->before = NULL;
        server->session_count--;
        ligi_served_session_drop(session);
        return status;
    }
    ligi_link_set_owner(link, session);
    return LIG_OK;
}

/* --- a message begins --- */

/* DATA that no request waits for is discarded. */
static lig_status take_data(ligi_served_session *session, const ligi_served_head *head,
                            const ligi_arrival *arrival, ligi_landing *landing)
{
    uint64_t tag;
    if (head->body == NULL)
        return lig_fail(LIG_E_CORRUPT, "malformed message of a served store: tag of data");
    LIG_TRY(ligi_served_number_get(head->body, head->body_bytes, &tag));
    return ligi_served_upload_land(session, head->id, tag, arrival->payload_bytes, landing);
}

/* Belongs to a request that runs, or ends something: it is admitted even if no new requests are. */
static int is_sequel(uint32_t op)
{
    return ligi_served_op_silent(op) || op == LIGI_SERVED_PING;
}

static lig_status admit(ligi_served_session *session, uint32_t op, uint64_t payload_bytes)
{
    lig_server *server = session->server;
    unsigned waiting = atomic_load(&session->requests);
    LIG_TRY(ligi_served_may(session, op));
    if (is_sequel(op) && waiting < SEQUELS_MAX)
        return ligi_served_charge(session, payload_bytes);
    if (atomic_load(&server->stopping))
        return lig_fail(LIG_E_CLOSED, "the server is shutting down");
    if (waiting >= LIGI_SERVED_REQUESTS_MAX) {
        atomic_fetch_add(&server->refused, 1);
        return lig_fail(LIG_E_BUSY,
                        "the client has %u requests without a reply, the server's limit is %d",
                        waiting, LIGI_SERVED_REQUESTS_MAX);
    }
    return ligi_served_charge(session, payload_bytes);
}

static lig_status fill_job(ligi_served_job *job, const ligi_served_head *head,
                           const ligi_arrival *arrival, ligi_landing *landing)
{
    uint64_t bytes =
        head->body ? head->body_bytes + arrival->payload_bytes : arrival->payload_bytes;
    job->head = *head;
    job->head.body = NULL;
    job->received_ns = ligi_now_ns();
    LIG_TRY(ligi_alloc(&job->memory, bytes + 1, "a request"));
    job->body = job->memory;
    job->data = job->memory + head->body_bytes;
    job->data_bytes = bytes - head->body_bytes;
    if (head->body && head->body_bytes)
        memcpy(job->memory, head->body, head->body_bytes);
    job->iov =
        (struct iovec){job->memory + (bytes - arrival->payload_bytes), arrival->payload_bytes};
    landing->iov = &job->iov;
    landing->count = arrival->payload_bytes > 0;
    landing->token = job;
    return LIG_OK;
}

static lig_status take_request(ligi_served_session *session, const ligi_served_head *head,
                               const ligi_arrival *arrival, ligi_landing *landing)
{
    lig_status status = admit(session, head->op, arrival->payload_bytes);
    if (status != LIG_OK && ligi_served_op_silent(head->op))
        return status;      /* the client cannot be informed: the session ends */
    if (status != LIG_OK) { /* the payload is discarded */
        ligi_served_refuse(session, head, status);
        return LIG_OK;
    }
    ligi_served_job *job = ligi_served_job_make(session, NULL, NULL);
    if (job == NULL) {
        ligi_served_uncharge(session, arrival->payload_bytes);
        return lig_fail(LIG_E_NOMEM, "out of memory for a request");
    }
    job->charge = arrival->payload_bytes;
    status = fill_job(job, head, arrival, landing);
    if (status != LIG_OK) {
        ligi_served_job_free(job);
        return status;
    }
    session->receiving = job;
    return LIG_OK;
}

static lig_status on_head(void *context, ligi_link *link, const ligi_arrival *arrival,
                          ligi_landing *landing)
{
    ligi_served_session *session = ligi_link_owner(link);
    ligi_served_head head;
    (void)context;
    if (session == NULL || session->link != link)
        return LIG_OK;
    LIG_TRY(
        ligi_served_head_get(arrival->head, arrival->head_bytes, arrival->payload_bytes, &head));
    if (head.flags & LIGI_SERVED_REPLY || head.op == LIGI_SERVED_NEED ||
        head.op == LIGI_SERVED_DONE)
        return lig_fail(LIG_E_CORRUPT,
                        "protocol error: unexpected server message '%s' from a client",
                        ligi_served_op_name(head.op));
    if (head.op == LIGI_SERVED_DATA) {
        LIG_TRY(ligi_served_may(session, head.op));
        return take_data(session, &head, arrival, landing);
    }
    return take_request(session, &head, arrival, landing);
}

/* --- a message is complete --- */

/* Handles what needs no worker; 1 if it did. */
static int done_at_once(ligi_served_session *session, const ligi_served_job *job)
{
    uint64_t id;
    switch (job->head.op) {
    case LIGI_SERVED_CANCEL:
        if (ligi_served_number_get(job->body, job->head.body_bytes, &id) == LIG_OK) {
            ligi_served_running_cancel(session, id);
            ligi_served_upload_abort(session, id);
        }
        return 1;
    case LIGI_SERVED_COMMIT: ligi_served_upload_commit(session, job->head.id); return 1;
    case LIGI_SERVED_PING: {
        ligi_served_message pong = {
            .head = {.op = LIGI_SERVED_PING, .flags = LIGI_SERVED_REPLY, .id = job->head.id}};
        ligi_served_send(session, &pong);
        return 1;
    }
    default: return 0;
    }
}

static void on_arrived(void *context, ligi_link *link, void *token)
{
    lig_server *server = context;
    ligi_served_session *session = ligi_link_owner(link);
    ligi_served_job *job = token;
    if (token == NULL || session == NULL)
        return;
    if (session->landing) {
        ligi_served_upload_landed(session);
        return;
    }
    session->receiving = NULL;
    if (done_at_once(session, job)) {
        ligi_served_job_free(job);
        return;
    }
    atomic_fetch_add(&session->requests, 1);
    ligi_served_running_add(job);
    if (!ligi_served_driver_take(server, job))
        ligi_served_queue_put(&server->queue, job);
}

/* --- a client disconnects --- */

static void on_lost(void *context, ligi_link *link, lig_status status, const char *sentence)
{
    lig_server *server = context;
    ligi_served_session *session = ligi_link_owner(link);
    if (session == NULL || session->link != link) {
        ligi_link_close(link, NULL);
        return;
    }
    if (status != LIG_E_CLOSED) {
        atomic_fetch_add(&server->dropped, 1);
        ligi_log(LIG_LOG_INFO, "lost client %u on %s: %s", session->pid, session->host, sentence);
    }
    ligi_served_session_end(session, NULL);
}

static int is_silent(const ligi_served_session *session, int64_t now_ns)
{
    int64_t lease_ns = session->server->options.lease_ns;
    return now_ns - ligi_link_heard_ns(session->link) > lease_ns ||
           (session->stalled_ns && now_ns - session->stalled_ns > lease_ns);
}

static int64_t on_tick(void *context, int64_t now_ns)
{
    lig_server *server = context;
    int64_t pause_ns = server->options.lease_ns / 4;
    ligi_served_session *next;
    for (ligi_served_session *session = server->sessions; session; session = next) {
        next = session->after;
        if (!is_silent(session, now_ns))
            continue;
        atomic_fetch_add(&server->dropped, 1);
        ligi_log(LIG_LOG_WARNING, "client %u on %s has been silent for %.3g s: its session ends",
                 session->pid, session->host, (double)server->options.lease_ns / 1e9);
        ligi_served_session_end(session, "the client was silent for too long (--lease-timeout)");
    }
    ligi_served_descriptors_tick(server, now_ns);
    ligi_served_purge_tick(server, now_ns);
    int64_t reply_ns = ligi_served_send_delayed(server, now_ns);
    int64_t next_ns = now_ns + (pause_ns < TICK_NS ? pause_ns : TICK_NS);
    return reply_ns < next_ns ? reply_ns : next_ns;
}

const ligi_net_hooks ligi_served_hooks = {.met = on_met,
                                          .head = on_head,
                                          .arrived = on_arrived,
                                          .sent = ligi_served_sent,
                                          .lost = on_lost,
                                          .tick = on_tick};
