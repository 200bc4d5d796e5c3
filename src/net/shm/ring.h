/* A ring of bytes in shared memory for one writer and one reader, in two processes that do not
 * trust each other. Pure: memory and atomics; sleeping and waking are reported to the caller, not
 * performed.
 *
 * Positions count bytes since the beginning and never wrap. Each side keeps its own position and
 * all sizes in private memory; values that it reads from the other side are copied and checked, and
 * an impossible value gives LIG_E_CORRUPT. The bytes themselves may change while they are read: a
 * reader copies the values on which it bases decisions.
 *
 * A ring starts in its first area (small, so that an idle peer costs little memory) and moves once,
 * permanently, to its full area when the writer requests it. */
#ifndef LIGI_RING_H
#define LIGI_RING_H

#include <ligament/base.h>

#include <stdatomic.h>

#define LIGI_RING_FIRST_BYTES (UINT32_C(256) << 10)
#define LIGI_RING_FULL_BYTES (UINT32_C(2) << 20)
#define LIGI_RING_CONTROL_BYTES 4096

/* Powers of two; full >= first. Agreed by both sides before any memory is shared. */
typedef struct ligi_ring_shape {
    uint32_t first_bytes, full_bytes;
} ligi_ring_shape;

/* The shared fields, on separate cache lines: each field has one writer, except the two flags,
 * which are set by the side that sleeps and cleared by the other. All zero is an empty ring. */
typedef struct ligi_ring_control {
    _Alignas(128) _Atomic uint64_t tail; /* written up to here */
    _Atomic uint64_t moved; /* 1 + the position from which the full area counts, or 0 */
    _Alignas(128) _Atomic uint64_t head; /* read up to here */
    _Alignas(128) _Atomic uint32_t reader_sleeps;
    _Alignas(128) _Atomic uint32_t writer_sleeps;
} ligi_ring_control;

/* One side of a ring. */
typedef struct ligi_ring {
    ligi_ring_control *control;
    uint8_t *first, *full;
    ligi_ring_shape shape;
    uint64_t at;    /* this side's position; published by publish and release */
    uint64_t told;  /* this side's position as last published */
    uint64_t other; /* the other side's position as last read and checked */
    uint64_t moved; /* as in the control */
    uint32_t put_count, slow_count, far_count; /* of pace */
} ligi_ring;

/* Bytes of memory that a ring takes. */
size_t ligi_ring_bytes(ligi_ring_shape shape);
/* Takes `memory` (aligned to 128, ligi_ring_bytes long, all zero before the first side attaches;
 * borrowed while the ring is used) for one side. */
void ligi_ring_attach(ligi_ring *ring, void *memory, ligi_ring_shape shape);

/* The memory at a position and the number of contiguous bytes there. */
static inline uint8_t *ligi_ring_place(const ligi_ring *ring, uint64_t at, size_t *bytes)
{
    if (ring->moved != 0 && at >= ring->moved - 1) {
        size_t offset = (size_t)(at & (ring->shape.full_bytes - 1));
        *bytes = ring->shape.full_bytes - offset;
        return ring->full + offset;
    }
    size_t offset = (size_t)(at & (ring->shape.first_bytes - 1));
    *bytes = ring->shape.first_bytes - offset;
    if (ring->moved != 0 && ring->moved - 1 - at < *bytes)
        *bytes = (size_t)(ring->moved - 1 - at);
    return ring->first + offset;
}

/* --- the writer --- */

/* Bytes that can be put now; reads the reader's position only if fewer than `want` are known to
 * be free. */
lig_status ligi_ring_room(ligi_ring *ring, size_t want, size_t *bytes);
/* The address of the next `bytes` if they are contiguous and known to be free without reading
 * the reader's position; otherwise NULL. Call ligi_ring_skip after filling them. */
uint8_t *ligi_ring_piece(const ligi_ring *ring, size_t bytes);
/* Appends at most the bytes that room returned. The reader sees nothing before it is published. */
void ligi_ring_put(ligi_ring *ring, const void *data, size_t bytes);
/* Publishes appended bytes. 1 if the reader sleeps and must be woken by the caller: its flag is
 * cleared.
 */
int ligi_ring_publish(ligi_ring *ring);
/* Where the two processors share no cache, each line that is written has to be fetched from the
 * reader's first, at a quarter of what memory gives. So some puts are timed, and after a few slow
 * ones the next 512 are written past the cache, after which it is tried again. `paced` returns
 * before a put whether its time is needed; `pace` reports it. */
int ligi_ring_paced(ligi_ring *ring, size_t bytes);
void ligi_ring_pace(ligi_ring *ring, size_t bytes, int64_t took_ns);
/* From here on the full area is used; bytes in the first one stay readable. */
void ligi_ring_grow(ligi_ring *ring);
/* Announces that the writer sleeps until there is space for `want` bytes; 1 if there already is
 * (or the ring is broken): then it must not sleep. `awake` withdraws the announcement. */
int ligi_ring_writer_sleeps(ligi_ring *ring, size_t want);
void ligi_ring_writer_awake(ligi_ring *ring);

/* --- the reader --- */

/* Bytes that can be read now; reads the writer's position. */
lig_status ligi_ring_look(ligi_ring *ring, size_t *bytes);
/* Likewise; reads the writer's position only if fewer than `want` are known to be available. */
static inline lig_status ligi_ring_ready(ligi_ring *ring, size_t want, size_t *bytes)
{
    *bytes = (size_t)(ring->other - ring->at);
    return *bytes >= want ? LIG_OK : ligi_ring_look(ring, bytes);
}
/* 1 if the writer's position has not changed since `ready` last read it: for spinning. */
static inline int ligi_ring_still(const ligi_ring *ring)
{
    return atomic_load_explicit(&ring->control->tail, memory_order_relaxed) == ring->other;
}
/* Copies and consumes at most the bytes that ready returned. */
void ligi_ring_get(ligi_ring *ring, void *into, size_t bytes);
/* Consumes without copying, or appends bytes that were filled in place. */
static inline void ligi_ring_skip(ligi_ring *ring, size_t bytes)
{
    ring->at += bytes;
}
/* Returns the memory of consumed bytes to the writer. 1 if the writer sleeps and must be woken by
 * the caller. */
int ligi_ring_release(ligi_ring *ring);
/* Announces that the reader sleeps until `want` bytes are available; 1 if they are (or the ring
 * is broken): then it must not sleep. */
int ligi_ring_reader_sleeps(ligi_ring *ring, size_t want);
void ligi_ring_reader_awake(ligi_ring *ring);

#endif
