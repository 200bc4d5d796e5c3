#include "backend/file/index/index_items.h"

#include "backend/file/catalog/catalog_snapshot.h"
#include "base/boot.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_CHECKPOINT (UINT64_C(1) << 63) /* of a reference's file */
#define REF_BYTES 37                      /* file, offset, version, hash, bytes, tag */
#define POSITION_BYTES 32
#define ERASE_BYTES 128 /* of a record for each item: a model has three or more */

typedef struct value_ref {
    uint64_t file, offset, version, hash;
    uint32_t bytes;
} value_ref;

static MDB_val own_key(const char *name)
{
    return (MDB_val){.mv_size = strlen(name + 1) + 1, .mv_data = (void *)name};
}

/* --- position of the index --- */

lig_status ligi_mdb_position(MDB_txn *txn, MDB_dbi dbi, ligi_clog_position *at)
{
    MDB_val key = own_key("\0tail"), value;

    memset(at, 0, sizeof *at);
    LIG_TRY(ligi_file_catalog_version(txn, dbi, &at->version));
    int number = mdb_get(txn, dbi, &key, &value);
    if (number == MDB_NOTFOUND)
        return LIG_OK;
    LIG_TRY(ligi_mdb_fail(number, "this store", "cannot be read"));
    ligi_reader reader = {.data = value.mv_data, .bytes = value.mv_size};
    at->chain = ligi_get_u64(&reader);
    at->segment = ligi_get_u64(&reader);
    at->offset = ligi_get_u64(&reader);
    at->last = ligi_get_u64(&reader);
    return reader.failed || value.mv_size != POSITION_BYTES
               ? lig_fail(LIG_E_CORRUPT, "the index does not contain its position in the log")
               : LIG_OK;
}

int ligi_mdb_position_put(const ligi_mdb_txn *index)
{
    uint8_t bytes[POSITION_BYTES], version[8];
    MDB_val key = own_key("\0tail"), value = {sizeof bytes, bytes};

    ligi_store_le(bytes, index->at.chain, 8);
    ligi_store_le(bytes + 8, index->at.segment, 8);
    ligi_store_le(bytes + 16, index->at.offset, 8);
    ligi_store_le(bytes + 24, index->at.last, 8);
    int number = mdb_put(index->txn, index->dbi, &key, &value, 0);
    ligi_store_le(version, index->at.version, 8);
    value = (MDB_val){sizeof version, version};
    ligi_file_catalog_version_key(&key);
    return number ? number : mdb_put(index->txn, index->dbi, &key, &value, 0);
}

uint64_t ligi_mdb_erase_bytes(const ligi_mdb_txn *index)
{
    MDB_stat stat;

    if (mdb_stat(index->txn, index->dbi, &stat) != MDB_SUCCESS)
        return 0;
    return stat.ms_entries * ERASE_BYTES;
}

static int make_binding(const uint8_t id[16], uint8_t bytes[32])
{
    memcpy(bytes, id, 16);
    return ligi_boot_id(bytes + 16);
}

int ligi_mdb_bound(MDB_txn *txn, MDB_dbi dbi, const uint8_t id[16])
{
    uint8_t bytes[32];
    MDB_val key = own_key("\0bound"), value;

    return make_binding(id, bytes) && mdb_get(txn, dbi, &key, &value) == MDB_SUCCESS &&
           value.mv_size == sizeof bytes && memcmp(value.mv_data, bytes, sizeof bytes) == 0;
}

int ligi_mdb_bind(const ligi_mdb_txn *index, const uint8_t id[16])
{
    uint8_t bytes[32];
    MDB_val key = own_key("\0bound"), value = {sizeof bytes, bytes};

    (void)make_binding(id, bytes);
    return mdb_put(index->txn, index->dbi, &key, &value, 0);
}

/* --- items --- */

static int put_value(ligi_mdb_txn *index, MDB_val *key, const void *data, size_t bytes,
                     const value_ref *ref, unsigned flags)
{
    uint8_t small[REF_BYTES];
    MDB_val value = {REF_BYTES, small};

    if (bytes > LIGI_MDB_INLINE_BYTES) {
        ligi_store_le(small, ref->file, 8);
        ligi_store_le(small + 8, ref->offset, 8);
        ligi_store_le(small + 16, ref->version, 8);
        ligi_store_le(small + 24, ligi_hash64_plain(data, bytes), 8);
        ligi_store_le(small + 32, bytes, 4);
        small[36] = 1;
        return mdb_put(index->txn, index->dbi, key, &value, flags);
    }
    value = (MDB_val){bytes + 1, NULL};
    int number = mdb_put(index->txn, index->dbi, key, &value, flags | MDB_RESERVE);
    if (number == MDB_SUCCESS) {
        memcpy(value.mv_data, data, bytes);
        ((uint8_t *)value.mv_data)[bytes] = 0;
    }
    return number;
}

int ligi_mdb_apply_item(ligi_mdb_txn *index, const ligi_clog_item *item, uint64_t version,
                        const ligi_clog_position *at)
{
    value_ref ref = {.file = at->segment, .offset = at->offset + item->at, .version = version};
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key;

    if (item->kind == LIGI_CLOG_EVENT)
        return MDB_SUCCESS;
    if (ligi_file_catalog_key(item->key, item->key_bytes, stored, &key) != LIG_OK)
        return MDB_BAD_VALSIZE;
    if (item->kind == LIGI_CLOG_PUT)
        return put_value(index, &key, item->value, item->value_bytes, &ref, 0);
    int number = mdb_del(index->txn, index->dbi, &key, NULL);
    return number == MDB_NOTFOUND ? MDB_SUCCESS : number;
}

lig_status ligi_mdb_apply(void *opaque, const uint8_t *record, const ligi_clog_header *header,
                          const ligi_clog_position *at)
{
    ligi_mdb_txn *index = opaque;
    size_t next = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    while (index->number == MDB_SUCCESS && ligi_clog_item_next(record, header->bytes, &next, &item))
        index->number = ligi_mdb_apply_item(index, &item, header->version, at);
    index->applied++;
    return index->number == MDB_SUCCESS ? LIG_OK : LIG_E_IO;
}

lig_status ligi_mdb_fill_item(void *opaque, const ligi_checkpoint_item *item)
{
    const ligi_mdb_fill *fill = opaque;
    value_ref ref = {
        .file = fill->checkpoint | IN_CHECKPOINT, .offset = item->offset, .version = item->version};
    uint8_t stored[LIGI_KEY_BYTES_MAX + 1];
    MDB_val key;

    LIG_TRY(ligi_file_catalog_key(item->key, item->key_bytes, stored, &key));
    fill->index->number =
        put_value(fill->index, &key, item->value, item->value_bytes, &ref, MDB_APPEND);
    return fill->index->number == MDB_SUCCESS ? LIG_OK : LIG_E_IO;
}

/* --- large values --- */

static int get_ref(MDB_val stored, value_ref *ref)
{
    ligi_reader reader = {.data = stored.mv_data, .bytes = stored.mv_size};

    ref->file = ligi_get_u64(&reader);
    ref->offset = ligi_get_u64(&reader);
    ref->version = ligi_get_u64(&reader);
    ref->hash = ligi_get_u64(&reader);
    ref->bytes = ligi_get_u32(&reader);
    return stored.mv_size == REF_BYTES && !reader.failed;
}

/* Fills `data` with the available bytes, and the rest with zeros. LIG_E_CORRUPT, without an error
 * text, if it is not the stored value. */
static lig_status read_value(ligi_file_log *log, const ligi_clog_file *file, const value_ref *ref,
                             uint8_t *data)
{
    size_t got;

    LIG_TRY(ligi_clog_pread(&log->folder, file->fd, data, ref->bytes, ref->offset, &got));
    memset(data + got, 0, ref->bytes - got);
    return ligi_hash64_plain(data, ref->bytes) == ref->hash ? LIG_OK : LIG_E_CORRUPT;
}

/* As read_value; LIG_E_NOTFOUND, likewise, if the file was removed. The hash tells whether an open
 * file is the right one: only if it is not, the name is looked at. */
static lig_status read_ref(ligi_file_log *log, const value_ref *ref, uint8_t *data)
{
    ligi_name_kind kind = ref->file & IN_CHECKPOINT ? LIGI_NAME_CHECKPOINT : LIGI_NAME_SEGMENT;
    uint64_t number = ref->file & ~IN_CHECKPOINT;
    ligi_clog_file *file;

    LIG_TRY(ligi_clog_folder_file_once(&log->folder, kind, number, &file));
    lig_status status = read_value(log, file, ref, data);
    ligi_clog_folder_release(&log->folder, file);
    if (status == LIG_OK)
        return LIG_OK;
    LIG_TRY(ligi_clog_folder_file(&log->folder, kind, number, &file));
    status = read_value(log, file, ref, data);
    ligi_clog_folder_release(&log->folder, file);
    return status;
}

/* Checkpoints contain the values of earlier segments and checkpoints. LIG_E_NOTFOUND, and
 * LIG_E_CORRUPT if a damaged one may contain it, without an error text. */
static lig_status search_checkpoints(ligi_file_log *log, const void *key, size_t key_bytes,
                                     const value_ref *ref, void *data)
{
    ligi_checkpoint_item item = {.key = key, .key_bytes = key_bytes};
    uint64_t *numbers;
    size_t count;
    int damaged = 0;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    lig_status status = LIG_E_NOTFOUND;
    while (status == LIG_E_NOTFOUND && count-- > 0) {
        void *value = NULL;
        lig_status found = ligi_checkpoint_find(log, numbers[count], &item, &value);
        damaged |= found == LIG_E_CORRUPT;
        if (found == LIG_OK && item.version == ref->version && item.value_bytes == ref->bytes &&
            ligi_hash64_plain(value, item.value_bytes) == ref->hash) {
            memcpy(data, value, item.value_bytes);
            status = LIG_OK;
        }
        free(value);
    }
    free(numbers);
    return status == LIG_E_NOTFOUND && damaged ? LIG_E_CORRUPT : status;
}

static int is_damaged(const ligi_file_log *log)
{
    return log->head.page != NULL && ligi_head_damaged(&log->head);
}

/* If the segment was removed or is damaged, a checkpoint may have the value. Otherwise a damaged
 * value is passed on: values contain their own checks, which show what is damaged. */
static lig_status fetch(ligi_file_log *log, const value_ref *ref, ligi_mdb_value_read *value)
{
    lig_status status = read_ref(log, ref, value->owned);

    if (status != LIG_E_NOTFOUND && status != LIG_E_CORRUPT)
        return status;
    lig_status found = search_checkpoints(log, value->key, value->key_bytes, ref, value->owned);
    if (found != LIG_E_NOTFOUND && found != LIG_E_CORRUPT)
        return found;
    if (status == LIG_E_NOTFOUND && found == LIG_E_CORRUPT && !is_damaged(log))
        return lig_fail(LIG_E_CORRUPT,
                        "%s: a damaged checkpoint may contain a value of version %" PRIu64
                        " (run ligament check --repair)",
                        log->folder.place, ref->version);
    if (status == LIG_E_NOTFOUND && !is_damaged(log))
        return lig_fail(LIG_E_BUSY,
                        "%s: version %" PRIu64 " of the catalog is no longer kept (try again)",
                        log->folder.place, ref->version);
    if (status == LIG_E_NOTFOUND)
        memset(value->owned, 0, ref->bytes);
    value->damaged = 1;
    return LIG_OK;
}

lig_status ligi_mdb_value(ligi_file_log *log, MDB_val stored, ligi_mdb_value_read *value)
{
    value_ref ref;

    value->owned = NULL;
    value->damaged = 0;
    if (stored.mv_size == 0)
        return lig_fail(LIG_E_CORRUPT, "%s: the index contains an empty value", log->folder.place);
    if (((const uint8_t *)stored.mv_data)[stored.mv_size - 1] == 0) {
        value->data = stored.mv_data;
        value->bytes = stored.mv_size - 1;
        return LIG_OK;
    }
    if (!get_ref(stored, &ref))
        return lig_fail(LIG_E_CORRUPT, "%s: the index is damaged", log->folder.place);
    LIG_TRY(ligi_alloc(&value->owned, ref.bytes, "a value of the catalog"));
    lig_status status = fetch(log, &ref, value);
    value->data = value->owned;
    value->bytes = ref.bytes;
    if (status != LIG_OK) {
        free(value->owned);
        value->owned = NULL;
    }
    return status;
}

uint64_t ligi_mdb_value_version(MDB_val stored)
{
    value_ref ref = {0};
    return get_ref(stored, &ref) ? ref.version : 0;
}
