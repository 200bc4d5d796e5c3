#include "store/load/resolved_model.h"

#include "base/error.h"
#include "store/catalog/catalog_wait.h"
#include "store/catalog/orphans.h"
#include "store/format/metrics_and_tags.h"

#include <assert.h>
#include <stdlib.h>

/* Retries for a model that is replaced repeatedly while it is read: the number is bounded. */
enum { READ_TRIES = 100 };

/* --- what it holds --- */

lig_status ligi_ref_make(lig_store *store, ligi_model *model, lig_ref **out)
{
    lig_ref *ref;
    lig_status status = ligi_calloc(&ref, 1, sizeof *ref, "a ref");
    if (status != LIG_OK) {
        ligi_model_free(model);
        return status;
    }
    ligi_store_hold(store);
    ref->store = store;
    ref->model = model;
    *out = ref;
    return LIG_OK;
}

lig_status ligi_ref_pin(lig_ref *ref, int64_t lease_ns)
{
    const ligi_record *record = &ref->model->record;
    assert(ref->pin == NULL);
    return ligi_pin_take(ref->store, record->uses, record->use_count, lease_ns, &ref->pin);
}

lig_status ligi_ref_hold(lig_ref *ref, int *gone)
{
    const ligi_record *record = &ref->model->record;
    assert(ref->pin == NULL && ref->maps.count == 0);
    if (record->use_count == 0)
        return LIG_OK;
    if (ref->store->mode != 'r' && ligi_ref_pin(ref, LIGI_PIN_ENDLESS) == LIG_OK)
        return LIG_OK;
    return ligi_maps_take(&ref->maps, ref->store, record->uses, record->use_count, gone);
}

/* The process that removed the last model of a pack could not remove the pack while it was
 * pinned. */
static void clean(const lig_ref *ref)
{
    const ligi_record *record = &ref->model->record;
    ligi_catalog_view view;
    if (ligi_catalog_view_begin(ref->store, &view) != LIG_OK)
        return;
    int changed = view.version != ref->version;
    size_t first = 0;
    for (; first < record->use_count && changed; first++) {
        ligi_pack_record pack;
        if (ligi_catalog_view_pack(&view, record->uses[first].pack, &pack) == LIG_E_NOTFOUND)
            break;
    }
    ligi_catalog_view_end(&view);
    for (; first < record->use_count && changed; first++)
        ligi_orphans_remove_pack(ref->store, record->uses[first].pack);
}

void ligi_ref_unpin(lig_ref *ref)
{
    ligi_maps_fini(&ref->maps, ref->store);
    if (ref->pin == NULL && ref->lease.number == 0)
        return;
    ligi_failure failure; /* callers release before they return their error */
    ligi_failure_take(&failure, LIG_E_IO);
    ligi_pin_release(ref->pin);
    ref->pin = NULL;
    int usable = ligi_store_usable(ref->store) == LIG_OK;
    if (usable && ref->lease.number)
        ref->store->remote->release(ref->store, ref->lease);
    else if (usable)
        clean(ref);
    ref->lease = (ligi_lease){0};
    (void)ligi_failure_publish(&failure);
}

lig_model *lig_ref_detach(lig_ref *ref)
{
    ligi_model *model = ref->model;
    ligi_ref_unpin(ref);
    ligi_store_drop(ref->store);
    free(ref);
    return &model->shown;
}

void lig_ref_release(lig_ref *ref)
{
    if (ref)
        lig_model_destroy(lig_ref_detach(ref));
}

const lig_model *lig_ref_model(const lig_ref *ref)
{
    return &ref->model->shown;
}

lig_status ligi_ref_usable(const lig_ref *ref)
{
    return ligi_store_usable(ref->store);
}

/* --- resolving --- */

static int same_place(const ligi_record *a, const ligi_record *b)
{
    return a->pack == b->pack && a->manifest_hash == b->manifest_hash;
}

static lig_status is_current_remote(const lig_ref *ref, int *current)
{
    const ligi_record *mine = &ref->model->record;
    const ligi_model_key key = {.id = mine->about.id};
    lig_ref *now = NULL;
    lig_status status = ref->store->remote->resolve(ref->store, &key, 0, &now);
    *current = status == LIG_OK && same_place(&now->model->record, mine);
    lig_ref_release(now);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* *current: the catalog at *version still has the model in the same packs; a compaction rewrites
 * packs. */
static lig_status is_current(const lig_ref *ref, uint64_t *version, int *current)
{
    const ligi_record *mine = &ref->model->record;
    if (ref->store->remote)
        return is_current_remote(ref, current);
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(ref->store, &view));
    lig_status status = LIG_OK;
    *current = view.version == *version;
    *version = view.version;
    if (!*current) {
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, mine->about.id);
        lig_catalog_item item;
        ligi_record now = {0};
        status = ligi_catalog_view_get(&view, &key, &item);
        if (status == LIG_OK)
            status = ligi_record_get(&item, ref->store->secret, &now);
        *current = status == LIG_OK && same_place(&now, mine);
        ligi_record_fini(&now);
    }
    ligi_catalog_view_end(&view);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

lig_status ligi_ref_at(const ligi_catalog_view *view, uint64_t id, lig_ref **out)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    lig_catalog_item item;
    ligi_model *model = NULL;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_OK)
        status = ligi_model_list_in(view, &item, &model);
    if (status == LIG_OK && !ligi_store_sees(view->store, model->shown.name)) {
        ligi_model_free(model);
        status = LIG_E_NOTFOUND;
    }
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status, "model %llu is no longer in %s: it was replaced or retired",
                        (unsigned long long)id, view->store->uri);
    LIG_TRY(status);
    LIG_TRY(ligi_ref_make(view->store, model, out));
    (*out)->version = view->version;
    return LIG_OK;
}

static lig_status find(const ligi_catalog_view *view, const char *name, uint64_t id, lig_ref **out)
{
    if (name) {
        ligi_record found = {0};
        lig_status status = ligi_catalog_view_find(view, name, &found);
        id = found.about.id;
        ligi_record_fini(&found);
        LIG_TRY(status);
    }
    return ligi_ref_at(view, id, out);
}

static lig_status fill(lig_ref *ref, const ligi_catalog_view *view, int flags, int *gone)
{
    if (flags & LIGI_REF_HELD)
        LIG_TRY(ligi_ref_hold(ref, gone));
    LIG_TRY(ligi_model_fill(ref->store, view, ref->model, gone));
    if (flags & LIGI_REF_SHOWN)
        ligi_manifest_fingerprints(&ref->model->manifest, ref->store->secret);
    return LIG_OK;
}

/* Pins the model first and then checks that the catalog still has it: a pack is removed from the
 * catalog first, and pins are checked after that. *ref is set even if its bytes do not exist
 * (*gone). */
static lig_status attempt(lig_store *store, const char *name, uint64_t id, int flags, int *gone,
                          lig_ref **ref)
{
    ligi_catalog_view view;
    *gone = 0;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = find(&view, name, id, ref);
    if (status == LIG_OK)
        status = fill(*ref, &view, flags, gone);
    ligi_catalog_view_end(&view);
    if (status != LIG_OK || (*ref)->pin == NULL)
        return status;
    int current = 1;
    LIG_TRY(is_current(*ref, &(*ref)->version, &current));
    *gone = !current;
    return current ? LIG_OK : LIG_E_BUSY;
}

/* A pack of the model is missing. If a view that is newer than the removal of any missing pack
 * still has the model, the store is damaged. Otherwise *again is set: looking up the name again may
 * find another model. */
static lig_status lost(const lig_ref *ref, int *again)
{
    const char *name = ref->model->record.about.name;
    uint64_t version = 0;
    int current = 0;
    *again = 0;
    if (ref->store->remote == NULL)
        LIG_TRY(ligi_catalog_settle(ref->store, &ref->store->interrupt, ref->store->commit_ns));
    LIG_TRY(is_current(ref, &version, &current));
    if (current)
        return lig_fail(LIG_E_CORRUPT, "model '%s': a pack that it needs is missing", name);
    *again = 1;
    return lig_fail(LIG_E_NOTFOUND,
                    "model '%s' was replaced or retired and its data removed (look it up again)",
                    name);
}

lig_status ligi_ref_lost(const lig_ref *ref)
{
    int again;
    return lost(ref, &again);
}

lig_status ligi_ref_open(lig_store *store, const char *name, uint64_t id, int flags, lig_ref **out)
{
    if (store->remote)
        return store->remote->resolve(store, &(ligi_model_key){.name = name, .id = id}, flags, out);
    for (int i = 0; i < READ_TRIES; i++) {
        lig_ref *ref = NULL;
        int gone, again = 0;
        int64_t begin = ligi_now_ns();
        lig_status status = attempt(store, name, id, flags, &gone, &ref);
        ligi_stamps_note(&store->stamps, LIGI_STAMP_LOOKUP, begin);
        if (status == LIG_OK) {
            *out = ref;
            return LIG_OK;
        }
        if (gone)
            status = lost(ref, &again);
        else
            again = status == LIG_E_BUSY; /* the view was too old */
        lig_ref_release(ref);
        if (!again)
            return status;
    }
    return lig_fail(LIG_E_BUSY, "model '%s' is replaced faster than it can be read",
                    name ? name : "");
}

lig_status ligi_ref_with(lig_store *store, const char *name, int flags, ligi_act act, void *context)
{
    for (int i = 0; i < READ_TRIES; i++) {
        lig_ref *ref = NULL;
        int gone = 0, again = 0;
        LIG_TRY(ligi_ref_open(store, name, 0, flags | (i ? LIGI_REF_HELD : 0), &ref));
        lig_status status = act(context, ref, &gone);
        if (status != LIG_OK && gone)
            status = lost(ref, &again);
        lig_ref_release(ref);
        if (!again)
            return status;
    }
    return lig_fail(LIG_E_BUSY, "model '%s' is replaced faster than it can be read", name);
}

/* --- the calls --- */

lig_status lig_store_resolve(lig_store *store, const char *model, lig_ref **ref)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    return ligi_ref_open(store, model, 0, LIGI_REF_HELD | LIGI_REF_SHOWN, ref);
}

lig_status lig_store_resolve_id(lig_store *store, uint64_t id, lig_ref **ref)
{
    LIG_TRY(ligi_store_usable(store));
    return ligi_ref_open(store, NULL, id, LIGI_REF_HELD | LIGI_REF_SHOWN, ref);
}

static lig_status describe(lig_store *store, const char *name, uint64_t id, lig_model **out)
{
    lig_ref *ref;
    LIG_TRY(ligi_ref_open(store, name, id, LIGI_REF_SHOWN, &ref));
    *out = lig_ref_detach(ref);
    return LIG_OK;
}

lig_status lig_store_model(lig_store *store, const char *model, lig_model **out)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    return describe(store, model, 0, out);
}

lig_status lig_store_model_id(lig_store *store, uint64_t id, lig_model **out)
{
    LIG_TRY(ligi_store_usable(store));
    return describe(store, NULL, id, out);
}
