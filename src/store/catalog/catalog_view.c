#include "store/catalog/catalog_view.h"

#include "base/error.h"
#include "store/catalog/rebuild/catalog_from_footers.h"
#include "store/format/metrics_and_tags.h"

#include <string.h>

/* The packs are read without the lock; if two threads do so, the second discards its table.
 */
static lig_status begin_footers(lig_store *store, ligi_catalog_view *view)
{
    ligi_footers_options options = {0};
    ligi_pack_header header;
    pthread_mutex_lock(&store->lock);
    ligi_footers *before = store->footers, *now = NULL;
    if (before)
        ligi_footers_hold(before);
    pthread_mutex_unlock(&store->lock);
    if (before && ligi_footers_header(before, &header))
        options.uuid = header.uuid;
    lig_status status = ligi_footers_read(store->volume, before, &options, &now);
    if (status == LIG_OK) {
        pthread_mutex_lock(&store->lock);
        if (store->footers == before) {
            ligi_footers_drop(before);
            ligi_footers_hold(now);
            store->footers = now;
        }
        if (!store->secret_known && ligi_footers_header(now, &header)) {
            memcpy(store->uuid, header.uuid, sizeof header.uuid);
            memcpy(store->secret, header.secret, sizeof header.secret);
            store->secret_known = 1;
        }
        pthread_mutex_unlock(&store->lock);
        *view = (ligi_catalog_view){
            .store = store, .footers = now, .version = ligi_footers_version(now)};
    }
    ligi_footers_drop(before);
    return status;
}

lig_status ligi_catalog_view_begin(lig_store *store, ligi_catalog_view *view)
{
    if (store->by_footers)
        return begin_footers(store, view);
    *view = (ligi_catalog_view){.store = store};
    return store->volume->ops->catalog_begin(store->volume->self, &view->snapshot, &view->version);
}

void ligi_catalog_view_end(ligi_catalog_view *view)
{
    if (view->footers)
        ligi_footers_drop(view->footers);
    else
        view->store->volume->ops->catalog_end(view->snapshot);
    memset(view, 0, sizeof *view);
}

lig_status ligi_catalog_view_version(lig_store *store, uint64_t *version)
{
    ligi_catalog_view now;
    LIG_TRY(ligi_catalog_view_begin(store, &now));
    *version = now.version;
    ligi_catalog_view_end(&now);
    return LIG_OK;
}

lig_status ligi_catalog_view_unchanged(lig_store *store, uint64_t version)
{
    uint64_t now;
    LIG_TRY(ligi_catalog_view_version(store, &now));
    return now == version ? LIG_OK : LIG_E_BUSY;
}

lig_status ligi_catalog_view_seek(const ligi_catalog_view *view, const ligi_catalog_key *key,
                                  lig_catalog_item *item)
{
    if (view->footers)
        return ligi_footers_seek(view->footers, key->bytes, key->size, item) ? LIG_OK
                                                                             : LIG_E_NOTFOUND;
    return view->store->volume->ops->catalog_seek(view->snapshot, key->bytes, key->size, item);
}

lig_status ligi_catalog_view_get(const ligi_catalog_view *view, const ligi_catalog_key *key,
                                 lig_catalog_item *item)
{
    if (!view->footers)
        return view->store->volume->ops->catalog_get(view->snapshot, key->bytes, key->size, item);
    LIG_TRY(ligi_catalog_view_seek(view, key, item));
    int equal = item->key_bytes == key->size && memcmp(item->key, key->bytes, key->size) == 0;
    return equal ? LIG_OK : LIG_E_NOTFOUND;
}

int ligi_catalog_view_next(const ligi_catalog_view *view, enum ligi_table table, ligi_walk *walk,
                           lig_catalog_item *item, lig_status *status)
{
    if (walk->key_bytes == 0) {
        walk->key[0] = (uint8_t)table;
        walk->key_bytes = 1;
    }
    if (view->footers)
        *status = ligi_footers_seek(view->footers, walk->key, walk->key_bytes, item)
                      ? LIG_OK
                      : LIG_E_NOTFOUND;
    else
        *status = view->store->volume->ops->catalog_seek(view->snapshot, walk->key, walk->key_bytes,
                                                         item);
    if (*status == LIG_E_NOTFOUND)
        *status = LIG_OK;
    else if (*status == LIG_OK && item->key_bytes < sizeof walk->key &&
             *(const uint8_t *)item->key == table) {
        /* The key followed by a zero: the smallest greater key. */
        memcpy(walk->key, item->key, item->key_bytes);
        walk->key[item->key_bytes] = 0;
        walk->key_bytes = item->key_bytes + 1;
        if (walk->key_bytes > 64)
            *status = lig_fail(LIG_E_CORRUPT, "the catalog contains a key that is too long");
        return *status == LIG_OK;
    }
    return 0;
}

lig_status ligi_catalog_view_name(const ligi_catalog_view *view, const char *name, uint64_t *id)
{
    const void *secret = view->store->secret;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_NAME, secret, name);
    lig_catalog_item item;
    *id = 0;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    return ligi_catalog_name_get(&item, secret, id);
}

lig_status ligi_catalog_view_alias(const ligi_catalog_view *view, const char *alias, uint64_t *id)
{
    const void *secret = view->store->secret;
    ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, secret, alias);
    lig_catalog_item item;
    const char *text;
    *id = 0;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    LIG_TRY(ligi_alias_get(&item, secret, &text, id));
    if (strcmp(text, alias) != 0)
        return lig_fail(LIG_E_CORRUPT, "the catalog record of alias '%s' belongs to '%s'", alias,
                        text);
    return LIG_OK;
}

lig_status ligi_catalog_view_model(const ligi_catalog_view *view, uint64_t id, ligi_record *record)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT, "the catalog refers to model %llu but has no record of it",
                        (unsigned long long)id);
    LIG_TRY(status);
    return ligi_record_get(&item, view->store->secret, record);
}

static lig_status no_model(const ligi_catalog_view *view, const char *name)
{
    return lig_fail(LIG_E_NOTFOUND, "there is no model '%s' in %s", name, view->store->uri);
}

lig_status ligi_catalog_view_find(const ligi_catalog_view *view, const char *name,
                                  ligi_record *record)
{
    LIG_TRY(ligi_labels_check_name("model", name));
    uint64_t id;
    LIG_TRY(ligi_catalog_view_name(view, name, &id));
    if (id == 0) {
        LIG_TRY(ligi_catalog_view_alias(view, name, &id));
        if (id == 0)
            return no_model(view, name);
        LIG_TRY(ligi_catalog_view_model(view, id, record));
        return ligi_store_sees(view->store, record->about.name) ? LIG_OK : no_model(view, name);
    }
    if (!ligi_store_sees(view->store, name))
        return no_model(view, name);
    LIG_TRY(ligi_catalog_view_model(view, id, record));
    if (strcmp(record->about.name, name) != 0)
        return lig_fail(LIG_E_CORRUPT, "the catalog record of model '%s' belongs to '%s'", name,
                        record->about.name);
    return LIG_OK;
}

lig_status ligi_catalog_view_header(const ligi_catalog_view *view, ligi_header *header)
{
    ligi_catalog_key key = ligi_catalog_key_header();
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT, "the catalog of %s has no header", view->store->uri);
    LIG_TRY(status);
    return ligi_header_get(&item, header);
}

lig_status ligi_catalog_view_pack(const ligi_catalog_view *view, uint64_t pack,
                                  ligi_pack_record *record)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, pack);
    lig_catalog_item item;
    LIG_TRY(ligi_catalog_view_get(view, &key, &item));
    return ligi_pack_record_get(&item, view->store->secret, record);
}
