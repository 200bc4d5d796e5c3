/* Packs that must stay although no model may name them any more. */
#ifndef LIGI_HOLDS_H
#define LIGI_HOLDS_H

#include "store/handle.h"

typedef struct ligi_pin ligi_pin;

/* Holds the packs of `uses` for lease_ns. On a read-only store *pin stays NULL, which is fine
 * everywhere. */
lig_status ligi_pin_take(lig_store *store, const ligi_use *uses, size_t count, int64_t lease_ns,
                         ligi_pin **pin);
void ligi_pin_release(ligi_pin *pin);
/* When it ends, in ns since 1970; 0 for NULL. */
int64_t ligi_pin_expires(const ligi_pin *pin);

#endif
