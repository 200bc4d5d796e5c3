#include "store/load/pins.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/handle.h"

#include <stdlib.h>

/* A process has some 65,000 mappings. */
enum { MAPS_MAX = 1024 };

struct ligi_pin {
    ligi_volume *volume; /* holds a reference: a match may outlive its store */
    void *held;          /* the volume's */
    int64_t expires_ns;
};

static lig_status take(ligi_pin *pin, const ligi_use *uses, size_t count)
{
    uint64_t *packs = NULL;
    LIG_TRY(ligi_calloc(&packs, count, sizeof *packs, "a pin"));
    for (size_t i = 0; i < count; i++)
        packs[i] = uses[i].pack;
    lig_status status =
        pin->volume->ops->pin(pin->volume->self, packs, count, pin->expires_ns, &pin->held);
    free(packs);
    return status;
}

lig_status ligi_pin_take(lig_store *store, const ligi_use *uses, size_t count, int64_t lease_ns,
                         ligi_pin **out)
{
    if (store->mode == 'r')
        return LIG_OK;
    ligi_pin *pin = NULL;
    LIG_TRY(ligi_calloc(&pin, 1, sizeof *pin, "a pin"));
    pin->volume = store->volume;
    int64_t now = ligi_date_ns();
    pin->expires_ns = lease_ns < INT64_MAX - now ? now + lease_ns : INT64_MAX;
    lig_status status = take(pin, uses, count);
    if (status != LIG_OK) {
        free(pin);
        return status;
    }
    ligi_volume_hold(pin->volume);
    *out = pin;
    return LIG_OK;
}

void ligi_pin_release(ligi_pin *pin)
{
    if (pin == NULL)
        return;
    pin->volume->ops->unpin(pin->held);
    ligi_volume_drop(pin->volume);
    free(pin);
}

int64_t ligi_pin_expires(const ligi_pin *pin)
{
    return pin ? pin->expires_ns : 0;
}

lig_status ligi_maps_take(ligi_maps *maps, lig_store *store, const ligi_use *uses, size_t count,
                          int *gone)
{
    const lig_volume_ops *ops = store->volume->ops;
    /* On a network file system, a mapping becomes invalid when another machine removes the file. */
    if (count > MAPS_MAX ||
        ops->flags(store->volume->self) & (LIG_VOLUME_NO_CATALOG | LIG_VOLUME_NO_HOLD))
        return LIG_OK;
    LIG_TRY(ligi_calloc(&maps->packs, count, sizeof *maps->packs, "mappings"));
    for (size_t i = 0; i < count; i++) {
        ligi_mapped *next = &maps->packs[maps->count];
        next->pack = uses[i].pack;
        lig_status status = ops->pack_map(store->volume->self, uses[i].pack, 0, &next->mapping);
        *gone = status == LIG_E_NOTFOUND;
        if (status != LIG_OK) {
            ligi_maps_fini(maps, store);
            return *gone ? status : LIG_OK;
        }
        maps->count++;
    }
    return LIG_OK;
}

void ligi_maps_fini(ligi_maps *maps, const lig_store *store)
{
    for (size_t i = 0; i < maps->count; i++)
        store->volume->ops->pack_unmap(store->volume->self, &maps->packs[i].mapping);
    free(maps->packs);
    *maps = (ligi_maps){0};
}

const lig_mapping *ligi_maps_find(const ligi_maps *maps, uint64_t pack)
{
    for (size_t i = 0; i < maps->count; i++)
        if (maps->packs[i].pack == pack)
            return &maps->packs[i].mapping;
    return NULL;
}
