#include "store/serve/client/packs/client_read.h"

#include "base/error.h"
#include "base/hash.h"
#include "store/serve/client/client_request.h"
#include "store/serve/message/served_reads.h"

#include <stdlib.h>

/* Enough under way to keep a fast network busy while this thread verifies; little enough for the
 * processors' caches, on both sides. */
enum { CHUNKS = 4, PIECES = 256 };
#define CHUNK_BYTES (UINT64_C(2) << 20)

/* A part of a range, which begins and ends between its blocks or with it. */
typedef struct piece {
    size_t range;
    uint64_t at, bytes;
} piece;

typedef struct chunk {
    ligi_client_call call;
    piece pieces[PIECES];
    struct iovec into[PIECES], left[PIECES];
    size_t count;
    int started;
} chunk;

typedef struct reading {
    ligi_client *client;
    uint64_t pack;
    const void *secret;
    const lig_range *ranges;
    size_t range_count;
    uint64_t chunk_bytes;
    size_t range; /* where the next chunk begins */
    uint64_t at;
    size_t *bad;
    chunk *chunks[CHUNKS];
} reading;

static void take_pieces(reading *self, chunk *into)
{
    uint64_t bytes = 0;
    into->count = 0;
    while (self->range < self->range_count && into->count < PIECES && bytes < self->chunk_bytes) {
        const lig_range *range = &self->ranges[self->range];
        uint64_t left = range->bytes - self->at, room = self->chunk_bytes - bytes;
        if (left > room)
            left = room / LIG_BLOCK_BYTES * LIG_BLOCK_BYTES;
        if (left == 0 && range->bytes)
            break;
        if (left) {
            into->pieces[into->count] = (piece){self->range, self->at, left};
            into->into[into->count++] = (struct iovec){(uint8_t *)range->data + self->at, left};
        }
        bytes += left;
        self->at += left;
        if (self->at == range->bytes) {
            self->range++;
            self->at = 0;
        }
    }
    into->call.into = into->into;
    into->call.left = into->left;
    into->call.into_count = into->count;
    into->call.into_bytes = bytes;
}

static void put_body(const reading *self, chunk *one)
{
    ligi_served_range ranges[PIECES];
    ligi_served_read body = {.pack = self->pack, .ranges = ranges, .count = one->count};
    for (size_t i = 0; i < one->count; i++)
        ranges[i] = (ligi_served_range){
            self->ranges[one->pieces[i].range].offset + one->pieces[i].at, one->pieces[i].bytes};
    one->call.body.bytes = 0;
    ligi_served_read_put(&one->call.body, &body);
}

/* A start without a connection is left to the end of the chunk, which may connect again. */
static lig_status start_chunk(reading *self, size_t slot)
{
    chunk *one = self->chunks[slot];
    if (one == NULL) {
        LIG_TRY(ligi_calloc(&one, 1, sizeof *one, "a read"));
        self->chunks[slot] = one;
        one->call.op = LIGI_SERVED_READ;
        one->call.interrupt = self->client->interrupt;
    }
    take_pieces(self, one);
    if (one->count == 0)
        return LIG_OK;
    put_body(self, one);
    lig_status status = ligi_client_start(self->client, &one->call);
    one->started = status == LIG_OK;
    return status == LIG_OK || ligi_client_call_lost(self->client, &one->call) ? LIG_OK : status;
}

static lig_status verify(const reading *self, const chunk *one)
{
    for (size_t i = 0; i < one->count; i++) {
        const piece *part = &one->pieces[i];
        const lig_range *range = &self->ranges[part->range];
        for (uint64_t at = 0; range->hashes && at < part->bytes; at += LIG_BLOCK_BYTES) {
            uint64_t left = part->bytes - at,
                     bytes = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
            uint64_t from = part->at + at;
            if (ligi_hash64(self->secret, (const uint8_t *)range->data + from, bytes) ==
                range->hashes[from / LIG_BLOCK_BYTES])
                continue;
            *self->bad = part->range;
            return lig_fail(LIG_E_CORRUPT, "pack %016llx: checksum mismatch in the block at %llu",
                            (unsigned long long)self->pack,
                            (unsigned long long)(range->offset + from));
        }
    }
    return LIG_OK;
}

/* Waits even if the read has failed: bytes may still arrive in the ranges. */
static lig_status end_chunk(reading *self, chunk *one, lig_status before)
{
    if (one->count == 0)
        return before;
    lig_status status = LIG_E_PEER;
    if (one->started)
        status = ligi_client_finish(self->client, &one->call);
    int again = status != LIG_OK && before == LIG_OK &&
                (!one->started || status == LIG_E_BUSY ||
                 (self->client->options.retry && ligi_client_call_lost(self->client, &one->call)));
    if (again)
        status = ligi_client_ask(self->client, &one->call);
    one->started = 0;
    one->count = before == LIG_OK && status == LIG_OK ? one->count : 0;
    if (before != LIG_OK)
        return before;
    return status == LIG_OK ? verify(self, one) : status;
}

lig_status ligi_client_read(void *context, uint64_t pack, const void *secret,
                            const lig_range *ranges, size_t count, size_t *bad)
{
    ligi_client *client = context;
    reading self = {.client = client,
                    .pack = pack,
                    .secret = secret,
                    .ranges = ranges,
                    .range_count = count,
                    .chunk_bytes = CHUNK_BYTES,
                    .bad = bad};
    ligi_net_lock(client->net);
    uint64_t limit = client->welcome.read_bytes_max;
    ligi_net_unlock(client->net);
    if (limit < LIG_BLOCK_BYTES)
        return lig_fail(LIG_E_LIMIT, "%s sends at most %llu bytes at a time, but %llu are needed",
                        client->uri, (unsigned long long)limit,
                        (unsigned long long)LIG_BLOCK_BYTES);
    if (limit < self.chunk_bytes)
        self.chunk_bytes = limit;
    lig_status status = LIG_OK;
    size_t started = 0, ended = 0;
    ligi_failure failure = {0};
    while (ended < started || (status == LIG_OK && self.range < count)) {
        if (status == LIG_OK && self.range < count && started - ended < CHUNKS) {
            status = start_chunk(&self, started % CHUNKS);
            started += status == LIG_OK;
        } else {
            status = end_chunk(&self, self.chunks[ended++ % CHUNKS], status);
        }
        if (status != LIG_OK && failure.status == LIG_OK)
            ligi_failure_take(&failure, status);
    }
    for (size_t i = 0; i < CHUNKS && self.chunks[i]; i++) {
        ligi_client_call_fini(&self.chunks[i]->call);
        free(self.chunks[i]);
    }
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}
