#include "mesh/device/free_spans.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

lig_status ligi_free_spans_init(ligi_free_spans *free, uint64_t bytes)
{
    *free = (ligi_free_spans){0};
    LIG_TRY(ligi_grow(&free->spans, &free->room, 2, sizeof *free->spans, "device memory"));
    free->spans[0] = (ligi_span){0, bytes};
    free->count = 1;
    return LIG_OK;
}

void ligi_free_spans_fini(ligi_free_spans *self)
{
    free(self->spans);
    *self = (ligi_free_spans){0};
}

static void remove_at(ligi_free_spans *free, size_t i)
{
    free->count--;
    memmove(&free->spans[i], &free->spans[i + 1], (free->count - i) * sizeof *free->spans);
}

lig_status ligi_free_spans_take(ligi_free_spans *free, uint64_t bytes, ligi_span *span, int *found)
{
    *found = 0;
    if (bytes > UINT64_MAX - LIGI_SPAN_ALIGNMENT)
        return LIG_OK;
    bytes = (bytes + LIGI_SPAN_ALIGNMENT - 1) & ~(LIGI_SPAN_ALIGNMENT - 1);
    bytes = bytes == 0 ? LIGI_SPAN_ALIGNMENT : bytes;
    size_t i = 0;
    while (i < free->count && free->spans[i].bytes < bytes)
        i++;
    if (i == free->count)
        return LIG_OK;
    LIG_TRY(ligi_grow(&free->spans, &free->room, free->taken + 3, sizeof *free->spans,
                      "device memory"));
    *span = (ligi_span){free->spans[i].offset, bytes};
    free->spans[i].offset += bytes;
    free->spans[i].bytes -= bytes;
    if (free->spans[i].bytes == 0)
        remove_at(free, i);
    free->taken++;
    *found = 1;
    return LIG_OK;
}

static uint64_t end_of(ligi_span span)
{
    return span.offset + span.bytes;
}

void ligi_free_spans_give(ligi_free_spans *free, ligi_span span)
{
    size_t i = 0;
    while (i < free->count && free->spans[i].offset < span.offset)
        i++;
    assert(free->taken > 0 && (i == free->count || end_of(span) <= free->spans[i].offset));
    assert(i == 0 || end_of(free->spans[i - 1]) <= span.offset);
    free->taken--;
    int joins_next = i < free->count && end_of(span) == free->spans[i].offset;
    int joins_last = i > 0 && end_of(free->spans[i - 1]) == span.offset;
    if (joins_last) {
        free->spans[i - 1].bytes += span.bytes;
        if (joins_next) {
            free->spans[i - 1].bytes += free->spans[i].bytes;
            remove_at(free, i);
        }
        return;
    }
    if (joins_next) {
        free->spans[i].offset = span.offset;
        free->spans[i].bytes += span.bytes;
        return;
    }
    assert(free->count < free->room);
    memmove(&free->spans[i + 1], &free->spans[i], (free->count - i) * sizeof *free->spans);
    free->spans[i] = span;
    free->count++;
}
