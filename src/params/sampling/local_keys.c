#include "params/sampling/local_keys.h"

#include "base/error.h"

#include <stdlib.h>

enum { TRIES = 64, AHEAD = 32 };

lig_status ligi_local_keys_init(ligi_local_keys *list, uint32_t range)
{
    _Atomic uint32_t *items = NULL, *where = NULL;
    LIG_TRY(ligi_calloc(&items, range, sizeof *items, "the list of local keys"));
    lig_status status = ligi_calloc(&where, range, sizeof *where, "the list of local keys");
    if (status != LIG_OK) {
        free(items);
        return status;
    }
    list->items = items;
    list->where = where;
    list->range = range;
    atomic_store(&list->count, 0);
    return LIG_OK;
}

void ligi_local_keys_fini(ligi_local_keys *list)
{
    free(list->items);
    free(list->where);
    list->items = list->where = NULL;
    list->range = 0;
    atomic_store(&list->count, 0);
}

static uint32_t load(const _Atomic uint32_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static void store(_Atomic uint32_t *at, uint32_t value)
{
    atomic_store_explicit(at, value, memory_order_relaxed);
}

/* The item is written before the count, so that a reader never draws an unset one. */
void ligi_local_keys_add(ligi_local_keys *list, uint32_t item)
{
    if (load(&list->where[item]))
        return;
    uint32_t count = load(&list->count);
    store(&list->items[count], item);
    store(&list->where[item], count + 1);
    atomic_store_explicit(&list->count, count + 1, memory_order_release);
}

void ligi_local_keys_remove(ligi_local_keys *list, uint32_t item)
{
    uint32_t at = load(&list->where[item]);
    if (at == 0)
        return;
    uint32_t count = load(&list->count), last = load(&list->items[count - 1]);
    atomic_store_explicit(&list->count, count - 1, memory_order_release);
    store(&list->items[at - 1], last);
    store(&list->where[last], at);
    store(&list->where[item], 0);
}

/* --- drawing --- */

/* The list is large: its lines are prefetched while further positions are drawn. */
static void draw_uniform(const ligi_local_keys *list, ligi_rng *rng, uint32_t here, uint32_t count,
                         uint32_t *out)
{
    for (uint32_t i = 0; i < count + AHEAD; i++) {
        if (i < count) {
            out[i] = (uint32_t)ligi_rng_below(rng, here);
            __builtin_prefetch((const void *)&list->items[out[i]]);
        }
        if (i >= AHEAD)
            out[i - AHEAD] = load(&list->items[out[i - AHEAD]]);
    }
}

static int draw_one(const ligi_local_keys *list, const ligi_local_draw *how, uint32_t here,
                    uint32_t *out)
{
    for (int i = 0; i < TRIES; i++) {
        if (how->draw->kind == LIG_PARAMS_SAMPLE_UNIFORM)
            *out = load(&list->items[ligi_rng_below(how->rng, here)]);
        else
            *out = ligi_draw_one(how->draw, how->rng);
        if (ligi_local_list_has(list, *out) && (!how->seen || ligi_seen_add(how->seen, *out)))
            return 1;
    }
    return 0;
}

static lig_status draw_rest(const ligi_local_keys *list, const ligi_local_draw *how, uint32_t count,
                            uint32_t *out, uint32_t *got)
{
    uint32_t here = atomic_load_explicit(&list->count, memory_order_acquire), kept = 0, *items;
    LIG_TRY(ligi_calloc(&items, here, sizeof *items, "a sample"));
    for (uint32_t i = 0; i < here; i++) {
        items[kept] = load(&list->items[i]);
        kept += ligi_local_list_has(list, items[kept]); /* it may be leaving */
    }
    ligi_among among = {items, kept, how->seen};
    lig_status status = ligi_draw_among(how->draw, how->rng, &among, count, out, got);
    free(items);
    return status;
}

lig_status ligi_local_keys_draw(const ligi_local_keys *list, const ligi_local_draw *how,
                                uint32_t count, uint32_t *out, uint32_t *got)
{
    uint32_t here = atomic_load_explicit(&list->count, memory_order_acquire), at = 0, rest = 0;
    *got = 0;
    if (here == 0)
        return LIG_OK;
    if (how->draw->kind == LIG_PARAMS_SAMPLE_UNIFORM && how->seen == NULL) {
        draw_uniform(list, how->rng, here, count, out);
        *got = count;
        return LIG_OK;
    }
    if (how->seen)
        LIG_TRY(ligi_seen_reserve(how->seen, count));
    while (at < count && draw_one(list, how, here, &out[at]))
        at++;
    lig_status status = LIG_OK;
    if (at < count)
        status = draw_rest(list, how, count - at, out + at, &rest);
    if (status != LIG_OK)
        ligi_seen_remove_all(how->seen, out, at);
    else
        *got = at + rest;
    return status;
}
