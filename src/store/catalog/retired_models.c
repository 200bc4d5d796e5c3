#include "store/catalog/retired_models.h"

#include "base/error.h"

static void put_blob(ligi_writer *writer, const void *data, size_t bytes)
{
    ligi_put_varint(writer, bytes);
    if (bytes)
        ligi_put_bytes(writer, data, bytes);
}

static const void *get_blob(ligi_reader *reader, size_t *bytes)
{
    *bytes = ligi_get_count(reader, 1);
    return *bytes ? ligi_get_bytes(reader, *bytes) : NULL;
}

void ligi_retired_put(ligi_writer *writer, const ligi_retired *retired, const void *secret)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_RETIRED, retired->id);
    ligi_value_begin(writer);
    ligi_put_u64(writer, (uint64_t)retired->until_ns);
    put_blob(writer, retired->record, retired->record_bytes);
    put_blob(writer, retired->graphs, retired->graph_bytes);
    put_blob(writer, retired->inlined, retired->inline_bytes);
    ligi_value_end(writer, &key, secret);
}

lig_status ligi_retired_get(const lig_catalog_item *item, const void *secret, ligi_retired *retired)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    retired->until_ns = (int64_t)ligi_get_u64(&reader);
    retired->record = get_blob(&reader, &retired->record_bytes);
    retired->graphs = get_blob(&reader, &retired->graph_bytes);
    retired->inlined = get_blob(&reader, &retired->inline_bytes);
    if (reader.failed || reader.at != reader.bytes || item->key_bytes != 9 ||
        retired->record == NULL)
        return lig_fail(LIG_E_CORRUPT, "the catalog contains an invalid retired model");
    retired->id = ligi_get_be64((const char *)item->key + 1);
    return LIG_OK;
}

lig_status ligi_retired_record(const ligi_retired *retired, const void *secret, ligi_record *record)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, retired->id);
    const lig_catalog_item item = {key.bytes, key.size, retired->record, retired->record_bytes};
    return ligi_record_get(&item, secret, record);
}

static lig_status take_graphs(const ligi_catalog_view *view, ligi_retired *retired)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, retired->id);
    lig_catalog_item item;
    ligi_reader reader;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_OK)
        status = ligi_value_open(&item, view->store->secret, &reader);
    if (status == LIG_E_NOTFOUND || status == LIG_E_CORRUPT) /* damaged graphs are not kept */
        return LIG_OK;
    LIG_TRY(status);
    retired->graphs = reader.data + reader.at;
    retired->graph_bytes = reader.bytes - reader.at;
    return LIG_OK;
}

lig_status ligi_retired_take(const ligi_catalog_view *view, const ligi_record *record,
                             ligi_retired *retired)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    lig_catalog_item item;
    retired->id = record->about.id;
    LIG_TRY(ligi_catalog_view_get(view, &key, &item));
    retired->record = item.value;
    retired->record_bytes = item.value_bytes;
    if (record->pack == 0) {
        key = ligi_catalog_key_id(LIGI_TABLE_INLINE, record->about.id);
        LIG_TRY(ligi_catalog_view_get(view, &key, &item));
        retired->inlined = item.value;
        retired->inline_bytes = item.value_bytes;
    }
    return take_graphs(view, retired);
}

int ligi_retired_next(const ligi_catalog_view *view, ligi_walk *walk, ligi_retired *retired,
                      ligi_record *record, lig_status *status)
{
    lig_catalog_item item;
    while (ligi_catalog_view_next(view, LIGI_TABLE_RETIRED, walk, &item, status)) {
        *retired = (ligi_retired){0};
        *record = (ligi_record){0};
        if (ligi_retired_get(&item, view->store->secret, retired) == LIG_OK &&
            ligi_retired_record(retired, view->store->secret, record) == LIG_OK)
            return 1;
        ligi_record_fini(record);
    }
    return 0;
}
