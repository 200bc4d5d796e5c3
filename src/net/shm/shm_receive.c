#include "net/shm/shm_receive.h"

#include "base/error.h"
#include "net/link/link.h"
#include "net/link/link_receive.h"
#include "net/progress.h"
#include "net/shm/shm_view.h"
#include "net/shm/wire.h"

#include <string.h>

/* More packets than can precede a shared segment: the others, and a signal for each. */
#define SHOWN_PACKETS (2 * LIGI_SHM_SEGMENTS_MAX)

typedef enum outcome { WAITS, WENT_ON, FAILED } outcome;

static outcome failed(ligi_wire *wire, lig_status status)
{
    ligi_link_fail(wire->link, status);
    return FAILED;
}

size_t ligi_shm_awaits(const ligi_wire *wire)
{
    const ligi_shm_inbox *inbox = &wire->inbox;
    switch (inbox->step) {
    case LIGI_SHM_HEADER: return LIGI_SHM_HEADER_BYTES;
    case LIGI_SHM_FRONT: return ligi_shm_front_bytes(&inbox->header);
    default: return 1;
    }
}

/* The pieces in lent memory: each must be in a segment that is mapped here. A segment is shared
 * before the message that refers to it, so its packet has arrived by now. */
static lig_status find_lent(ligi_wire *wire)
{
    ligi_shm_inbox *inbox = &wire->inbox;
    for (size_t i = 0; i < inbox->header.piece_count; i++) {
        const ligi_shm_piece *piece = &inbox->lent[i];
        if (piece->segment == 0)
            continue;
        ligi_shm_view *view = ligi_views_find(wire, piece->segment);
        if (view == NULL) {
            LIG_TRY(ligi_wire_listen(wire, SHOWN_PACKETS));
            view = ligi_views_find(wire, piece->segment);
        }
        if (view == NULL || piece->offset > view->bytes ||
            piece->bytes > view->bytes - piece->offset)
            return lig_fail(LIG_E_CORRUPT,
                            "%s lent %llu bytes at %llu of shared memory number %u, which is %s",
                            ligi_link_name(wire->link), (unsigned long long)piece->bytes,
                            (unsigned long long)piece->offset, piece->segment,
                            view == NULL ? "not known" : "smaller");
        inbox->pieces[i].shared = view->memory + piece->offset;
        inbox->pieces[i].mapping = &view->mapping;
        inbox->pieces[i].read_only = view->read_only;
    }
    return LIG_OK;
}

static lig_status take_pieces(ligi_wire *wire)
{
    ligi_shm_inbox *inbox = &wire->inbox;
    size_t count = inbox->header.piece_count;
    LIG_TRY(ligi_grow(&inbox->lent, &inbox->lent_capacity, count, sizeof *inbox->lent,
                      "a message's pieces"));
    LIG_TRY(ligi_grow(&inbox->pieces, &inbox->piece_capacity, count, sizeof *inbox->pieces,
                      "a message's pieces"));
    LIG_TRY(ligi_shm_pieces_check(&inbox->header, inbox->front, inbox->lent, inbox->pieces));
    return find_lent(wire);
}

/* The few bytes of headers and heads are nearly always contiguous. */
static inline void get_few(ligi_ring *ring, void *into, size_t bytes)
{
    size_t piece;
    const uint8_t *from = ligi_ring_place(ring, ring->at, &piece);
    if (piece < bytes) {
        ligi_ring_get(ring, into, bytes);
        return;
    }
    memcpy(into, from, bytes);
    ligi_ring_skip(ring, bytes);
}

static outcome take_header(ligi_wire *wire)
{
    ligi_shm_inbox *inbox = &wire->inbox;
    get_few(&wire->in, &inbox->header, sizeof inbox->header);
    lig_status status = ligi_shm_header_check(&inbox->header);
    if (status != LIG_OK)
        return failed(wire, status);
    if (inbox->header.kind == LIGI_SHM_FORGET) {
        ligi_views_forget(wire, inbox->header.head_bytes);
        return WENT_ON;
    }
    ligi_frame_prefix prefix = {inbox->header.kind, inbox->header.head_bytes,
                                inbox->header.payload_bytes};
    status = ligi_link_begin(wire->link, &prefix);
    if (status != LIG_OK)
        return failed(wire, status);
    inbox->step = LIGI_SHM_FRONT;
    return WENT_ON;
}

static outcome landed(ligi_wire *wire)
{
    wire->inbox.step = LIGI_SHM_HEADER;
    wire->inbox.iov = NULL;
    ligi_link_landed(wire->link);
    return WENT_ON;
}

static outcome take_front(ligi_wire *wire)
{
    ligi_shm_inbox *inbox = &wire->inbox;
    size_t bytes = ligi_shm_front_bytes(&inbox->header);
    size_t table = (size_t)inbox->header.piece_count * LIGI_SHM_PIECE_BYTES;
    lig_status status =
        ligi_grow(&inbox->front, &inbox->front_capacity, bytes + 1, 1, "a message's head");
    if (status != LIG_OK)
        return failed(wire, status);
    get_few(&wire->in, inbox->front, bytes);
    if (inbox->header.piece_count > 0 && (status = take_pieces(wire)) != LIG_OK)
        return failed(wire, status);
    ligi_incoming in = {.head = inbox->front + table,
                        .pieces = inbox->header.piece_count > 0 ? inbox->pieces : NULL,
                        .piece_count = inbox->header.piece_count};
    status = ligi_link_take(wire->link, &in);
    if (status != LIG_OK)
        return failed(wire, status);
    if (ligi_link_dead(wire->link))
        return FAILED;
    inbox->step = LIGI_SHM_PAYLOAD;
    inbox->bytes = in.bytes;
    inbox->iov = in.iov;
    inbox->iov_count = in.count;
    inbox->iov_at = inbox->piece = 0;
    inbox->piece_at = 0;
    return in.bytes == 0 ? landed(wire) : WENT_ON;
}

/* The next bytes to copy: how many, at most a chunk, and their address (NULL: in the ring). */
static const uint8_t *next_source(ligi_shm_inbox *inbox, uint64_t *bytes)
{
    uint64_t left = inbox->bytes;
    const uint8_t *shared = NULL;
    while (inbox->header.piece_count > 0) {
        const ligi_piece *piece = &inbox->pieces[inbox->piece];
        left = piece->bytes - inbox->piece_at;
        shared = piece->shared;
        if (left > 0 && !(piece->taken && shared != NULL))
            break;
        inbox->piece++;
        inbox->piece_at = 0;
    }
    *bytes = left < LIGI_SHM_CHUNK ? left : LIGI_SHM_CHUNK;
    return shared != NULL ? shared + inbox->piece_at : NULL;
}

/* Where the next bytes go, and how many of them at most; NULL: away. */
static uint8_t *next_place(const ligi_shm_inbox *inbox, uint64_t *bytes)
{
    if (inbox->iov == NULL)
        return NULL;
    const struct iovec *into = &inbox->iov[inbox->iov_at];
    *bytes = *bytes < into->iov_len ? *bytes : into->iov_len;
    return into->iov_base;
}

static void moved(ligi_shm_inbox *inbox, uint64_t bytes)
{
    inbox->bytes -= bytes;
    inbox->piece_at += bytes;
    if (inbox->iov == NULL)
        return;
    struct iovec *into = &inbox->iov[inbox->iov_at];
    into->iov_base = (uint8_t *)into->iov_base + bytes;
    into->iov_len -= bytes;
}

static void skip_full(ligi_shm_inbox *inbox)
{
    while (inbox->iov != NULL && inbox->iov_at < inbox->iov_count &&
           inbox->iov[inbox->iov_at].iov_len == 0)
        inbox->iov_at++;
}

static outcome take_payload(ligi_wire *wire, uint64_t *portion)
{
    ligi_shm_inbox *inbox = &wire->inbox;
    uint64_t bytes;
    size_t ready = 0;

    skip_full(inbox);
    const uint8_t *shared = next_source(inbox, &bytes);
    uint8_t *into = next_place(inbox, &bytes);
    if (shared == NULL) {
        lig_status status = ligi_ring_ready(&wire->in, bytes, &ready);
        if (status != LIG_OK)
            return failed(wire, status);
        bytes = bytes < ready ? bytes : ready;
    }
    if (bytes == 0)
        return WAITS;
    if (shared != NULL && into != NULL)
        memcpy(into, shared, bytes);
    else if (shared == NULL && into != NULL)
        ligi_ring_get(&wire->in, into, bytes);
    else if (shared == NULL)
        ligi_ring_skip(&wire->in, bytes);
    moved(inbox, bytes);
    *portion -= bytes < *portion ? bytes : *portion;
    if (wire->in.at - wire->in.told >= LIGI_SHM_CHUNK && ligi_ring_release(&wire->in))
        ligi_wire_bell(wire);
    return inbox->bytes == 0 ? landed(wire) : WENT_ON;
}

static outcome take_step(ligi_wire *wire, uint64_t *portion)
{
    size_t want, ready = 0;
    if (wire->inbox.step == LIGI_SHM_PAYLOAD)
        return take_payload(wire, portion);
    want = ligi_shm_awaits(wire);
    lig_status status = ligi_ring_ready(&wire->in, want, &ready);
    if (status != LIG_OK)
        return failed(wire, status);
    if (ready < want)
        return WAITS;
    return wire->inbox.step == LIGI_SHM_HEADER ? take_header(wire) : take_front(wire);
}

int ligi_shm_receive(ligi_wire *wire)
{
    uint64_t portion = LIGI_SHM_PORTION;
    outcome last = WAITS;
    int steps = 0;

    while (portion > 0 && steps < 1024 && !ligi_link_dead(wire->link) &&
           (last = take_step(wire, &portion)) == WENT_ON)
        steps++;
    wire->drained = last == WAITS;
    if (steps > 0) {
        ligi_link_heard(wire->link, ligi_net_round_ns(wire->shm->net));
        if (ligi_ring_release(&wire->in))
            ligi_wire_bell(wire);
    }
    return steps + (last == FAILED);
}

void ligi_shm_divert(void *context)
{
    ligi_wire *wire = context;
    wire->inbox.iov = NULL;
}
