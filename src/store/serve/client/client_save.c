#include "store/serve/client/client_save.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/save/save_part.h"
#include "store/serve/client/client_models.h"
#include "store/serve/client/client_need.h"
#include "store/serve/message/served_save.h"

#include <stdlib.h>
#include <string.h>

/* A save that the server knows about. Its arguments are copied into the call's body. */
typedef struct begun_save {
    ligi_remote_save base; /* first: what a plan holds */
    ligi_client *client;
    ligi_client_call call;
    ligi_client_news news;
} begun_save;

/* --- the description --- */

static uint32_t wants_of(const ligi_plan *plan, int in_parts)
{
    return (plan->ref ? LIGI_SERVED_WANT_REF : 0) | (plan->model ? LIGI_SERVED_WANT_MODEL : 0) |
           (plan->part ? LIGI_SERVED_PART : 0) | (in_parts ? LIGI_SERVED_IN_PARTS : 0) |
           (plan->copied ? LIGI_SERVED_COPY : 0) | (plan->packed ? LIGI_SERVED_PACKED : 0);
}

static ligi_served_save about_of(const ligi_plan *plan)
{
    const ligi_about *about = &plan->about;
    int by_name = about->parent_name[0] && about->parent == 0;
    return (ligi_served_save){.name = about->name,
                              .flags = plan->flags,
                              .created_ns = plan->copied ? about->created_ns : 0,
                              .parent = by_name ? about->parent_name : NULL,
                              .match_model = plan->match_model,
                              .metrics = about->metrics,
                              .metric_count = about->metric_count,
                              .tags = about->tags,
                              .tag_count = about->tag_count,
                              .meta = about->meta,
                              .structure = plan->structure,
                              .graphs = plan->graphs.data,
                              .graph_bytes = plan->graphs.bytes};
}

static lig_status put_plan(ligi_client *client, const ligi_plan *plan, uint32_t wants,
                           ligi_writer *body)
{
    uint64_t *tied;
    ligi_served_save save = about_of(plan);
    LIG_TRY(ligi_calloc(&tied, plan->count, sizeof *tied, "a save"));
    for (size_t i = 0; i < plan->count; i++)
        tied[i] = plan->slots[i].tied == SIZE_MAX ? LIGI_SERVED_NOT_TIED : plan->slots[i].tied;
    save.wants = wants;
    ligi_net_lock(client->net); /* the server has forgotten the matches of other connections */
    save.match = plan->match.session == client->session ? plan->match.number : 0;
    ligi_net_unlock(client->net);
    save.tensors = plan->tensors;
    save.count = plan->count;
    save.tied = tied;
    save.places = plan->places;
    save.orders = plan->orders;
    save.shown_count = plan->shown_count;
    body->bytes = 0;
    ligi_served_save_put(body, &save);
    free(tied);
    return body->status;
}

/* --- the result --- */

static lig_status take_part(lig_store *store, const ligi_client_call *call,
                            const ligi_served_saved *saved, lig_part **out)
{
    const ligi_lease lease = {call->session, saved->part};
    lig_status status = ligi_part_remote(store, lease, saved->part_data, saved->part_bytes, out);
    if (status != LIG_OK)
        ligi_client_release(store->volume->self, lease);
    return status;
}

/* A save that was repeated after a lost connection may have been replaced since. */
static lig_status take_saved_ref(lig_store *store, const ligi_client_call *call,
                                 const ligi_served_saved *saved, lig_ref **ref)
{
    const ligi_model_key key = {.id = saved->id};
    return saved->has_model ? ligi_client_ref(store, call, &saved->model, ref)
                            : ligi_client_resolve(store, &key, LIGI_REF_HELD | LIGI_REF_SHOWN, ref);
}

static lig_status take_result(lig_store *store, ligi_plan *plan, const ligi_client_call *call)
{
    ligi_served_saved saved;
    LIG_TRY(ligi_served_saved_get(call->reply, call->reply_bytes, &saved));
    plan->about.id = saved.id;
    if (plan->part)
        return take_part(store, call, &saved, plan->part);
    lig_ref *ref = NULL;
    ligi_model *model = NULL;
    lig_status status = LIG_OK;
    if (plan->ref || (plan->model && !saved.has_model))
        status = take_saved_ref(store, call, &saved, &ref);
    if (status == LIG_OK && plan->model)
        status = ref ? ligi_model_copy(ref->model, store->secret, &model)
                     : ligi_client_model(store, &saved.model, &model);
    if (status != LIG_OK) {
        lig_ref_release(ref);
        return status;
    }
    if (plan->model)
        *plan->model = &model->shown;
    if (plan->ref)
        *plan->ref = ref;
    else
        lig_ref_release(ref);
    return LIG_OK;
}

/* --- a small save: all in one request --- */

static int is_small(const ligi_plan *plan, const ligi_source *source)
{
    return plan->bytes <= LIGI_SERVED_SMALL_SAVE_BYTES && !source->in_parts;
}

static lig_status gather(const ligi_plan *plan, const ligi_source *source, uint8_t *out)
{
    for (size_t i = 0; i < plan->count; i++) {
        const lig_tensor *tensor = &plan->tensors[i];
        if (source->wait)
            LIG_TRY(source->wait(source->context, i));
        if (plan->slots[i].tied != SIZE_MAX || tensor->bytes == 0)
            continue;
        if (ligi_source_flat(source, tensor))
            memcpy(out, tensor->data, tensor->bytes);
        else
            LIG_TRY(ligi_source_fill(source, plan, i, &(ligi_stretch){0, tensor->bytes, out}));
        out += tensor->bytes;
    }
    return LIG_OK;
}

static lig_status save_whole(lig_store *store, ligi_plan *plan, const ligi_source *source,
                             const ligi_interrupt *interrupt)
{
    ligi_client *client = store->volume->self;
    ligi_client_call call = {.op = LIGI_SERVED_SAVE, .interrupt = interrupt};
    uint8_t *bytes;
    LIG_TRY(ligi_alloc(&bytes, plan->bytes, "a small save"));
    const struct iovec data = {bytes, plan->bytes};
    call.data = &data;
    call.data_count = plan->bytes != 0;
    lig_status status = gather(plan, source, bytes);
    if (status == LIG_OK)
        status = put_plan(client, plan, wants_of(plan, 0) | LIGI_SERVED_WHOLE, &call.body);
    if (status == LIG_OK)
        status = ligi_client_ask(client, &call);
    if (status == LIG_OK)
        status = take_result(store, plan, &call);
    for (size_t i = 0; i < plan->count && status == LIG_OK && source->done; i++)
        source->done(source->context, i);
    ligi_client_call_fini(&call);
    free(bytes);
    return status;
}

/* --- any other: the server asks --- */

static void end_call(begun_save *self)
{
    ligi_failure failure; /* the caller's error text survives the cleanup */
    ligi_failure_take(&failure, LIG_E_CLOSED);
    ligi_client_cancel(self->client, &self->call);
    (void)ligi_client_finish(self->client, &self->call);
    (void)ligi_failure_publish(&failure);
}

static void abort_save(ligi_remote_save *base)
{
    begun_save *self = (begun_save *)base;
    if (self->call.started && ligi_net_mine(self->client->net) == LIG_OK)
        end_call(self);
    ligi_client_call_fini(&self->call);
    free(self->news.message);
    free(self);
}

/* Sends the description and waits until the server has accepted it, or has replied. */
static lig_status begin_once(begun_save *self)
{
    LIG_TRY(ligi_client_start(self->client, &self->call));
    free(self->news.message);
    self->news = (ligi_client_news){0};
    while (!self->news.accepted && !self->news.over && self->news.message == NULL)
        ligi_client_wait_news(self->client, &self->call, &self->news);
    return self->news.over && !self->news.accepted ? ligi_client_finish(self->client, &self->call)
                                                   : LIG_OK;
}

static lig_status begin(begun_save *self, int64_t *lost_ns)
{
    int64_t begin_ns = ligi_now_ns();
    for (;;) {
        lig_status status = begin_once(self);
        if (status == LIG_E_BUSY && ligi_client_may_ask_again(self->client, &self->call, begin_ns))
            continue;
        if (status == LIG_OK || self->client->options.retry == 0 || status == LIG_E_CLOSED ||
            !ligi_client_call_lost(self->client, &self->call))
            return status;
        LIG_TRY(ligi_client_again(self->client, &self->call, lost_ns));
    }
}

lig_status ligi_client_save_begin(lig_store *store, ligi_plan *plan, int in_parts)
{
    begun_save *self;
    int64_t lost_ns = 0;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a save"));
    self->base.abort = abort_save;
    self->client = store->volume->self;
    self->call.op = LIGI_SERVED_SAVE;
    self->call.keeps_messages = 1;
    self->call.interrupt = &store->interrupt;
    lig_status status = put_plan(self->client, plan, wants_of(plan, in_parts), &self->call.body);
    if (status == LIG_OK)
        status = begin(self, &lost_ns);
    if (status == LIG_OK)
        plan->begun = &self->base;
    else
        abort_save(&self->base);
    return status;
}

typedef struct responder {
    begun_save *save;
    ligi_client_saving saving;
    const ligi_interrupt *interrupt;
    uint64_t released; /* tensors whose memory the source may have reused */
    int committed, cancelled;
    ligi_failure failure; /* why it was cancelled */
} responder;

static void give_up(responder *self, lig_status status)
{
    if (self->cancelled || ligi_client_call_lost(self->save->client, &self->save->call))
        return;
    ligi_failure_take(&self->failure, status);
    self->cancelled = 1;
    ligi_client_cancel(self->save->client, &self->save->call);
}

static void tell_done(responder *self, uint64_t done)
{
    const ligi_source *source = self->saving.source;
    uint64_t count = self->saving.plan->count;
    for (; self->released < done && self->released < count; self->released++)
        if (source->done)
            source->done(source->context, self->released);
}

/* The caller may commit a save in parts only now. */
static void commit(responder *self)
{
    const ligi_source *source = self->saving.source;
    begun_save *save = self->save;
    if (self->committed || self->cancelled || !source->in_parts || !save->news.accepted ||
        save->news.done_number < self->saving.plan->count)
        return;
    lig_status status = source->wait(source->context, self->saving.plan->count);
    if (status == LIG_OK)
        status = ligi_client_tell(save->client, &save->call, LIGI_SERVED_COMMIT, NULL, NULL, 0);
    self->committed = 1;
    if (status != LIG_OK)
        give_up(self, status);
}

static void respond(responder *self)
{
    ligi_client_message *message = self->save->news.message;
    if (message && !self->cancelled) {
        lig_status status = ligi_client_answer(&self->saving, message);
        if (status != LIG_OK)
            give_up(self, status);
    }
    free(message);
    self->save->news.message = NULL;
    commit(self);
    const ligi_interrupt *interrupt = self->interrupt;
    if (message == NULL && !self->cancelled && interrupt->hook &&
        interrupt->hook(interrupt->context))
        give_up(self, lig_fail(LIG_E_CLOSED, "the save of '%s' was cancelled",
                               self->saving.plan->about.name));
}

static lig_status serve(responder *self)
{
    begun_save *save = self->save;
    for (;;) {
        tell_done(self, save->news.done_number);
        if (save->news.over && save->news.message == NULL)
            break;
        respond(self);
        ligi_client_wait_news(save->client, &save->call, &save->news);
    }
    lig_status status = ligi_client_finish(save->client, &save->call);
    if (status != LIG_OK && self->cancelled)
        return ligi_failure_publish(&self->failure);
    return status;
}

/* Sends the same request once more on a new connection. The server answers one that it has done
 * already; otherwise it asks for everything, which must still be there. */
static lig_status begin_again(responder *self, int64_t *lost_ns)
{
    begun_save *save = self->save;
    ligi_client_note_loss(save->client, &save->call, lost_ns);
    LIG_TRY(begin(save, lost_ns));
    if (save->call.started && self->released && self->saving.source->done)
        return lig_fail(LIG_E_PEER,
                        "the connection to %s was lost while '%s' was saved, and some of its "
                        "tensors may have changed since (save it again)",
                        save->client->uri, self->saving.plan->about.name);
    self->committed = 0;
    return LIG_OK;
}

/* Only a save that was running when the connection was lost is begun again: what `begin_again`
 * could not do within `retry` seconds is not tried once more. */
static lig_status run(responder *self)
{
    begun_save *save = self->save;
    int64_t lost_ns = 0;
    lig_status status = save->call.started ? serve(self) : LIG_OK;
    while (status != LIG_OK && status != LIG_E_CLOSED && !self->cancelled &&
           save->client->options.retry && ligi_client_call_lost(save->client, &save->call)) {
        LIG_TRY(begin_again(self, &lost_ns));
        status = save->call.started ? serve(self) : LIG_OK;
    }
    return status;
}

lig_status ligi_client_save_run(lig_store *store, ligi_plan *plan, const ligi_source *source)
{
    const ligi_interrupt cancelled = {source->cancelled, source->context};
    const ligi_interrupt *interrupt = source->cancelled ? &cancelled : &store->interrupt;
    if (plan->begun == NULL && is_small(plan, source))
        return save_whole(store, plan, source, interrupt);
    if (plan->begun == NULL)
        LIG_TRY(ligi_client_save_begin(store, plan, source->in_parts));
    begun_save *save = (begun_save *)plan->begun;
    save->call.interrupt = interrupt;
    responder self = {.save = save,
                      .saving = {.client = save->client,
                                 .call = &save->call,
                                 .secret = store->secret,
                                 .plan = plan,
                                 .source = source},
                      .interrupt = interrupt};
    lig_status status = run(&self);
    if (status == LIG_OK)
        tell_done(&self, plan->count);
    if (status == LIG_OK)
        status = take_result(store, plan, &save->call);
    plan->begun = NULL;
    abort_save(&save->base);
    return status;
}

/* --- parts --- */

lig_status ligi_client_join(lig_store *store, const char *model, const lig_part_data *parts,
                            size_t count, const lig_save_options *options)
{
    ligi_client_call call = {.op = LIGI_SERVED_JOIN, .interrupt = &store->interrupt};
    ligi_plan plan = {0};
    const ligi_plan_input input = {.name = model, .options = options};
    lig_status status = ligi_plan_make(&plan, &input);
    if (status == LIG_OK) {
        ligi_served_save save = about_of(&plan);
        save.wants = wants_of(&plan, 0);
        save.parts = parts;
        save.part_count = count;
        ligi_served_save_put(&call.body, &save);
        status = ligi_client_ask(store->volume->self, &call);
    }
    if (status == LIG_OK)
        status = take_result(store, &plan, &call);
    ligi_plan_fini(&plan);
    ligi_client_call_fini(&call);
    return status;
}
