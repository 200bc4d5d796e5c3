#include "store/catalog/rebuild/catalog_from_footers.h"

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/model_graphs.h"
#include "store/catalog/rebuild/footer_read.h"
#include "store/catalog/search_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct footer {            /* one pack that could be read; places in `bytes` */
    uint64_t pack, pack_bytes, id; /* id 0: a part, its bytes belong to models that name them */
    int64_t created_ns;
    int64_t written_ns; /* the pack itself: a compaction may have written the model again */
    int whole;          /* all packs that it needs exist */
    uint64_t owner;     /* of a part's bytes: the newest model that names them */
    size_t name, record, record_bytes, graphs, graph_bytes;
    size_t first_fingerprint, fingerprint_count; /* of the tensors in this pack */
} footer;

typedef struct entry { /* one item; places in `items` */
    size_t key, key_bytes, value, value_bytes;
} entry;

struct ligi_footers {
    atomic_int holders;
    int known; /* header is filled */
    ligi_pack_header header;
    uint64_t version, next_id;
    uint64_t *packs; /* all existing packs, readable or not, in order */
    size_t pack_count, pack_capacity;
    ligi_writer bytes, items; /* the memory of footers and entries */
    footer *footers;
    size_t footer_count, footer_capacity;
    ligi_fingerprint_entry *fingerprints;
    size_t fingerprint_count, fingerprint_capacity;
    entry *entries;
    size_t entry_count, entry_capacity;
};

void ligi_footers_hold(ligi_footers *footers)
{
    atomic_fetch_add(&footers->holders, 1);
}

void ligi_footers_drop(ligi_footers *footers)
{
    if (footers == NULL || atomic_fetch_sub(&footers->holders, 1) > 1)
        return;
    free(footers->packs);
    free(footers->footers);
    free(footers->fingerprints);
    free(footers->entries);
    ligi_writer_fini(&footers->bytes);
    ligi_writer_fini(&footers->items);
    free(footers);
}

/* --- one pack --- */

static lig_status add_fingerprint(ligi_footers *table, const ligi_fingerprint_entry *fingerprint)
{
    LIG_TRY(ligi_grow(&table->fingerprints, &table->fingerprint_capacity,
                      table->fingerprint_count + 1, sizeof *table->fingerprints, "fingerprints"));
    table->fingerprints[table->fingerprint_count++] = *fingerprint;
    return LIG_OK;
}

static lig_status take_fingerprints(ligi_footers *table, footer *one, const ligi_manifest *manifest)
{
    ligi_fingerprint_entry fingerprint;
    one->first_fingerprint = table->fingerprint_count;
    for (size_t i = 0; i < manifest->tensor_count; i++)
        if (ligi_fingerprint_of(manifest, i, table->header.secret, &fingerprint) &&
            fingerprint.pack == one->pack)
            LIG_TRY(add_fingerprint(table, &fingerprint));
    one->fingerprint_count = table->fingerprint_count - one->first_fingerprint;
    return LIG_OK;
}

static lig_status add_footer(ligi_footers *table, const footer *one, const ligi_record *record,
                             const ligi_manifest *manifest)
{
    LIG_TRY(ligi_grow(&table->footers, &table->footer_capacity, table->footer_count + 1,
                      sizeof *table->footers, "footers"));
    footer added = *one;
    ligi_writer value = {0};
    LIG_TRY(take_fingerprints(table, &added, manifest));
    ligi_record_put(&value, record, table->header.secret);
    added.name = table->bytes.bytes;
    ligi_put_bytes(&table->bytes, record->about.name, strlen(record->about.name) + 1);
    added.record = table->bytes.bytes;
    added.record_bytes = value.bytes;
    ligi_put_bytes(&table->bytes, value.data, value.bytes);
    added.graphs = table->bytes.bytes;
    added.graph_bytes = manifest->graph_bytes;
    ligi_put_bytes(&table->bytes, manifest->graphs, manifest->graph_bytes);
    lig_status status = value.status ? value.status : table->bytes.status;
    ligi_writer_fini(&value);
    if (status == LIG_OK)
        table->footers[table->footer_count++] = added;
    return status;
}

static lig_status take_manifest(ligi_footers *table, footer *one, const ligi_pack_trailer *trailer,
                                const void *bytes)
{
    ligi_manifest manifest = {0};
    ligi_record record = {0}, place = {.pack = one->pack,
                                       .offset = trailer->footer_offset,
                                       .manifest_bytes = trailer->footer_bytes,
                                       .manifest_hash = trailer->footer_hash};
    lig_status status = ligi_manifest_get(bytes, trailer->footer_bytes, one->pack, &manifest);
    if (status == LIG_OK)
        status = ligi_pack_tensors_check(&manifest, one->pack, trailer->footer_offset);
    if (status == LIG_OK)
        status = ligi_record_of(&manifest, &place, &record);
    one->pack_bytes = trailer->footer_offset + trailer->footer_bytes + LIGI_PACK_TRAILER_BYTES;
    one->id = manifest.about.id;
    one->created_ns = manifest.about.created_ns;
    if (status == LIG_OK)
        status = add_footer(table, one, &record, &manifest);
    free(record.uses);
    ligi_manifest_fini(&manifest);
    return status;
}

/* Damage to one pack must not hide the others: only what concerns the whole volume is an error
 * here. */
static lig_status take_pack(ligi_volume *volume, ligi_footers *table, const void *uuid,
                            uint64_t pack)
{
    ligi_pack_header header = {0};
    ligi_pack_trailer trailer;
    void *bytes = NULL;
    lig_status status = ligi_footer_read(volume, pack, &header, &trailer, &bytes);
    if (status == LIG_OK && uuid == NULL && !table->known) {
        table->header = header;
        table->known = 1;
    }
    const void *wanted = uuid ? uuid : table->header.uuid;
    if (status == LIG_OK && memcmp(header.uuid, wanted, LIGI_UUID_BYTES) != 0)
        status = lig_fail(LIG_E_CORRUPT, "it belongs to another store");
    if (status == LIG_OK && !table->known) {
        table->header = header;
        table->known = 1;
    }
    footer one = {.pack = pack, .written_ns = header.created_ns};
    if (status == LIG_OK)
        status = take_manifest(table, &one, &trailer, bytes);
    free(bytes);
    if (status == LIG_E_NOMEM || status == LIG_E_DENIED)
        return status;
    if (status != LIG_OK && status != LIG_E_NOTFOUND)
        ligi_log(LIG_LOG_WARNING, "skipping pack %016llx: %s", (unsigned long long)pack,
                 lig_error_text());
    return LIG_OK;
}

static lig_status take_known(ligi_footers *table, const ligi_footers *before, size_t index)
{
    LIG_TRY(ligi_grow(&table->footers, &table->footer_capacity, table->footer_count + 1,
                      sizeof *table->footers, "footers"));
    footer one = before->footers[index];
    const uint8_t *from = before->bytes.data;
    const char *name = (const char *)from + one.name;
    const uint8_t *record = from + one.record;
    one.name = table->bytes.bytes;
    ligi_put_bytes(&table->bytes, name, strlen(name) + 1);
    one.record = table->bytes.bytes;
    ligi_put_bytes(&table->bytes, record, one.record_bytes);
    const uint8_t *graphs = from + one.graphs;
    one.graphs = table->bytes.bytes;
    ligi_put_bytes(&table->bytes, graphs, one.graph_bytes);
    size_t first = one.first_fingerprint;
    one.first_fingerprint = table->fingerprint_count;
    for (size_t i = 0; i < one.fingerprint_count; i++)
        LIG_TRY(add_fingerprint(table, &before->fingerprints[first + i]));
    table->footers[table->footer_count++] = one;
    return table->bytes.status;
}

/* --- all packs --- */

static lig_status read_packs(ligi_volume *volume, ligi_footers *table, const ligi_footers *before,
                             const void *uuid)
{
    size_t known = 0, footer_at = 0;
    for (size_t i = 0; i < table->pack_count; i++) {
        uint64_t pack = table->packs[i];
        while (before && known < before->pack_count && before->packs[known] < pack)
            known++;
        while (before && footer_at < before->footer_count && before->footers[footer_at].pack < pack)
            footer_at++;
        int seen = before && known < before->pack_count && before->packs[known] == pack;
        int readable =
            before && footer_at < before->footer_count && before->footers[footer_at].pack == pack;
        if (readable)
            LIG_TRY(take_known(table, before, footer_at));
        else if (!seen)
            LIG_TRY(take_pack(volume, table, uuid, pack));
    }
    return LIG_OK;
}

/* --- the table --- */

typedef struct builder {
    ligi_footers *table;
    const ligi_footers_options *options;
    ligi_map packs, names, ids;
    ligi_pack_record *counts; /* of each footer */
    size_t *order;            /* footers, the newest first */
    char *renamed;            /* room for NAME~ID, one for each footer that needs it */
    size_t renamed_bytes;
    ligi_writer value;
    ligi_search_index_edits index;
} builder;

static lig_status add_entry(ligi_footers *table, const ligi_catalog_key *key,
                            const ligi_writer *value)
{
    LIG_TRY(value->status);
    LIG_TRY(ligi_grow(&table->entries, &table->entry_capacity, table->entry_count + 1,
                      sizeof *table->entries, "a catalog"));
    entry one = {.key = table->items.bytes,
                 .key_bytes = key->size,
                 .value = table->items.bytes + key->size,
                 .value_bytes = value->bytes};
    ligi_put_bytes(&table->items, key->bytes, key->size);
    ligi_put_bytes(&table->items, value->data, value->bytes);
    table->entries[table->entry_count++] = one;
    return table->items.status;
}

static void count_uses(builder *self, const ligi_record *record)
{
    for (size_t i = 0; i < record->use_count; i++) {
        uint64_t at;
        if (!ligi_map_find(&self->packs, &record->uses[i].pack, sizeof(uint64_t), &at)) {
            ligi_log(LIG_LOG_WARNING, "model '%s' needs pack %016llx, which is missing",
                     record->about.name, (unsigned long long)record->uses[i].pack);
            continue;
        }
        footer *used = &self->table->footers[at];
        used->owner = used->owner ? used->owner : record->about.id;
        self->counts[at].models++;
        self->counts[at].tensors += record->uses[i].tensors;
    }
}

/* A model whose graphs cannot be read is kept; a search does not find it. */
static lig_status add_graphs(builder *self, const footer *one, const ligi_about *about)
{
    ligi_footers *table = self->table;
    ligi_graphs graphs = {0};
    if (one->graph_bytes == 0)
        return LIG_OK;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, one->id);
    const uint8_t *bytes = table->bytes.data + one->graphs;
    lig_status status = ligi_graphs_get(bytes, one->graph_bytes, &graphs);
    if (status == LIG_OK) {
        ligi_value_begin(&self->value);
        ligi_put_bytes(&self->value, bytes, one->graph_bytes);
        ligi_value_end(&self->value, &key, table->header.secret);
        status = add_entry(table, &key, &self->value);
    }
    if (status == LIG_OK)
        status = ligi_search_index_model(&self->index, about, &graphs, 1);
    ligi_graphs_fini(&graphs);
    return status == LIG_E_CORRUPT ? LIG_OK : status;
}

static lig_status get_nothing(void *context, const ligi_catalog_key *key, lig_catalog_item *item)
{
    (void)context, (void)key, (void)item;
    return LIG_E_NOTFOUND;
}

static lig_status put_entry(void *context, const ligi_catalog_key *key, const ligi_writer *value)
{
    builder *self = context;
    return value ? add_entry(self->table, key, value) : LIG_OK;
}

static lig_status add_index(builder *self)
{
    ligi_search_index_sink sink = {.get = get_nothing,
                                   .put = put_entry,
                                   .secret = self->table->header.secret,
                                   .context = self};
    return ligi_search_index_apply(&self->index, &sink);
}

/* Model and name of one footer; `name` is what it is called here. */
static lig_status add_model(builder *self, const footer *one, const char *name)
{
    ligi_footers *table = self->table;
    const void *secret = table->header.secret;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, one->id);
    lig_catalog_item item = {key.bytes, key.size, table->bytes.data + one->record,
                             one->record_bytes};
    ligi_record record = {0};
    lig_status status = ligi_record_get(&item, secret, &record);
    if (status == LIG_OK) {
        record.about.name = name;
        ligi_record_put(&self->value, &record, secret);
        status = add_entry(table, &key, &self->value);
    }
    if (status == LIG_OK) {
        key = ligi_catalog_key_text(LIGI_TABLE_NAME, secret, name);
        ligi_catalog_name_put(&self->value, &key, one->id, secret);
        status = add_entry(table, &key, &self->value);
    }
    if (status == LIG_OK)
        status = add_graphs(self, one, &record.about);
    if (status == LIG_OK)
        count_uses(self, &record);
    ligi_record_fini(&record);
    return status;
}

/* A name that is not taken, or NULL when this footer is left out. */
static lig_status choose_name(builder *self, const footer *one, const char **chosen)
{
    const char *name = (const char *)self->table->bytes.data + one->name;
    *chosen = NULL;
    lig_status status = ligi_map_insert(&self->names, name, strlen(name), one->id, NULL);
    if (status == LIG_OK)
        *chosen = name;
    if (status != LIG_E_EXISTS || !self->options->keep_older)
        return status == LIG_E_EXISTS ? LIG_OK : status;
    char *text = self->renamed + self->renamed_bytes;
    size_t room = strlen(name) + 24;
    if (room > LIG_NAME_BYTES_MAX) { /* dropped whole: truncating could split a character */
        name = "";
        room = 24;
    }
    snprintf(text, room, "%s~%llu", name, (unsigned long long)one->id);
    self->renamed_bytes += room;
    status = ligi_map_insert(&self->names, text, strlen(text), one->id, NULL);
    if (status == LIG_OK)
        *chosen = text;
    return status == LIG_E_EXISTS ? LIG_OK : status;
}

static lig_status add_models(builder *self)
{
    ligi_footers *table = self->table;
    for (size_t i = 0; i < table->footer_count; i++) {
        const footer *one = &table->footers[self->order[i]];
        if (one->id == 0)
            continue;
        if (one->id >= table->next_id)
            table->next_id = one->id + 1;
        lig_status status = ligi_map_insert(&self->ids, &one->id, sizeof one->id, i, NULL);
        const char *name = NULL;
        if (status == LIG_OK)
            status = choose_name(self, one, &name);
        else if (status == LIG_E_EXISTS)
            status = LIG_OK;
        LIG_TRY(status);
        if (name)
            LIG_TRY(add_model(self, one, name));
        else
            ligi_log(LIG_LOG_INFO, "pack %016llx contains a model whose name or id is already used",
                     (unsigned long long)one->pack);
    }
    return LIG_OK;
}

static lig_status add_packs(builder *self)
{
    ligi_footers *table = self->table;
    for (size_t i = 0; i < table->footer_count; i++) {
        if (self->counts[i].models == 0)
            continue;
        self->counts[i].bytes = table->footers[i].pack_bytes;
        ligi_pack_record_put(&self->value, table->footers[i].pack, &self->counts[i],
                             table->header.secret);
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, table->footers[i].pack);
        LIG_TRY(add_entry(table, &key, &self->value));
    }
    return LIG_OK;
}

static lig_status add_fingerprints(builder *self)
{
    ligi_footers *table = self->table;
    ligi_map seen = {0};
    lig_status status = ligi_map_reserve(&seen, table->fingerprint_count);
    for (size_t i = 0; i < table->footer_count && status == LIG_OK; i++) {
        const footer *one = &table->footers[i];
        const ligi_fingerprint_entry *fingerprint = &table->fingerprints[one->first_fingerprint];
        size_t count = self->counts[i].models ? one->fingerprint_count : 0;
        for (; count > 0 && status == LIG_OK; count--, fingerprint++) {
            status =
                ligi_map_insert(&seen, &fingerprint->print, sizeof fingerprint->print, 0, NULL);
            ligi_fingerprint_entry owned = *fingerprint;
            owned.owner = owned.owner ? owned.owner : one->owner;
            ligi_catalog_key key = ligi_fingerprint_key(fingerprint);
            ligi_fingerprint_put(&self->value, &owned, table->header.secret);
            status = status == LIG_OK ? add_entry(table, &key, &self->value) : status;
            status = status == LIG_E_EXISTS ? LIG_OK : status;
        }
    }
    ligi_map_fini(&seen);
    return status;
}

static int newest_first(const void *a, const void *b, void *context)
{
    const footer *footers = context;
    const footer *left = &footers[*(const size_t *)a], *right = &footers[*(const size_t *)b];
    if (left->created_ns != right->created_ns)
        return left->created_ns < right->created_ns ? 1 : -1;
    if (left->id != right->id)
        return left->id < right->id ? 1 : -1;
    if (left->whole != right->whole)
        return right->whole - left->whole;
    return left->written_ns < right->written_ns ? 1 : left->written_ns > right->written_ns ? -1 : 0;
}

static int by_key(const void *a, const void *b, void *context)
{
    const uint8_t *bytes = context;
    const entry *left = a, *right = b;
    size_t least = left->key_bytes < right->key_bytes ? left->key_bytes : right->key_bytes;
    int order = memcmp(bytes + left->key, bytes + right->key, least);
    if (order)
        return order;
    return left->key_bytes < right->key_bytes ? -1 : left->key_bytes > right->key_bytes;
}

/* Reports models that lack a pack: a model that was retired but whose pack remains, or that was
 * rewritten. */
static lig_status find_whole(builder *self, footer *one)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, one->id);
    lig_catalog_item item = {key.bytes, key.size, self->table->bytes.data + one->record,
                             one->record_bytes};
    ligi_record record = {0};
    one->whole = 1;
    one->owner = 0;
    if (one->id == 0)
        return LIG_OK;
    lig_status status = ligi_record_get(&item, self->table->header.secret, &record);
    for (size_t i = 0; i < record.use_count && status == LIG_OK; i++)
        one->whole &= ligi_map_find(&self->packs, &record.uses[i].pack, sizeof(uint64_t), NULL);
    ligi_record_fini(&record);
    return status;
}

static lig_status prepare(builder *self)
{
    ligi_footers *table = self->table;
    size_t count = table->footer_count, renamed = 1;
    LIG_TRY(ligi_calloc(&self->counts, count, sizeof *self->counts, "a catalog"));
    LIG_TRY(ligi_calloc(&self->order, count, sizeof *self->order, "a catalog"));
    LIG_TRY(ligi_map_reserve(&self->packs, count));
    for (size_t i = 0; i < count; i++) {
        const footer *one = &table->footers[i];
        self->order[i] = i;
        renamed += strlen((const char *)table->bytes.data + one->name) + 24;
        LIG_TRY(ligi_map_insert(&self->packs, &one->pack, sizeof one->pack, i, NULL));
    }
    for (size_t i = 0; i < count; i++)
        LIG_TRY(find_whole(self, &table->footers[i]));
    LIG_TRY(ligi_alloc(&self->renamed, renamed, "a catalog"));
    if (count)
        qsort_r(self->order, count, sizeof *self->order, newest_first, table->footers);
    return LIG_OK;
}

static lig_status build(ligi_footers *table, const ligi_footers_options *options)
{
    builder self = {.table = table, .options = options};
    lig_status status = prepare(&self);
    if (status == LIG_OK)
        status = add_models(&self);
    if (status == LIG_OK)
        status = add_packs(&self);
    if (status == LIG_OK)
        status = add_fingerprints(&self);
    if (status == LIG_OK)
        status = add_index(&self);
    if (status == LIG_OK && table->entry_count)
        qsort_r(table->entries, table->entry_count, sizeof *table->entries, by_key,
                table->items.data);
    ligi_map_fini(&self.packs);
    ligi_map_fini(&self.names);
    ligi_map_fini(&self.ids);
    ligi_writer_fini(&self.value);
    ligi_search_index_edits_fini(&self.index);
    free(self.counts);
    free(self.order);
    free(self.renamed);
    return status;
}

static int same_packs(const ligi_footers *a, const ligi_footers *b)
{
    return b && a->pack_count == b->pack_count &&
           (a->pack_count == 0 ||
            memcmp(a->packs, b->packs, a->pack_count * sizeof *a->packs) == 0);
}

lig_status ligi_footers_read(ligi_volume *volume, ligi_footers *before,
                             const ligi_footers_options *options, ligi_footers **out)
{
    ligi_footers *table;
    LIG_TRY(ligi_calloc(&table, 1, sizeof *table, "a catalog"));
    table->holders = 1;
    table->next_id = 1;
    table->version = before ? before->version + 1 : 1;
    lig_status status =
        ligi_footer_packs(volume, &table->packs, &table->pack_count, &table->pack_capacity);
    if (status == LIG_OK && same_packs(table, before)) {
        ligi_footers_drop(table);
        ligi_footers_hold(before);
        *out = before;
        return LIG_OK;
    }
    if (before && before->known) {
        table->header = before->header;
        table->known = 1;
    }
    if (status == LIG_OK)
        status = read_packs(volume, table, before, options->uuid);
    if (status == LIG_OK)
        status = build(table, options);
    if (status == LIG_OK)
        *out = table;
    else
        ligi_footers_drop(table);
    return status;
}

/* --- looking --- */

int ligi_footers_header(const ligi_footers *footers, ligi_pack_header *header)
{
    if (footers->known)
        *header = footers->header;
    return footers->known;
}

uint64_t ligi_footers_version(const ligi_footers *footers)
{
    return footers->version;
}

uint64_t ligi_footers_next_id(const ligi_footers *footers)
{
    return footers->next_id;
}

size_t ligi_footers_count(const ligi_footers *footers)
{
    return footers->entry_count;
}

lig_catalog_item ligi_footers_item(const ligi_footers *footers, size_t index)
{
    const entry *one = &footers->entries[index];
    return (lig_catalog_item){footers->items.data + one->key, one->key_bytes,
                              footers->items.data + one->value, one->value_bytes};
}

static int is_before(const ligi_footers *footers, size_t index, const void *key, size_t key_bytes)
{
    lig_catalog_item item = ligi_footers_item(footers, index);
    int order = memcmp(item.key, key, item.key_bytes < key_bytes ? item.key_bytes : key_bytes);
    return order < 0 || (order == 0 && item.key_bytes < key_bytes);
}

int ligi_footers_seek(const ligi_footers *footers, const void *key, size_t key_bytes,
                      lig_catalog_item *item)
{
    size_t at;
    LIGI_LOWER_BOUND(at, footers->entry_count, is_before(footers, at, key, key_bytes));
    if (at == footers->entry_count)
        return 0;
    *item = ligi_footers_item(footers, at);
    return 1;
}
