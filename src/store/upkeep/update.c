#include "base/error.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/model_graphs.h"
#include "store/catalog/request_table.h"
#include "store/catalog/search_index.h"
#include "store/format/metrics_and_tags.h"
#include "store/quota.h"

#include <stdlib.h>
#include <string.h>

/* --- one model --- */

/* A change of the model of a name. The name is resolved in the view that the commit is checked
 * against: `edit` gets the record of the model that the name refers to when the change is made. */
typedef struct model_edit {
    const char *name;
    lig_status (*edit)(const struct model_edit *self, const ligi_catalog_view *view,
                       ligi_record *record, ligi_change *change);
    const lig_update *update;
    const char *alias;
} model_edit;

static lig_status edit_resolved(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    const model_edit *self = context;
    ligi_record record = {0};
    lig_status status = ligi_catalog_view_find(view, self->name, &record);
    if (status == LIG_OK)
        status = self->edit(self, view, &record, change);
    uint64_t id = record.about.id;
    ligi_record_fini(&record);
    LIG_TRY(status);
    return ligi_once_put(change, view->store->once, id);
}

/* --- update --- */

static lig_status check_name_free(const ligi_catalog_view *view, const char *name)
{
    uint64_t id, alias;
    LIG_TRY(ligi_catalog_view_name(view, name, &id));
    LIG_TRY(ligi_catalog_view_alias(view, name, &alias));
    if (id || alias)
        return lig_fail(LIG_E_EXISTS, "%s '%s' already exists in %s", id ? "model" : "alias", name,
                        view->store->uri);
    return LIG_OK;
}

/* Merges the labels, and keeps the search index in step. */
static lig_status merge_labels(const ligi_catalog_view *view, const lig_update *update,
                               ligi_record *record, ligi_change *change)
{
    ligi_graphs graphs = {0};
    lig_status status = ligi_graphs_read(view, record->about.id, &graphs);
    if (status == LIG_OK)
        status = ligi_search_index_model(&change->index, &record->about, &graphs, 0);
    if (status == LIG_OK)
        status = ligi_labels_merge(&record->about, update);
    if (status == LIG_OK)
        status = ligi_search_index_model(&change->index, &record->about, &graphs, 1);
    ligi_graphs_fini(&graphs);
    return status;
}

static lig_status update_model(const model_edit *self, const ligi_catalog_view *view,
                               ligi_record *record, ligi_change *change)
{
    const char *name = self->update->name, *before = NULL;
    LIG_TRY(merge_labels(view, self->update, record, change));
    if (name && strcmp(name, record->about.name) != 0) {
        LIG_TRY(check_name_free(view, name));
        ligi_catalog_key key =
            ligi_catalog_key_text(LIGI_TABLE_NAME, view->store->secret, record->about.name);
        LIG_TRY(ligi_change_erase(change, &key));
        before = record->about.name;
        record->about.name = name;
        LIG_TRY(ligi_quota_check(view, record, before));
    }
    LIG_TRY(
        ligi_change_event(change, LIG_EVENT_UPDATED, record->about.id, record->about.name, before));
    return ligi_change_model(change, record);
}

lig_status lig_store_update(lig_store *store, const char *model, const lig_update *update)
{
    LIG_TRY(ligi_store_writable(store));
    if (update->struct_bytes < sizeof *update)
        return lig_fail(LIG_E_INVALID, "the update was not initialised with LIG_UPDATE_INIT");
    if (update->flags)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x in an update", update->flags);
    LIG_TRY(ligi_metrics_check(update->metrics, update->metric_count));
    LIG_TRY(ligi_tags_check(update->tags, update->tag_count, 1));
    LIG_TRY(ligi_text_check("meta", update->meta));
    if (update->name)
        LIG_TRY(ligi_labels_check_name("model", update->name));
    if (store->remote)
        return store->remote->update(store, model, update);
    model_edit self = {.name = model, .edit = update_model, .update = update};
    return ligi_change_commit(store, edit_resolved, &self, NULL);
}

/* --- aliases --- */

static lig_status remove_alias(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    const char *alias = context;
    uint64_t id;
    LIG_TRY(ligi_catalog_view_alias(view, alias, &id));
    if (id == 0)
        return lig_fail(LIG_E_NOTFOUND, "there is no alias '%s' in %s", alias, view->store->uri);
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, view->store->secret, alias);
    change->flags |= LIG_EDIT_FREES;
    LIG_TRY(ligi_change_event(change, LIG_EVENT_ALIAS, 0, alias, NULL));
    LIG_TRY(ligi_once_put(change, view->store->once, 0));
    return ligi_change_erase(change, &key);
}

static lig_status alias_model(const model_edit *self, const ligi_catalog_view *view,
                              ligi_record *record, ligi_change *change)
{
    uint64_t taken;
    LIG_TRY(ligi_catalog_view_name(view, self->alias, &taken));
    if (taken)
        return lig_fail(LIG_E_EXISTS, "'%s' is the name of a model in %s and cannot be an alias",

                        self->alias, view->store->uri);
    LIG_TRY(ligi_change_event(change, LIG_EVENT_ALIAS, record->about.id, self->alias,
                              record->about.name));
    const void *secret = view->store->secret;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, secret, self->alias);
    ligi_alias_put(&change->value, &key, self->alias, record->about.id, secret);
    return ligi_change_put(change, &key);
}

lig_status lig_store_alias(lig_store *store, const char *alias, const char *model)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("alias", alias));
    if (store->remote)
        return store->remote->alias(store, alias, model);
    if (model == NULL)
        return ligi_change_commit(store, remove_alias, (void *)alias, NULL);
    model_edit self = {.name = model, .edit = alias_model, .alias = alias};
    return ligi_change_commit(store, edit_resolved, &self, NULL);
}

static lig_status tell_alias(const ligi_catalog_view *view, const lig_catalog_item *item,
                             char **alias, char **model)
{
    const char *text;
    uint64_t id;
    LIG_TRY(ligi_alias_get(item, view->store->secret, &text, &id));
    ligi_record record = {0};
    char *first = NULL, *second = NULL;
    lig_status status = ligi_catalog_view_model(view, id, &record);
    if (status == LIG_OK)
        status = ligi_strdup(&first, text);
    if (status == LIG_OK)
        status = ligi_strdup(&second, record.about.name);
    ligi_record_fini(&record);
    if (status != LIG_OK) {
        free(first);
        return status;
    }
    *alias = first;
    *model = second;
    return LIG_OK;
}

/* Both names must be visible: an alias is one, too. */
static int sees_alias(const ligi_catalog_view *view, const lig_catalog_item *item)
{
    const char *text;
    uint64_t id;
    ligi_record record = {0};
    if (view->store->scope == NULL)
        return 1;
    int seen = ligi_alias_get(item, view->store->secret, &text, &id) == LIG_OK &&
               ligi_store_sees(view->store, text) &&
               ligi_catalog_view_model(view, id, &record) == LIG_OK &&
               ligi_store_sees(view->store, record.about.name);
    ligi_record_fini(&record);
    return seen;
}

lig_status lig_store_alias_at(lig_store *store, size_t index, char **alias, char **model)
{
    LIG_TRY(ligi_store_usable(store));
    if (store->remote)
        return store->remote->alias_at(store, index, alias, model);
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    size_t at = 0;
    int found = 0;
    while (!found && ligi_catalog_view_next(&view, LIGI_TABLE_ALIAS, &walk, &item, &status))
        found = sees_alias(&view, &item) && at++ == index;
    if (found)
        status = tell_alias(&view, &item, alias, model);
    else if (status == LIG_OK)
        status = lig_fail(LIG_E_NOTFOUND, "%s has only %zu aliases", store->uri, at);
    ligi_catalog_view_end(&view);
    return status;
}

void lig_text_destroy(char *text)
{
    free(text);
}
