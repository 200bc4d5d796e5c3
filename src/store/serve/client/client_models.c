#include "store/serve/client/client_models.h"

#include "base/error.h"
#include "store/serve/client/packs/client_pins.h"

#include <stdlib.h>

static lig_status list_model(lig_store *store, const ligi_served_model *from, ligi_model **model)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, from->id);
    lig_catalog_item item = {key.bytes, key.size, from->record, from->record_bytes};
    return ligi_model_list(&item, store->secret, model);
}

lig_status ligi_client_model(lig_store *store, const ligi_served_model *from, ligi_model **out)
{
    ligi_model *model = NULL;
    const ligi_sent_manifest sent = {from->manifest, from->inlined, from->manifest_bytes,
                                     from->inline_bytes};
    LIG_TRY(list_model(store, from, &model));
    lig_status status = ligi_model_receive(model, &sent);
    if (status != LIG_OK) {
        ligi_model_free(model);
        return status;
    }
    ligi_manifest_fingerprints(&model->manifest, store->secret);
    *out = model;
    return LIG_OK;
}

lig_status ligi_client_ref(lig_store *store, const ligi_client_call *call,
                           const ligi_served_model *from, lig_ref **out)
{
    const ligi_lease lease = {call->session, from->ref};
    ligi_model *model = NULL;
    lig_status status = ligi_client_model(store, from, &model);
    if (status == LIG_OK)
        status = ligi_ref_make(store, model, out);
    if (status != LIG_OK) {
        if (lease.number)
            ligi_client_ref_release(store, lease);
        return status;
    }
    if (lease.number)
        ligi_client_pins_add(ligi_client_of(store), lease, from->id);
    (*out)->lease = lease;
    (*out)->version = call->version;
    return LIG_OK;
}

lig_status ligi_client_resolve(lig_store *store, const ligi_model_key *key, int flags,
                               lig_ref **ref)
{
    ligi_client_call call = {.op = LIGI_SERVED_RESOLVE, .interrupt = &store->interrupt};
    /* A role that sees only some models reads only the bytes of models that it holds. */
    int hold = flags & LIGI_REF_HELD || store->keyless;
    ligi_served_selector selector = {
        .name = key->name, .id = key->id, .flags = hold ? LIGI_SERVED_HOLD : 0};
    ligi_served_model model;
    ligi_served_selector_put(&call.body, &selector);
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_model_get(call.reply, call.reply_bytes, &model);
    if (status == LIG_OK)
        status = ligi_client_ref(store, &call, &model, ref);
    ligi_client_call_fini(&call);
    return status;
}

void ligi_client_ref_release(lig_store *store, ligi_lease lease)
{
    ligi_client *client = ligi_client_of(store);
    ligi_lease now = lease; /* of what is not a ref */
    (void)ligi_client_pins_remove(client, lease, &now);
    if (now.number)
        ligi_client_release(client, now);
}

/* --- lists --- */

static lig_status take_list(lig_store *store, const ligi_served_list *from, lig_model ***out)
{
    lig_model **models;
    LIG_TRY(ligi_calloc(&models, from->count + 1, sizeof *models, "a list of models"));
    for (size_t i = 0; i < from->count; i++) {
        ligi_model *model = NULL;
        lig_status status = list_model(store, &from->models[i], &model);
        if (status != LIG_OK) {
            lig_models_destroy(models, i);
            return status;
        }
        models[i] = &model->shown;
    }
    *out = models;
    return LIG_OK;
}

lig_status ligi_client_models(lig_store *store, const lig_query *query, lig_model ***models,
                              size_t *count)
{
    ligi_client_call call = {.op = LIGI_SERVED_MODELS, .interrupt = &store->interrupt};
    ligi_served_list list = {0};
    ligi_served_query_put(&call.body, query);
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_list_get(call.reply, call.reply_bytes, &list);
    if (status == LIG_OK)
        status = take_list(store, &list, models);
    if (status == LIG_OK)
        *count = list.count;
    ligi_served_list_fini(&list);
    ligi_client_call_fini(&call);
    return status;
}

static lig_status take_lineage(lig_store *store, const ligi_served_lineage *from, lig_lineage **out)
{
    lig_lineage *lineage;
    LIG_TRY(ligi_calloc(&lineage, 1, sizeof *lineage, "a lineage"));
    lig_status status = take_list(store, &from->ancestors, &lineage->ancestors);
    if (status == LIG_OK) {
        lineage->ancestor_count = from->ancestors.count;
        status = take_list(store, &from->children, &lineage->children);
    }
    if (status != LIG_OK) {
        lig_lineage_destroy(lineage);
        return status;
    }
    lineage->child_count = from->children.count;
    *out = lineage;
    return LIG_OK;
}

lig_status ligi_client_lineage(lig_store *store, const ligi_model_key *key, lig_lineage **lineage)
{
    ligi_client_call call = {.op = LIGI_SERVED_LINEAGE, .interrupt = &store->interrupt};
    ligi_served_selector selector = {.name = key->name, .id = key->id, .parent = key->parent};
    ligi_served_lineage found = {0};
    ligi_served_selector_put(&call.body, &selector);
    lig_status status = ligi_client_ask(ligi_client_of(store), &call);
    if (status == LIG_OK)
        status = ligi_served_lineage_get(call.reply, call.reply_bytes, &found);
    if (status == LIG_OK)
        status = take_lineage(store, &found, lineage);
    ligi_served_lineage_fini(&found);
    ligi_client_call_fini(&call);
    return status;
}
