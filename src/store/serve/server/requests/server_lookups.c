#include "store/serve/server/requests/server_lookups.h"

#include "base/error.h"
#include "store/catalog/catalog_view.h"
#include "store/find/find.h"
#include "store/format/metrics_and_tags.h"
#include "store/load/resolved_model.h"
#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_find.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/message/served_state.h"
#include "store/serve/server/requests/server_grants.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"
#include "store/upkeep/lineage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_READ_BYTES (UINT64_C(64) << 10) /* a longer one is not run by the receiving thread */
#define BODY(call) (call)->job->body, (call)->job->head.body_bytes

/* --- models --- */

void ligi_served_ref_release(void *ref)
{
    lig_ref_release(ref);
}

ligi_served_model ligi_served_model_of(const ligi_served_session *session, const lig_model *shown)
{
    static const uint8_t no_key[LIG_SECRET_BYTES];
    const ligi_model *model = (const ligi_model *)shown; /* its first member */
    if (ligi_served_scope(session)) {
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, model->record.about.id);
        ligi_value_seal_again(&key, model->record_bytes, model->record_size, no_key);
    }
    return (ligi_served_model){.id = model->record.about.id,
                               .record = model->record_bytes,
                               .record_bytes = model->record_size,
                               .manifest = model->manifest_bytes,
                               .manifest_bytes = model->manifest_size,
                               .inlined = model->inline_bytes ? model->inline_data : NULL,
                               .inline_bytes = model->inline_bytes};
}

lig_status ligi_served_hold_ref(ligi_served_session *session, lig_ref *ref, uint64_t *number)
{
    if (ligi_served_scope(session) == NULL)
        ligi_model_trim(ref->model);
    return ligi_served_hold(session, ref, ligi_model_memory(ref->model), ligi_served_ref_release,
                            number);
}

lig_status ligi_served_resolve_run(ligi_served_call *call)
{
    ligi_served_selector selector;
    lig_ref *ref;
    LIG_TRY(ligi_served_selector_get(BODY(call), &selector));
    if (selector.name)
        LIG_TRY(ligi_labels_check_name("model", selector.name));
    LIG_TRY(ligi_served_may_name(call, selector.name));
    int hold = (selector.flags & LIGI_SERVED_HOLD) != 0;
    LIG_TRY(ligi_ref_open(call->store, selector.name, selector.id, hold ? LIGI_REF_HELD : 0, &ref));
    ligi_served_model model = ligi_served_model_of(call->session, lig_ref_model(ref));
    call->version = ref->version;
    if (!hold) {
        ligi_served_model_put(&call->body, &model);
        lig_ref_release(ref);
        return LIG_OK;
    }
    /* Written before it is listed, because the client may release it from then on. */
    ligi_writer rest = {0};
    ligi_served_model_put(&rest, &model);
    lig_status status = ligi_served_hold_ref(call->session, ref, &model.ref);
    if (status == LIG_OK) {
        ligi_put_varint(&call->body, model.ref); /* replaces the 0 */
        ligi_put_bytes(&call->body, rest.data + 1, rest.bytes - 1);
    }
    ligi_writer_fini(&rest);
    return status;
}

static lig_status list_of(const ligi_served_session *session, lig_model *const *models,
                          size_t count, ligi_served_list *list)
{
    LIG_TRY(ligi_calloc(&list->models, count, sizeof *list->models, "a list of models"));
    list->count = count;
    for (size_t i = 0; i < count; i++)
        list->models[i] = ligi_served_model_of(session, models[i]);
    return LIG_OK;
}

lig_status ligi_served_models_run(ligi_served_call *call)
{
    lig_query query;
    lig_model **models = NULL;
    size_t count = 0;
    ligi_served_list list = {0};
    lig_status status = ligi_served_query_get(BODY(call), &query);
    if (status == LIG_OK)
        status = lig_store_models(call->store, &query, &models, &count);
    if (status == LIG_OK)
        status = list_of(call->session, models, count, &list);
    if (status == LIG_OK)
        ligi_served_list_put(&call->body, &list);
    ligi_served_list_fini(&list);
    lig_models_destroy(models, count);
    ligi_served_query_fini(&query);
    return status;
}

lig_status ligi_served_lineage_run(ligi_served_call *call)
{
    ligi_served_selector selector;
    ligi_served_lineage found = {0};
    lig_lineage *lineage = NULL;
    LIG_TRY(ligi_served_selector_get(BODY(call), &selector));
    LIG_TRY(ligi_served_may_name(call, selector.name));
    lig_status status = selector.name
                            ? lig_store_lineage(call->store, selector.name, &lineage)
                            : ligi_lineage_of(call->store, selector.id, selector.parent, &lineage);
    if (status == LIG_OK)
        status =
            list_of(call->session, lineage->ancestors, lineage->ancestor_count, &found.ancestors);
    if (status == LIG_OK)
        status = list_of(call->session, lineage->children, lineage->child_count, &found.children);
    if (status == LIG_OK)
        ligi_served_lineage_put(&call->body, &found);
    ligi_served_lineage_fini(&found);
    lig_lineage_destroy(lineage);
    return status;
}

lig_status ligi_served_alias_at_run(ligi_served_call *call)
{
    uint64_t index;
    char *alias, *model;
    LIG_TRY(ligi_served_number_get(BODY(call), &index));
    LIG_TRY(lig_store_alias_at(call->store, index, &alias, &model));
    ligi_served_alias_put(&call->body, &(ligi_served_alias){alias, model});
    lig_text_destroy(alias);
    lig_text_destroy(model);
    return LIG_OK;
}

/* --- the store --- */

lig_status ligi_served_info_run(ligi_served_call *call)
{
    char description[1024] = "";
    const char *scope = ligi_served_scope(call->session);
    if (scope) /* limited roles do not learn the store's location and size */
        snprintf(description, sizeof description, "models of '%s*'", scope);
    else
        LIG_TRY(lig_store_describe(call->store, description, sizeof description));
    ligi_served_info info = {.uri = scope ? "a store" : lig_store_uri(call->store),
                             .description = description,
                             .release = lig_version(),
                             .card = call->server->card,
                             .card_bytes = call->server->card_bytes};
    ligi_served_info_put(&call->body, &info);
    return LIG_OK;
}

lig_status ligi_served_stat_run(ligi_served_call *call)
{
    lig_store_stats stats;
    LIG_TRY(lig_store_stat(call->store, &stats));
    call->version = stats.version;
    ligi_served_stats_put(&call->body, &stats);
    return LIG_OK;
}

lig_status ligi_served_stamps_run(ligi_served_call *call)
{
    const char *name;
    int64_t *stamps;
    size_t count;
    LIG_TRY(ligi_served_text_get(BODY(call), &name));
    LIG_TRY(lig_store_time_stamps(call->server->store, name, &stamps, &count));
    ligi_served_stamps_put(&call->body, stamps, count);
    lig_time_stamps_destroy(stamps);
    return LIG_OK;
}

/* --- packs --- */

lig_status ligi_served_pack_size_run(ligi_served_call *call)
{
    const ligi_volume *volume = call->store->volume;
    uint64_t pack, bytes;
    LIG_TRY(ligi_served_number_get(BODY(call), &pack));
    if (ligi_served_scope(call->session))
        LIG_TRY(ligi_served_grant_size(call, pack, &bytes));
    else
        LIG_TRY(volume->ops->pack_size(volume->self, pack, &bytes));
    ligi_served_number_put(&call->body, bytes);
    return LIG_OK;
}

static lig_status read_ranges(ligi_served_call *call, const ligi_served_read *read)
{
    const lig_store *store = call->store;
    lig_range *ranges;
    uint64_t *hashes = NULL;
    size_t bad;
    int64_t begin = ligi_now_ns();
    LIG_TRY(ligi_calloc(&ranges, read->count, sizeof *ranges, "ranges"));
    uint8_t *at = call->data;
    for (size_t i = 0; i < read->count; i++) {
        ranges[i] = (lig_range){
            .data = at, .bytes = read->ranges[i].bytes, .offset = read->ranges[i].offset};
        at += read->ranges[i].bytes;
    }
    lig_status status = ligi_served_grant_read(call, read, ranges, &hashes);
    if (status == LIG_OK)
        status = store->volume->ops->pack_read(store->volume->self, read->pack, store->secret,
                                               ranges, read->count, &bad);
    free(hashes);
    free(ranges);
    ligi_stamps_note(&call->store->stamps, LIGI_STAMP_READ, begin);
    return status;
}

static lig_status check_read(const ligi_served_read *read)
{
    if (read->count == 0 || read->bytes > LIGI_SERVED_READ_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "invalid size of a read: %llu bytes, expected 1 to %llu",
                        (unsigned long long)read->bytes,
                        (unsigned long long)LIGI_SERVED_READ_BYTES_MAX);
    return LIG_OK;
}

lig_status ligi_served_read_run(ligi_served_call *call)
{
    ligi_served_read read = {0};
    lig_status status = ligi_served_read_get(BODY(call), &read);
    if (status == LIG_OK)
        status = check_read(&read);
    if (status == LIG_OK && read.bytes > SHORT_READ_BYTES && ligi_served_pass_on(call)) {
        ligi_served_read_fini(&read);
        return LIG_OK;
    }
    if (status == LIG_OK)
        status = ligi_served_charge(call->session, read.bytes);
    if (status == LIG_OK) {
        call->charge = read.bytes;
        status = ligi_served_buffer_take(&call->server->buffers, read.bytes, &call->data);
    }
    if (status == LIG_OK) {
        call->data_bytes = read.bytes;
        status = read_ranges(call, &read);
    }
    ligi_served_read_fini(&read);
    return status;
}

/* --- search --- */

void ligi_served_match_release(void *match)
{
    lig_matches_destroy(match, 1);
}

/* Takes *match over. */
static lig_status hold_match(ligi_served_call *call, lig_match **match, ligi_served_match *out)
{
    lig_match **one;
    const lig_match *shown = *match;
    lig_status status = ligi_alloc(&one, sizeof *one, "a match");
    if (status != LIG_OK)
        return status;
    *one = *match;
    *match = NULL;
    *out = (ligi_served_match){.model = ligi_served_model_of(call->session, shown->model),
                               .expires_ns = shown->expires_ns,
                               .bytes = shown->bytes,
                               .layers = shown->layers,
                               .layer_count = shown->layer_count,
                               .tensors = shown->tensors,
                               .tensor_count = shown->tensor_count};
    return ligi_served_hold(call->session, one, ligi_model_memory((*one)->ref->model),
                            ligi_served_match_release, &out->model.ref);
}

/* The client cannot release a match before it has the reply, and a session that ends before that
 * makes hold fail for the next one only: each is kept by a use of its own until it is written. */
static lig_status put_matches(ligi_served_call *call, lig_match **matches, size_t count)
{
    ligi_served_matches found = {0};
    ligi_served_held **held;
    LIG_TRY(ligi_calloc(&held, count, sizeof *held, "matches"));
    lig_status status = ligi_calloc(&found.matches, count, sizeof *found.matches, "matches");
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        status = hold_match(call, &matches[i], &found.matches[i]);
        if (status == LIG_OK)
            held[i] = ligi_served_held_get(call->session, found.matches[i].model.ref,
                                           ligi_served_match_release);
        if (status == LIG_OK && held[i] == NULL)
            status = lig_fail(LIG_E_CLOSED, "the session has ended");
        found.count = i + 1;
    }
    if (status == LIG_OK)
        ligi_served_matches_put(&call->body, &found);
    for (size_t i = 0; i < found.count; i++) {
        if (held[i] && status != LIG_OK)
            ligi_served_release(call->session, held[i]->number);
        ligi_served_let_go(held[i]);
    }
    free(held);
    free(found.matches);
    return status;
}

static lig_status search(ligi_served_call *call, const ligi_served_find *find, lig_match ***matches,
                         size_t *count)
{
    if (find->like)
        return lig_store_find_like(call->store, find->like, &find->options, matches, count);
    ligi_layers layers = {0};
    ligi_reader reader = {.data = find->layers, .bytes = find->layer_bytes};
    int64_t begin = ligi_now_ns();
    lig_status status = ligi_layers_get(&reader, &layers);
    if (status == LIG_OK)
        status = ligi_served_end(&reader, "graph");
    if (status == LIG_OK)
        status = ligi_find_layers(call->store, &layers, &find->options, matches, count);
    ligi_layers_fini(&layers);
    ligi_stamps_note(&call->store->stamps, LIGI_STAMP_FIND, begin);
    return status;
}

int ligi_served_release_is_short(ligi_served_call *call, uint64_t number)
{
    ligi_served_held *held = ligi_served_held_get(call->session, number, ligi_served_ref_release);
    const lig_ref *ref = held ? held->thing : NULL;
    if (held == NULL) {
        held = ligi_served_held_get(call->session, number, ligi_served_match_release);
        ref = held ? (*(lig_match **)held->thing)->ref : NULL;
    }
    int is_short = ref && ligi_catalog_view_unchanged(call->store, ref->version) == LIG_OK;
    ligi_served_let_go(held);
    return is_short;
}

lig_status ligi_served_find_run(ligi_served_call *call)
{
    ligi_served_find find = {0};
    lig_match **matches = NULL;
    size_t count = 0;
    lig_status status = ligi_served_find_get(BODY(call), &find);
    if (status == LIG_OK)
        status = ligi_served_may_name(call, find.like);
    if (status == LIG_OK)
        status = search(call, &find, &matches, &count);
    if (status == LIG_OK)
        status = put_matches(call, matches, count);
    lig_matches_destroy(matches, count); /* those that are held are no longer in it */
    ligi_served_find_fini(&find);
    return status;
}
