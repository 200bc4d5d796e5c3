
/* Batches of rows, included by row_kernels_body.h. A software pipeline: words are prefetched
 * WORDS_AHEAD keys ahead, rows ROWS_AHEAD, so a row is in the cache when it is copied. The word
 * that led to a row is kept and compared when the row is accessed. */

enum { WORDS_AHEAD = 32, ROWS_AHEAD = 16, RING = 32 };

#define SWEEP static inline __attribute__((always_inline))

typedef struct sweep_state {
    const ligi_tables *tables;
    const ligi_slab *slab; /* of all rows; NULL: each row has its own */
    const int64_t *keys;
    const ligi_entry *entries;
    const ligi_word *words;
    size_t count;
    uint32_t ring[RING];
    const ligi_slab *slabs[RING]; /* if each row has its own */
} sweep_state;

SWEEP ligi_entry sweep_entry(const sweep_state *self, size_t i)
{
    return self->entries ? self->entries[i] : (ligi_entry)self->keys[i];
}

SWEEP const ligi_slab *sweep_slab(const sweep_state *self, size_t i)
{
    return self->slab ? self->slab : self->slabs[i % RING];
}

SWEEP void sweep_fetch(sweep_state *self, size_t i)
{
    ligi_entry entry = sweep_entry(self, i);
    uint32_t word = atomic_load_explicit(&self->words[entry], memory_order_relaxed);
    const ligi_slab *slab = self->slab ? self->slab : ligi_tables_slab(self->tables, entry);

    self->ring[i % RING] = word;
    if (!self->slab)
        self->slabs[i % RING] = slab;
    ligi_slab_fetch(slab, ligi_word_slot(word));
}

SWEEP void sweep_begin(sweep_state *self, const ligi_row_sweep *sweep, const ligi_slab *slab)
{
    const ligi_tables *tables = sweep->tables;

    self->tables = tables;
    self->slab = slab;
    self->keys = sweep->batch->keys;
    self->entries = tables->hashed ? sweep->batch->entries : NULL;
    self->words = tables->words;
    self->count = sweep->batch->count;
    for (size_t i = 0; i < self->count && i < WORDS_AHEAD; i++)
        __builtin_prefetch(&self->words[sweep_entry(self, i)]);
    for (size_t i = 0; i < self->count && i < ROWS_AHEAD; i++)
        sweep_fetch(self, i);
}

SWEEP void sweep_ahead(sweep_state *self, size_t i)
{
    if (i + WORDS_AHEAD < self->count)
        __builtin_prefetch(&self->words[sweep_entry(self, i + WORDS_AHEAD)]);
    if (i + ROWS_AHEAD < self->count)
        sweep_fetch(self, i + ROWS_AHEAD);
}

/* `at` is the position of its values. */
SWEEP void sweep_miss(const sweep_state *self, ligi_batch *batch, size_t i, const uint8_t *at)
{
    uint64_t bytes = (uint64_t)(at - (const uint8_t *)batch->values);

    batch->misses[batch->miss_count++] =
        (ligi_miss){bytes / self->tables->element_bytes, (uint32_t)i, sweep_entry(self, i)};
}

/* 1 if `to` has a consistent copy of the row. The word of an absent row leads to the first row,
 * which is read and ignored. */
SWEEP int gather_row(const sweep_state *self, size_t i, uint32_t word, uint8_t *to)
{
    const ligi_slab *slab = sweep_slab(self, i);
    const ligi_row_head *row = ligi_slab_row(slab, ligi_word_slot(word));
    uint32_t before = atomic_load_explicit(&row->sequence, memory_order_acquire);

    if (before & 1 || ligi_word_state(word) < LIGI_ROW_REPLICA ||
        atomic_load_explicit(&self->words[sweep_entry(self, i)], memory_order_relaxed) != word)
        return 0;
    copy_out(to, row + 1, slab->value_bytes);
    ligi_row_fence(memory_order_acquire);
    return atomic_load_explicit(&row->sequence, memory_order_relaxed) == before;
}

SWEEP void gather_any(const ligi_row_sweep *sweep, const ligi_slab *slab)
{
    sweep_state self;
    ligi_batch *batch = sweep->batch;
    size_t replicas = 0;
    uint8_t *to = batch->values;

    batch->miss_count = 0;
    sweep_begin(&self, sweep, slab);
    for (size_t i = 0; i < self.count; i++) {
        uint32_t word = self.ring[i % RING];
        size_t bytes = sweep_slab(&self, i)->value_bytes;
        sweep_ahead(&self, i);
        if (gather_row(&self, i, word, to))
            replicas += ligi_word_state(word) == LIGI_ROW_REPLICA;
        else
            sweep_miss(&self, batch, i, to);
        to += bytes;
    }
    batch->replica_count += replicas;
}

static void gather(const ligi_row_sweep *sweep)
{
    if (sweep->slab)
        gather_any(sweep, sweep->slab);
    else
        gather_any(sweep, NULL);
}

/* 1 if the row is locked, still belongs to the entry, and can take the push. */
SWEEP int scatter_lock(const sweep_state *self, size_t i, uint32_t word)
{
    const ligi_slab *slab = sweep_slab(self, i);
    ligi_row_head *row = ligi_slab_row(slab, ligi_word_slot(word));

    if (ligi_word_state(word) < ligi_slab_least(slab) || !ligi_row_try_lock(row))
        return 0;
    if (atomic_load_explicit(&self->words[sweep_entry(self, i)], memory_order_relaxed) == word)
        return 1;
    ligi_row_unlock(row);
    return 0;
}

/* Everything is loaded before the row is locked: the lock orders later loads behind it. */
SWEEP void scatter_row(const ligi_row_sweep *sweep, const sweep_state *self, size_t i,
                       ligi_row_push_fn change, const uint8_t *given)
{
    const ligi_slab *slab = sweep_slab(self, i);
    uint32_t word = self->ring[i % RING];
    ligi_row_head *row = ligi_slab_row(slab, ligi_word_slot(word));
    ligi_batch *batch = sweep->batch;
    ligi_row_push push = {ligi_row_body(row), ligi_row_body(row) + slab->state_at, given, NULL,
                          slab->length,       &sweep->steps[slab->table]};

    if (!scatter_lock(self, i, word)) {
        sweep_miss(self, batch, i, given);
        return;
    }
    if (ligi_word_state(word) == LIGI_ROW_REPLICA) {
        push.pending = ligi_slab_open_pending(slab, row);
        batch->replica_count++;
    }
    change(&push);
    if (ligi_row_becomes_dirty(row))
        batch->noted[batch->noted_count++] = sweep_entry(self, i);
    ligi_row_unlock(row);
}

/* After a miss, a later key may be the same row: where order matters it waits too. */
SWEEP int scatter_waits(const ligi_row_sweep *sweep, const ligi_slab *slab)
{
    return sweep->batch->miss_count > 0 &&
           ligi_optimizer_ordered(&sweep->tables->infos[slab->table].optimizer);
}

/* `change` is the same for all, and known to the compiler; NULL: the one of each row's slab. */
SWEEP void scatter_any(const ligi_row_sweep *sweep, const ligi_slab *slab, ligi_row_push_fn change)
{
    sweep_state self;
    const ligi_row_push_fn *pushes = sweep->tables->kernels->push;
    const uint8_t *given = sweep->batch->values;

    sweep->batch->miss_count = 0;
    sweep_begin(&self, sweep, slab);
    for (size_t i = 0; i < self.count; i++) {
        const ligi_slab *mine = sweep_slab(&self, i);
        sweep_ahead(&self, i);
        if (!change && scatter_waits(sweep, mine))
            sweep_miss(&self, sweep->batch, i, given);
        else
            scatter_row(sweep, &self, i, change ? change : pushes[mine->optimizer], given);
        given += mine->value_bytes;
    }
}

SWEEP void scatter_typed(const ligi_row_sweep *sweep, ligi_row_push_fn add)
{
    if (sweep->slab && sweep->slab->optimizer == LIG_PARAMS_ADD)
        scatter_any(sweep, sweep->slab, add);
    else
        scatter_any(sweep, sweep->slab, NULL);
}

#define DEFINE_SCATTER(type)                                                                       \
    static void type##_scatter(const ligi_row_sweep *sweep)                                        \
    {                                                                                              \
        scatter_typed(sweep, type##_add);                                                          \
    }

DEFINE_SCATTER(f32)
DEFINE_SCATTER(f64)
DEFINE_SCATTER(bf16)
DEFINE_SCATTER(u32)
DEFINE_SCATTER(u64)
