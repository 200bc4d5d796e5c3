#include "store/holds.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

struct ligi_pin {
    ligi_place *place; /* held: a match may outlive its store */
    void *held;        /* the volume's */
    int64_t expires_ns;
};

static lig_status take(ligi_pin *pin, const ligi_use *uses, size_t count)
{
    uint64_t *packs = NULL;
    LIG_TRY(ligi_calloc(&packs, count, sizeof *packs, "a pin"));
    for (size_t i = 0; i < count; i++)
        packs[i] = uses[i].pack;
    lig_status status =
        pin->place->ops->pin(pin->place->self, packs, count, pin->expires_ns, &pin->held);
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
    pin->place = store->place;
    pin->expires_ns = ligi_date_ns() + lease_ns;
    lig_status status = take(pin, uses, count);
    if (status != LIG_OK) {
        free(pin);
        return status;
    }
    ligi_place_hold(pin->place);
    *out = pin;
    return LIG_OK;
}

void ligi_pin_release(ligi_pin *pin)
{
    if (pin == NULL)
        return;
    pin->place->ops->unpin(pin->held);
    ligi_place_drop(pin->place);
    free(pin);
}

int64_t ligi_pin_expires(const ligi_pin *pin)
{
    return pin ? pin->expires_ns : 0;
}
