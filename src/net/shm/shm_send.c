#include "net/shm/shm_send.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/shm/wire.h"

#include <string.h>

/* Lending costs a line in the table and a look-up on the other side: less is copied. */
#define LENT_LEAST 4096
#define GOODBYE_BYTES 1024
/* Head and payload up to this size are put at once, without checking whether to lend, to publish or
 * to wait. */
#define SMALL_BYTES 1024

static void show(ligi_wire *wire)
{
    if (ligi_ring_publish(&wire->out))
        ligi_wire_bell(wire);
}

static int worth_lending(const ligi_outgoing *out)
{
    if ((out->flags & LIGI_SEND_LEND) == 0)
        return 0;
    for (uint32_t i = 0; i < out->count; i++)
        if (out->iov[i].iov_len >= LENT_LEAST)
            return 1;
    return 0;
}

/* Describes the payload as pieces, and empties the entries of those that are lent. 0 when nothing
 * can be: then it is moved as a whole. */
static size_t lend(ligi_wire *wire, ligi_outgoing *out)
{
    ligi_segments *segments = wire->shm->segments;
    ligi_shm_piece *table;
    size_t count = 0, lent = 0;

    if (ligi_grow(&wire->table, &wire->table_capacity, out->count, sizeof *table,
                  "the table of a message's pieces") != LIG_OK)
        return 0;
    table = wire->table;
    for (uint32_t i = 0; i < out->count; i++) {
        struct iovec *piece = &out->iov[i];
        ligi_segment_place place;
        if (piece->iov_len >= LENT_LEAST &&
            ligi_segments_find(segments, piece->iov_base, piece->iov_len, &place) &&
            ligi_wire_show(wire, &place)) {
            table[count++] = (ligi_shm_piece){place.segment, 0, place.offset, piece->iov_len};
            lent += piece->iov_len;
            piece->iov_len = 0;
        } else if (count > 0 && table[count - 1].segment == 0) {
            table[count - 1].bytes += piece->iov_len;
        } else {
            table[count++] = (ligi_shm_piece){0, 0, 0, piece->iov_len};
        }
    }
    out->lent = lent;
    return lent > 0 ? count : 0;
}

/* Room for `bytes` of a message, or 0 with wire->want set. Data leaves room for a goodbye, which
 * cannot wait. */
static lig_status ask_room(ligi_wire *wire, const ligi_outgoing *out, size_t bytes, size_t *room)
{
    if (out->prefix.kind == LIGI_KIND_DATA)
        bytes += GOODBYE_BYTES;
    LIG_TRY(ligi_ring_room(&wire->out, bytes, room));
    if (*room < bytes) {
        ligi_ring_grow(&wire->out);
        LIG_TRY(ligi_ring_room(&wire->out, bytes, room));
    }
    if (*room < bytes) {
        wire->want = bytes;
        *room = 0;
    }
    return LIG_OK;
}

/* Header, table and head go in one piece, so that the reader never sees half of them for long. */
static lig_status begin(ligi_wire *wire, ligi_outgoing *out)
{
    size_t room, most = LIGI_SHM_HEADER_BYTES + out->prefix.head_bytes;
    int may_lend = worth_lending(out);

    if (may_lend)
        most += (size_t)out->count * LIGI_SHM_PIECE_BYTES;
    LIG_TRY(ask_room(wire, out, most, &room));
    if (room == 0)
        return LIG_OK;
    size_t count = may_lend ? lend(wire, out) : 0;
    ligi_shm_header header = {(uint16_t)out->prefix.kind, (uint16_t)count, out->prefix.head_bytes,
                              out->prefix.payload_bytes};
    ligi_ring_put(&wire->out, &header, sizeof header);
    ligi_ring_put(&wire->out, wire->table, count * sizeof *wire->table);
    ligi_ring_put(&wire->out, out->head, out->prefix.head_bytes);
    wire->iov_at = 0;
    out->at = 1;
    if (out->prefix.payload_bytes > LIGI_RING_FIRST_BYTES / 2)
        ligi_ring_grow(&wire->out);
    return LIG_OK;
}

static void put(ligi_ring *ring, const void *data, size_t bytes)
{
    int timed = ligi_ring_paced(ring, bytes);
    int64_t began = timed ? ligi_now_ns() : 0;
    ligi_ring_put(ring, data, bytes);
    if (timed)
        ligi_ring_pace(ring, bytes, ligi_now_ns() - began);
}

/* The payload, directly from its memory. Published in chunks, so that the peer reads while we
 * write. */
static lig_status move(ligi_wire *wire, ligi_outgoing *out, uint64_t *portion)
{
    while (wire->iov_at < out->count) {
        struct iovec *piece = &out->iov[wire->iov_at];
        if (piece->iov_len == 0) {
            wire->iov_at++;
            continue;
        }
        size_t bytes = piece->iov_len < LIGI_SHM_CHUNK ? piece->iov_len : LIGI_SHM_CHUNK, room;
        if (*portion < bytes) {
            wire->want = bytes;
            return LIG_OK;
        }
        LIG_TRY(ask_room(wire, out, bytes, &room));
        if (room == 0)
            return LIG_OK;
        put(&wire->out, piece->iov_base, bytes);
        piece->iov_base = (uint8_t *)piece->iov_base + bytes;
        piece->iov_len -= bytes;
        *portion -= bytes;
        if (wire->out.at - wire->out.told >= LIGI_SHM_CHUNK)
            show(wire);
    }
    return LIG_OK;
}

/* Notifies the peer which shared segments were removed, as far as there is space: this is not
 * urgent. */
static lig_status tell_gone(ligi_wire *wire)
{
    ligi_segments *segments = wire->shm->segments;
    uint64_t epoch = wire->known_count > 0 ? ligi_segments_epoch(segments) : wire->known_epoch;

    if (epoch == wire->known_epoch)
        return LIG_OK;
    for (size_t i = wire->known_count; i-- > 0;) {
        ligi_shm_header header = {LIGI_SHM_FORGET, 0, wire->known[i], 0};
        size_t room;
        if (ligi_segments_alive(segments, wire->known[i]))
            continue;
        LIG_TRY(ligi_ring_room(&wire->out, sizeof header, &room));
        if (room < sizeof header)
            return LIG_OK;
        ligi_ring_put(&wire->out, &header, sizeof header);
        wire->known[i] = wire->known[--wire->known_count];
    }
    wire->known_epoch = epoch;
    return LIG_OK;
}

/* 1 if the message, a small one, is completely in the ring. */
static int put_small(ligi_wire *wire, const ligi_outgoing *out)
{
    const ligi_frame_prefix *prefix = &out->prefix;
    ligi_shm_header header = {(uint16_t)prefix->kind, 0, prefix->head_bytes, prefix->payload_bytes};

    if (prefix->payload_bytes > SMALL_BYTES || prefix->head_bytes > SMALL_BYTES)
        return 0;
    size_t bytes = sizeof header + prefix->head_bytes + (size_t)prefix->payload_bytes;
    uint8_t *into = ligi_ring_piece(&wire->out, bytes + GOODBYE_BYTES);
    if (into == NULL)
        return 0;
    memcpy(into, &header, sizeof header);
    into += sizeof header;
    memcpy(into, out->head, prefix->head_bytes);
    into += prefix->head_bytes;
    for (uint32_t i = 0; i < out->count; i++) {
        memcpy(into, out->iov[i].iov_base, out->iov[i].iov_len);
        into += out->iov[i].iov_len;
    }
    ligi_ring_skip(&wire->out, bytes);
    return 1;
}

static lig_status send_one(ligi_wire *wire, ligi_outgoing *out, uint64_t *portion)
{
    if (out->at == 0) {
        LIG_TRY(tell_gone(wire));
        if (put_small(wire, out))
            return LIG_OK;
        LIG_TRY(begin(wire, out));
    }
    if (out->at == 0 || wire->want != 0)
        return LIG_OK;
    return move(wire, out, portion);
}

void ligi_shm_send(void *context)
{
    ligi_wire *wire = context;
    uint64_t portion = LIGI_SHM_PORTION;
    ligi_outgoing *out;

    if (wire->memory == NULL)
        return;
    wire->want = 0;
    while (wire->want == 0 && !ligi_link_dead(wire->link) &&
           (out = ligi_link_queue(wire->link)) != NULL) {
        lig_status status = send_one(wire, out, &portion);
        if (status != LIG_OK) {
            ligi_link_fail(wire->link, status);
            break;
        }
        if (wire->want == 0)
            ligi_link_gone(wire->link);
    }
    show(wire);
    /* A sleeping reader went to sleep before this side waited, so it does not report room. */
    if (wire->want != 0 && wire->sleeping)
        ligi_net_wake(wire->shm->net);
}
