/* Packs that must not be removed even if no model refers to them any more. */
#ifndef LIGI_PINS_H
#define LIGI_PINS_H

#include "store/handle.h"

typedef struct ligi_pin ligi_pin;

#define LIGI_PIN_ENDLESS INT64_MAX /* as long as the process lives */

/* Pins the packs of `uses` for lease_ns. On a read-only store *pin stays NULL, which is valid in
 * all calls. */
lig_status ligi_pin_take(lig_store *store, const ligi_use *uses, size_t count, int64_t lease_ns,
                         ligi_pin **pin);
void ligi_pin_release(ligi_pin *pin);
/* The time at which it expires, in ns since 1970; 0 for NULL. */
int64_t ligi_pin_expires(const ligi_pin *pin);

typedef struct ligi_mapped {
    uint64_t pack;
    lig_mapping mapping;
} ligi_mapped;

/* Packs that this process can read until it releases them: mapped, if they cannot be pinned. A
 * mapping outlives the pack. Zeroed: none. */
typedef struct ligi_maps {
    ligi_mapped *packs;
    size_t count;
} ligi_maps;

/* Maps the packs of `uses`; fails and sets *gone if one does not exist. If the volume cannot map
 * packs, or a mapping would not outlive its pack, nothing is mapped. */
lig_status ligi_maps_take(ligi_maps *maps, lig_store *store, const ligi_use *uses, size_t count,
                          int *gone);
void ligi_maps_fini(ligi_maps *maps, const lig_store *store);
/* The mapping of a pack; NULL: none. */
const lig_mapping *ligi_maps_find(const ligi_maps *maps, uint64_t pack);

#endif
