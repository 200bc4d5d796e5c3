/* A dense list of the local keys of a range, so that one of them is drawn in one step. Maintained
 * by the thread that moves rows, one at a time (the endpoint's lock). Readers take no lock: their
 * view may be one move behind, and the row itself says whether it is local. */
#ifndef LIGI_LOCAL_KEYS_H
#define LIGI_LOCAL_KEYS_H

#include "params/sampling/draw.h"

#include <stdatomic.h>

typedef struct ligi_local_keys {
    _Atomic uint32_t *items; /* 0 .. range - 1, the first `count` of them */
    _Atomic uint32_t *where; /* position of an item in `items`, + 1; 0: not local */
    uint32_t range;
    _Atomic uint32_t count;
} ligi_local_keys;

/* Fills a zeroed list: no key is local. Takes 8 bytes per key of the range, touched when used. */
lig_status ligi_local_keys_init(ligi_local_keys *list, uint32_t range);
void ligi_local_keys_fini(ligi_local_keys *list);

/* No-op if nothing changes. */
void ligi_local_keys_add(ligi_local_keys *list, uint32_t item);
void ligi_local_keys_remove(ligi_local_keys *list, uint32_t item);

static inline int ligi_local_list_has(const ligi_local_keys *list, uint32_t item)
{
    return atomic_load_explicit(&list->where[item], memory_order_relaxed) != 0;
}

typedef struct ligi_local_draw {
    const ligi_draw *draw; /* restricted to local keys */
    ligi_rng *rng;
    ligi_seen *seen; /* NULL: with replacement; otherwise these are excluded, and draws are added */
} ligi_local_draw;

/* Fills out[0 .. *got) with local items: `count`, or fewer if there are not enough. Uniform:
 * constant time each. Other distributions: drawn from the whole range until one is local, and after
 * some tries by one walk over all local keys. On failure nothing is added to `seen`. */
lig_status ligi_local_keys_draw(const ligi_local_keys *list, const ligi_local_draw *how,
                                uint32_t count, uint32_t *out, uint32_t *got);

#endif
