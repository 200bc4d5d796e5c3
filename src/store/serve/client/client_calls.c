#include "store/serve/client/client_calls.h"

#include "base/error.h"
#include "store/serve/client/client_find.h"
#include "store/serve/client/client_models.h"
#include "store/serve/client/client_save.h"
#include "store/serve/client/packs/client_files.h"
#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_state.h"
#include "store/upkeep/report.h"

#include <stdlib.h>

/* For requests whose reply contains only a status. */
static lig_status ask_plainly(lig_store *store, ligi_client_call *call)
{
    call->interrupt = &store->interrupt;
    lig_status status = ligi_client_ask(ligi_client_of(store), call);
    ligi_client_call_fini(call);
    return status;
}

static lig_status update(lig_store *store, const char *model, const lig_update *change)
{
    ligi_client_call call = {.op = LIGI_SERVED_UPDATE};
    ligi_served_update_put(&call.body, &(ligi_served_update){model, *change});
    return ask_plainly(store, &call);
}

static lig_status alias(lig_store *store, const char *name, const char *model)
{
    ligi_client_call call = {.op = LIGI_SERVED_ALIAS};
    ligi_served_alias_put(&call.body, &(ligi_served_alias){name, model});
    return ask_plainly(store, &call);
}

static lig_status retire(lig_store *store, const char *model, int now)
{
    ligi_client_call call = {.op = now ? LIGI_SERVED_RETIRE_NOW : LIGI_SERVED_RETIRE};
    ligi_served_text_put(&call.body, model);
    lig_status status = ask_plainly(store, &call);
    ligi_client_files_drop_removed(ligi_client_of(store)->files);
    return status;
}

static lig_status restore(lig_store *store, const char *model, const char *as)
{
    ligi_client_call call = {.op = LIGI_SERVED_RESTORE};
    ligi_served_alias_put(&call.body, &(ligi_served_alias){model, as});
    return ask_plainly(store, &call);
}

static lig_status clear_time_stamps(lig_store *store, const char *name)
{
    ligi_client_call call = {.op = LIGI_SERVED_CLEAR_STAMPS};
    ligi_served_text_put(&call.body, name ? name : "");
    return ask_plainly(store, &call);
}

/* Not repeated: after a loss, the server may be another one. */
static lig_status shutdown_server(lig_store *store)
{
    ligi_client *client = ligi_client_of(store);
    ligi_client_call call = {.op = LIGI_SERVED_SHUTDOWN, .interrupt = &store->interrupt};
    lig_status status = ligi_client_start(client, &call);
    if (status == LIG_OK)
        status = ligi_client_finish(client, &call);
    if (call.stopping)
        status = LIG_OK;
    ligi_client_call_fini(&call);
    return status;
}

static lig_status alias_at(lig_store *store, size_t index, char **name, char **model)
{
    ligi_client_call call = {.op = LIGI_SERVED_ALIAS_AT, .interrupt = &store->interrupt};
    ligi_served_alias found;
    char *first = NULL, *second = NULL;
    ligi_served_number_put(&call.body, index);
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_alias_get(call.reply, call.reply_bytes, &found);
    if (status == LIG_OK)
        status = ligi_strdup(&first, found.alias);
    if (status == LIG_OK)
        status = ligi_strdup(&second, found.model);
    ligi_client_call_fini(&call);
    if (status != LIG_OK) {
        free(first);
        return status;
    }
    *name = first;
    *model = second;
    return LIG_OK;
}

static lig_status stat_store(lig_store *store, lig_store_stats *stats)
{
    ligi_client_call call = {.op = LIGI_SERVED_STAT, .interrupt = &store->interrupt};
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_stats_get(call.reply, call.reply_bytes, stats);
    ligi_client_call_fini(&call);
    return status;
}

static lig_status time_stamps(lig_store *store, const char *name, int64_t **stamps, size_t *count)
{
    ligi_client_call call = {.op = LIGI_SERVED_STAMPS, .interrupt = &store->interrupt};
    ligi_served_text_put(&call.body, name);
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_stamps_get(call.reply, call.reply_bytes, stamps, count);
    ligi_client_call_fini(&call);
    return status;
}

/* --- check and compact --- */

static lig_status make_report(const lig_report *from, lig_report **out)
{
    ligi_report *report;
    LIG_TRY(ligi_report_create(&report));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < from->problem_count && status == LIG_OK; i++)
        status = ligi_report_add(report, "%s", from->problems[i]);
    if (status != LIG_OK) {
        lig_report_destroy(&report->shown);
        return status;
    }
    report->shown.models = from->models;
    report->shown.tensors = from->tensors;
    report->shown.packs = from->packs;
    report->shown.bytes = from->bytes;
    report->shown.freed_bytes = from->freed_bytes;
    report->shown.repaired = from->repaired;
    report->shown.leftover_bytes = from->leftover_bytes;
    *out = &report->shown;
    return LIG_OK;
}

static lig_status ask_report(lig_store *store, ligi_client_call *call, lig_report **report)
{
    lig_report found = {0};
    lig_status status = ligi_client_ask(ligi_client_of(store), call);
    if (status == LIG_OK)
        status = ligi_served_report_get(call->reply, call->reply_bytes, &found);
    if (status == LIG_OK)
        status = make_report(&found, report);
    ligi_served_report_fini(&found);
    ligi_client_call_fini(call);
    return status;
}

typedef struct watched_check {
    lig_store *store;
    const lig_progress *progress;
    const ligi_client_call *call;
    uint64_t total;
} watched_check;

static int check_hook(void *context)
{
    const watched_check *self = context;
    const ligi_interrupt *interrupt = &self->store->interrupt;
    ligi_net *net = ligi_client_of(self->store)->net;
    if (interrupt->hook && interrupt->hook(interrupt->context))
        return 1;
    ligi_net_lock(net);
    uint64_t done = self->call->done_number;
    ligi_net_unlock(net);
    return self->progress && self->progress->hook(self->progress->context, done, self->total);
}

static lig_status check(lig_store *store, uint32_t flags, const lig_progress *progress,
                        lig_report **report)
{
    watched_check self = {.store = store, .progress = progress};
    const ligi_interrupt interrupt = {check_hook, &self};
    ligi_client_call call = {
        .op = LIGI_SERVED_CHECK, .interrupt = &interrupt, .keeps_messages = progress != NULL};
    self.call = &call;
    if (progress) {
        lig_store_stats stats;
        LIG_TRY(stat_store(store, &stats));
        self.total = stats.bytes;
    }
    ligi_served_number_put(&call.body, flags | (progress ? LIGI_SERVED_TELL : 0));
    LIG_TRY(ask_report(store, &call, report));
    if (progress)
        (void)progress->hook(progress->context, self.total, self.total);
    return LIG_OK;
}

static lig_status compact(lig_store *store, lig_report **report)
{
    ligi_client_call call = {.op = LIGI_SERVED_COMPACT, .interrupt = &store->interrupt};
    return ask_report(store, &call, report);
}

const ligi_remote_ops ligi_client_ops = {.resolve = ligi_client_resolve,
                                         .release = ligi_client_ref_release,
                                         .models = ligi_client_models,
                                         .lineage = ligi_client_lineage,
                                         .stat = stat_store,
                                         .alias_at = alias_at,
                                         .find = ligi_client_find,
                                         .update = update,
                                         .alias = alias,
                                         .retire = retire,
                                         .restore = restore,
                                         .check = check,
                                         .compact = compact,
                                         .time_stamps = time_stamps,
                                         .clear_time_stamps = clear_time_stamps,
                                         .shutdown_server = shutdown_server,
                                         .save_begin = ligi_client_save_begin,
                                         .save_run = ligi_client_save_run,
                                         .join = ligi_client_join};
