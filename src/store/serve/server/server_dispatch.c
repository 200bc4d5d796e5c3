#include "store/serve/server/server_dispatch.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/requests/server_changes.h"
#include "store/serve/server/requests/server_descriptors.h"
#include "store/serve/server/requests/server_locks.h"
#include "store/serve/server/requests/server_lookups.h"
#include "store/serve/server/requests/server_saves.h"
#include "store/serve/server/requests/server_watch.h"
#include "store/serve/server/server.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"
#include "store/serve/server/workers/server_queue.h"

#include <assert.h>
#include <stdlib.h>

typedef lig_status (*handler)(ligi_served_call *call);

static lig_status release(ligi_served_call *call)
{
    uint64_t number;
    LIG_TRY(ligi_served_number_get(call->job->body, call->job->head.body_bytes, &number));
    if (!ligi_served_release_is_short(call, number) && ligi_served_pass_on(call))
        return LIG_OK;
    ligi_served_release(call->session, number);
    return LIG_OK;
}

static lig_status shut_down(ligi_served_call *call)
{
    if (!(call->server->options.flags & LIG_SERVER_ALLOW_SHUTDOWN))
        return lig_fail(LIG_E_DENIED, "the server does not allow clients to stop it (start it with "
                                      "--allow-shutdown, or send it SIGTERM)");
    ligi_served_ask_stop(call->server);
    return LIG_OK;
}

static const handler handlers[LIGI_SERVED_OP_END] = {
    [LIGI_SERVED_INFO] = ligi_served_info_run,
    [LIGI_SERVED_RESOLVE] = ligi_served_resolve_run,
    [LIGI_SERVED_RELEASE] = release,
    [LIGI_SERVED_MODELS] = ligi_served_models_run,
    [LIGI_SERVED_LINEAGE] = ligi_served_lineage_run,
    [LIGI_SERVED_STAT] = ligi_served_stat_run,
    [LIGI_SERVED_PACK_SIZE] = ligi_served_pack_size_run,
    [LIGI_SERVED_READ] = ligi_served_read_run,
    [LIGI_SERVED_DESCRIPTOR] = ligi_served_descriptor_run,
    [LIGI_SERVED_UPDATE] = ligi_served_update_run,
    [LIGI_SERVED_ALIAS] = ligi_served_alias_run,
    [LIGI_SERVED_ALIAS_AT] = ligi_served_alias_at_run,
    [LIGI_SERVED_RETIRE] = ligi_served_retire_run,
    [LIGI_SERVED_RETIRE_NOW] = ligi_served_retire_now_run,
    [LIGI_SERVED_RESTORE] = ligi_served_restore_run,
    [LIGI_SERVED_LOCK] = ligi_served_lock_run,
    [LIGI_SERVED_CHECK] = ligi_served_check_run,
    [LIGI_SERVED_COMPACT] = ligi_served_compact_run,
    [LIGI_SERVED_FIND] = ligi_served_find_run,
    [LIGI_SERVED_WATCH] = ligi_served_watch_run,
    [LIGI_SERVED_SAVE] = ligi_served_save_run,
    [LIGI_SERVED_JOIN] = ligi_served_join_run,
    [LIGI_SERVED_STAMPS] = ligi_served_stamps_run,
    [LIGI_SERVED_CLEAR_STAMPS] = ligi_served_clear_stamps_run,
    [LIGI_SERVED_SHUTDOWN] = shut_down,
};

/* Called by the store while a request waits for other processes. */
static int is_cancelled(void *context)
{
    ligi_served_worker *worker = context;
    ligi_served_queue_blocked(worker);
    return atomic_load(&worker->job->cancelled);
}

static int is_late(const ligi_served_job *job)
{
    uint64_t waited = (uint64_t)(ligi_now_ns() - job->received_ns);
    return job->head.deadline_ns && waited > job->head.deadline_ns;
}

/* The only place where a request is admitted or rejected. */
static lig_status check(const ligi_served_call *call)
{
    const ligi_served_head *head = &call->job->head;
    if (handlers[head->op] == NULL)
        return lig_fail(LIG_E_UNSUPPORTED, "the server does not support the request '%s'",
                        ligi_served_op_name(head->op));
    if (is_late(call->job))
        return lig_fail(LIG_E_TIMEOUT, "timeout: '%s' waited too long for a free worker",
                        ligi_served_op_name(head->op));
    return LIG_OK;
}

int ligi_served_pass_on(ligi_served_call *call)
{
    if (call->store != call->server->driver.worker.store)
        return 0;
    call->later = 1;
    call->server->driver.patient = 0;
    ligi_served_queue_put(&call->server->queue, call->job);
    return 1;
}

void ligi_served_request_end(ligi_served_call *call, lig_status status)
{
    ligi_served_job *job = call->job;
    atomic_fetch_sub(&call->session->requests, 1);
    ligi_served_running_remove(job);
    if (!ligi_served_op_silent(job->head.op))
        ligi_served_reply(call, status);
    ligi_writer_fini(&call->body);
    ligi_served_job_free(job);
}

void ligi_served_sync(ligi_served_worker *worker)
{
    const ligi_volume *volume = worker->store->volume;
    ligi_failure failure;
    lig_status status = LIG_OK;
    if (worker->pending.version)
        status = volume->ops->catalog_sync(volume->self, &worker->pending);
    ligi_failure_take(&failure, status);
    for (size_t i = 0; i < worker->unsynced_count; i++)
        ligi_served_request_end(&worker->unsynced[i], ligi_failure_publish(&failure));
    worker->unsynced_count = 0;
}

/* With all that the store's handle says about the request. */
static lig_status run(ligi_served_worker *worker, ligi_served_call *call)
{
    lig_store *store = worker->store;
    lig_store_set_interrupt(store, is_cancelled, worker);
    store->scope = ligi_served_scope(call->session);
    store->pending = worker->saver ? &worker->pending : NULL;
    worker->job = call->job;
    lig_status status = check(call);
    if (status == LIG_OK)
        status = handlers[call->job->head.op](call);
    worker->job = NULL;
    store->pending = NULL;
    store->scope = NULL;
    lig_store_set_interrupt(store, NULL, NULL);
    return status;
}

void ligi_served_request_run(ligi_served_worker *worker, ligi_served_job *job)
{
    ligi_served_call call = {
        .server = worker->server, .store = worker->store, .session = job->session, .job = job};
    uint64_t version = worker->pending.version;
    ligi_fail_clear();
    lig_status status = atomic_load(&job->session->ended)
                            ? lig_fail(LIG_E_CLOSED, "the session has ended")
                            : run(worker, &call);
    if (call.later)
        return;
    if (status != LIG_OK || worker->pending.version == version) {
        ligi_served_request_end(&call, status);
        return;
    }
    assert(worker->unsynced_count < LIGI_SERVED_GROUP_MAX);
    worker->unsynced[worker->unsynced_count++] = call;
}
