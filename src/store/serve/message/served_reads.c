#include "store/serve/message/served_reads.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { RANGE_LEAST = 2, SOCKET_BYTES_MAX = 107 };

void ligi_served_read_put(ligi_writer *writer, const ligi_served_read *read)
{
    uint64_t at = 0;
    ligi_put_varint(writer, read->pack);
    ligi_put_varint(writer, read->ref);
    ligi_put_varint(writer, read->count);
    for (size_t i = 0; i < read->count; i++) { /* the gap in front of it, and its bytes */
        ligi_put_varint(writer, read->ranges[i].offset - at);
        ligi_put_varint(writer, read->ranges[i].bytes);
        at = read->ranges[i].offset + read->ranges[i].bytes;
    }
}

/* Ascending by construction; an overflow is rejected. */
static void read_ranges(ligi_reader *reader, ligi_served_read *read)
{
    uint64_t at = 0;
    for (size_t i = 0; i < read->count && !reader->failed; i++) {
        ligi_served_range *range = &read->ranges[i];
        uint64_t gap = ligi_get_varint(reader);
        range->bytes = ligi_get_varint(reader);
        if (range->bytes == 0 || __builtin_add_overflow(at, gap, &range->offset) ||
            __builtin_add_overflow(range->offset, range->bytes, &at) || at > INT64_MAX)
            reader->failed = 1;
        read->bytes += range->bytes; /* less than `at` */
    }
}

lig_status ligi_served_read_get(const void *body, size_t bytes, ligi_served_read *read)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    read->pack = ligi_get_varint(&reader);
    read->ref = ligi_get_varint(&reader);
    size_t count = ligi_get_count(&reader, RANGE_LEAST);
    if (count > LIGI_SERVED_RANGES_MAX)
        return lig_fail(LIG_E_LIMIT, "too many ranges in one request: %zu, the limit is %d", count,
                        LIGI_SERVED_RANGES_MAX);
    if (count) {
        LIG_TRY(ligi_calloc(&read->ranges, count, sizeof *read->ranges, "ranges"));
        read->count = count;
        read_ranges(&reader, read);
    }
    return ligi_served_end(&reader, "read");
}

void ligi_served_read_fini(ligi_served_read *read)
{
    free(read->ranges);
    read->ranges = NULL;
    read->count = 0;
}

void ligi_served_descriptor_put(ligi_writer *writer, const ligi_served_descriptor *descriptor)
{
    ligi_put_varint(writer, descriptor->pack_bytes);
    ligi_put_text(writer, descriptor->socket);
    ligi_put_bytes(writer, descriptor->token, sizeof descriptor->token);
}

lig_status ligi_served_descriptor_get(const void *body, size_t bytes,
                                      ligi_served_descriptor *descriptor)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    descriptor->pack_bytes = ligi_get_varint(&reader);
    descriptor->socket = ligi_get_text(&reader, SOCKET_BYTES_MAX);
    const void *token = ligi_get_bytes(&reader, sizeof descriptor->token);
    if (token)
        memcpy(descriptor->token, token, sizeof descriptor->token);
    return ligi_served_end(&reader, "descriptor");
}
