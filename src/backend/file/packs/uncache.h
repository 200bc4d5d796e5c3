/* Taking what was read out of the processor's caches: whether it pays, and how it is done. Where a
 * hypervisor fills a buffer, lines that our caches hold can make it several times slower
 * (bench/README.md). */
#ifndef LIGI_UNCACHE_H
#define LIGI_UNCACHE_H

#include <stdint.h>

/* --- whether --- */

typedef enum ligi_uncaching {
    LIGI_UNCACHING_NOT_YET = 0,
    LIGI_UNCACHING,
    LIGI_UNCACHING_OVER
} ligi_uncaching;

typedef struct ligi_uncaching_times { /* spent so far, in one walk over ranges */
    int64_t waited_ns;                /* for the disk */
    int64_t landed_ns;                /* copying out of buffers */
    int64_t uncached_ns;              /* taking buffers out of the caches */
} ligi_uncaching_times;

/* It costs a fifth of our own copying on some machines: it begins when the disk has kept us
 * waiting, and then has the time. On others it costs ten times the copying: it ends when that
 * shows, and does not begin again. Pure. */
ligi_uncaching ligi_uncaching_next(ligi_uncaching now, const ligi_uncaching_times *times);

/* --- how --- */

typedef enum ligi_flush {
    LIGI_FLUSH_NONE = 0, /* on other processors */
    LIGI_FLUSH_IN_ORDER, /* clflush: each line waits for the one before */
    LIGI_FLUSH_FREELY    /* clflushopt: in any order, several at a time */
} ligi_flush;

/* What an x86-64 processor can whose cpuid leaf 7 has this in ebx. Pure. */
ligi_flush ligi_flush_of(uint32_t leaf_7_ebx);
/* The best that this processor can. To be asked once: a hypervisor makes the question cost 20 us.
 */
ligi_flush ligi_flush_here(void);
/* Takes `bytes` from `data`, which begins a line, out of the caches; they stay what they are. `how`
 * is one that the processor can. */
void ligi_flush_lines(ligi_flush how, const void *data, uint64_t bytes);

#endif
