#include "store/serve/server/server_session.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/map.h"
#include "store/serve/server/requests/uploads/server_uploads.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/workers/server_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The requests that a client has done are remembered under its id and the name of its role: a
 * client of another role that takes the same id learns nothing of them. */
static void bind_client(ligi_served_session *session, const ligi_served_hello *said)
{
    uint8_t bytes[LIGI_SERVED_CLIENT_BYTES + LIGI_ROLE_NAME_BYTES];
    memcpy(bytes, said->client, sizeof said->client);
    memcpy(bytes + sizeof said->client, session->role.name, sizeof session->role.name);
    ligi_hash128 hash = ligi_hash128_plain(bytes, sizeof bytes);
    _Static_assert(sizeof hash == LIGI_SERVED_CLIENT_BYTES, "a client's id");
    if (session->role.name[0])
        memcpy(session->client, &hash, sizeof hash);
    else
        memcpy(session->client, said->client, sizeof session->client);
}

lig_status ligi_served_session_open(lig_server *server, ligi_link *link, const ligi_hello *hello,
                                    ligi_served_session **out)
{
    ligi_served_hello said;
    ligi_served_session *session;
    ligi_served_role role;
    LIG_TRY(ligi_served_hello_get(hello->data, hello->bytes, &said));
    LIG_TRY(ligi_served_role_of(server, link, &said, &role));
    LIG_TRY(ligi_calloc(&session, 1, sizeof *session, "a session"));
    session->server = server;
    session->link = link;
    session->users = 1;
    session->number = ++server->next_session;
    session->next_number = 1;
    session->pid = said.pid;
    session->role = role;
    session->same_host = server->same_boot_known &&
                         memcmp(server->boot_id, hello->boot_id, sizeof server->boot_id) == 0;
    bind_client(session, &said);
    snprintf(session->host, sizeof session->host, "%s", said.host);
    pthread_mutex_init(&session->lock, NULL);
    session->after = server->sessions;
    if (session->after)
        session->after->before = session;
    server->sessions = session;
    server->session_count++;
    *out = session;
    return LIG_OK;
}

void ligi_served_session_hold(ligi_served_session *session)
{
    atomic_fetch_add(&session->users, 1);
}

void ligi_served_session_drop(ligi_served_session *session)
{
    if (session == NULL || atomic_fetch_sub(&session->users, 1) > 1)
        return;
    free(session->held);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

static void unlist(ligi_served_session *session)
{
    lig_server *server = session->server;
    if (session->before)
        session->before->after = session->after;
    else
        server->sessions = session->after;
    if (session->after)
        session->after->before = session->before;
    server->session_count--;
}

/* A worker releases what the client held. */
static void release_all(ligi_served_job *job)
{
    ligi_served_session *session = job->session;
    pthread_mutex_lock(&session->lock);
    ligi_served_held **held = session->held;
    size_t count = session->held_count;
    session->held = NULL;
    session->held_count = session->held_capacity = 0;
    session->held_bytes = 0;
    pthread_mutex_unlock(&session->lock);
    for (size_t i = 0; i < count; i++)
        ligi_served_let_go(held[i]);
    free(held);
    ligi_served_job_free(job);
}

static void cancel_running(ligi_served_session *session)
{
    pthread_mutex_lock(&session->lock);
    for (ligi_served_job *job = session->running; job; job = job->next_running)
        atomic_store(&job->cancelled, 1);
    pthread_mutex_unlock(&session->lock);
}

void ligi_served_session_end(ligi_served_session *session, const char *reason)
{
    ligi_link *link = session->link;
    if (link == NULL)
        return;
    session->link = NULL;
    atomic_store(&session->ended, 1);
    unlist(session);
    ligi_served_uploads_lost(session);
    ligi_link_close(link, reason);
    if (session->receiving)
        ligi_served_job_free(session->receiving);
    session->receiving = NULL;
    cancel_running(session);
    ligi_served_job *job = ligi_served_job_make(session, release_all, NULL);
    if (job)
        ligi_served_queue_put(&session->server->queue, job);
    ligi_served_session_drop(session);
}

/* --- bytes in flight --- */

/* `alone`: so many bytes pass when nothing else is in flight. */
static lig_status charge(ligi_served_session *session, uint64_t bytes, uint64_t alone)
{
    lig_server *server = session->server;
    if (bytes == 0)
        return LIG_OK;
    uint64_t mine = atomic_fetch_add(&session->flight, bytes) + bytes;
    uint64_t all = atomic_fetch_add(&server->flight, bytes) + bytes;
    int few = mine <= server->client_bytes_max || mine == alone;
    if (few && (all <= server->options.max_bytes_in_flight || all == alone))
        return LIG_OK;
    ligi_served_uncharge(session, bytes);
    atomic_fetch_add(&server->refused, 1);
    if (!few)
        return lig_fail(LIG_E_BUSY,
                        "the client has %llu bytes in flight, the server's limit is %llu; wait for "
                        "replies first",
                        (unsigned long long)mine, (unsigned long long)server->client_bytes_max);
    return lig_fail(LIG_E_BUSY,
                    "the server has %llu bytes in flight, its limit is %llu "
                    "(--max-bytes-in-flight); try again later",
                    (unsigned long long)all,
                    (unsigned long long)server->options.max_bytes_in_flight);
}

lig_status ligi_served_charge(ligi_served_session *session, uint64_t bytes)
{
    return charge(session, bytes, 0);
}

lig_status ligi_served_charge_reply(ligi_served_session *session, uint64_t bytes)
{
    return charge(session, bytes, bytes);
}

void ligi_served_charge_anyway(ligi_served_session *session, uint64_t bytes)
{
    atomic_fetch_add(&session->flight, bytes);
    atomic_fetch_add(&session->server->flight, bytes);
}

void ligi_served_uncharge(ligi_served_session *session, uint64_t bytes)
{
    atomic_fetch_sub(&session->flight, bytes);
    atomic_fetch_sub(&session->server->flight, bytes);
}

/* --- what a client holds --- */

void ligi_served_let_go(ligi_served_held *held)
{
    if (held == NULL || atomic_fetch_sub(&held->users, 1) > 1)
        return;
    held->release(held->thing);
    atomic_fetch_sub(&held->server->held, 1);
    atomic_fetch_sub(&held->server->held_bytes, held->bytes);
    free(held);
}

/* The first is always possible: a description may be larger than the limits. */
static lig_status check_held(const ligi_served_session *session, uint64_t bytes)
{
    lig_server *server = session->server;
    uint64_t all = server->options.max_bytes_in_flight, mine = all / 4;
    if (session->held_count < LIGI_SERVED_HELD_MAX &&
        (session->held_count == 0 ||
         (session->held_bytes + bytes <= mine && atomic_load(&server->held_bytes) <= all)))
        return LIG_OK;
    atomic_fetch_add(&server->refused, 1);
    return lig_fail(LIG_E_LIMIT,
                    "the client holds %zu refs, matches, parts and locks with %llu bytes, the "
                    "server's limit is %d and %llu bytes (release some)",
                    session->held_count, (unsigned long long)session->held_bytes,
                    LIGI_SERVED_HELD_MAX, (unsigned long long)mine);
}

static lig_status list_held(ligi_served_session *session, ligi_served_held *held)
{
    if (atomic_load(&session->ended)) /* looked at under the lock: release_all comes later */
        return lig_fail(LIG_E_CLOSED, "the session has ended");
    LIG_TRY(check_held(session, held->bytes));
    LIG_TRY(ligi_grow(&session->held, &session->held_capacity, session->held_count + 1,
                      sizeof *session->held, "the resources of a client"));
    held->number = session->next_number++;
    session->held[session->held_count++] = held;
    session->held_bytes += held->bytes;
    return LIG_OK;
}

lig_status ligi_served_hold(ligi_served_session *session, void *thing, uint64_t bytes,
                            void (*release)(void *thing), uint64_t *number)
{
    ligi_served_held *held;
    lig_status status = ligi_calloc(&held, 1, sizeof *held, "the resources of a client");
    if (status != LIG_OK) {
        release(thing);
        return status;
    }
    *held = (ligi_served_held){
        .users = 1, .server = session->server, .release = release, .thing = thing, .bytes = bytes};
    atomic_fetch_add(&session->server->held, 1);
    atomic_fetch_add(&session->server->held_bytes, bytes);
    pthread_mutex_lock(&session->lock);
    status = list_held(session, held);
    uint64_t given = held->number;
    pthread_mutex_unlock(&session->lock);
    if (status == LIG_OK)
        *number = given;
    else
        ligi_served_let_go(held);
    return status;
}

lig_status ligi_served_may_hold(ligi_served_session *session, uint64_t bytes)
{
    pthread_mutex_lock(&session->lock);
    lig_status status = check_held(session, bytes);
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* Numbers ascend in the list. */
static size_t find_held(const ligi_served_session *session, uint64_t number)
{
    size_t at;
    LIGI_LOWER_BOUND(at, session->held_count, session->held[at]->number < number);
    return at < session->held_count && session->held[at]->number == number ? at : SIZE_MAX;
}

ligi_served_held *ligi_served_held_get(ligi_served_session *session, uint64_t number,
                                       void (*release)(void *thing))
{
    ligi_served_held *held = NULL;
    pthread_mutex_lock(&session->lock);
    size_t at = find_held(session, number);
    if (at != SIZE_MAX && session->held[at]->release == release) {
        held = session->held[at];
        atomic_fetch_add(&held->users, 1);
    }
    pthread_mutex_unlock(&session->lock);
    return held;
}

void ligi_served_release(ligi_served_session *session, uint64_t number)
{
    ligi_served_held *held = NULL;
    pthread_mutex_lock(&session->lock);
    size_t at = find_held(session, number);
    if (at != SIZE_MAX) {
        held = session->held[at];
        session->held_bytes -= held->bytes;
        session->held_count--;
        memmove(&session->held[at], &session->held[at + 1],
                (session->held_count - at) * sizeof *session->held);
    }
    pthread_mutex_unlock(&session->lock);
    ligi_served_let_go(held);
}

/* --- requests that run --- */

void ligi_served_running_add(ligi_served_job *job)
{
    ligi_served_session *session = job->session;
    pthread_mutex_lock(&session->lock);
    job->next_running = session->running;
    job->at_running = &session->running;
    if (job->next_running)
        job->next_running->at_running = &job->next_running;
    session->running = job;
    pthread_mutex_unlock(&session->lock);
}

/* A client may have 65,536 requests: looking for one would take longer than most of them. */
void ligi_served_running_remove(ligi_served_job *job)
{
    ligi_served_session *session = job->session;
    pthread_mutex_lock(&session->lock);
    if (job->at_running)
        *job->at_running = job->next_running;
    if (job->at_running && job->next_running)
        job->next_running->at_running = job->at_running;
    job->at_running = NULL;
    pthread_mutex_unlock(&session->lock);
}

void ligi_served_running_cancel(ligi_served_session *session, uint64_t id)
{
    pthread_mutex_lock(&session->lock);
    for (ligi_served_job *job = session->running; job; job = job->next_running)
        if (job->head.id == id)
            atomic_store(&job->cancelled, 1);
    pthread_mutex_unlock(&session->lock);
}
