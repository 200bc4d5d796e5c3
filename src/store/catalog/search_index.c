#include "store/catalog/search_index.h"

#include "base/error.h"
#include "store/catalog/model_graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- keys --- */

ligi_catalog_key ligi_catalog_key_posting(const ligi_hash128 *key, uint64_t chunk)
{
    ligi_catalog_key out = {.size = 23};
    out.bytes[0] = LIGI_TABLE_POSTING;
    ligi_put_be64(out.bytes + 1, key->low);
    ligi_put_be64(out.bytes + 9, key->high);
    uint8_t number[8];
    ligi_put_be64(number, chunk); /* six bytes of it are enough for 2^60 ids */
    memcpy(out.bytes + 17, number + 2, 6);
    return out;
}

ligi_catalog_key ligi_catalog_key_column(const char *name, uint64_t chunk)
{
    ligi_catalog_key out = {.size = 17};
    out.bytes[0] = LIGI_TABLE_COLUMN;
    ligi_put_be64(out.bytes + 1, ligi_hash64_plain(name, strlen(name)));
    ligi_put_be64(out.bytes + 9, chunk);
    return out;
}

ligi_hash128 ligi_tag_key(const char *name, const char *value)
{
    ligi_hash128 parts[3] = {ligi_hash128_plain("tag", 3), ligi_hash128_plain(name, strlen(name)),
                             ligi_hash128_plain(value, strlen(value))};
    return ligi_hash128_plain(parts, sizeof parts);
}

ligi_hash128 ligi_irregular_key(void)
{
    return ligi_hash128_plain("irregular", 9);
}

/* --- gathering --- */

static lig_status add_edit(ligi_search_index_edits *edits, ligi_search_index_edit edit)
{
    LIG_TRY(ligi_grow(&edits->edits, &edits->capacity, edits->count + 1, sizeof *edits->edits,
                      "the index"));
    edit.order = (uint32_t)edits->count;
    edits->edits[edits->count++] = edit;
    return LIG_OK;
}

static lig_status edit_posting(ligi_search_index_edits *edits, const ligi_hash128 *key, uint64_t id,
                               int present, uint64_t bytes)
{
    return add_edit(
        edits, (ligi_search_index_edit){.key = ligi_catalog_key_posting(key, id / LIGI_CHUNK_IDS),
                                        .offset = (uint32_t)(id % LIGI_CHUNK_IDS),
                                        .present = present,
                                        .bytes = bytes});
}

static lig_status edit_column(ligi_search_index_edits *edits, const char *name, uint64_t id,
                              double value)
{
    return add_edit(
        edits, (ligi_search_index_edit){.key = ligi_catalog_key_column(name, id / LIGI_COLUMN_IDS),
                                        .offset = (uint32_t)(id % LIGI_COLUMN_IDS),
                                        .value = value});
}

static lig_status edit_layers(ligi_search_index_edits *edits, const ligi_layers *layers,
                              uint64_t id, int present)
{
    ligi_hash128 *keys = NULL;
    LIG_TRY(ligi_calloc(&keys, layers->graph.layer_count, sizeof *keys, "a graph's keys"));
    lig_status status = ligi_layers_keys(layers, keys);
    for (uint32_t i = 0; i < layers->graph.layer_count && status == LIG_OK; i++)
        status = edit_posting(edits, &keys[i], id, present, layers->graph.layer_bytes[i]);
    free(keys);
    return status;
}

lig_status ligi_search_index_model(ligi_search_index_edits *edits, const ligi_about *about,
                                   const ligi_graphs *graphs, int present)
{
    for (size_t i = 0; i < graphs->count; i++)
        LIG_TRY(edit_layers(edits, &graphs->graphs[i], about->id, present));
    if (graphs->count == 0)
        return LIG_OK; /* only a search asks for tags and metrics, and it never finds this one */
    if (!present) {
        ligi_hash128 irregular = ligi_irregular_key();
        LIG_TRY(edit_posting(edits, &irregular, about->id, 0, 0));
    }
    for (size_t i = 0; i < about->tag_count; i++) {
        ligi_hash128 key = ligi_tag_key(about->tags[i].name, about->tags[i].value);
        LIG_TRY(edit_posting(edits, &key, about->id, present, 0));
    }
    for (size_t i = 0; i < about->metric_count; i++)
        LIG_TRY(edit_column(edits, about->metrics[i].name, about->id,
                            present ? about->metrics[i].value : NAN));
    return edit_column(edits, LIGI_CREATED_COLUMN, about->id,
                       present ? (double)about->created_ns : NAN);
}

/* --- values --- */

lig_status ligi_posting_get(const lig_catalog_item *item, const void *secret, ligi_posting *posting)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    posting->bytes = ligi_get_varint(&reader);
    size_t left = reader.bytes - reader.at;
    const void *data = ligi_get_bytes(&reader, left);
    if (reader.failed)
        return lig_fail(LIG_E_CORRUPT, "the catalog's index contains an invalid posting");
    return ligi_postings_get(&posting->set, data, left);
}

lig_status ligi_column_get(const lig_catalog_item *item, const void *secret, double *values)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++)
        values[i] = ligi_get_f64(&reader);
    if (reader.failed)
        return lig_fail(LIG_E_CORRUPT, "the catalog's index contains an invalid column");
    return LIG_OK;
}

static int same_key(const ligi_catalog_key *a, const ligi_catalog_key *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

int ligi_search_index_order(const void *left, const void *right)
{
    const ligi_search_index_edit *a = left, *b = right;
    int order = memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
    if (order)
        return order;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* The first member of a set tells the bytes; one that has others is noted in the irregular set,
 * which is applied last. */
static lig_status apply_posting(ligi_search_index_edits *edits, size_t first, size_t end,
                                const ligi_search_index_sink *sink, ligi_writer *value)
{
    ligi_catalog_key key = edits->edits[first].key;
    ligi_posting posting = {0};
    lig_catalog_item item;
    lig_status status = sink->get(sink->context, &key, &item);
    int fresh = status == LIG_E_NOTFOUND;
    if (!fresh) {
        LIG_TRY(status);
        LIG_TRY(ligi_posting_get(&item, sink->secret, &posting));
    }
    for (size_t i = first; i < end; i++) {
        const ligi_search_index_edit edit = edits->edits[i];
        ligi_bitmap_set(&posting.set, edit.offset, edit.present);
        if (edit.present && fresh)
            posting.bytes = edit.bytes;
        if (edit.present && posting.bytes != edit.bytes) {
            ligi_hash128 irregular = ligi_irregular_key();
            uint8_t number[8] = {0};
            memcpy(number + 2, key.bytes + 17, 6);
            uint64_t id = ligi_get_be64(number) * LIGI_CHUNK_IDS + edit.offset;
            LIG_TRY(edit_posting(edits, &irregular, id, 1, 0));
        }
        fresh = fresh && !edit.present;
    }
    uint8_t data[LIGI_BITMAP_BYTES];
    size_t bytes = ligi_postings_put(&posting.set, data);
    if (bytes == 0)
        return sink->put(sink->context, &key, NULL);
    ligi_value_begin(value);
    ligi_put_varint(value, posting.bytes);
    ligi_put_bytes(value, data, bytes);
    ligi_value_end(value, &key, sink->secret);
    return sink->put(sink->context, &key, value);
}

static lig_status apply_column(const ligi_search_index_edit *edits, size_t count,
                               const ligi_search_index_sink *sink, ligi_writer *value)
{
    const ligi_catalog_key *key = &edits[0].key;
    double values[LIGI_COLUMN_IDS];
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++)
        values[i] = NAN;
    lig_catalog_item item;
    lig_status status = sink->get(sink->context, key, &item);
    if (status == LIG_OK)
        status = ligi_column_get(&item, sink->secret, values);
    if (status != LIG_E_NOTFOUND)
        LIG_TRY(status);
    for (size_t i = 0; i < count; i++)
        values[edits[i].offset] = edits[i].value;
    int empty = 1;
    ligi_value_begin(value);
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++) {
        empty = empty && isnan(values[i]);
        ligi_put_f64(value, values[i]);
    }
    ligi_value_end(value, key, sink->secret);
    return sink->put(sink->context, key, empty ? NULL : value);
}

static lig_status apply_sorted(ligi_search_index_edits *edits, size_t count,
                               const ligi_search_index_sink *sink, ligi_writer *value)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1;
             end < count && same_key(&edits->edits[end].key, &edits->edits[first].key);)
            end++;
        if (edits->edits[first].key.bytes[0] == LIGI_TABLE_POSTING)
            LIG_TRY(apply_posting(edits, first, end, sink, value));
        else
            LIG_TRY(apply_column(edits->edits + first, end - first, sink, value));
    }
    return LIG_OK;
}

/* Puts the edits of the irregular set behind the others, which may add to them; returns how many
 * others there are. */
static size_t irregular_last(ligi_search_index_edits *edits)
{
    ligi_hash128 irregular = ligi_irregular_key();
    ligi_catalog_key prefix = ligi_catalog_key_posting(&irregular, 0);
    size_t count = 0;
    for (size_t i = 0; i < edits->count; i++) {
        if (memcmp(edits->edits[i].key.bytes, prefix.bytes, 17) == 0)
            continue;
        ligi_search_index_edit swap = edits->edits[count];
        edits->edits[count++] = edits->edits[i];
        edits->edits[i] = swap;
    }
    return count;
}

lig_status ligi_search_index_apply(ligi_search_index_edits *edits,
                                   const ligi_search_index_sink *sink)
{
    if (edits->count == 0)
        return LIG_OK;
    ligi_writer value = {0};
    size_t count = irregular_last(edits);
    qsort(edits->edits, count, sizeof *edits->edits, ligi_search_index_order);
    lig_status status = apply_sorted(edits, count, sink, &value);
    ligi_search_index_edits late = {edits->edits + count, edits->count - count, 0};
    if (status == LIG_OK && late.count) {
        qsort(late.edits, late.count, sizeof *late.edits, ligi_search_index_order);
        status = apply_sorted(&late, late.count, sink, &value);
    }
    ligi_writer_fini(&value);
    return status;
}

void ligi_search_index_edits_fini(ligi_search_index_edits *edits)
{
    free(edits->edits);
    *edits = (ligi_search_index_edits){0};
}
