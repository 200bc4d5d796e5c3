#include "store/find/candidates.h"

#include "base/error.h"
#include "store/catalog/search_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One key's posting in one chunk. */
typedef struct entry {
    uint64_t chunk;
    ligi_posting posting;
} entry;

/* One chunk of ids: how many of the asked keys each has, and which ones are still to be
 * returned. */
typedef struct chunk {
    uint64_t number;
    size_t first, count; /* its entries */
    ligi_bitmap left, irregular;
    ligi_tally tally;
} chunk;

struct ligi_candidates {
    const ligi_catalog_view *view;
    const char *prefer;
    double sign;
    entry *entries;
    size_t entry_count, entry_capacity;
    chunk *chunks;
    size_t chunk_count;
    ligi_candidate *heap; /* those of the current level, the best at the top */
    size_t heap_count, heap_capacity;
    uint32_t level; /* layers of the next level */
};

/* --- reading the index --- */

static lig_status add_entry(ligi_candidates *self, const lig_catalog_item *item)
{
    LIG_TRY(ligi_grow(&self->entries, &self->entry_capacity, self->entry_count + 1,
                      sizeof *self->entries, "a search"));
    entry *at = &self->entries[self->entry_count];
    uint8_t number[8] = {0};
    memcpy(number + 2, (const uint8_t *)item->key + 17, 6);
    at->chunk = ligi_get_be64(number);
    LIG_TRY(ligi_posting_get(item, self->view->store->secret, &at->posting));
    self->entry_count++;
    return LIG_OK;
}

/* All chunks of one key. */
static lig_status read_key(ligi_candidates *self, const ligi_hash128 *hash)
{
    ligi_catalog_key key = ligi_catalog_key_posting(hash, 0);
    ligi_catalog_key prefix = key;
    lig_catalog_item item;
    for (;;) {
        lig_status status = ligi_catalog_view_seek(self->view, &key, &item);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        if (item.key_bytes != prefix.size || memcmp(item.key, prefix.bytes, 17) != 0)
            return LIG_OK;
        LIG_TRY(add_entry(self, &item));
        key = ligi_catalog_key_posting(hash, self->entries[self->entry_count - 1].chunk + 1);
    }
}

static int by_chunk(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    return left->chunk < right->chunk ? -1 : left->chunk > right->chunk;
}

static lig_status read_set(const ligi_candidates *self, const ligi_hash128 *hash, uint64_t number,
                           ligi_posting *posting)
{
    ligi_catalog_key key = ligi_catalog_key_posting(hash, number);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(self->view, &key, &item);
    if (status == LIG_E_NOTFOUND) {
        memset(posting, 0, sizeof *posting);
        return LIG_OK;
    }
    LIG_TRY(status);
    return ligi_posting_get(&item, self->view->store->secret, posting);
}

/* Which models of the chunk are candidates: those with one of the keys and all the tags that are
 * not excluded. */
static lig_status start_chunk(const ligi_candidates *self, chunk *at,
                              const ligi_candidates_ask *ask)
{
    ligi_tally_init(&at->tally);
    for (size_t i = 0; i < at->count; i++) {
        const ligi_bitmap *set = &self->entries[at->first + i].posting.set;
        ligi_tally_add(&at->tally, set);
        for (uint32_t w = 0; w < LIGI_BITMAP_WORDS; w++)
            at->left.words[w] |= set->words[w];
    }
    ligi_posting posting;
    for (size_t i = 0; i < ask->tag_count; i++) {
        ligi_hash128 key = ligi_tag_key(ask->tags[i].name, ask->tags[i].value);
        LIG_TRY(read_set(self, &key, at->number, &posting));
        for (uint32_t w = 0; w < LIGI_BITMAP_WORDS; w++)
            at->left.words[w] &= posting.set.words[w];
    }
    for (size_t i = 0; i < ask->exclude_count; i++)
        if (ask->exclude[i] / LIGI_CHUNK_IDS == at->number)
            ligi_bitmap_set(&at->left, (uint32_t)(ask->exclude[i] % LIGI_CHUNK_IDS), 0);
    ligi_hash128 irregular = ligi_irregular_key();
    LIG_TRY(read_set(self, &irregular, at->number, &posting));
    at->irregular = posting.set;
    return LIG_OK;
}

static lig_status start_chunks(ligi_candidates *self, const ligi_candidates_ask *ask)
{
    size_t count = 0;
    for (size_t i = 0; i < self->entry_count; i++)
        count += i == 0 || self->entries[i].chunk != self->entries[i - 1].chunk;
    LIG_TRY(ligi_calloc(&self->chunks, count, sizeof *self->chunks, "a search"));
    self->chunk_count = count;
    for (size_t i = 0, at = 0; i < self->entry_count; i++) {
        at += i && self->entries[i].chunk != self->entries[i - 1].chunk;
        if (self->chunks[at].count++ == 0) {
            self->chunks[at].number = self->entries[i].chunk;
            self->chunks[at].first = i;
        }
    }
    for (size_t i = 0; i < count; i++) {
        LIG_TRY(start_chunk(self, &self->chunks[i], ask));
        uint32_t most = ligi_tally_most(&self->chunks[i].tally, &self->chunks[i].left);
        self->level = most > self->level ? most : self->level;
    }
    return LIG_OK;
}

lig_status ligi_candidates_open(ligi_candidates **out, const ligi_catalog_view *view,
                                const ligi_candidates_ask *ask)
{
    ligi_candidates *self = NULL;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a search"));
    self->view = view;
    int lower = ask->prefer && ask->prefer[0] == '-';
    self->prefer = ask->prefer ? ask->prefer + lower : NULL;
    self->sign = lower ? -1 : 1;
    uint32_t count = ask->layers->graph.layer_count;
    ligi_hash128 *keys = NULL;
    lig_status status = ligi_calloc(&keys, count, sizeof *keys, "a search");
    if (status == LIG_OK)
        status = ligi_layers_keys(ask->layers, keys);
    for (uint32_t i = 0; i < count && status == LIG_OK; i++)
        status = read_key(self, &keys[i]);
    free(keys);
    if (status == LIG_OK) {
        if (self->entry_count)
            qsort(self->entries, self->entry_count, sizeof *self->entries, by_chunk);
        status = start_chunks(self, ask);
    }
    if (status != LIG_OK) {
        ligi_candidates_close(self);
        return status;
    }
    *out = self;
    return LIG_OK;
}

void ligi_candidates_close(ligi_candidates *self)
{
    if (self == NULL)
        return;
    free(self->entries);
    free(self->chunks);
    free(self->heap);
    free(self);
}

/* --- one level at a time: all that may share the same number of layers --- */

/* Bytes that each member of `level` may share. A key that all or none of them have needs no walk
 * over them. */
static void sum_bytes(const ligi_candidates *self, const chunk *at, const ligi_bitmap *level,
                      uint64_t *bytes)
{
    uint64_t all = 0;
    memset(bytes, 0, LIGI_CHUNK_IDS * sizeof *bytes);
    for (size_t i = 0; i < at->count; i++) {
        const ligi_posting *posting = &self->entries[at->first + i].posting;
        uint64_t without = 0;
        for (uint32_t w = 0; w < LIGI_BITMAP_WORDS; w++)
            without |= level->words[w] & ~posting->set.words[w];
        if (without == 0) {
            all += posting->bytes;
            continue;
        }
        for (uint32_t w = 0; w < LIGI_BITMAP_WORDS; w++)
            for (uint64_t word = level->words[w] & posting->set.words[w]; word; word &= word - 1)
                bytes[w * 64 + (uint32_t)__builtin_ctzll(word)] += posting->bytes;
    }
    for (uint32_t i = 0; i < LIGI_CHUNK_IDS; i++)
        bytes[i] = ligi_bitmap_has(&at->irregular, i) ? UINT64_MAX : bytes[i] + all;
}

static lig_status read_column(const ligi_candidates *self, const char *name, uint64_t id,
                              double *values)
{
    ligi_catalog_key key = ligi_catalog_key_column(name, id / LIGI_COLUMN_IDS);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(self->view, &key, &item);
    if (status == LIG_OK)
        return ligi_column_get(&item, self->view->store->secret, values);
    for (uint32_t i = 0; i < LIGI_COLUMN_IDS; i++)
        values[i] = NAN;
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

static lig_status add_members(ligi_candidates *self, const chunk *at, const ligi_bitmap *level,
                              const uint64_t *bytes)
{
    double metric[LIGI_COLUMN_IDS], created[LIGI_COLUMN_IDS];
    uint64_t column = UINT64_MAX;
    for (uint32_t w = 0; w < LIGI_BITMAP_WORDS; w++)
        for (uint64_t word = level->words[w]; word; word &= word - 1) {
            uint32_t offset = w * 64 + (uint32_t)__builtin_ctzll(word);
            uint64_t id = at->number * LIGI_CHUNK_IDS + offset;
            if (id / LIGI_COLUMN_IDS != column) {
                column = id / LIGI_COLUMN_IDS;
                LIG_TRY(read_column(self, LIGI_CREATED_COLUMN, id, created));
                LIG_TRY(read_column(self, self->prefer ? self->prefer : "", id, metric));
            }
            LIG_TRY(ligi_grow(&self->heap, &self->heap_capacity, self->heap_count + 1,
                              sizeof *self->heap, "a search"));
            uint32_t in = (uint32_t)(id % LIGI_COLUMN_IDS);
            self->heap[self->heap_count++] = (ligi_candidate){id, self->level, bytes[offset],
                                                              metric[in] * self->sign, created[in]};
        }
    return LIG_OK;
}

/* Sifts the candidate at `at` down to its place in the heap. */
static void sink(ligi_candidate *heap, size_t count, size_t at)
{
    ligi_candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && ligi_candidate_better(&heap[child + 1], &heap[child]))
            child++;
        if (!ligi_candidate_better(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static lig_status fill_level(ligi_candidates *self)
{
    uint64_t *bytes = NULL;
    LIG_TRY(ligi_alloc(&bytes, LIGI_CHUNK_IDS * sizeof *bytes, "a search"));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < self->chunk_count && status == LIG_OK; i++) {
        chunk *at = &self->chunks[i];
        ligi_bitmap level;
        ligi_tally_equal(&at->tally, &at->left, self->level, &level);
        if (ligi_bitmap_count(&level) == 0)
            continue;
        sum_bytes(self, at, &level, bytes);
        status = add_members(self, at, &level, bytes);
    }
    free(bytes);
    for (size_t i = self->heap_count / 2; i-- > 0;)
        sink(self->heap, self->heap_count, i);
    self->level--;
    return status;
}

lig_status ligi_candidates_next(ligi_candidates *self, ligi_candidate *next)
{
    while (self->heap_count == 0) {
        if (self->level == 0)
            return LIG_E_NOTFOUND;
        LIG_TRY(fill_level(self));
    }
    *next = self->heap[0];
    self->heap[0] = self->heap[--self->heap_count];
    if (self->heap_count)
        sink(self->heap, self->heap_count, 0);
    return LIG_OK;
}
