/* lig_store_stat: how many models, tensors, packs and bytes a store holds. */
#include "store/catalog/catalog_view.h"
#include "store/format/record.h"

/* The counts for a handle that sees only some models: these models, and the bytes that they have
 * written. */
static lig_status sum_up_scope(lig_store *store, lig_store_stats *stats)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_store_stats sum = {.version = view.version};
    lig_status status;
    ligi_walk walk = {0};
    lig_catalog_item item;
    while (ligi_catalog_view_next(&view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        if (ligi_record_get(&item, store->secret, &record) == LIG_OK &&
            ligi_store_sees(store, record.about.name)) {
            sum.models++;
            sum.tensors += record.tensor_count;
            sum.bytes += record.bytes;
            sum.stored_bytes += record.own_bytes;
        }
        ligi_record_fini(&record);
    }
    ligi_catalog_view_end(&view);
    if (status == LIG_OK)
        *stats = sum;
    return status;
}

static lig_status sum_up(lig_store *store, lig_store_stats *stats)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_store_stats sum = {.version = view.version};
    lig_status status = LIG_OK;
    for (int table = LIGI_TABLE_HEADER; table < LIGI_TABLE_END && status == LIG_OK; table++) {
        ligi_walk walk = {0};
        lig_catalog_item item;
        while (ligi_catalog_view_next(&view, (enum ligi_table)table, &walk, &item, &status)) {
            sum.stored_bytes += item.key_bytes + item.value_bytes;
            ligi_record record = {0};
            ligi_pack_record pack = {0};
            if (table == LIGI_TABLE_MODEL)
                status = ligi_record_get(&item, store->secret, &record);
            if (table == LIGI_TABLE_PACK)
                status = ligi_pack_record_get(&item, store->secret, &pack);
            if (status == LIG_E_CORRUPT) /* reported by `check` */
                status = LIG_OK;
            sum.models += table == LIGI_TABLE_MODEL;
            sum.tensors += record.tensor_count;
            sum.bytes += record.bytes;
            sum.packs += table == LIGI_TABLE_PACK;
            sum.stored_bytes += pack.bytes;
            ligi_record_fini(&record);
            if (status != LIG_OK)
                break;
        }
    }
    ligi_catalog_view_end(&view);
    if (status == LIG_OK)
        *stats = sum;
    return status;
}

lig_status lig_store_stat(lig_store *store, lig_store_stats *stats)
{
    LIG_TRY(ligi_store_usable(store));
    if (store->remote)
        return store->remote->stat(store, stats);
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++)
        status = store->scope ? sum_up_scope(store, stats) : sum_up(store, stats);
    return status;
}
