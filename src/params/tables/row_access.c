#include "params/tables/row_access.h"

#include "params/rows/table_state.h"
#include "params/tables/batch_parts.h"
#include "params/tables/key_home.h"
#include "params/tables/row_install.h"
#include "params/tables/row_location.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_AHEAD = 32, ROWS_AHEAD = 16 };
/* A peer that has not finished writing a row by then is sent a request instead. */
#define PEER_TURNS 4096u
/* Writers of rows of this size leave no gap that is long enough for a copy: after one failed copy
 * the reader takes the row's lock, or sends the peer a request. */
#define LONG_BYTES (UINT64_C(64) << 10)

/* --- keys --- */

static lig_status refuse_key(const ligi_tables *tables, int64_t key)
{
    if (tables->hashed)
        return lig_fail(LIG_E_INVALID,
                        "key %lld belongs to no table: the bits above %d are the table number, and "
                        "there are %u tables",
                        (long long)key, LIG_PARAMS_HASHED_SHIFT, tables->table_count);
    return lig_fail(LIG_E_INVALID, "key %lld is not in 0 .. %llu", (long long)key,
                    (unsigned long long)tables->entry_limit - 1);
}

/* Dense keys of one length: one comparison per key. */
static lig_status check_dense(const ligi_tables *tables, const int64_t *keys, size_t count)
{
    uint64_t limit = tables->entry_limit;
    uint64_t bad = 0;

    for (size_t i = 0; i < count; i++)
        bad |= (uint64_t)keys[i] >= limit;
    for (size_t i = 0; bad && i < count; i++)
        if ((uint64_t)keys[i] >= limit)
            return refuse_key(tables, keys[i]);
    return LIG_OK;
}

lig_status ligi_tables_lengths(const ligi_tables *tables, const int64_t *keys, size_t count,
                               uint64_t *elements)
{
    uint64_t sum = 0;

    if (count > UINT32_MAX)
        return lig_fail(LIG_E_LIMIT, "%zu keys in one call: the limit is %u", count, UINT32_MAX);
    if (tables->uniform && !tables->hashed) {
        LIG_TRY(check_dense(tables, keys, count));
        *elements = (uint64_t)count * tables->uniform;
        return LIG_OK;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t length = ligi_tables_length_of_key(tables, keys[i]);
        if (length == 0)
            return refuse_key(tables, keys[i]);
        sum += length;
    }
    *elements = sum;
    return LIG_OK;
}

static lig_status no_room(const ligi_table_info *info)
{
    return lig_fail(LIG_E_LIMIT,
                    "table '%s' is full: key_count is %llu, and %llu keys are in use (open it with "
                    "a larger key_count)",
                    info->name, (unsigned long long)info->key_count,
                    (unsigned long long)info->used);
}

static lig_status add_key(ligi_tables *tables, int64_t key, ligi_entry *entry)
{
    uint32_t number = (uint32_t)((uint64_t)key >> LIG_PARAMS_HASHED_SHIFT);
    ligi_table_info *info = &tables->infos[number];

    if (ligi_key_index_find(&tables->key_index, key, entry))
        return LIG_OK;
    if (info->used == info->key_count)
        return no_room(info);
    *entry = ligi_key_index_reserve(&tables->key_index, key);
    if (tables->kinds)
        tables->kinds[*entry] = (uint16_t)number;
    if (ligi_tables_home(tables, key) == tables->rank)
        LIG_TRY(ligi_tables_begin_row(tables, *entry));
    info->used++;
    ligi_key_index_publish(&tables->key_index, key);
    return LIG_OK;
}

lig_status ligi_tables_entry(ligi_tables *tables, int64_t key, ligi_entry *entry)
{
    if (ligi_tables_table_of_key(tables, key) < 0)
        return refuse_key(tables, key);
    if (ligi_tables_known(tables, key, entry))
        return LIG_OK;
    pthread_mutex_lock(&tables->lock);
    lig_status status = add_key(tables, key, entry);
    pthread_mutex_unlock(&tables->lock);
    return status;
}

static int by_key(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* The new keys, each once, in order. */
static lig_status check_each(const ligi_tables *tables, const int64_t *fresh, size_t count)
{
    for (size_t i = 0, first = 0; i < count; i++) {
        uint64_t number = (uint64_t)fresh[i] >> LIG_PARAMS_HASHED_SHIFT;
        const ligi_table_info *info = &tables->infos[number];
        if (i == 0 || (uint64_t)fresh[i - 1] >> LIG_PARAMS_HASHED_SHIFT != number)
            first = i;
        if (i + 1 - first > info->key_count - info->used)
            return no_room(info);
    }
    return LIG_OK;
}

/* Whether there is room for all new keys. Under the lock. */
static lig_status check_room(const ligi_tables *tables, const int64_t *keys, size_t count)
{
    int64_t *fresh;
    size_t fresh_count = 0, kept = 0;
    ligi_entry entry;

    LIG_TRY(ligi_alloc(&fresh, count * sizeof *fresh, "a batch of keys"));
    for (size_t i = 0; i < count; i++)
        if (!ligi_key_index_find(&tables->key_index, keys[i], &entry))
            fresh[fresh_count++] = keys[i];
    qsort(fresh, fresh_count, sizeof *fresh, by_key);
    for (size_t i = 0; i < fresh_count; i++)
        if (i == 0 || fresh[i] != fresh[i - 1])
            fresh[kept++] = fresh[i];
    lig_status status = check_each(tables, fresh, kept);
    free(fresh);
    return status;
}

/* 1 if there would be room even if all were new and of one table. */
static int has_plenty(const ligi_tables *tables, size_t count)
{
    for (uint32_t i = 0; i < tables->table_count; i++)
        if (tables->infos[i].key_count - tables->infos[i].used < count)
            return 0;
    return 1;
}

static lig_status add_keys(ligi_tables *tables, const int64_t *keys, size_t count,
                           ligi_entry *entries)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&tables->lock);
    if (!has_plenty(tables, count))
        status = check_room(tables, keys, count);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = add_key(tables, keys[i], &entries[i]);
    pthread_mutex_unlock(&tables->lock);
    return status;
}

lig_status ligi_tables_enter(ligi_tables *tables, const int64_t *keys, size_t count,
                             ligi_entry *entries)
{
    for (size_t i = 0; i < count; i++) {
        if (i + WORDS_AHEAD < count)
            ligi_key_index_prefetch(&tables->key_index, keys[i + WORDS_AHEAD]);
        if (!ligi_tables_known(tables, keys[i], &entries[i]))
            return add_keys(tables, keys + i, count - i, entries + i);
    }
    return LIG_OK;
}

/* All keys are checked before the first one gets an entry. */
lig_status ligi_tables_resolve(ligi_tables *tables, ligi_batch *batch, uint64_t *elements)
{
    LIG_TRY(ligi_tables_lengths(tables, batch->keys, batch->count, elements));
    return tables->hashed ? ligi_tables_enter(tables, batch->keys, batch->count, batch->entries)
                          : LIG_OK;
}

static inline ligi_entry entry_at(const ligi_tables *tables, const ligi_batch *batch, size_t i)
{
    return tables->hashed ? batch->entries[i] : (ligi_entry)batch->keys[i];
}

int ligi_tables_all_here(const ligi_tables *tables, const ligi_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (ligi_tables_state(tables, entry_at(tables, batch, i)) < LIGI_ROW_REPLICA)
            return 0;
    return 1;
}

/* Rows of several slabs: a batch becomes a list, from which completed rows are removed. */
static void list_all(const ligi_tables *tables, ligi_batch *batch)
{
    uint64_t at = 0;

    for (size_t i = 0; i < batch->count; i++) {
        ligi_entry entry = entry_at(tables, batch, i);
        batch->misses[i] = (ligi_miss){at, (uint32_t)i, entry};
        at += tables->uniform ? tables->uniform : ligi_tables_slab(tables, entry)->length;
    }
    batch->miss_count = batch->count;
}

/* --- rows --- */

typedef struct source { /* words and rows, of this node or of a peer */
    const uint8_t *region;
    const ligi_word *words;
    const ligi_row_kernels *kernels;
    ligi_row_state least; /* rows in a lower state are not read */
    unsigned turns;       /* 0: as many as it takes */
} source;

static inline const ligi_row_head *source_row(const source *from, const ligi_slab *slab,
                                              uint32_t word)
{
    return (const ligi_row_head *)(from->region + slab->rows_at +
                                   (size_t)ligi_word_slot(word) * slab->stride);
}

static inline void fetch_entry(const source *from, const ligi_slab *slab, ligi_entry entry)
{
    uint32_t word = atomic_load_explicit(&from->words[entry], memory_order_relaxed);

    if (ligi_word_state(word) >= LIGI_ROW_REPLICA && ligi_word_slot(word) < slab->capacity)
        ligi_row_fetch(source_row(from, slab, word), slab->stride);
}

/* Reads a long row of this node. */
static ligi_row_state read_locked(const source *from, const ligi_slab *slab, ligi_entry entry,
                                  void *to)
{
    for (;;) {
        uint32_t word = atomic_load_explicit(&from->words[entry], memory_order_acquire);
        if (ligi_word_state(word) < from->least)
            return LIGI_ROW_ABSENT;
        ligi_row_head *row = (ligi_row_head *)(uintptr_t)source_row(from, slab, word);
        ligi_row_lock(row);
        int same = atomic_load_explicit(&from->words[entry], memory_order_relaxed) == word;
        if (same)
            from->kernels->copy_out(to, row + 1, slab->value_bytes);
        ligi_row_unlock(row);
        if (same)
            return ligi_word_state(word);
    }
}

/* Returns the state in which the row was read, or ABSENT. */
static inline ligi_row_state read_row(const source *from, const ligi_slab *slab, ligi_entry entry,
                                      void *to)
{
    for (unsigned turn = 0; from->turns == 0 || turn < from->turns; turn++) {
        uint32_t word = atomic_load_explicit(&from->words[entry], memory_order_acquire);
        if (ligi_word_state(word) < from->least || ligi_word_slot(word) >= slab->capacity)
            return LIGI_ROW_ABSENT;
        const ligi_row_head *row = source_row(from, slab, word);
        uint32_t before = atomic_load_explicit(&row->sequence, memory_order_acquire);
        if (!(before & 1) &&
            atomic_load_explicit(&from->words[entry], memory_order_relaxed) == word) {
            from->kernels->copy_out(to, row + 1, slab->value_bytes);
            ligi_row_fence(memory_order_acquire);
            if (atomic_load_explicit(&row->sequence, memory_order_relaxed) == before)
                return ligi_word_state(word);
            if (slab->value_bytes >= LONG_BYTES)
                return from->turns == 0 ? read_locked(from, slab, entry, to) : LIGI_ROW_ABSENT;
        }
        ligi_row_pause(turn);
    }
    return LIGI_ROW_ABSENT;
}

static source own_source(const ligi_tables *tables)
{
    return (source){tables->region, tables->words, tables->kernels, LIGI_ROW_REPLICA, 0};
}

/* Before the first row of a list, and before each. */
static inline void fetch_listed(const ligi_tables *tables, const source *from,
                                const ligi_batch *batch, size_t i)
{
    const ligi_miss *misses = batch->misses;

    if (i + WORDS_AHEAD < batch->miss_count)
        __builtin_prefetch(&from->words[misses[i + WORDS_AHEAD].entry]);
    if (i + ROWS_AHEAD < batch->miss_count) {
        ligi_entry next = misses[i + ROWS_AHEAD].entry;
        fetch_entry(from, ligi_tables_slab(tables, next), next);
    }
}

static void fetch_first(const ligi_tables *tables, const source *from, const ligi_batch *batch)
{
    const ligi_miss *misses = batch->misses;
    size_t count = batch->miss_count;

    for (size_t i = 0; i < count && i < WORDS_AHEAD; i++)
        __builtin_prefetch(&from->words[misses[i].entry]);
    for (size_t i = 0; i < count && i < ROWS_AHEAD; i++)
        fetch_entry(from, ligi_tables_slab(tables, misses[i].entry), misses[i].entry);
}

/* While a replica drains, its pushes are not in the owner's row yet: reading that would go back in
 * time. */
static inline int may_read(const ligi_tables *tables, const source *from, uint32_t node,
                           ligi_entry entry)
{
    if (from->words == tables->words)
        return 1;
    return ligi_tables_state(tables, entry) == LIGI_ROW_ABSENT &&
           (node == UINT32_MAX || ligi_tables_location(tables, entry).node == node);
}

/* `node`: only misses located there; UINT32_MAX: all. */
static void read_list(const ligi_tables *tables, const source *from, uint32_t node,
                      ligi_batch *batch)
{
    ligi_miss *misses = batch->misses;
    size_t count = batch->miss_count, left = 0;

    fetch_first(tables, from, batch);
    for (size_t i = 0; i < count; i++) {
        fetch_listed(tables, from, batch, i);
        ligi_miss miss = misses[i];
        uint8_t *to = (uint8_t *)batch->values + miss.at * tables->element_bytes;
        ligi_row_state state = LIGI_ROW_ABSENT;
        if (may_read(tables, from, node, miss.entry))
            state = read_row(from, ligi_tables_slab(tables, miss.entry), miss.entry, to);
        if (state == LIGI_ROW_ABSENT)
            misses[left++] = miss;
        batch->replica_count += state == LIGI_ROW_REPLICA;
    }
    batch->miss_count = left;
}

/* The slab of all rows of a batch: the only one, or that of the table of all keys. NULL: they
 * differ. */
static const ligi_slab *shared_slab(const ligi_tables *tables, const ligi_batch *batch)
{
    int64_t least = INT64_MAX, most = 0;

    if (tables->slab_count == 1)
        return &tables->slabs[0];
    for (size_t i = 0; i < batch->count; i++) {
        least = batch->keys[i] < least ? batch->keys[i] : least;
        most = batch->keys[i] > most ? batch->keys[i] : most;
    }
    int table = ligi_tables_table_of_key(tables, least);
    if (table < 0 || table != ligi_tables_table_of_key(tables, most))
        return NULL;
    return tables->infos[table].slab;
}

void ligi_tables_read(const ligi_tables *tables, ligi_batch *batch)
{
    ligi_row_sweep sweep = {tables, shared_slab(tables, batch), batch, NULL};

    ligi_batch_gather(&sweep);
    if (batch->miss_count)
        ligi_tables_read_misses(tables, batch);
}

void ligi_tables_read_misses(const ligi_tables *tables, ligi_batch *batch)
{
    source from = own_source(tables);

    read_list(tables, &from, UINT32_MAX, batch);
}

void ligi_tables_read_peer(const ligi_tables *tables, const void *region, uint32_t node,
                           ligi_batch *batch)
{
    source from = {region, region, tables->kernels, LIGI_ROW_OWNED, PEER_TURNS};

    if (!tables->hashed)
        read_list(tables, &from, node, batch);
}

/* --- writing --- */

typedef struct writer {
    ligi_tables *tables;
    ligi_batch *batch;
    ligi_write_kind kind;
    ligi_push_step steps[LIG_PARAMS_TABLES_MAX]; /* those of tables with an optimizer */
} writer;

static void init_writer(writer *self, ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch)
{
    self->tables = tables;
    self->batch = batch;
    self->kind = kind;
    for (uint32_t i = 0; i < tables->table_count; i++)
        if (tables->infos[i].optimizer.kind != LIG_PARAMS_ADD)
            self->steps[i] =
                ligi_optimizer_step(&tables->infos[i].optimizer,
                                    batch->lr ? batch->lr[i] : ligi_tables_get_lr(tables, i));
}

/* The lowest state that accepts the write. */
static inline ligi_row_state least_state(const writer *self, const ligi_slab *slab)
{
    return self->kind == LIGI_WRITE_SET ? LIGI_ROW_OWNED : ligi_slab_least(slab);
}

/* With the row locked. */
static inline void change_row(const writer *self, const ligi_slab *slab, ligi_row_head *row,
                              ligi_row_state state, const void *given)
{
    const ligi_row_kernels *kernels = self->tables->kernels;
    uint8_t *body = ligi_row_body(row);

    if (self->kind == LIGI_WRITE_SET) {
        kernels->copy_in(body, given, slab->value_bytes);
        return;
    }
    ligi_row_push push = {body, body + slab->state_at, given,
                          NULL, slab->length,          &self->steps[slab->table]};
    if (state == LIGI_ROW_REPLICA)
        push.pending = ligi_slab_open_pending(slab, row);
    kernels->push[slab->optimizer](&push);
}

static inline ligi_row_state write_row(writer *self, const ligi_slab *slab, ligi_entry entry,
                                       const void *given)
{
    ligi_row_state least = least_state(self, slab);

    for (;;) {
        uint32_t word = ligi_tables_word(self->tables, entry);
        ligi_row_state state = ligi_word_state(word);
        if (state < least)
            return LIGI_ROW_ABSENT;
        ligi_row_head *row = ligi_slab_row(slab, ligi_word_slot(word));
        ligi_row_lock(row);
        int same = atomic_load_explicit(&self->tables->words[entry], memory_order_relaxed) == word;
        if (same) {
            change_row(self, slab, row, state, given);
            if (ligi_row_becomes_dirty(row))
                self->batch->noted[self->batch->noted_count++] = entry;
        }
        ligi_row_unlock(row);
        if (same)
            return state;
    }
}

/* After a miss of the same row. */
static inline int must_wait(const writer *self, const ligi_slab *slab, ligi_entry entry,
                            size_t left)
{
    if (left == 0 || self->batch->seen_set == NULL ||
        !ligi_seen_set_has(self->batch->seen_set, entry))
        return 0;
    return self->kind == LIGI_WRITE_SET ||
           ligi_optimizer_ordered(&self->tables->infos[slab->table].optimizer);
}

static void write_list(writer *self)
{
    const ligi_tables *tables = self->tables;
    ligi_batch *batch = self->batch;
    ligi_miss *misses = batch->misses;
    source from = own_source(tables);
    size_t count = batch->miss_count, left = 0;

    if (batch->seen_set)
        ligi_seen_set_begin(batch->seen_set);
    fetch_first(tables, &from, batch);
    for (size_t i = 0; i < count; i++) {
        fetch_listed(tables, &from, batch, i);
        ligi_miss miss = misses[i];
        const ligi_slab *slab = ligi_tables_slab(tables, miss.entry);
        const uint8_t *given = (const uint8_t *)batch->values + miss.at * tables->element_bytes;
        ligi_row_state state = LIGI_ROW_ABSENT;
        if (!must_wait(self, slab, miss.entry, left))
            state = write_row(self, slab, miss.entry, given);
        if (state == LIGI_ROW_ABSENT) {
            misses[left++] = miss;
            if (batch->seen_set)
                (void)ligi_seen_set_add(batch->seen_set, miss.entry);
        }
        batch->replica_count += state == LIGI_ROW_REPLICA;
    }
    batch->miss_count = left;
}

/* Duplicate keys of a set are written in order: one row after another. */
void ligi_tables_write(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch)
{
    writer self;

    init_writer(&self, tables, kind, batch);
    if (kind == LIGI_WRITE_PUSH) {
        ligi_row_sweep sweep = {tables, shared_slab(tables, batch), batch, self.steps};
        ligi_batch_scatter(&sweep);
    } else {
        list_all(tables, batch);
    }
    if (batch->miss_count)
        write_list(&self);
}

void ligi_tables_write_misses(ligi_tables *tables, ligi_write_kind kind, ligi_batch *batch)
{
    writer self;

    init_writer(&self, tables, kind, batch);
    write_list(&self);
}
