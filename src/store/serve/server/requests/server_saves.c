#include "store/serve/server/requests/server_saves.h"

#include "base/error.h"
#include "store/catalog/model_graphs.h"
#include "store/find/saved_graphs.h"
#include "store/load/resolved_model.h"
#include "store/serve/server/requests/server_changes.h"
#include "store/serve/server/requests/server_lookups.h"
#include "store/serve/server/requests/server_retention.h"
#include "store/serve/server/requests/uploads/server_uploads.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"

#include <stdlib.h>
#include <string.h>

#define BODY(call) (call)->job->body, (call)->job->head.body_bytes

/* --- from the description to the plan --- */

/* A number that no other tensor has, where only ties are looked at. */
static void *tie_mark(size_t index)
{
    return (void *)(uintptr_t)((index + 1) * LIGI_ALIGN_SMALL);
}

static lig_status place_tensors(ligi_served_saving *saving, const uint8_t *data)
{
    const ligi_served_save *what = &saving->what;
    LIG_TRY(ligi_calloc(&saving->tensors, what->count + 1, sizeof *saving->tensors, "a save"));
    for (size_t i = 0; i < what->count; i++) {
        lig_tensor *tensor = &saving->tensors[i];
        *tensor = what->tensors[i];
        int tied = what->tied[i] != LIGI_SERVED_NOT_TIED;
        if (tied) {
            tensor->data = saving->tensors[what->tied[i]].data;
        } else if (data && tensor->bytes) {
            tensor->data = (void *)data;
            data += tensor->bytes;
        } else if (tensor->bytes) {
            tensor->data = tie_mark(i);
        }
    }
    return LIG_OK;
}

static lig_status make_boxes(ligi_served_saving *saving)
{
    const ligi_served_save *what = &saving->what;
    if (!(what->wants & LIGI_SERVED_PART) || (what->places == NULL && what->orders == NULL))
        return LIG_OK;
    LIG_TRY(ligi_calloc(&saving->boxes, what->count + 1, sizeof *saving->boxes, "boxes"));
    for (size_t i = 0; i < what->count; i++) {
        saving->boxes[i].order = what->orders ? what->orders[i] : i;
        if (what->places && what->places[i].whole) {
            saving->boxes[i].shape = what->places[i].whole;
            saving->boxes[i].start = what->places[i].start;
        }
    }
    return LIG_OK;
}

/* For a match that ended with an earlier session of the client: its model is used as the parent. */
static lig_status find_match(ligi_served_saving *saving, ligi_served_call *call,
                             lig_save_options *options)
{
    const ligi_served_save *what = &saving->what;
    lig_ref *ref;
    if (what->match == 0)
        return LIG_OK;
    saving->match = ligi_served_held_get(call->session, what->match, ligi_served_match_release);
    if (saving->match) {
        options->match = *(lig_match **)saving->match->thing;
        return LIG_OK;
    }
    if (options->parent)
        return LIG_OK;
    lig_status status = ligi_ref_open(call->store, NULL, what->match_model, 0, &ref);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(
            status, "the match was released, and its model is gone: it was replaced or retired");
    LIG_TRY(status);
    status = ligi_strdup(&saving->parent, lig_ref_model(ref)->name);
    lig_ref_release(ref);
    options->parent = saving->parent;
    return status;
}

static lig_save_options options_of(ligi_served_saving *saving)
{
    const ligi_served_save *what = &saving->what;
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = what->flags & LIG_SAVE_REPLACE;
    options.parent = what->wants & LIGI_SERVED_COPY ? NULL : what->parent;
    options.metrics = what->metrics;
    options.metric_count = what->metric_count;
    options.tags = what->tags;
    options.tag_count = what->tag_count;
    options.meta = what->meta;
    options.structure = what->structure;
    if (what->wants & LIGI_SERVED_PART) {
        options.boxes = saving->boxes;
        options.part = &saving->part;
    } else if (what->wants & LIGI_SERVED_WANT_REF) {
        options.ref = &saving->ref;
    } else if (what->wants & LIGI_SERVED_WANT_MODEL) {
        options.model = &saving->model;
    }
    return options;
}

/* The client encoded them from its graphs; they are validated here. */
static lig_status take_graphs(ligi_served_saving *saving)
{
    const ligi_served_save *what = &saving->what;
    ligi_graphs graphs = {0};
    if (what->graph_bytes == 0)
        return LIG_OK;
    lig_status status = ligi_graphs_get(what->graphs, what->graph_bytes, &graphs);
    ligi_graphs_fini(&graphs);
    LIG_TRY(status);
    ligi_put_bytes(&saving->plan.graphs, what->graphs, what->graph_bytes);
    return saving->plan.graphs.status;
}

/* A copy keeps the name of its parent; its id is that of the model with this name here, if there is
 * one. */
static lig_status take_parent(ligi_served_saving *saving, lig_store *store)
{
    const ligi_served_save *what = &saving->what;
    ligi_catalog_view view;
    if (!(what->wants & LIGI_SERVED_COPY) || what->parent == NULL)
        return LIG_OK;
    saving->plan.about.parent_name = what->parent;
    if (!ligi_store_sees(store, what->parent))
        return LIG_OK;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = ligi_catalog_view_name(&view, what->parent, &saving->plan.about.parent);
    ligi_catalog_view_end(&view);
    return status;
}

/* A copy of a model may name any parent: only one that the role sees is looked up. A model that is
 * saved must not fail in its reply for a ref that is one too many. */
static lig_status may_save(ligi_served_call *call, const ligi_served_save *what)
{
    LIG_TRY(ligi_served_may_name(call, what->name));
    if (what->wants & LIGI_SERVED_WANT_REF)
        LIG_TRY(ligi_served_may_hold(call->session, call->job->head.body_bytes));
    return what->wants & LIGI_SERVED_COPY ? LIG_OK : ligi_served_may_name(call, what->parent);
}

lig_status ligi_served_saving_prepare(ligi_served_saving *saving, ligi_served_call *call,
                                      const uint8_t *data)
{
    const ligi_served_save *what = &saving->what;
    int part = (what->wants & LIGI_SERVED_PART) != 0;
    LIG_TRY(may_save(call, what));
    LIG_TRY(place_tensors(saving, data));
    LIG_TRY(make_boxes(saving));
    lig_save_options options = options_of(saving);
    LIG_TRY(find_match(saving, call, &options));
    ligi_plan_input input = {what->name,
                             saving->tensors,
                             what->count,
                             &options,
                             0,
                             part ? NULL : what->places,
                             part || what->places == NULL ? 0 : what->shown_count};
    LIG_TRY(ligi_save_prepare(call->store, &input, data != NULL, &saving->plan));
    LIG_TRY(take_graphs(saving));
    LIG_TRY(take_parent(saving, call->store));
    if (what->created_ns)
        saving->plan.about.created_ns = what->created_ns;
    saving->plan.flags |= what->flags & LIG_COPY_NEWER;
    saving->plan.packed = (what->wants & LIGI_SERVED_PACKED) != 0;
    return LIG_OK;
}

void ligi_served_saving_fini(ligi_served_saving *saving, lig_store *store)
{
    ligi_plan_fini(&saving->plan);
    ligi_served_let_go(saving->match);
    lig_part_close(saving->part, store);
    lig_ref_release(saving->ref);
    lig_model_destroy(saving->model);
    ligi_served_save_fini(&saving->what);
    free(saving->tensors);
    free(saving->boxes);
    free(saving->parent);
}

/* --- the reply --- */

typedef struct held_part {
    lig_part *part;
    lig_store *store; /* held */
} held_part;

static void release_part(void *thing)
{
    held_part *held = thing;
    lig_part_close(held->part, held->store);
    ligi_store_drop(held->store);
    free(held);
}

static lig_status reply_part(ligi_served_saving *saving, ligi_served_call *call)
{
    ligi_served_saved saved = {0};
    ligi_writer copy = {0};
    held_part *held;
    const void *data;
    LIG_TRY(lig_part_bytes(saving->part, &data, &saved.part_bytes));
    ligi_put_bytes(&copy, data, saved.part_bytes);
    LIG_TRY(copy.status);
    saved.part_data = copy.data;
    lig_status status = ligi_alloc(&held, sizeof *held, "a part");
    if (status == LIG_OK) {
        *held = (held_part){saving->part, call->server->store};
        ligi_store_hold(held->store);
        saving->part = NULL;
        status = ligi_served_hold(call->session, held, saved.part_bytes, release_part, &saved.part);
    }
    if (status == LIG_OK)
        ligi_served_saved_put(&call->body, &saved);
    ligi_writer_fini(&copy);
    return status;
}

/* `model` may belong to the ref, which the client may hold: written first, as in RESOLVE. */
static lig_status reply_model(ligi_served_call *call, const lig_model *model, lig_ref *ref)
{
    ligi_served_saved saved = {
        .id = model->id, .has_model = 1, .model = ligi_served_model_of(call->session, model)};
    ligi_writer copy = {0};
    if (ref == NULL) {
        ligi_served_saved_put(&call->body, &saved);
        return LIG_OK;
    }
    ligi_put_bytes(&copy, saved.model.record, saved.model.record_bytes);
    ligi_put_bytes(&copy, saved.model.manifest, saved.model.manifest_bytes);
    if (saved.model.inline_bytes)
        ligi_put_bytes(&copy, saved.model.inlined, saved.model.inline_bytes);
    lig_status status = copy.status;
    saved.model.record = copy.data;
    saved.model.manifest = copy.data + saved.model.record_bytes;
    saved.model.inlined = saved.model.manifest + saved.model.manifest_bytes;
    if (status == LIG_OK)
        status = ligi_served_hold_ref(call->session, ref, &saved.model.ref);
    else
        lig_ref_release(ref);
    if (status == LIG_OK)
        ligi_served_saved_put(&call->body, &saved);
    ligi_writer_fini(&copy);
    return status;
}

lig_status ligi_served_saving_reply(ligi_served_saving *saving, ligi_served_call *call)
{
    lig_ref *ref = saving->ref;
    if (saving->part)
        return reply_part(saving, call);
    ligi_served_keep_newest(call->server, saving->what.name);
    if (ref) {
        call->version = ref->version;
        saving->ref = NULL;
        return reply_model(call, lig_ref_model(ref), ref);
    }
    if (saving->model)
        return reply_model(call, saving->model, NULL);
    ligi_served_saved saved = {.id = saving->plan.about.id};
    ligi_served_saved_put(&call->body, &saved);
    return LIG_OK;
}

lig_status ligi_served_saving_repeat(ligi_served_saving *saving, ligi_served_call *call)
{
    const uint32_t described = LIGI_SERVED_WANT_REF | LIGI_SERVED_WANT_MODEL;
    uint32_t wants = saving->what.wants;
    ligi_served_saved saved = {.id = saving->once.model};
    lig_ref *ref = NULL;
    if (wants & described) {
        lig_status status = ligi_ref_open(call->store, NULL, saving->once.model,
                                          wants & LIGI_SERVED_WANT_REF ? LIGI_REF_HELD : 0, &ref);
        if (status != LIG_E_NOTFOUND)
            LIG_TRY(status);
    }
    if (ref == NULL) {
        ligi_served_saved_put(&call->body, &saved);
        return LIG_OK;
    }
    if (wants & LIGI_SERVED_WANT_REF)
        return reply_model(call, lig_ref_model(ref), ref);
    lig_status status = reply_model(call, lig_ref_model(ref), NULL);
    lig_ref_release(ref);
    return status;
}

/* --- a small save --- */

static lig_status save_whole(ligi_served_call *call, void *context)
{
    static const ligi_source memory = {0};
    ligi_served_saving *saving = context;
    LIG_TRY(ligi_served_saving_prepare(saving, call, call->job->data));
    return ligi_save_run(call->store, &saving->plan, &memory);
}

static lig_status run_whole(ligi_served_call *call, ligi_served_saving *saving)
{
    if (saving->what.bytes != call->job->data_bytes ||
        saving->what.bytes > LIGI_SERVED_SMALL_SAVE_BYTES)
        return lig_fail(LIG_E_CORRUPT,
                        "malformed message of a served store: %llu bytes of tensors, but %llu were "
                        "announced, and the limit is %llu",
                        (unsigned long long)call->job->data_bytes,
                        (unsigned long long)saving->what.bytes,
                        (unsigned long long)LIGI_SERVED_SMALL_SAVE_BYTES);
    LIG_TRY(ligi_served_once(call, &saving->once, save_whole, saving));
    return saving->once.repeated ? ligi_served_saving_repeat(saving, call)
                                 : ligi_served_saving_reply(saving, call);
}

lig_status ligi_served_save_run(ligi_served_call *call)
{
    ligi_served_saving saving = {0};
    lig_status status = ligi_served_save_get(BODY(call), &saving.what);
    if (status == LIG_OK && !(saving.what.wants & LIGI_SERVED_WHOLE)) {
        ligi_served_saving_fini(&saving, call->store);
        return ligi_served_upload_start(call);
    }
    if (status == LIG_OK)
        status = run_whole(call, &saving);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_served_saving_fini(&saving, call->store);
    return ligi_failure_publish(&failure);
}

/* --- joining --- */

/* The endpoint's lock is held. */
static int wrote_part(ligi_served_session *session, const lig_part_data *part)
{
    int found = 0;
    pthread_mutex_lock(&session->lock);
    for (size_t i = 0; i < session->held_count && !found; i++) {
        const void *data;
        size_t bytes;
        const ligi_served_held *held = session->held[i];
        if (held->release != release_part)
            continue;
        (void)lig_part_bytes(((const held_part *)held->thing)->part, &data, &bytes);
        found = bytes == part->bytes && memcmp(data, part->data, bytes) == 0;
    }
    pthread_mutex_unlock(&session->lock);
    return found;
}

/* A part says where its bytes are, which could be anywhere: from a limited role only those are
 * taken that this server has given to a session of the same role. */
static lig_status check_parts(ligi_served_call *call, const ligi_served_save *what)
{
    lig_server *server = call->server;
    const ligi_served_role *role = &call->session->role;
    size_t known = 0;
    if (ligi_served_scope(call->session) == NULL)
        return LIG_OK;
    ligi_net_lock(server->net);
    for (int found = 1; known < what->part_count && found; known += (size_t)found) {
        found = 0;
        for (ligi_served_session *one = server->sessions; one && !found; one = one->after)
            found = one->role.tag == role->tag && wrote_part(one, &what->parts[known]);
    }
    ligi_net_unlock(server->net);
    if (known == what->part_count)
        return LIG_OK;
    return ligi_served_denied(
        call->session,
        lig_fail(LIG_E_DENIED,
                 "permission denied: role '%s' may not 'join' part %zu of '%s': no connection of "
                 "this role has saved it and still holds it",
                 role->name, known, what->name));
}

/* What is checked here may have changed since its first run: the parts end with their session. */
static lig_status join_parts(ligi_served_call *call, void *context)
{
    ligi_served_saving *saving = context;
    const ligi_served_save *what = &saving->what;
    lig_save_options options = options_of(saving);
    lig_graph *graphs = NULL;
    size_t graph_count = 0;
    LIG_TRY(may_save(call, what));
    LIG_TRY(check_parts(call, what));
    if (what->graph_bytes)
        LIG_TRY(ligi_graphs_show(what->graphs, what->graph_bytes, &graphs, &graph_count));
    options.graphs = graphs;
    options.graph_count = graph_count;
    options.model = options.ref ? NULL : &saving->model; /* for its id */
    lig_status status =
        lig_store_join(call->store, what->name, what->parts, what->part_count, &options);
    lig_graphs_destroy(graphs);
    return status;
}

static lig_status run_join(ligi_served_call *call, ligi_served_saving *saving)
{
    LIG_TRY(ligi_served_save_get(BODY(call), &saving->what));
    if (saving->what.wants & LIGI_SERVED_PART || saving->what.count || saving->what.match)
        return lig_fail(LIG_E_INVALID,
                        "invalid options for a join: a match, boxes and `part` apply to the parts");
    LIG_TRY(ligi_served_once(call, &saving->once, join_parts, saving));
    return saving->once.repeated ? ligi_served_saving_repeat(saving, call)
                                 : ligi_served_saving_reply(saving, call);
}

lig_status ligi_served_join_run(ligi_served_call *call)
{
    ligi_served_saving saving = {0};
    ligi_failure failure;
    ligi_failure_take(&failure, run_join(call, &saving));
    ligi_served_saving_fini(&saving, call->store);
    return ligi_failure_publish(&failure);
}
