#include "store/catalog/request_table.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

#define KEPT_NS (INT64_C(24) * 3600 * 1000000000)
enum { PRUNED_MAX = 8 }; /* with one change: more than one comes with it */

static ligi_catalog_key key_of(const uint8_t client[LIGI_CLIENT_BYTES], uint64_t sequence)
{
    ligi_catalog_key key = {.size = 1 + LIGI_CLIENT_BYTES + sizeof sequence};
    key.bytes[0] = LIGI_TABLE_REQUEST;
    memcpy(key.bytes + 1, client, LIGI_CLIENT_BYTES);
    ligi_put_be64(key.bytes + 1 + LIGI_CLIENT_BYTES, sequence);
    return key;
}

typedef struct done {
    int64_t date_ns;
    uint64_t model;
} done;

static lig_status read_value(const lig_catalog_item *item, const void *secret, done *out)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    out->date_ns = (int64_t)ligi_get_u64(&reader);
    out->model = ligi_get_varint(&reader);
    return reader.failed ? lig_fail(LIG_E_CORRUPT, "the record of a request is damaged") : LIG_OK;
}

static lig_status look_up(const ligi_catalog_view *view, struct ligi_once *once)
{
    ligi_catalog_key key = key_of(once->client, once->sequence);
    lig_catalog_item item;
    done found;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    LIG_TRY(read_value(&item, view->store->secret, &found));
    once->repeated = 1;
    once->model = found.model;
    return LIG_OK;
}

lig_status ligi_once_find(lig_store *store, struct ligi_once *once)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = look_up(&view, once);
    ligi_catalog_view_end(&view);
    return status;
}

/* Of this client what has left the window; of the clients behind it what is older than a day.
 * Client ids are random, so that every client's turn comes. */
static int is_old(const ligi_catalog_view *view, const lig_catalog_item *item,
                  const struct ligi_once *once)
{
    const uint8_t *key = item->key;
    done found;
    if (memcmp(key + 1, once->client, LIGI_CLIENT_BYTES) == 0)
        return ligi_get_be64(key + 1 + LIGI_CLIENT_BYTES) + LIGI_REQUEST_WINDOW <= once->sequence;
    return read_value(item, view->store->secret, &found) != LIG_OK ||
           found.date_ns < ligi_date_ns() - KEPT_NS;
}

static lig_status prune(ligi_change *change, const struct ligi_once *once)
{
    ligi_catalog_key key = key_of(once->client, 0);
    lig_catalog_item item;
    for (int i = 0; i < PRUNED_MAX; i++) {
        lig_status status = ligi_catalog_view_seek(change->view, &key, &item);
        if (status == LIG_E_NOTFOUND || (status == LIG_OK && item.key_bytes != key.size) ||
            (status == LIG_OK && *(const uint8_t *)item.key != LIGI_TABLE_REQUEST))
            return LIG_OK;
        LIG_TRY(status);
        memcpy(key.bytes, item.key, key.size);
        int mine = memcmp(key.bytes + 1, once->client, LIGI_CLIENT_BYTES) == 0;
        if (is_old(change->view, &item, once))
            LIG_TRY(ligi_change_erase(change, &key));
        else if (mine) /* the others of this client are younger */
            key = key_of(once->client, UINT64_MAX - 1);
        uint64_t next = ligi_get_be64(key.bytes + 1 + LIGI_CLIENT_BYTES) + 1;
        ligi_put_be64(key.bytes + 1 + LIGI_CLIENT_BYTES, next);
    }
    return LIG_OK;
}

lig_status ligi_once_check(const ligi_catalog_view *view, struct ligi_once *once)
{
    if (once == NULL)
        return LIG_OK;
    LIG_TRY(look_up(view, once));
    if (once->repeated)
        return lig_fail(LIG_E_EXISTS, "request %llu has already been completed",
                        (unsigned long long)once->sequence);
    return LIG_OK;
}

lig_status ligi_once_put(ligi_change *change, struct ligi_once *once, uint64_t model)
{
    if (once == NULL)
        return LIG_OK;
    LIG_TRY(ligi_once_check(change->view, once));
    LIG_TRY(prune(change, once));
    ligi_catalog_key key = key_of(once->client, once->sequence);
    ligi_value_begin(&change->value);
    ligi_put_u64(&change->value, (uint64_t)ligi_date_ns());
    ligi_put_varint(&change->value, model);
    ligi_value_end(&change->value, &key, change->view->store->secret);
    return ligi_change_put(change, &key);
}
