#include "store/upkeep/index_check.h"

#include "base/error.h"
#include "store/catalog/change.h"
#include "store/catalog/model_graphs.h"
#include "store/catalog/search_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct checking {
    const ligi_catalog_view *view;
    ligi_report *report;
    ligi_search_index_edits edits; /* what the models of one chunk of ids put into the index */
    uint64_t keys;                 /* the number of items that must exist */
    uint64_t graphs;               /* models that have some */
    uint64_t wrong;
} checking;

static int is_damage(lig_status status)
{
    return status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED || status == LIG_E_NOTFOUND;
}

static int is_irregular(const void *key)
{
    ligi_hash128 hash = ligi_irregular_key();
    ligi_catalog_key irregular = ligi_catalog_key_posting(&hash, 0);
    return memcmp(key, irregular.bytes, 17) == 0;
}

/* 1 when the set of models whose bytes differ has this one. */
static int is_noted(const checking *self, const ligi_search_index_edit *edit)
{
    ligi_hash128 hash = ligi_irregular_key();
    ligi_catalog_key key = ligi_catalog_key_posting(&hash, 0);
    memcpy(key.bytes + 17, edit->key.bytes + 17, 6); /* the same chunk */
    lig_catalog_item item;
    ligi_posting posting = {0};
    return ligi_catalog_view_get(self->view, &key, &item) == LIG_OK &&
           ligi_posting_get(&item, self->view->store->secret, &posting) == LIG_OK &&
           ligi_bitmap_has(&posting.set, edit->offset);
}

static int posting_fits(const checking *self, const ligi_search_index_edit *edits, size_t count,
                        const lig_catalog_item *item)
{
    ligi_posting posting = {0};
    ligi_bitmap wanted = {0};
    if (ligi_posting_get(item, self->view->store->secret, &posting) != LIG_OK)
        return 0;
    for (size_t i = 0; i < count; i++) {
        ligi_bitmap_set(&wanted, edits[i].offset, 1);
        if (edits[i].bytes != posting.bytes && !is_noted(self, &edits[i]))
            return 0;
    }
    return memcmp(&wanted, &posting.set, sizeof wanted) == 0;
}

static int column_fits(const checking *self, const ligi_search_index_edit *edits, size_t count,
                       const lig_catalog_item *item)
{
    double values[LIGI_COLUMN_IDS], wanted[LIGI_COLUMN_IDS];
    if (ligi_column_get(item, self->view->store->secret, values) != LIG_OK)
        return 0;
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++)
        wanted[i] = NAN;
    for (size_t i = 0; i < count; i++)
        wanted[edits[i].offset] = edits[i].value;
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++)
        if (values[i] != wanted[i] && !(isnan(values[i]) && isnan(wanted[i])))
            return 0;
    return 1;
}

/* Edits that only say NaN leave no item. */
static int leaves_nothing(const ligi_search_index_edit *edits, size_t count)
{
    if (edits[0].key.bytes[0] != LIGI_TABLE_COLUMN)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(edits[i].value))
            return 0;
    return 1;
}

static lig_status compare_edits(checking *self)
{
    ligi_search_index_edit *edits = self->edits.edits;
    if (self->edits.count)
        qsort(edits, self->edits.count, sizeof *edits, ligi_search_index_order);
    for (size_t first = 0, end; first < self->edits.count; first = end) {
        for (end = first + 1;
             end < self->edits.count &&
             memcmp(edits[end].key.bytes, edits[first].key.bytes, sizeof edits->key.bytes) == 0;)
            end++;
        if (leaves_nothing(edits + first, end - first))
            continue;
        lig_catalog_item item;
        lig_status status = ligi_catalog_view_get(self->view, &edits[first].key, &item);
        if (status != LIG_OK && !is_damage(status))
            return status;
        int posting = edits[first].key.bytes[0] == LIGI_TABLE_POSTING;
        self->keys += status == LIG_OK;
        if (status != LIG_OK)
            self->wrong++;
        else if (posting)
            self->wrong += !posting_fits(self, edits + first, end - first, &item);
        else
            self->wrong += !column_fits(self, edits + first, end - first, &item);
    }
    self->edits.count = 0;
    return LIG_OK;
}

/* Adds the index entries for a model's record. Graphs that cannot be read are reported once. */
static lig_status add_model(checking *self, const ligi_record *record,
                            ligi_search_index_edits *edits)
{
    ligi_graphs graphs = {0};
    lig_status status = ligi_graphs_read(self->view, record->about.id, &graphs);
    if (status == LIG_OK) {
        self->graphs += graphs.count > 0;
        status = ligi_search_index_model(edits, &record->about, &graphs, 1);
    } else if (is_damage(status)) {
        self->graphs++;
        status = ligi_report_add(self->report, "cannot read the graphs of model '%s': %s",
                                 record->about.name, lig_error_text());
    }
    ligi_graphs_fini(&graphs);
    return status;
}

static lig_status compare_models(checking *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    uint64_t chunk = 0;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        status = ligi_record_get(&item, self->view->store->secret, &record);
        if (status == LIG_OK && record.about.id / LIGI_CHUNK_IDS != chunk) {
            chunk = record.about.id / LIGI_CHUNK_IDS;
            status = compare_edits(self);
        }
        if (status == LIG_OK)
            status = add_model(self, &record, &self->edits);
        ligi_record_fini(&record);
        if (status != LIG_OK && !is_damage(status)) /* the audit reports damage */
            return status;
    }
    LIG_TRY(status);
    return compare_edits(self);
}

static lig_status count_table(const checking *self, enum ligi_table table, uint64_t *count)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, table, &walk, &item, &status))
        *count += !(table == LIGI_TABLE_POSTING && item.key_bytes >= 17 && is_irregular(item.key));
    return status;
}

/* --- rebuilding --- */

static lig_status erase_table(ligi_change *change, enum ligi_table table)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(change->view, table, &walk, &item, &status)) {
        ligi_catalog_key key = {.size = item.key_bytes};
        if (item.key_bytes > sizeof key.bytes)
            continue;
        memcpy(key.bytes, item.key, item.key_bytes);
        LIG_TRY(ligi_change_erase(change, &key));
    }
    return status;
}

static lig_status get_nothing(void *context, const ligi_catalog_key *key, lig_catalog_item *item)
{
    (void)context, (void)key, (void)item;
    return LIG_E_NOTFOUND;
}

static lig_status put_value(void *context, const ligi_catalog_key *key, const ligi_writer *value)
{
    ligi_change *change = context;
    if (value == NULL)
        return LIG_OK;
    change->value.bytes = 0;
    ligi_put_bytes(&change->value, value->data, value->bytes);
    return ligi_change_put(change, key);
}

static lig_status make_anew(checking *self, ligi_change *change)
{
    ligi_search_index_edits edits = {0};
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    LIG_TRY(erase_table(change, LIGI_TABLE_POSTING));
    LIG_TRY(erase_table(change, LIGI_TABLE_COLUMN));
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        ligi_graphs graphs = {0};
        status = ligi_record_get(&item, self->view->store->secret, &record);
        if (status == LIG_OK)
            status = ligi_graphs_read(self->view, record.about.id, &graphs);
        if (status == LIG_OK)
            status = ligi_search_index_model(&edits, &record.about, &graphs, 1);
        ligi_graphs_fini(&graphs);
        ligi_record_fini(&record);
        status = is_damage(status) ? LIG_OK : status;
        if (status != LIG_OK)
            break;
    }
    ligi_search_index_sink sink = {.get = get_nothing,
                                   .put = put_value,
                                   .secret = self->view->store->secret,
                                   .context = change};
    if (status == LIG_OK)
        status = ligi_search_index_apply(&edits, &sink);
    ligi_search_index_edits_fini(&edits);
    return status;
}

lig_status ligi_index_check(const ligi_catalog_view *view, ligi_change *change, ligi_report *report,
                            uint64_t *mended)
{
    checking self = {.view = view, .report = report};
    uint64_t there = 0, graphs = 0;
    lig_status status = compare_models(&self);
    if (status == LIG_OK)
        status = count_table(&self, LIGI_TABLE_POSTING, &there);
    if (status == LIG_OK)
        status = count_table(&self, LIGI_TABLE_COLUMN, &there);
    if (status == LIG_OK)
        status = count_table(&self, LIGI_TABLE_GRAPH, &graphs);
    ligi_search_index_edits_fini(&self.edits);
    LIG_TRY(status);
    if (graphs != self.graphs)
        LIG_TRY(ligi_report_add(
            report, "the catalog contains the graphs of %llu models, but %llu have graphs",
            (unsigned long long)graphs, (unsigned long long)self.graphs));
    if (self.wrong == 0 && there == self.keys)
        return LIG_OK;
    LIG_TRY(ligi_report_add(report,
                            "the index of layers does not match the models' graphs: %llu of its "
                            "records are wrong or missing, %llu are superfluous",
                            (unsigned long long)self.wrong,
                            (unsigned long long)(there - self.keys)));
    if (change == NULL)
        return LIG_OK;
    *mended += 1;
    return make_anew(&self, change);
}
