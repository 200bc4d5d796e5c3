#include "net/shm/ring.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PACE_LEAST 2048 /* minimum bytes of a put that is timed */
#define PACE_EVERY 8    /* puts, of which one is timed while none is slow */
#define PACE_SLOW 4     /* bytes a nanosecond: less is slow */
#define PACE_PUTS 4     /* consecutive slow ones that switch the mode */
#define FAR_PUTS 512

/* A side that is about to sleep stores its flag and then reads the position; the other stores the
 * position and then reads the flag. All four are sequentially consistent, so at least one of them
 * sees the other: nobody sleeps while bytes are available. */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t ligi_ring_bytes(ligi_ring_shape shape)
{
    return LIGI_RING_CONTROL_BYTES + (size_t)shape.first_bytes + shape.full_bytes;
}

void ligi_ring_attach(ligi_ring *ring, void *memory, ligi_ring_shape shape)
{
    _Static_assert(sizeof(ligi_ring_control) <= LIGI_RING_CONTROL_BYTES, "the control fits");
    uint8_t *first = (uint8_t *)memory + LIGI_RING_CONTROL_BYTES;
    *ring = (ligi_ring){
        .control = memory, .first = first, .full = first + shape.first_bytes, .shape = shape};
}

/* Bytes that fit at the writer's end when the reader is at `head`. */
static size_t space(const ligi_ring *ring, uint64_t tail, uint64_t head)
{
    if (ring->moved == 0)
        return ring->shape.first_bytes - (size_t)(tail - head);
    uint64_t from = head > ring->moved - 1 ? head : ring->moved - 1;
    return ring->shape.full_bytes - (size_t)(tail - from);
}

lig_status ligi_ring_room(ligi_ring *ring, size_t want, size_t *bytes)
{
    size_t room = space(ring, ring->at, ring->other);
    if (room < want) {
        uint64_t head = atomic_load_explicit(&ring->control->head, memory_order_acquire);
        if (head < ring->other || head > ring->told)
            return lig_fail(LIG_E_CORRUPT,
                            "corrupt shared ring: the reader claims byte %llu of %llu written",
                            (unsigned long long)head, (unsigned long long)ring->told);
        ring->other = head;
        room = space(ring, ring->at, head);
    }
    *bytes = room;
    return LIG_OK;
}

uint8_t *ligi_ring_piece(const ligi_ring *ring, size_t bytes)
{
    size_t piece;
    uint8_t *into = ligi_ring_place(ring, ring->at, &piece);
    return piece >= bytes && space(ring, ring->at, ring->other) >= bytes ? into : NULL;
}

/* On some processors the string move that memcpy uses for large blocks is three times slower if
 * source and destination are a few bytes apart modulo the page size. Small blocks do not use it. */
static void copy(uint8_t *into, const uint8_t *from, size_t bytes)
{
    size_t apart = ((uintptr_t)into - (uintptr_t)from) % 4096;
    for (; bytes > 4096 && apart > 0 && apart < 64; bytes -= 4096) {
        memcpy(into, from, 4096);
        into += 4096;
        from += 4096;
    }
    memcpy(into, from, bytes);
}

#if defined(__SSE2__)
/* The fence orders non-temporal stores before the position that publishes them. */
static void copy_past_cache(uint8_t *into, const uint8_t *from, size_t bytes)
{
    size_t ragged = -(uintptr_t)into & 63;
    memcpy(into, from, ragged);
    size_t at = ragged;
    for (; at + 64 <= bytes; at += 64)
        for (size_t part = at; part < at + 64; part += 16)
            _mm_stream_si128((__m128i *)(void *)(into + part),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + part)));
    memcpy(into + at, from + at, bytes - at);
    _mm_sfence();
}
#else
static void copy_past_cache(uint8_t *into, const uint8_t *from, size_t bytes)
{
    memcpy(into, from, bytes);
}
#endif

static void copy_in(const ligi_ring *ring, uint8_t *into, const uint8_t *from, size_t bytes)
{
    if (bytes >= PACE_LEAST && ring->far_count > 0)
        copy_past_cache(into, from, bytes);
    else
        copy(into, from, bytes);
}

void ligi_ring_put(ligi_ring *ring, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t piece;
        uint8_t *into = ligi_ring_place(ring, ring->at, &piece);
        piece = least(piece, bytes);
        copy_in(ring, into, from, piece);
        ring->at += piece;
        from += piece;
        bytes -= piece;
    }
}

int ligi_ring_paced(ligi_ring *ring, size_t bytes)
{
    if (bytes < PACE_LEAST)
        return 0;
    if (ring->far_count > 0) {
        ring->far_count--;
        return 0;
    }
    return ring->slow_count > 0 || ++ring->put_count % PACE_EVERY == 0;
}

void ligi_ring_pace(ligi_ring *ring, size_t bytes, int64_t took_ns)
{
    int slow = took_ns > (int64_t)(bytes / PACE_SLOW);
    ring->slow_count = slow ? ring->slow_count + 1 : 0;
    if (ring->slow_count < PACE_PUTS)
        return;
    ring->slow_count = 0;
    ring->far_count = FAR_PUTS;
}

static int take(_Atomic uint32_t *flag)
{
    return atomic_load(flag) != 0 && atomic_exchange(flag, 0) != 0;
}

int ligi_ring_publish(ligi_ring *ring)
{
    if (ring->told == ring->at)
        return 0;
    ring->told = ring->at;
    atomic_store(&ring->control->tail, ring->at);
    return take(&ring->control->reader_sleeps);
}

void ligi_ring_grow(ligi_ring *ring)
{
    if (ring->moved != 0)
        return;
    ring->moved = ring->at + 1;
    atomic_store_explicit(&ring->control->moved, ring->moved, memory_order_release);
}

int ligi_ring_writer_sleeps(ligi_ring *ring, size_t want)
{
    size_t room = 0;
    atomic_store(&ring->control->writer_sleeps, 1);
    uint64_t head = atomic_load(&ring->control->head);
    if (head == ring->other && space(ring, ring->at, head) < want)
        return 0;
    if (ligi_ring_room(ring, want, &room) == LIG_OK && room < want)
        return 0;
    ligi_ring_writer_awake(ring);
    return 1;
}

void ligi_ring_writer_awake(ligi_ring *ring)
{
    if (atomic_load_explicit(&ring->control->writer_sleeps, memory_order_relaxed) != 0)
        atomic_store_explicit(&ring->control->writer_sleeps, 0, memory_order_relaxed);
}

/* Learns of the move to the full area once; `tail` was read before. A move after the tail has not
 * been reached yet, so it has no effect. */
static lig_status learn_move(ligi_ring *ring, uint64_t tail)
{
    uint64_t moved = atomic_load_explicit(&ring->control->moved, memory_order_acquire);
    if (moved == 0 || moved - 1 > tail)
        return LIG_OK;
    if (moved - 1 < ring->other)
        return lig_fail(
            LIG_E_CORRUPT,
            "corrupt shared ring: the writer moved at byte %llu, which was already read",
            (unsigned long long)(moved - 1));
    ring->moved = moved;
    return LIG_OK;
}

/* 1 when the writer can have written up to `tail` while this side is where it last said. */
static int plausible(const ligi_ring *ring, uint64_t tail)
{
    if (tail < ring->other)
        return 0;
    if (ring->moved == 0)
        return tail - ring->told <= ring->shape.first_bytes;
    uint64_t move = ring->moved - 1;
    if (move > ring->told && move - ring->told > ring->shape.first_bytes)
        return 0;
    return tail - (move > ring->told ? move : ring->told) <= ring->shape.full_bytes;
}

static lig_status look(ligi_ring *ring, uint64_t tail)
{
    if (ring->moved == 0)
        LIG_TRY(learn_move(ring, tail));
    if (!plausible(ring, tail))
        return lig_fail(
            LIG_E_CORRUPT,
            "corrupt shared ring: the writer claims %llu bytes, but %llu were written and %llu fit",
            (unsigned long long)tail, (unsigned long long)ring->other,
            (unsigned long long)ring->shape.full_bytes);
    ring->other = tail;
    return LIG_OK;
}

lig_status ligi_ring_look(ligi_ring *ring, size_t *bytes)
{
    uint64_t tail = atomic_load_explicit(&ring->control->tail, memory_order_acquire);
    if (tail != ring->other)
        LIG_TRY(look(ring, tail));
    *bytes = (size_t)(ring->other - ring->at);
    return LIG_OK;
}

void ligi_ring_get(ligi_ring *ring, void *into, size_t bytes)
{
    uint8_t *to = into;
    while (bytes > 0) {
        size_t piece;
        const uint8_t *from = ligi_ring_place(ring, ring->at, &piece);
        piece = least(piece, bytes);
        copy(to, from, piece);
        ring->at += piece;
        to += piece;
        bytes -= piece;
    }
}

int ligi_ring_release(ligi_ring *ring)
{
    if (ring->told == ring->at)
        return 0;
    ring->told = ring->at;
    atomic_store(&ring->control->head, ring->at);
    return take(&ring->control->writer_sleeps);
}

int ligi_ring_reader_sleeps(ligi_ring *ring, size_t want)
{
    size_t bytes = 0;
    atomic_store(&ring->control->reader_sleeps, 1);
    uint64_t tail = atomic_load(&ring->control->tail);
    if (tail == ring->other && tail - ring->at < want)
        return 0;
    if (ligi_ring_ready(ring, want, &bytes) == LIG_OK && bytes < want)
        return 0;
    ligi_ring_reader_awake(ring);
    return 1;
}

void ligi_ring_reader_awake(ligi_ring *ring)
{
    if (atomic_load_explicit(&ring->control->reader_sleeps, memory_order_relaxed) != 0)
        atomic_store_explicit(&ring->control->reader_sleeps, 0, memory_order_relaxed);
}
