/* The models that have a key: sets of ids, in chunks. Pure.
 *
 * An id is in chunk id / LIGI_CHUNK_IDS. The set of one chunk is a sorted list of 16-bit
 * offsets, or a bitmap if that is smaller; both are stored in this form, little-endian. */
#ifndef LIGI_POSTINGS_H
#define LIGI_POSTINGS_H

#include <ligament/base.h>

#define LIGI_CHUNK_IDS 4096u
#define LIGI_BITMAP_BYTES (LIGI_CHUNK_IDS / 8)
#define LIGI_BITMAP_WORDS (LIGI_CHUNK_IDS / 64)

/* One chunk, unpacked. */
typedef struct ligi_bitmap {
    uint64_t words[LIGI_BITMAP_WORDS];
} ligi_bitmap;

/* LIG_E_CORRUPT if the bytes are not a set: unsorted, out of range, or of a wrong size. Zero bytes
 * are the empty set. */
lig_status ligi_postings_get(ligi_bitmap *set, const void *data, size_t bytes);
/* Fills data[LIGI_BITMAP_BYTES] and returns the bytes used; 0 for the empty set. */
size_t ligi_postings_put(const ligi_bitmap *set, void *data);

void ligi_bitmap_set(ligi_bitmap *set, uint32_t offset, int present);
int ligi_bitmap_has(const ligi_bitmap *set, uint32_t offset);
uint32_t ligi_bitmap_count(const ligi_bitmap *set);

/* Counts in how many sets each offset occurs: one bit of all counters at a time, so that adding a
 * set costs about two operations per word. At most 2^LIGI_TALLY_PLANES - 1 sets. */
#define LIGI_TALLY_PLANES 20
typedef struct ligi_tally {
    uint32_t planes; /* in use */
    uint32_t sets;   /* added */
    uint64_t counts[LIGI_TALLY_PLANES][LIGI_BITMAP_WORDS];
} ligi_tally;

void ligi_tally_init(ligi_tally *tally);
void ligi_tally_add(ligi_tally *tally, const ligi_bitmap *set);
/* The greatest count of the offsets in `among`, 0 for none. */
uint32_t ligi_tally_most(const ligi_tally *tally, const ligi_bitmap *among);
/* Fills *equal with the offsets of `among` that were counted exactly `count` times. */
void ligi_tally_equal(const ligi_tally *tally, const ligi_bitmap *among, uint32_t count,
                      ligi_bitmap *equal);

#endif
