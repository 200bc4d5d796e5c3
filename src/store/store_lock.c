#include "base/error.h"
#include "store/format/metrics_and_tags.h"
#include "store/handle.h"

#include <stdlib.h>

struct lig_lock {
    ligi_volume *volume; /* held: a lock may outlive the store's handle */
    void *lock;
};

lig_status lig_store_lock(lig_store *store, const char *name, lig_lock **out)
{
    lig_lock *made;
    const lig_volume_ops *ops = store->volume->ops;

    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("run", name));
    if (ops->lock == NULL)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the store %s does not support locks: its backend provides none",
                        store->uri);
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a lock"));
    lig_status status = ops->lock(store->volume->self, name, &made->lock);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->volume = store->volume;
    ligi_volume_hold(made->volume);
    *out = made;
    return LIG_OK;
}

void lig_lock_release(lig_lock *lock)
{
    if (lock == NULL)
        return;
    lock->volume->ops->unlock(lock->lock);
    ligi_volume_drop(lock->volume);
    free(lock);
}
