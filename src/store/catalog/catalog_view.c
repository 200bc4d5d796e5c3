#include "store/catalog/catalog_view.h"

#include "base/error.h"

#include <string.h>

/* The packs are read without the lock; of two threads that do so the second throws its table away.
 */
static lig_status begin_footers(lig_store *store, ligi_ledger *ledger)
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
    lig_status status = ligi_footers_read(store->place, before, &options, &now);
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
        *ledger =
            (ligi_ledger){.store = store, .footers = now, .version = ligi_footers_version(now)};
    }
    ligi_footers_drop(before);
    return status;
}

lig_status ligi_ledger_begin(lig_store *store, ligi_ledger *ledger)
{
    if (store->by_footers)
        return begin_footers(store, ledger);
    *ledger = (ligi_ledger){.store = store};
    return store->place->ops->catalog_begin(store->place->self, &ledger->snapshot,
                                            &ledger->version);
}

void ligi_ledger_end(ligi_ledger *ledger)
{
    if (ledger->footers)
        ligi_footers_drop(ledger->footers);
    else
        ledger->store->place->ops->catalog_end(ledger->snapshot);
    memset(ledger, 0, sizeof *ledger);
}

lig_status ligi_ledger_unchanged(lig_store *store, uint64_t version)
{
    ligi_ledger now;
    LIG_TRY(ligi_ledger_begin(store, &now));
    int same = now.version == version;
    ligi_ledger_end(&now);
    return same ? LIG_OK : LIG_E_BUSY;
}

lig_status ligi_ledger_seek(const ligi_ledger *ledger, const ligi_key *key, lig_catalog_item *item)
{
    if (ledger->footers)
        return ligi_footers_seek(ledger->footers, key->bytes, key->size, item) ? LIG_OK
                                                                               : LIG_E_NOTFOUND;
    return ledger->store->place->ops->catalog_seek(ledger->snapshot, key->bytes, key->size, item);
}

lig_status ligi_ledger_get(const ligi_ledger *ledger, const ligi_key *key, lig_catalog_item *item)
{
    if (!ledger->footers)
        return ledger->store->place->ops->catalog_get(ledger->snapshot, key->bytes, key->size,
                                                      item);
    LIG_TRY(ligi_ledger_seek(ledger, key, item));
    int equal = item->key_bytes == key->size && memcmp(item->key, key->bytes, key->size) == 0;
    return equal ? LIG_OK : LIG_E_NOTFOUND;
}

int ligi_ledger_next(const ligi_ledger *ledger, enum ligi_table table, ligi_walk *walk,
                     lig_catalog_item *item, lig_status *status)
{
    if (walk->key_bytes == 0) {
        walk->key[0] = (uint8_t)table;
        walk->key_bytes = 1;
    }
    if (ledger->footers)
        *status = ligi_footers_seek(ledger->footers, walk->key, walk->key_bytes, item)
                      ? LIG_OK
                      : LIG_E_NOTFOUND;
    else
        *status = ledger->store->place->ops->catalog_seek(ledger->snapshot, walk->key,
                                                          walk->key_bytes, item);
    if (*status == LIG_E_NOTFOUND)
        *status = LIG_OK;
    else if (*status == LIG_OK && item->key_bytes < sizeof walk->key &&
             *(const uint8_t *)item->key == table) {
        /* The key and a zero behind it: the smallest key that is greater. */
        memcpy(walk->key, item->key, item->key_bytes);
        walk->key[item->key_bytes] = 0;
        walk->key_bytes = item->key_bytes + 1;
        if (walk->key_bytes > 64)
            *status = lig_fail(LIG_E_CORRUPT, "a key of the catalog is too long");
        return *status == LIG_OK;
    }
    return 0;
}

lig_status ligi_ledger_name(const ligi_ledger *ledger, const char *name, uint64_t *id)
{
    const void *secret = ledger->store->secret;
    ligi_key key = ligi_key_text(LIGI_TABLE_NAME, secret, name);
    lig_catalog_item item;
    *id = 0;
    lig_status status = ligi_ledger_get(ledger, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    return ligi_name_get(&item, secret, id);
}

lig_status ligi_ledger_alias(const ligi_ledger *ledger, const char *alias, uint64_t *id)
{
    const void *secret = ledger->store->secret;
    ligi_key key = ligi_key_text(LIGI_TABLE_ALIAS, secret, alias);
    lig_catalog_item item;
    const char *text;
    *id = 0;
    lig_status status = ligi_ledger_get(ledger, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    LIG_TRY(ligi_alias_get(&item, secret, &text, id));
    if (strcmp(text, alias) != 0)
        return lig_fail(LIG_E_CORRUPT, "the record of alias '%s' is that of '%s'", alias, text);
    return LIG_OK;
}

lig_status ligi_ledger_model(const ligi_ledger *ledger, uint64_t id, ligi_record *record)
{
    ligi_key key = ligi_key_id(LIGI_TABLE_MODEL, id);
    lig_catalog_item item;
    lig_status status = ligi_ledger_get(ledger, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT, "the catalog has no record of model %llu, which it names",
                        (unsigned long long)id);
    LIG_TRY(status);
    return ligi_record_get(&item, ledger->store->secret, record);
}

lig_status ligi_ledger_find(const ligi_ledger *ledger, const char *name, ligi_record *record)
{
    LIG_TRY(ligi_name_check("model", name));
    uint64_t id;
    LIG_TRY(ligi_ledger_name(ledger, name, &id));
    if (id == 0) {
        LIG_TRY(ligi_ledger_alias(ledger, name, &id));
        if (id == 0)
            return lig_fail(LIG_E_NOTFOUND, "there is no model '%s' in %s", name,
                            ledger->store->uri);
        return ligi_ledger_model(ledger, id, record);
    }
    LIG_TRY(ligi_ledger_model(ledger, id, record));
    if (strcmp(record->about.name, name) != 0)
        return lig_fail(LIG_E_CORRUPT, "the record of model '%s' is that of '%s'", name,
                        record->about.name);
    return LIG_OK;
}

lig_status ligi_ledger_header(const ligi_ledger *ledger, ligi_header *header)
{
    ligi_key key = ligi_key_header();
    lig_catalog_item item;
    lig_status status = ligi_ledger_get(ledger, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT, "the catalog of %s has no header", ledger->store->uri);
    LIG_TRY(status);
    return ligi_header_get(&item, header);
}

lig_status ligi_ledger_pack(const ligi_ledger *ledger, uint64_t pack, ligi_pack_record *record)
{
    ligi_key key = ligi_key_id(LIGI_TABLE_PACK, pack);
    lig_catalog_item item;
    LIG_TRY(ligi_ledger_get(ledger, &key, &item));
    return ligi_pack_record_get(&item, ledger->store->secret, record);
}
