/* Stores nothing: for measuring everything except the storage. A load succeeds and leaves the
 * tensors unchanged. */
#include <ligament/backend.h>

static lig_status null_save(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    (void)self, (void)set, (void)tensors, (void)count;
    return LIG_OK;
}

static lig_status null_drop(void *self, const char *set)
{
    (void)self, (void)set;
    return LIG_OK;
}

static lig_status null_list(void *self, size_t index, char *set, size_t set_bytes)
{
    (void)self, (void)index, (void)set, (void)set_bytes;
    return LIG_E_NOTFOUND;
}

extern const lig_backend_ops ligi_backend_null;
const lig_backend_ops ligi_backend_null = {
    .flags = LIG_BACKEND_DEVICE,
    .save = null_save,
    .load = null_save,
    .list = null_list,
    .drop = null_drop,
};
