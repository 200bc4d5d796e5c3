#include "backend/file/catalog/catalog_snapshot.h"

#include "backend/file/catalog/catalog.h"
#include "backend/file/index/index_items.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEM_MARK 1

static const char version_key[] = "\0version";

void ligi_file_catalog_version_key(MDB_val *key)
{
    key->mv_data = (void *)version_key;
    key->mv_size = sizeof version_key - 1;
}

lig_status ligi_mdb_fail(int number, const char *place, const char *what)
{
    switch (number) {
    case MDB_SUCCESS: return LIG_OK;
    case MDB_NOTFOUND: return LIG_E_NOTFOUND;
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
        return lig_fail(
            LIG_E_CORRUPT,
            "%s: the catalog %s: it is damaged (%s; move it away; a check then rebuilds it)", place,
            what, mdb_strerror(number));
    case MDB_PANIC:
        return lig_fail(LIG_E_IO,
                        "%s: the catalog %s: an earlier write to the index failed (try again)",
                        place, what);
    case MDB_READERS_FULL:
        return lig_fail(LIG_E_BUSY,
                        "%s: the catalog %s: too many processes and threads read it at once", place,
                        what);
    case MDB_MAP_FULL:
    case MDB_MAP_RESIZED:
        return lig_fail(LIG_E_BUSY,
                        "%s: the catalog %s: it must grow, but other processes prevent it", place,
                        what);
    case MDB_TXN_FULL:
    case MDB_BAD_VALSIZE:
        return lig_fail(LIG_E_LIMIT, "%s: the catalog %s: the change is too large (%s)", place,
                        what, mdb_strerror(number));
    default: break;
    }
    if (number > 0)
        return ligi_fail_errno(number, "%s: the catalog %s", place, what);
    return lig_fail(LIG_E_INTERNAL, "%s: the catalog %s: %s", place, what, mdb_strerror(number));
}

lig_status ligi_file_catalog_key(const void *key, size_t key_bytes,
                                 uint8_t stored[LIGI_KEY_BYTES_MAX + 1], MDB_val *out)
{
    if (key == NULL || key_bytes == 0 || key_bytes > LIGI_KEY_BYTES_MAX)
        return lig_fail(LIG_E_INVALID, "a key has %zu bytes, expected 1 to %d", key_bytes,
                        LIGI_KEY_BYTES_MAX);
    stored[0] = ITEM_MARK;
    memcpy(stored + 1, key, key_bytes);
    out->mv_data = stored;
    out->mv_size = key_bytes + 1;
    return LIG_OK;
}

lig_status ligi_file_catalog_check_ops(const lig_catalog_edit *edit)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key;

    for (size_t i = 0; i < edit->op_count; i++) {
        const lig_catalog_op *op = &edit->ops[i];
        LIG_TRY(ligi_file_catalog_key(op->key, op->key_bytes, stored, &key));
        if (op->value != NULL && op->value_bytes > INT32_MAX)
            return lig_fail(LIG_E_LIMIT, "a value of %zu bytes is too large for the catalog",
                            op->value_bytes);
    }
    return LIG_OK;
}

lig_status ligi_file_catalog_version(MDB_txn *txn, MDB_dbi dbi, uint64_t *version)
{
    MDB_val key, value;

    ligi_file_catalog_version_key(&key);
    int number = mdb_get(txn, dbi, &key, &value);
    *version = 0;
    if (number == MDB_NOTFOUND)
        return LIG_OK;
    if (number != MDB_SUCCESS)
        return ligi_mdb_fail(number, "this store", "cannot be read");
    if (value.mv_size != sizeof *version)
        return lig_fail(LIG_E_CORRUPT, "the version in the catalog has %zu bytes", value.mv_size);
    const uint8_t *bytes = value.mv_data;
    for (int i = 7; i >= 0; i--)
        *version = *version << 8 | bytes[i];
    return LIG_OK;
}

lig_status ligi_file_snapshot_create(const ligi_file_snapshot_source *source, void **snapshot,
                                     uint64_t *version)
{
    ligi_file_snapshot *made = NULL;

    lig_status status = ligi_calloc(&made, 1, sizeof *made, "a snapshot of the catalog");
    if (status == LIG_OK)
        status = ligi_file_catalog_version(source->txn, source->dbi, version);
    if (status != LIG_OK) {
        mdb_txn_abort(source->txn);
        free(made);
        return status;
    }
    made->txn = source->txn;
    made->dbi = source->dbi;
    made->log = source->log;
    made->pid = getpid();
    made->ended = source->ended;
    made->owner = source->owner;
    pthread_mutex_init(&made->lock, NULL);
    *snapshot = made;
    return LIG_OK;
}

void ligi_file_catalog_end(void *snapshot)
{
    ligi_file_snapshot *self = snapshot;

    if (self == NULL)
        return;
    /* In a forked child the environment is the parent's. */
    if (self->pid == getpid()) {
        if (self->cursor != NULL)
            mdb_cursor_close(self->cursor);
        mdb_txn_abort(self->txn);
        self->ended(self->owner);
    }
    for (size_t i = 0; i < self->value_count; i++)
        free(self->values[i]);
    free(self->values);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static lig_status check_process(const ligi_file_snapshot *self)
{
    if (self->pid != getpid())
        return lig_fail(LIG_E_CLOSED,
                        "this view of the catalog was created before this process was forked");
    return LIG_OK;
}

/* A large value is read from the log, and lives as long as the snapshot. */
static lig_status fill_value(ligi_file_snapshot *self, MDB_val stored, lig_catalog_item *item)
{
    ligi_mdb_value_read value = {.key = item->key, .key_bytes = item->key_bytes};

    if (self->log == NULL) {
        item->value = stored.mv_data;
        item->value_bytes = stored.mv_size;
        return LIG_OK;
    }
    LIG_TRY(ligi_mdb_value(self->log, stored, &value));
    item->value = value.data;
    item->value_bytes = value.bytes;
    if (value.owned == NULL)
        return LIG_OK;
    pthread_mutex_lock(&self->lock);
    lig_status status = ligi_grow(&self->values, &self->value_capacity, self->value_count + 1,
                                  sizeof *self->values, "a snapshot of the catalog");
    if (status == LIG_OK)
        self->values[self->value_count++] = value.owned;
    pthread_mutex_unlock(&self->lock);
    if (status != LIG_OK)
        free(value.owned);
    return status;
}

static lig_status find(ligi_file_snapshot *self, MDB_cursor_op op, MDB_val *key,
                       lig_catalog_item *item)
{
    MDB_val value;

    pthread_mutex_lock(&self->lock);
    int number = MDB_SUCCESS;
    if (self->cursor == NULL)
        number = mdb_cursor_open(self->txn, self->dbi, &self->cursor);
    if (number == MDB_SUCCESS)
        number = mdb_cursor_get(self->cursor, key, &value, op);
    pthread_mutex_unlock(&self->lock);
    LIG_TRY(ligi_mdb_fail(number, "this store", "cannot be read"));
    const uint8_t *bytes = key->mv_data;
    if (key->mv_size < 2 || key->mv_size > LIGI_KEY_BYTES_MAX + 1 || bytes[0] != ITEM_MARK)
        return lig_fail(LIG_E_CORRUPT, "the catalog contains an unknown key");
    item->key = bytes + 1;
    item->key_bytes = key->mv_size - 1;
    return fill_value(self, value, item);
}

lig_status ligi_file_catalog_get(void *snapshot, const void *key, size_t key_bytes,
                                 lig_catalog_item *item)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val wanted;

    LIG_TRY(check_process(snapshot));
    LIG_TRY(ligi_file_catalog_key(key, key_bytes, stored, &wanted));
    return find(snapshot, MDB_SET_KEY, &wanted, item);
}

lig_status ligi_file_catalog_seek(void *snapshot, const void *key, size_t key_bytes,
                                  lig_catalog_item *item)
{
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val wanted;

    LIG_TRY(check_process(snapshot));
    LIG_TRY(ligi_file_catalog_key(key, key_bytes, stored, &wanted));
    return find(snapshot, MDB_SET_RANGE, &wanted, item);
}
