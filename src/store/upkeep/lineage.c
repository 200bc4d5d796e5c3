#include "store/upkeep/lineage.h"

#include "base/error.h"
#include "store/load/resolved_model.h"

#include <stdlib.h>
#include <string.h>

typedef struct list {
    lig_model **models;
    size_t count, capacity;
} list;

static lig_status add_item(list *to, const ligi_catalog_view *view, const lig_catalog_item *item)
{
    ligi_model *model = NULL;
    LIG_TRY(ligi_grow(&to->models, &to->capacity, to->count + 1, sizeof *to->models, "a lineage"));
    LIG_TRY(ligi_model_list_in(view, item, &model));
    to->models[to->count++] = &model->shown;
    return LIG_OK;
}

/* A damaged record may refer to a model that was already visited: the lineage ends there. */
static int was_passed(const list *from, uint64_t id)
{
    for (size_t i = 0; i < from->count; i++)
        if (from->models[i]->id == id)
            return 1;
    return 0;
}

static lig_status find_ancestors(const ligi_catalog_view *view, uint64_t parent, list *to)
{
    while (parent && !was_passed(to, parent)) {
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, parent);
        lig_catalog_item item;
        lig_status status = ligi_catalog_view_get(view, &key, &item);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        LIG_TRY(add_item(to, view, &item));
        if (!ligi_store_sees(view->store, to->models[to->count - 1]->name)) {
            lig_model_destroy(to->models[--to->count]);
            return LIG_OK;
        }
        parent = to->models[to->count - 1]->parent;
    }
    return LIG_OK;
}

static int by_age(const void *a, const void *b)
{
    const lig_model *left = *(lig_model *const *)a, *right = *(lig_model *const *)b;
    if (left->created_ns != right->created_ns)
        return left->created_ns < right->created_ns ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* A model that cannot be read is not listed as a child; `check` reports it. */
static lig_status find_children(const ligi_catalog_view *view, uint64_t id, list *to)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        int child = ligi_record_get(&item, view->store->secret, &record) == LIG_OK &&
                    record.about.parent == id && ligi_store_sees(view->store, record.about.name);
        ligi_record_fini(&record);
        if (child)
            LIG_TRY(add_item(to, view, &item));
    }
    if (to->count)
        qsort(to->models, to->count, sizeof *to->models, by_age);
    return status;
}

static lig_status find_family(const ligi_catalog_view *view, uint64_t id, uint64_t parent,
                              lig_lineage **out)
{
    lig_lineage *lineage = NULL;
    list ancestors = {0}, children = {0};
    lig_status status = find_ancestors(view, parent, &ancestors);
    if (status == LIG_OK)
        status = find_children(view, id, &children);
    if (status == LIG_OK)
        status = ligi_calloc(&lineage, 1, sizeof *lineage, "a lineage");
    if (status != LIG_OK) {
        lig_models_destroy(ancestors.models, ancestors.count);
        lig_models_destroy(children.models, children.count);
        return status;
    }
    *lineage = (lig_lineage){ancestors.models, children.models, ancestors.count, children.count};
    *out = lineage;
    return LIG_OK;
}

lig_status lig_store_lineage(lig_store *store, const char *model, lig_lineage **out)
{
    LIG_TRY(ligi_store_usable(store));
    if (store->remote)
        return store->remote->lineage(store, &(ligi_model_key){.name = model}, out);
    ligi_catalog_view view;
    ligi_record record = {0};
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = ligi_catalog_view_find(&view, model, &record);
    if (status == LIG_OK)
        status = find_family(&view, record.about.id, record.about.parent, out);
    ligi_record_fini(&record);
    ligi_catalog_view_end(&view);
    return status;
}

lig_status ligi_lineage_of(lig_store *store, uint64_t id, uint64_t parent, lig_lineage **out)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = find_family(&view, id, parent, out);
    ligi_catalog_view_end(&view);
    return status;
}

lig_status lig_ref_lineage(const lig_ref *ref, lig_lineage **out)
{
    LIG_TRY(ligi_ref_usable(ref));
    const ligi_about *about = &ref->model->record.about;
    if (ref->store->remote)
        return ref->store->remote->lineage(
            ref->store, &(ligi_model_key){.id = about->id, .parent = about->parent}, out);
    return ligi_lineage_of(ref->store, about->id, about->parent, out);
}

void lig_lineage_destroy(lig_lineage *lineage)
{
    if (lineage == NULL)
        return;
    lig_models_destroy(lineage->ancestors, lineage->ancestor_count);
    lig_models_destroy(lineage->children, lineage->child_count);
    free(lineage);
}
