#include "store/catalog/catalog_wait.h"

#include "base/clock.h"
#include "base/error.h"

lig_status ligi_catalog_lock(lig_store *store, const ligi_interrupt *interrupt, int64_t end_ns)
{
    const ligi_volume *volume = store->volume;
    for (;;) {
        int64_t left = end_ns - ligi_now_ns();
        int64_t slice = left < LIGI_WAIT_SLICE_NS ? left : LIGI_WAIT_SLICE_NS;
        lig_status status = volume->ops->catalog_lock(volume->self, slice > 0 ? slice : 0);
        if (status != LIG_E_TIMEOUT || left <= LIGI_WAIT_SLICE_NS)
            return status;
        if (interrupt)
            LIG_TRY(ligi_interrupt_check(interrupt, "the catalog", store));
    }
}

/* Settling waits for the lock and cannot be interrupted: with the lock held, it does not wait. */
lig_status ligi_catalog_settle(lig_store *store, const ligi_interrupt *interrupt,
                               int64_t timeout_ns)
{
    const ligi_volume *volume = store->volume;
    if (volume->ops->catalog_lock && store->mode != 'r') {
        LIG_TRY(ligi_catalog_lock(store, interrupt, ligi_now_ns() + timeout_ns));
        volume->ops->catalog_unlock(volume->self);
    }
    return volume->ops->catalog_settle(volume->self);
}
