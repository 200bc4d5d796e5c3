#include "params/tables/batch_parts.h"

#include "params/rows/table_state.h"

#include <assert.h>
#include <string.h>

/* Waking a thread takes about as long as copying a quarter of this. */
#define PART_BYTES ((size_t)256 << 10)
#define PARTS_MAX 64

typedef struct parts {
    const ligi_row_sweep *whole;
    void (*kernel)(const ligi_row_sweep *sweep);
    size_t count, each; /* parts, and rows of each */
    ligi_batch batches[PARTS_MAX];
} parts;

static void cut(parts *self)
{
    const ligi_batch *whole = self->whole->batch;
    for (size_t part = 0; part < self->count; part++) {
        size_t from = part * self->each, left = whole->count - from;
        ligi_batch *batch = &self->batches[part];
        *batch = *whole;
        batch->keys += from;
        batch->count = left < self->each ? left : self->each;
        batch->values = (uint8_t *)whole->values + from * self->whole->slab->value_bytes;
        batch->entries = whole->entries ? whole->entries + from : NULL;
        batch->misses += from;
        batch->noted += from;
        batch->miss_count = batch->noted_count = batch->replica_count = 0;
    }
}

static void access_part(void *context, size_t part, unsigned member)
{
    const parts *self = context;
    ligi_row_sweep sweep = *self->whole;
    (void)member;
    sweep.batch = (ligi_batch *)&self->batches[part];
    self->kernel(&sweep);
}

/* In the order of keys. */
static void join(const parts *self)
{
    ligi_batch *whole = self->whole->batch;
    whole->miss_count = 0;
    for (size_t part = 0; part < self->count; part++) {
        const ligi_batch *batch = &self->batches[part];
        size_t from = part * self->each;
        for (size_t i = 0; i < batch->miss_count; i++) {
            ligi_miss miss = batch->misses[i];
            miss.position += (uint32_t)from;
            miss.at += from * self->whole->slab->length;
            whole->misses[whole->miss_count++] = miss;
        }
        memmove(whole->noted + whole->noted_count, batch->noted,
                batch->noted_count * sizeof *batch->noted);
        whole->noted_count += batch->noted_count;
        whole->replica_count += batch->replica_count;
    }
}

static void access_parts(const ligi_row_sweep *sweep, void (*kernel)(const ligi_row_sweep *sweep),
                         size_t count)
{
    parts self; /* not zeroed: it is large */
    self.whole = sweep;
    self.kernel = kernel;
    self.each = (sweep->batch->count + count - 1) / count;
    self.count = (sweep->batch->count + self.each - 1) / self.each;
    cut(&self);
    ligi_team_run(sweep->batch->team, access_part, &self, self.count);
    join(&self);
}

static void access_rows(const ligi_row_sweep *sweep, void (*kernel)(const ligi_row_sweep *sweep))
{
    size_t bytes = sweep->slab ? sweep->batch->count * sweep->slab->value_bytes : 0;
    size_t count = bytes / PART_BYTES < PARTS_MAX ? bytes / PART_BYTES : PARTS_MAX;

    if (count < 2 || ligi_team_size(sweep->batch->team) < 2)
        kernel(sweep);
    else
        access_parts(sweep, kernel, count);
}

void ligi_batch_gather(const ligi_row_sweep *sweep)
{
    access_rows(sweep, sweep->tables->kernels->gather);
}

void ligi_batch_scatter(const ligi_row_sweep *sweep)
{
    assert(sweep->batch->noted_count == 0);
    if (sweep->batch->distinct)
        access_rows(sweep, sweep->tables->kernels->scatter);
    else
        sweep->tables->kernels->scatter(sweep);
}
