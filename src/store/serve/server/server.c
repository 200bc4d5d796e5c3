#include "store/serve/server/server.h"

#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "net/progress.h"
#include "net/service.h"
#include "store/serve/server/address_file.h"
#include "store/serve/server/requests/server_descriptors.h"
#include "store/serve/server/requests/server_retention.h"
#include "store/serve/server/requests/server_watch.h"
#include "store/serve/server/requests/uploads/server_uploads.h"
#include "store/serve/server/server_receive.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"
#include "store/serve/server/workers/server_driver.h"
#include "store/serve/server/workers/server_queue.h"

#include <ligament/secret.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEASE_NS INT64_C(60000000000)
#define LEASE_LEAST_NS INT64_C(100000000)
#define FLIGHT_BYTES (UINT64_C(1) << 30)
#define END_NS INT64_C(10000000000) /* for what was interrupted */
enum { CLIENTS = 1024, WORKERS = 16, WORKERS_MAX = 1024, SHARE = 16 };

/* --- opening --- */

static lig_status take_options(lig_server *server, const lig_server_options *given)
{
    lig_server_options *options = &server->options;
    *options = (lig_server_options)LIG_SERVER_INIT;
    if (given && given->struct_bytes < sizeof *given)
        return lig_fail(LIG_E_INVALID, "server options were not initialised with LIG_SERVER_INIT");
    if (given)
        *options = *given;
    if (options->flags & ~LIG_SERVER_ALLOW_SHUTDOWN)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x in server options", options->flags);
    LIG_TRY(ligi_strdup(&server->listen, options->listen ? options->listen : "127.0.0.1:0"));
    if (options->secret_file)
        LIG_TRY(ligi_strdup(&server->secret_file, options->secret_file));
    if (options->address_file)
        LIG_TRY(ligi_strdup(&server->address_file, options->address_file));
    if (options->max_clients == 0)
        options->max_clients = CLIENTS;
    if (options->workers == 0)
        options->workers = WORKERS;
    if (options->max_bytes_in_flight == 0)
        options->max_bytes_in_flight = FLIGHT_BYTES;
    if (options->lease_ns == 0)
        options->lease_ns = LEASE_NS;
    server->client_bytes_max = options->max_bytes_in_flight / SHARE;
    if (options->workers > WORKERS_MAX || options->lease_ns < LEASE_LEAST_NS ||
        server->client_bytes_max < LIGI_SERVED_READ_BYTES_MAX)
        return lig_fail(LIG_E_INVALID,
                        "a server needs at most %d workers, a lease of at least 0.1 s and at least "
                        "%llu bytes in flight",
                        WORKERS_MAX, (unsigned long long)LIGI_SERVED_READ_BYTES_MAX * SHARE);
    return LIG_OK;
}

static lig_status open_net(lig_server *server)
{
    ligi_net_options options = {.group = LIGI_SERVED_GROUP,
                                .link_max = server->options.max_clients + 512,
                                .payload_bytes_max = LIGI_SERVED_BODY_BYTES_MAX * 2};
    char own[LIG_SECRET_TEXT_MAX]; /* no client has it: each proves the key of its role */
    LIG_TRY(ligi_served_roles_open(server));
    LIG_TRY(lig_secret_make(own));
    if (server->secret_file) {
        options.secret = own;
        options.secret_bytes = sizeof own - 1;
    }
    lig_status status = ligi_net_open(&server->net, &options);
    explicit_bzero(own, sizeof own);
    LIG_TRY(status);
    LIG_TRY(ligi_served_roles_accept(server));
    return ligi_net_serve(server->net, LIGI_SERVICE_STORE, &ligi_served_hooks, server);
}

/* Clients on this host need shared memory to be fast, not to work. */
static lig_status listen_all(lig_server *server)
{
    static const char scheme[] = "tcp://";
    char uri[LIGI_ADDRESS_BYTES_MAX], address[LIGI_ADDRESS_BYTES_MAX];
    int bytes = snprintf(uri, sizeof uri, "%s%s", scheme, server->listen);
    if (bytes < 0 || (size_t)bytes >= sizeof uri)
        return lig_fail(LIG_E_INVALID, "the address to listen on is too long: '%s'",
                        server->listen);
    LIG_TRY(ligi_net_listen(server->net, uri, address));
    size_t skip = strncmp(address, scheme, sizeof scheme - 1) == 0 ? sizeof scheme - 1 : 0;
    snprintf(server->address, sizeof server->address, "%s", address + skip);
    if (ligi_net_listen(server->net, "shm:", address) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "clients on this host use TCP: %s", lig_error_text());
    server->card_bytes = sizeof server->card;
    return ligi_net_card(server->net, NULL, server->card, &server->card_bytes);
}

/* Where clients come in. */
static lig_status open_endpoint(lig_server *server)
{
    LIG_TRY(open_net(server));
    LIG_TRY(ligi_served_descriptors_open(server));
    LIG_TRY(listen_all(server));
    return ligi_served_driver_start(server);
}

static void close_endpoint(lig_server *server)
{
    if (server->net == NULL)
        return;
    ligi_served_driver_stop(server);
    ligi_served_descriptors_close(server);
    ligi_net_lock(server->net);
    (void)ligi_served_send_delayed(server, INT64_MAX);
    ligi_net_unlock(server->net);
    ligi_net_close(server->net);
    server->net = NULL;
    atomic_store(&server->closing, 0);
}

static lig_status open_parts(lig_server *server, const char *uri, const lig_server_options *options)
{
    LIG_TRY(take_options(server, options));
    LIG_TRY(lig_store_open(&server->store, uri));
    if (server->store->remote)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s is already a served store (serve the original store)",
                        server->store->uri);
    LIG_TRY(ligi_served_retention_open(server, &server->options));
    server->same_boot_known = ligi_boot_id(server->boot_id);
    LIG_TRY(ligi_served_queue_start(server, server->options.workers));
    LIG_TRY(ligi_served_watches_start(server));
    LIG_TRY(open_endpoint(server));
    return server->address_file ? ligi_address_file_write(server->address_file, server->address)
                                : LIG_OK;
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void init_locks(lig_server *server)
{
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->queue.lock, NULL);
    pthread_mutex_init(&server->locks.lock, NULL);
    pthread_mutex_init(&server->watches.lock, NULL);
    pthread_mutex_init(&server->uploads.lock, NULL);
    pthread_mutex_init(&server->buffers.lock, NULL);
    pthread_mutex_init(&server->driver.lock, NULL);
    init_condition(&server->changed);
    init_condition(&server->queue.filled);
    init_condition(&server->queue.emptied);
    init_condition(&server->watches.changed);
    init_condition(&server->uploads.changed);
    init_condition(&server->driver.changed);
    ligi_served_queue_init(&server->queue);
    server->delayed_end = &server->delayed;
}

lig_status lig_server_open(lig_server **out, const char *store_uri,
                           const lig_server_options *options)
{
    lig_server *server;
    LIG_TRY(ligi_calloc(&server, 1, sizeof *server, "a server"));
    server->pid = getpid();
    init_locks(server);
    lig_status status = open_parts(server, store_uri, options);
    if (status == LIG_OK) {
        *out = server;
        return LIG_OK;
    }
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    lig_server_close(server);
    return ligi_failure_publish(&failure);
}

const char *lig_server_address(const lig_server *server)
{
    return server->address;
}

/* --- waiting and stopping --- */

static lig_status usable(const lig_server *server)
{
    if (server->pid == getpid())
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED, "the server belongs to the parent process (forked)");
}

void ligi_served_ask_stop(lig_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->asked = 1;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

lig_status lig_server_wait(lig_server *server, int64_t timeout_ns)
{
    LIG_TRY(usable(server));
    struct timespec end = ligi_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    int late = 0;
    pthread_mutex_lock(&server->lock);
    while (!server->asked && !late)
        late = timeout_ns < 0
                   ? pthread_cond_wait(&server->changed, &server->lock) != 0
                   : pthread_cond_timedwait(&server->changed, &server->lock, &end) == ETIMEDOUT;
    int asked = server->asked;
    pthread_mutex_unlock(&server->lock);
    return asked ? LIG_OK : lig_fail(LIG_E_TIMEOUT, "timeout: no shutdown was requested");
}

static void end_sessions(lig_server *server)
{
    ligi_net_lock(server->net);
    while (server->sessions)
        ligi_served_session_end(server->sessions, "the server has stopped");
    ligi_net_unlock(server->net);
}

static int64_t left_until(int64_t end_ns)
{
    int64_t now_ns = ligi_now_ns();
    return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* Waits until queued replies have been sent to clients that read them. */
static int all_sent(void *context)
{
    const lig_server *server = context;
    if (server->delayed)
        return 0;
    for (const ligi_served_session *session = server->sessions; session; session = session->after)
        if (session->unsent || ligi_link_queued(session->link))
            return 0;
    return 1;
}

/* Accepts no new requests, waits for running ones and sends their replies. LIG_E_TIMEOUT. */
static lig_status quiesce(lig_server *server, int64_t grace_ns)
{
    int64_t end_ns = ligi_now_ns() + (grace_ns > 0 ? grace_ns : 0);
    atomic_store(&server->stopping, 1);
    ligi_served_watches_stop(server);
    lig_status uploads = ligi_served_uploads_drain(server, left_until(end_ns));
    lig_status requests = ligi_served_queue_drain(&server->queue, left_until(end_ns));
    if (requests == LIG_OK && server->driver.worker.thread)
        (void)ligi_net_wait(server->net, all_sent, server, left_until(end_ns));
    return uploads != LIG_OK ? uploads : requests;
}

/* Interrupts what still runs. */
static void end_all(lig_server *server)
{
    end_sessions(server);
    (void)ligi_served_uploads_drain(server, END_NS);
    (void)ligi_served_queue_drain(&server->queue, END_NS);
}

lig_status lig_server_stop(lig_server *server, int64_t grace_ns)
{
    LIG_TRY(usable(server));
    ligi_served_ask_stop(server);
    lig_status status = quiesce(server, grace_ns);
    end_all(server);
    if (status != LIG_OK)
        return lig_fail(LIG_E_TIMEOUT, "requests were interrupted: they took longer than %.3g s",
                        (double)grace_ns / 1e9);
    return LIG_OK;
}

lig_status lig_server_reload(lig_server *server)
{
    LIG_TRY(usable(server));
    return ligi_served_roles_reload(server);
}

/* Parts that were not opened are NULL. */
static void close_parts(lig_server *server)
{
    if (server->net && !atomic_load(&server->stopping))
        (void)lig_server_stop(server, 0);
    if (server->address_file)
        ligi_address_file_remove(server->address_file, server->address);
    ligi_served_watches_stop(server);
    ligi_served_queue_stop(server);
    close_endpoint(server);
    lig_store_close(server->store);
}

void lig_server_close(lig_server *server)
{
    if (server == NULL)
        return;
    if (server->pid == getpid()) {
        close_parts(server);
    } else { /* threads and locks are the parent's */
        ligi_served_descriptors_close(server);
        if (server->net)
            ligi_net_close(server->net);
        lig_store_close(server->store);
    }
    ligi_served_buffers_fini(&server->buffers);
    ligi_served_roles_close(server);
    ligi_served_retention_close(server);
    free(server->listen);
    free(server->secret_file);
    free(server->address_file);
    free(server);
}

lig_status lig_server_stat(lig_server *server, lig_server_stats *stats)
{
    LIG_TRY(usable(server));
    *stats = (lig_server_stats){.requests = atomic_load(&server->requests),
                                .refused = atomic_load(&server->refused),
                                .dropped = atomic_load(&server->dropped),
                                .bytes_in_flight = atomic_load(&server->flight),
                                .held = atomic_load(&server->held),
                                .clients = atomic_load(&server->session_count)};
    return LIG_OK;
}
