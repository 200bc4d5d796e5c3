/* A first-fit allocator for a range of memory. Pure; the caller guards it. */
#ifndef LIGI_FREE_SPANS_H
#define LIGI_FREE_SPANS_H

#include <ligament/base.h>

#define LIGI_SPAN_ALIGNMENT UINT64_C(512) /* as torch's allocator: copies are fastest */

typedef struct ligi_span {
    uint64_t offset, bytes;
} ligi_span;

typedef struct ligi_free_spans {
    ligi_span *spans; /* by offset; no two touch */
    size_t count, room;
    size_t taken; /* spans that are in use */
} ligi_free_spans;

/* `bytes`, a multiple of the alignment, are free. */
lig_status ligi_free_spans_init(ligi_free_spans *free, uint64_t bytes);
void ligi_free_spans_fini(ligi_free_spans *free);

/* Takes `bytes`, rounded up to the alignment (at least one). *found is 0 if no span is large
 * enough. */
lig_status ligi_free_spans_take(ligi_free_spans *free, uint64_t bytes, ligi_span *span, int *found);
/* Returns a span that was taken. Cannot fail: there is room for one span more than are in use. */
void ligi_free_spans_give(ligi_free_spans *free, ligi_span span);

#endif
