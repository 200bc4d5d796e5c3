#include "store/search/postings.h"

#include <string.h>

static lig_status not_a_set(void)
{
    return lig_fail(LIG_E_CORRUPT, "the catalog's index contains an invalid set");
}

void ligi_bitmap_set(ligi_bitmap *set, uint32_t offset, int present)
{
    uint64_t bit = UINT64_C(1) << (offset % 64);
    if (present)
        set->words[offset / 64] |= bit;
    else
        set->words[offset / 64] &= ~bit;
}

int ligi_bitmap_has(const ligi_bitmap *set, uint32_t offset)
{
    return (int)(set->words[offset / 64] >> (offset % 64) & 1);
}

uint32_t ligi_bitmap_count(const ligi_bitmap *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    return count;
}

static lig_status get_list(ligi_bitmap *set, const uint8_t *data, size_t bytes)
{
    int32_t before = -1;
    for (size_t i = 0; i < bytes; i += 2) {
        int32_t offset = data[i] | data[i + 1] << 8;
        if (offset <= before || offset >= (int32_t)LIGI_CHUNK_IDS)
            return not_a_set();
        ligi_bitmap_set(set, (uint32_t)offset, 1);
        before = offset;
    }
    return LIG_OK;
}

/* Written out, so that compilers make one load of it: a search reads thousands of words. */
static uint64_t word_at(const uint8_t *in)
{
    return (uint64_t)in[0] | (uint64_t)in[1] << 8 | (uint64_t)in[2] << 16 | (uint64_t)in[3] << 24 |
           (uint64_t)in[4] << 32 | (uint64_t)in[5] << 40 | (uint64_t)in[6] << 48 |
           (uint64_t)in[7] << 56;
}

lig_status ligi_postings_get(ligi_bitmap *set, const void *data, size_t bytes)
{
    memset(set, 0, sizeof *set);
    if (bytes % 2 || bytes > LIGI_BITMAP_BYTES)
        return not_a_set();
    if (bytes < LIGI_BITMAP_BYTES)
        return get_list(set, data, bytes);
    const uint8_t *in = data;
    for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++, in += 8)
        set->words[i] = word_at(in);
    return LIG_OK;
}

size_t ligi_postings_put(const ligi_bitmap *set, void *data)
{
    uint8_t *out = data;
    if (ligi_bitmap_count(set) >= LIGI_BITMAP_BYTES / 2) {
        for (uint32_t i = 0; i < LIGI_BITMAP_BYTES; i++)
            out[i] = (uint8_t)(set->words[i / 8] >> (8 * (i % 8)));
        return LIGI_BITMAP_BYTES;
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++)
        for (uint64_t word = set->words[i]; word; word &= word - 1) {
            uint32_t offset = i * 64 + (uint32_t)__builtin_ctzll(word);
            out[bytes++] = (uint8_t)offset;
            out[bytes++] = (uint8_t)(offset >> 8);
        }
    return bytes;
}

void ligi_tally_init(ligi_tally *tally)
{
    tally->planes = 0;
    tally->sets = 0;
}

void ligi_tally_add(ligi_tally *tally, const ligi_bitmap *set)
{
    /* A plane comes into use when a count may need it. */
    tally->sets++;
    if (tally->planes < LIGI_TALLY_PLANES && tally->sets >> tally->planes)
        memset(tally->counts[tally->planes++], 0, sizeof tally->counts[0]);
    for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++) {
        uint64_t carry = set->words[i];
        for (uint32_t plane = 0; carry && plane < tally->planes; plane++) {
            uint64_t both = tally->counts[plane][i] & carry;
            tally->counts[plane][i] ^= carry;
            carry = both;
        }
    }
}

uint32_t ligi_tally_most(const ligi_tally *tally, const ligi_bitmap *among)
{
    /* From the highest bit down: keep those that have it, if any do. */
    ligi_bitmap left = *among;
    uint32_t most = 0;
    for (uint32_t plane = tally->planes; plane-- > 0;) {
        ligi_bitmap with;
        uint64_t any = 0;
        for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++)
            any |= with.words[i] = left.words[i] & tally->counts[plane][i];
        if (any == 0)
            continue;
        left = with;
        most |= UINT32_C(1) << plane;
    }
    return most;
}

void ligi_tally_equal(const ligi_tally *tally, const ligi_bitmap *among, uint32_t count,
                      ligi_bitmap *equal)
{
    *equal = *among;
    if (count >> tally->planes) {
        memset(equal, 0, sizeof *equal);
        return;
    }
    for (uint32_t plane = 0; plane < tally->planes; plane++)
        for (uint32_t i = 0; i < LIGI_BITMAP_WORDS; i++) {
            uint64_t has = tally->counts[plane][i];
            equal->words[i] &= count >> plane & 1 ? has : ~has;
        }
}
