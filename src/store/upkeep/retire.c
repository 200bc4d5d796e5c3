#include "store/upkeep/retire.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/request_table.h"
#include "store/catalog/retired_models.h"
#include "store/format/metrics_and_tags.h"
#include "store/quota.h"

#include <ligament/serve.h>

#include <stdlib.h>
#include <string.h>

enum { PURGED_MAX = 64 }; /* by one commit */

typedef struct retiring {
    const char *name, *as;
    uint64_t id;       /* 0: any */
    int64_t kept_ns;   /* how long it is kept; 0: not at all */
    int64_t before_ns; /* of a purge */
    size_t count;      /* of what was done */
    int more, begun;   /* there is more to do; a commit before did a part */
} retiring;

/* --- retire --- */

static lig_status retire_record(const retiring *self, const ligi_record *record,
                                ligi_change *change)
{
    LIG_TRY(
        ligi_change_event(change, LIG_EVENT_RETIRED, record->about.id, record->about.name, NULL));
    if (self->kept_ns)
        return ligi_change_hide(change, record, ligi_date_ns() + self->kept_ns);
    change->flags |= LIG_EDIT_FREES;
    return ligi_change_remove(change, record, 0, 0);
}

static lig_status retire_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    const retiring *self = context;
    ligi_record record = {0};
    lig_status status = ligi_catalog_view_find(view, self->name, &record);
    int other = self->id && (status == LIG_E_NOTFOUND || record.about.id != self->id);
    if (status == LIG_OK && !other)
        status = retire_record(self, &record, change);
    uint64_t id = record.about.id;
    ligi_record_fini(&record);
    if (other)
        return LIG_OK;
    LIG_TRY(status);
    return ligi_once_put(change, view->store->once, id);
}

static lig_status run(lig_store *store, retiring *self, ligi_edit edit)
{
    int64_t begin = ligi_now_ns();
    lig_status status = ligi_change_commit(store, edit, self, NULL);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_RETIRE, begin);
    return status;
}

lig_status lig_store_retire(lig_store *store, const char *model)
{
    LIG_TRY(ligi_store_writable(store));
    if (store->remote)
        return store->remote->retire(store, model, 0);
    retiring self = {.name = model, .kept_ns = store->undelete_ns};
    return run(store, &self, retire_edit);
}

lig_status ligi_retire_id(lig_store *store, const char *model, uint64_t id)
{
    retiring self = {.name = model, .id = id, .kept_ns = store->undelete_ns};
    return run(store, &self, retire_edit);
}

/* --- for good --- */

static lig_status purge_one(ligi_change *change, const ligi_record *record)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_RETIRED, record->about.id);
    change->flags |= LIG_EDIT_FREES;
    LIG_TRY(ligi_change_erase(change, &key));
    return ligi_change_uses(change, record, -1, 0);
}

/* Those of the name or, without one, those whose time is over. */
static lig_status purge_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    retiring *self = context;
    ligi_walk walk = {0};
    ligi_retired retired;
    ligi_record record;
    lig_status status;
    self->count = 0;
    self->more = 0;
    while (!self->more && ligi_retired_next(view, &walk, &retired, &record, &status)) {
        int wanted = self->name ? strcmp(record.about.name, self->name) == 0
                                : retired.until_ns <= self->before_ns;
        self->more = wanted && self->count == PURGED_MAX;
        wanted = wanted && !self->more;
        status = wanted ? purge_one(change, &record) : LIG_OK;
        self->count += (size_t)wanted;
        ligi_record_fini(&record);
        LIG_TRY(status);
    }
    LIG_TRY(status);
    if (self->name && (self->count || self->begun) && !self->more)
        return ligi_once_put(change, view->store->once, 0);
    return LIG_OK;
}

/* A commit is made only if there is something to do. */
static lig_status has_overdue(lig_store *store, int64_t now_ns, int *some)
{
    ligi_catalog_view view;
    ligi_walk walk = {0};
    ligi_retired retired;
    ligi_record record;
    lig_status status;
    *some = 0;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    while (!*some && ligi_retired_next(&view, &walk, &retired, &record, &status)) {
        *some = retired.until_ns <= now_ns;
        ligi_record_fini(&record);
    }
    ligi_catalog_view_end(&view);
    return *some ? LIG_OK : status;
}

lig_status ligi_retired_purge(lig_store *store, uint64_t *freed)
{
    retiring self = {.before_ns = ligi_date_ns()};
    uint64_t bytes = 0;
    int some;
    LIG_TRY(has_overdue(store, self.before_ns, &some));
    lig_status status = LIG_OK;
    for (self.more = some; self.more && status == LIG_OK;)
        status = ligi_change_commit(store, purge_edit, &self, &bytes);
    if (freed)
        *freed += bytes;
    return status;
}

static lig_status now_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    retiring *self = context;
    uint64_t id, alias;
    self->more = 0;
    LIG_TRY(ligi_once_check(view, view->store->once)); /* only the last commit has its record */
    LIG_TRY(ligi_catalog_view_name(view, self->name, &id));
    LIG_TRY(ligi_catalog_view_alias(view, self->name, &alias));
    if ((id || alias) && !self->begun) /* one that was saved since is another's */
        return retire_edit(context, view, change);
    LIG_TRY(purge_edit(context, view, change));
    return self->count || self->begun ? LIG_OK
                                      : lig_fail(LIG_E_NOTFOUND, "there is no model '%s' in %s",
                                                 self->name, view->store->uri);
}

lig_status lig_store_retire_now(lig_store *store, const char *model)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    if (store->remote)
        return store->remote->retire(store, model, 1);
    retiring self = {.name = model};
    lig_status status;
    do {
        status = run(store, &self, now_edit);
        self.begun = self.more;
    } while (status == LIG_OK && self.more);
    return status;
}

/* --- back --- */

/* The last one of that name; *id 0: there is none. */
static lig_status find_retired(const ligi_catalog_view *view, const char *name, uint64_t *id)
{
    ligi_walk walk = {0};
    ligi_retired retired;
    ligi_record record;
    lig_status status;
    int64_t until_ns = 0;
    *id = 0;
    while (ligi_retired_next(view, &walk, &retired, &record, &status)) {
        if (strcmp(record.about.name, name) == 0 && retired.until_ns >= until_ns) {
            *id = retired.id;
            until_ns = retired.until_ns;
        }
        ligi_record_fini(&record);
    }
    return status;
}

static lig_status check_free(const ligi_catalog_view *view, const char *name)
{
    uint64_t id, alias;
    LIG_TRY(ligi_catalog_view_name(view, name, &id));
    LIG_TRY(ligi_catalog_view_alias(view, name, &alias));
    if (id || alias)
        return lig_fail(LIG_E_EXISTS,
                        "%s '%s' already exists in %s (restore the retired model under another "
                        "name: --as, as_)",
                        id ? "model" : "alias", name, view->store->uri);
    return LIG_OK;
}

static lig_status put_back(const ligi_retired *retired, ligi_record *record, ligi_change *change)
{
    if (retired->inline_bytes) {
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, retired->id);
        change->value.bytes = 0;
        ligi_put_bytes(&change->value, retired->inlined, retired->inline_bytes);
        LIG_TRY(ligi_change_put(change, &key));
    }
    LIG_TRY(ligi_change_graphs(change, &record->about, retired->graphs, retired->graph_bytes));
    LIG_TRY(ligi_change_event(change, LIG_EVENT_SAVED, record->about.id, record->about.name, NULL));
    return ligi_change_model(change, record);
}

static lig_status restore_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    const retiring *self = context;
    ligi_retired retired = {0};
    ligi_record record = {0};
    lig_catalog_item item;
    uint64_t id;
    LIG_TRY(find_retired(view, self->name, &id));
    if (id == 0)
        return lig_fail(LIG_E_NOTFOUND,
                        "no retired model '%s' is kept in %s (a server keeps them for --undelete)",
                        self->name, view->store->uri);
    LIG_TRY(check_free(view, self->as));
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_RETIRED, id);
    LIG_TRY(ligi_catalog_view_get(view, &key, &item));
    LIG_TRY(ligi_retired_get(&item, view->store->secret, &retired));
    lig_status status = ligi_retired_record(&retired, view->store->secret, &record);
    record.about.name = self->as;
    if (status == LIG_OK)
        status = ligi_quota_check(view, &record, self->name);
    if (status == LIG_OK)
        status = ligi_change_erase(change, &key);
    if (status == LIG_OK)
        status = put_back(&retired, &record, change);
    ligi_record_fini(&record);
    LIG_TRY(status);
    return ligi_once_put(change, view->store->once, id);
}

lig_status lig_store_restore(lig_store *store, const char *model, const char *as)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    if (as)
        LIG_TRY(ligi_labels_check_name("model", as));
    if (store->remote)
        return store->remote->restore(store, model, as);
    retiring self = {.name = model, .as = as ? as : model};
    return ligi_change_commit(store, restore_edit, &self, NULL);
}
