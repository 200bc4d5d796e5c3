#include "store/format/tensor_references.h"

#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>

lig_status ligi_ownership_add(ligi_ownership *self, const ligi_manifest *manifest)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &manifest->tensors[i];
        if (stored->tied >= 0 || stored->pack == 0 || stored->tensor.bytes == 0)
            continue;
        LIG_TRY(ligi_grow(&self->namings, &self->capacity, self->count + 1, sizeof *self->namings,
                          "the references of models"));
        self->namings[self->count++] = (ligi_naming){.pack = stored->pack,
                                                     .offset = stored->offset,
                                                     .bytes = stored->tensor.bytes,
                                                     .count = 1};
    }
    return LIG_OK;
}

static int by_place(const void *left, const void *right)
{
    const ligi_naming *a = left, *b = right;
    if (a->pack != b->pack)
        return a->pack < b->pack ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

void ligi_ownership_sum(ligi_ownership *self)
{
    size_t kept = 0;
    if (self->count)
        qsort(self->namings, self->count, sizeof *self->namings, by_place);
    for (size_t i = 0; i < self->count; i++) {
        if (kept && by_place(&self->namings[kept - 1], &self->namings[i]) == 0)
            self->namings[kept - 1].count += self->namings[i].count;
        else
            self->namings[kept++] = self->namings[i];
    }
    self->count = kept;
}

/* The first naming that is not before this place. */
static size_t lower_bound(const ligi_ownership *self, uint64_t pack, uint64_t offset)
{
    ligi_naming wanted = {.pack = pack, .offset = offset};
    size_t at;
    LIGI_LOWER_BOUND(at, self->count, by_place(&self->namings[at], &wanted) < 0);
    return at;
}

ligi_naming *ligi_ownership_find(const ligi_ownership *self, uint64_t pack, uint64_t offset)
{
    size_t at = lower_bound(self, pack, offset);
    if (at == self->count || self->namings[at].pack != pack || self->namings[at].offset != offset)
        return NULL;
    return &self->namings[at];
}

uint64_t ligi_ownership_live(const ligi_ownership *self, uint64_t pack)
{
    uint64_t bytes = 0;
    for (size_t at = lower_bound(self, pack, 0); at < self->count; at++) {
        if (self->namings[at].pack != pack)
            break;
        bytes += self->namings[at].bytes;
    }
    return bytes;
}

void ligi_ownership_fini(ligi_ownership *self)
{
    free(self->namings);
    *self = (ligi_ownership){0};
}
