#include "store/serve/server/requests/server_changes.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_state.h"
#include "store/serve/server/server_reply.h"
#include "store/serve/server/server_roles.h"

#include <string.h>

#define TELL_NS INT64_C(50000000) /* between two messages about the progress of a check */
#define BODY(call) (call)->job->body, (call)->job->head.body_bytes

_Static_assert(LIGI_CLIENT_BYTES == LIGI_SERVED_CLIENT_BYTES, "a client's id");

/* --- once --- */

struct ligi_once ligi_served_once_of(const ligi_served_job *job)
{
    struct ligi_once once = {.sequence = job->head.number};
    memcpy(once.client, job->session->client, sizeof once.client);
    return once;
}

/* A failure may come from the request's own first run, in another session: its name is taken, its
 * model is gone. A commit may see a record that is not on the disk yet, and never will be: only a
 * view without the lock shows that it was done. */
lig_status ligi_served_once_end(lig_store *store, struct ligi_once *once, lig_status status)
{
    int seen = once->repeated;
    ligi_failure failure;
    if (status == LIG_OK)
        return LIG_OK;
    ligi_failure_take(&failure, status);
    once->repeated = 0;
    status = ligi_once_find(store, once);
    if (seen)
        LIG_TRY(status);
    return once->repeated ? LIG_OK : ligi_failure_publish(&failure);
}

lig_status ligi_served_once(ligi_served_call *call, struct ligi_once *once, ligi_served_act act,
                            void *context)
{
    *once = ligi_served_once_of(call->job);
    LIG_TRY(ligi_store_writable(call->store));
    call->store->once = once;
    lig_status status = act(call, context);
    call->store->once = NULL;
    return ligi_served_once_end(call->store, once, status);
}

/* --- models and aliases --- */

static lig_status update(ligi_served_call *call, void *context)
{
    const ligi_served_update *what = context;
    return lig_store_update(call->store, what->model, &what->update);
}

lig_status ligi_served_update_run(ligi_served_call *call)
{
    ligi_served_update what = {0};
    struct ligi_once once;
    lig_status status = ligi_served_update_get(BODY(call), &what);
    if (status == LIG_OK)
        status = ligi_served_may_name(call, what.model);
    if (status == LIG_OK)
        status = ligi_served_may_name(call, what.update.name);
    if (status == LIG_OK)
        status = ligi_served_once(call, &once, update, &what);
    ligi_served_update_fini(&what);
    return status;
}

/* A change of one model, given by its name. */
static lig_status change_model(ligi_served_call *call, ligi_served_act change)
{
    const char *model;
    struct ligi_once once;
    LIG_TRY(ligi_served_text_get(BODY(call), &model));
    LIG_TRY(ligi_served_may_name(call, model));
    return ligi_served_once(call, &once, change, (void *)model);
}

/* A change that concerns two names. */
static lig_status change_names(ligi_served_call *call, ligi_served_act change)
{
    ligi_served_alias what;
    struct ligi_once once;
    LIG_TRY(ligi_served_alias_get(BODY(call), &what));
    LIG_TRY(ligi_served_may_name(call, what.alias));
    LIG_TRY(ligi_served_may_name(call, what.model));
    return ligi_served_once(call, &once, change, &what);
}

static lig_status alias(ligi_served_call *call, void *context)
{
    const ligi_served_alias *what = context;
    return lig_store_alias(call->store, what->alias, what->model);
}

lig_status ligi_served_alias_run(ligi_served_call *call)
{
    return change_names(call, alias);
}

static lig_status retire(ligi_served_call *call, void *context)
{
    return lig_store_retire(call->store, context);
}

lig_status ligi_served_retire_run(ligi_served_call *call)
{
    return change_model(call, retire);
}

static lig_status retire_now(ligi_served_call *call, void *context)
{
    return lig_store_retire_now(call->store, context);
}

lig_status ligi_served_retire_now_run(ligi_served_call *call)
{
    return change_model(call, retire_now);
}

static lig_status restore(ligi_served_call *call, void *context)
{
    const ligi_served_alias *what = context;
    return lig_store_restore(call->store, what->alias, what->model);
}

lig_status ligi_served_restore_run(ligi_served_call *call)
{
    return change_names(call, restore);
}

/* --- care --- */

typedef struct told_check {
    ligi_served_call *call;
    int told; /* the client wants progress reports */
    int64_t told_ns;
} told_check;

static void tell_done(const ligi_served_call *call, uint64_t done)
{
    ligi_writer body = {0};
    ligi_served_number_put(&body, done);
    ligi_served_message message = {.head = {.op = LIGI_SERVED_DONE, .id = call->job->head.id},
                                   .body = &body};
    if (body.status == LIG_OK)
        ligi_served_send(call->session, &message);
    ligi_writer_fini(&body);
}

static int look_at_check(void *context, uint64_t done, uint64_t total)
{
    told_check *self = context;
    int64_t now_ns = ligi_now_ns();
    (void)total; /* the client has it from STAT */
    if (self->told && now_ns - self->told_ns >= TELL_NS) {
        self->told_ns = now_ns;
        tell_done(self->call, done);
    }
    return atomic_load(&self->call->job->cancelled);
}

lig_status ligi_served_check_run(ligi_served_call *call)
{
    uint64_t flags;
    lig_report *report;
    LIG_TRY(ligi_served_number_get(BODY(call), &flags));
    told_check watched = {.call = call, .told = (flags & LIGI_SERVED_TELL) != 0};
    const lig_progress progress = {look_at_check, &watched};
    flags &= ~LIGI_SERVED_TELL;
    if (flags > UINT32_MAX)
        return lig_fail(LIG_E_INVALID, "unknown flags %#llx for a check",
                        (unsigned long long)flags);
    LIG_TRY(lig_store_check_progress(call->store, (uint32_t)flags, &progress, &report));
    ligi_served_report_put(&call->body, report);
    lig_report_destroy(report);
    return LIG_OK;
}

lig_status ligi_served_compact_run(ligi_served_call *call)
{
    lig_report *report;
    LIG_TRY(lig_store_compact(call->store, &report));
    ligi_served_report_put(&call->body, report);
    lig_report_destroy(report);
    return LIG_OK;
}

lig_status ligi_served_clear_stamps_run(ligi_served_call *call)
{
    const char *name;
    LIG_TRY(ligi_served_text_get(BODY(call), &name));
    return lig_store_clear_time_stamps(call->server->store, name[0] ? name : NULL);
}
