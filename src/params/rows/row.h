/* One row in a slab: a 16-byte head, then its body. Readers copy the row and compare the sequence
 * (a seqlock); writers make it odd while they write. A thread that moves a row changes the entry's
 * word before it makes the sequence even again. */
#ifndef LIGI_ROW_H
#define LIGI_ROW_H

#include "params/rows/row_types.h"

#include <sched.h>
#include <stdatomic.h>

#define LIGI_ROW_SHARED 1u  /* others have replicas, or this is one: the first write is noted */
#define LIGI_ROW_DIRTY 2u   /* noted */
#define LIGI_ROW_PENDING 4u /* replica: has pushes that were not sent */
#define LIGI_ROW_SENT 8u    /* replica: has a delta that was sent and is not confirmed */

#define LIGI_SLOT_BITS 30
#define LIGI_SLOTS_MAX (UINT64_C(1) << LIGI_SLOT_BITS)
#define LIGI_LINE 64u

/* All but the sequence belongs to the thread that made it odd. */
typedef struct ligi_row_head {
    _Atomic uint32_t sequence; /* only increases, so reuse of a slot is noticed */
    uint32_t flags;
    uint32_t deltas; /* replica: the number of its pair of deltas, from 1; 0: none yet */
    uint32_t reserved;
} ligi_row_head;

typedef _Atomic uint32_t ligi_word;

static inline uint32_t ligi_word_make(ligi_row_state state, uint32_t slot)
{
    return (uint32_t)state << LIGI_SLOT_BITS | slot;
}

static inline ligi_row_state ligi_word_state(uint32_t word)
{
    return (ligi_row_state)(word >> LIGI_SLOT_BITS);
}

static inline uint32_t ligi_word_slot(uint32_t word)
{
    return word & (uint32_t)(LIGI_SLOTS_MAX - 1);
}

static inline uint8_t *ligi_row_body(ligi_row_head *row)
{
    return (uint8_t *)(row + 1);
}

static inline void ligi_row_pause(unsigned turn)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (turn % 64 == 63) /* the lock holder may be waiting for this processor */
        sched_yield();
}

/* ThreadSanitizer does not model fences; the accesses they order are atomic in its builds. */
#if defined(__SANITIZE_THREAD__)
#define LIGI_ROW_ATOMIC 1
#define ligi_row_fence(order) ((void)0)
#else
#define LIGI_ROW_ATOMIC 0
#define ligi_row_fence(order) atomic_thread_fence(order)
#endif

/* 1 if this call made the sequence odd. */
static inline int ligi_row_try_lock(ligi_row_head *row)
{
    uint32_t seen = atomic_load_explicit(&row->sequence, memory_order_relaxed);

    if (seen & 1 ||
        !atomic_compare_exchange_strong_explicit(&row->sequence, &seen, seen + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return 0;
    ligi_row_fence(memory_order_release); /* later writes are not visible before the sequence is
                                           * odd */
    return 1;
}

static inline void ligi_row_lock(ligi_row_head *row)
{
    for (unsigned turn = 0; !ligi_row_try_lock(row); turn++)
        ligi_row_pause(turn);
}

static inline void ligi_row_unlock(ligi_row_head *row)
{
    uint32_t odd = atomic_load_explicit(&row->sequence, memory_order_relaxed);

    atomic_store_explicit(&row->sequence, odd + 1, memory_order_release);
}

/* For many rows in sequence, before they are fetched. A prefetch that misses the TLB is dropped or
 * delays all later ones; loads overlap. */
static inline void ligi_row_meet(const ligi_row_head *row)
{
    (void)atomic_load_explicit(&row->sequence, memory_order_relaxed);
}

/* Into L2, not L1, which tracks far fewer outstanding lines: rows arrive 1.5 times as fast. */
static inline void ligi_row_fetch(const void *row, size_t stride)
{
    size_t bytes = stride < 16 * LIGI_LINE ? stride : 16 * LIGI_LINE;

    for (size_t at = 0; at < bytes; at += LIGI_LINE)
        __builtin_prefetch((const uint8_t *)row + at, 0, 2);
}

/* 1 if this call made the row dirty: the writer notes it. With the row locked. */
static inline int ligi_row_becomes_dirty(ligi_row_head *row)
{
    if ((row->flags & (LIGI_ROW_SHARED | LIGI_ROW_DIRTY)) != LIGI_ROW_SHARED)
        return 0;
    row->flags |= LIGI_ROW_DIRTY;
    return 1;
}

#endif
