#include "store/save/save_async.h"

#include "base/error.h"
#include "base/ticket.h"
#include "store/save/save.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A save on its way: held by its thread and, until commit or abort, by the lig_save. */
typedef struct ligi_open_save {
    struct ligi_open_save *before, *after; /* in the store's list, under the store's lock */
    lig_store *store;
    ligi_plan plan;
    lig_ticket *ticket; /* for the thread alone */
    int in_parts;       /* tensors are offered one by one */

    pthread_mutex_t
        lock; /* guards all below, and data and strides of the tensors not yet offered */
    pthread_cond_t changed;
    size_t offered;
    int64_t *strides, *strides_end; /* copies of what was offered; room for all tensors' */
    int committed, aborted, holders;
} background;

struct lig_save {
    pid_t pid;
    background *work;
    lig_ticket *ticket;
};

/* --- the thread's side --- */

static void drop(background *work)
{
    pthread_mutex_lock(&work->lock);
    int last = --work->holders == 0;
    pthread_mutex_unlock(&work->lock);
    if (!last)
        return;
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->lock);
    ligi_plan_fini(&work->plan);
    free(work->strides);
    free(work);
}

static void enter_store(background *work)
{
    lig_store *store = work->store;
    pthread_mutex_lock(&store->lock);
    store->saving++;
    if (work->in_parts) {
        work->after = store->open_saves;
        if (work->after)
            work->after->before = work;
        store->open_saves = work;
    }
    pthread_mutex_unlock(&store->lock);
}

static void leave_store(background *work)
{
    lig_store *store = work->store;
    pthread_mutex_lock(&store->lock);
    if (work->before)
        work->before->after = work->after;
    else if (store->open_saves == work)
        store->open_saves = work->after;
    if (work->after)
        work->after->before = work->before;
    store->saving--;
    pthread_cond_broadcast(&store->idle);
    pthread_mutex_unlock(&store->lock);
}

void ligi_save_async_end_open(lig_store *store)
{
    for (background *work = store->open_saves; work; work = work->after) {
        pthread_mutex_lock(&work->lock);
        work->aborted |= !work->committed;
        pthread_cond_broadcast(&work->changed);
        pthread_mutex_unlock(&work->lock);
    }
}

static void release(void *context)
{
    background *work = context;
    leave_store(work);
    drop(work);
}

static int is_cancelled(void *context)
{
    background *work = context;
    pthread_mutex_lock(&work->lock);
    int aborted = work->aborted;
    pthread_mutex_unlock(&work->lock);
    return aborted || ligi_ticket_cancelled(work->ticket);
}

static lig_status wait_source(void *context, size_t index)
{
    background *work = context;
    if (work->in_parts) {
        pthread_mutex_lock(&work->lock);
        while (!work->aborted &&
               (index < work->plan.count ? work->offered <= index : !work->committed))
            pthread_cond_wait(&work->changed, &work->lock);
        pthread_mutex_unlock(&work->lock);
    }
    if (is_cancelled(work))
        return lig_fail(LIG_E_CLOSED, "the save of '%s' was cancelled", work->plan.about.name);
    return LIG_OK;
}

static void done_source(void *context, size_t index)
{
    background *work = context;
    ligi_ticket_advance(work->ticket, index + 1);
}

static lig_status run(void *context, lig_ticket *ticket)
{
    background *work = context;
    work->ticket = ticket;
    ligi_source source = {.wait = wait_source,
                          .done = done_source,
                          .cancelled = is_cancelled,
                          .context = work,
                          .in_parts = work->in_parts};
    return ligi_save_run(work->store, &work->plan, &source);
}

/* --- starting --- */

static void forget_memory(ligi_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        plan->tensors[i].data = NULL;
        plan->tensors[i].strides = NULL;
    }
}

static lig_status start(lig_store *store, const ligi_plan_input *input, int in_parts,
                        background **out, lig_ticket **ticket)
{
    background *work;
    LIG_TRY(ligi_calloc(&work, 1, sizeof *work, "a save"));
    work->store = store;
    work->in_parts = in_parts;
    work->holders = 1;
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->changed, NULL);
    lig_status status = ligi_save_prepare(store, input, !in_parts, &work->plan);
    if (status == LIG_OK && in_parts) {
        forget_memory(&work->plan);
        work->holders = 2;
        *out = work;
    }
    if (status == LIG_OK) {
        enter_store(work);
        status = ligi_ticket_start(run, release, work, ticket);
        if (status != LIG_OK)
            leave_store(work);
    }
    if (status != LIG_OK) {
        work->holders = 1;
        drop(work);
    }
    return status;
}

lig_status lig_store_save_start(lig_store *store, const char *model, const lig_tensor *tensors,
                                size_t count, const lig_save_options *options, lig_ticket **ticket)
{
    ligi_plan_input input = {model, tensors, count, options, 1, NULL, 0};
    return start(store, &input, 0, NULL, ticket);
}

/* --- in parts --- */

lig_status lig_save_begin(lig_save **out, lig_store *store, const char *model,
                          const lig_tensor *tensors, size_t count, const lig_save_options *options)
{
    lig_save *save;
    LIG_TRY(ligi_calloc(&save, 1, sizeof *save, "a save"));
    save->pid = getpid();
    ligi_plan_input input = {model, tensors, count, options, 1, NULL, 0};
    lig_status status = start(store, &input, 1, &save->work, &save->ticket);
    if (status == LIG_OK)
        *out = save;
    else
        free(save);
    return status;
}

static lig_status usable(const lig_save *save)
{
    if (save->pid == getpid())
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED, "the save was started before this process was forked");
}

static lig_status keep_strides(background *work, lig_tensor *tensor, const int64_t *strides)
{
    if (work->strides == NULL) {
        size_t total = 0;
        for (size_t i = 0; i < work->plan.count; i++)
            total += work->plan.tensors[i].ndim;
        LIG_TRY(ligi_calloc(&work->strides, total, sizeof *strides, "strides"));
        work->strides_end = work->strides;
    }
    memcpy(work->strides_end, strides, tensor->ndim * sizeof *strides);
    tensor->strides = work->strides_end;
    work->strides_end += tensor->ndim;
    return LIG_OK;
}

static lig_status take_offer(background *work, const void *data, const int64_t *strides)
{
    if (work->offered == work->plan.count)
        return lig_fail(LIG_E_INVALID, "all %zu tensors of '%s' have already been offered",
                        work->plan.count, work->plan.about.name);
    lig_tensor *tensor = &work->plan.tensors[work->offered];
    if (data == NULL && tensor->bytes)
        return lig_fail(LIG_E_INVALID, "tensor '%s': data is NULL", tensor->name);
    if (strides && tensor->ndim && tensor->bytes)
        LIG_TRY(keep_strides(work, tensor, strides));
    tensor->data = (void *)data;
    work->offered++;
    pthread_cond_broadcast(&work->changed);
    return LIG_OK;
}

lig_status lig_save_offer(lig_save *save, const void *data, const int64_t *strides)
{
    LIG_TRY(usable(save));
    if (lig_ticket_done(save->ticket)) /* it has failed: the error is reported here already */
        return lig_ticket_wait(save->ticket, LIG_FOREVER);
    pthread_mutex_lock(&save->work->lock);
    lig_status status = take_offer(save->work, data, strides);
    pthread_mutex_unlock(&save->work->lock);
    return status;
}

lig_status lig_save_progress(lig_save *save, uint64_t seen, int64_t timeout_ns, uint64_t *done)
{
    LIG_TRY(usable(save));
    return lig_ticket_progress(save->ticket, seen, timeout_ns, done);
}

lig_status lig_save_commit(lig_save *save, lig_ticket **ticket)
{
    LIG_TRY(usable(save));
    background *work = save->work;
    pthread_mutex_lock(&work->lock);
    size_t missing = work->plan.count - work->offered;
    int failed = lig_ticket_done(save->ticket);
    work->committed = missing == 0;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
    if (missing && !failed)
        return lig_fail(LIG_E_INVALID, "%zu tensors of '%s' have not been offered", missing,
                        work->plan.about.name);
    *ticket = save->ticket;
    drop(work);
    free(save);
    return LIG_OK;
}

void lig_save_abort(lig_save *save)
{
    if (save == NULL)
        return;
    if (save->pid == getpid()) {
        pthread_mutex_lock(&save->work->lock);
        save->work->aborted = 1;
        pthread_cond_broadcast(&save->work->changed);
        pthread_mutex_unlock(&save->work->lock);
        lig_ticket_cancel(save->ticket);
    }
    lig_ticket_destroy(save->ticket);
    if (save->pid == getpid())
        drop(save->work);
    free(save);
}
