#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/registry.h"
#include "base/error.h"
#include "tensor/memory.h"

struct lig_backend {
    const lig_backend_ops *ops;
    void *self;
    char *name;
    pid_t pid;
};

lig_status lig_backend_open(lig_backend **backend, const char *name, const char *config)
{
    lig_backend *opened;

    LIG_TRY(ligi_calloc(&opened, 1, sizeof *opened, "a backend"));
    lig_status status = ligi_strdup(&opened->name, name);
    if (status != LIG_OK)
        goto free_backend;
    status = ligi_backend_open_raw(name, config, &opened->ops, &opened->self);
    if (status != LIG_OK)
        goto free_name;
    opened->pid = getpid();
    *backend = opened;
    return LIG_OK;

free_name:
    free(opened->name);
free_backend:
    free(opened);
    return status;
}

void lig_backend_close(lig_backend *backend)
{
    if (backend == NULL)
        return;
    if (backend->pid == getpid())
        ligi_backend_close_raw(backend->ops, backend->self);
    free(backend->name);
    free(backend);
}

static lig_status check_call(const lig_backend *backend, const char *set)
{
    if (backend->pid != getpid())
        return lig_fail(LIG_E_CLOSED,
                        "backend '%s' was opened before this process was forked (open it again in "
                        "this process)",
                        backend->name);
    if (set == NULL || set[0] == '\0')
        return lig_fail(LIG_E_INVALID, "backend '%s': the set has no name", backend->name);
    ligi_fail_clear();
    return LIG_OK;
}

static lig_status no_such_call(const lig_backend *backend, const char *call)
{
    if (backend->ops->volume != NULL)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "backend '%s' is a store and does not implement %s (use lig_checkpoint_* "
                        "or lig_store_*)",
                        backend->name, call);
    return lig_fail(LIG_E_UNSUPPORTED, "backend '%s' does not implement %s", backend->name, call);
}

static int needs_flat(const lig_backend *backend, const lig_tensor *tensor)
{
    if (tensor->bytes == 0)
        return 0;
    if (tensor->memory != LIG_MEMORY_HOST && (backend->ops->flags & LIG_BACKEND_DEVICE) == 0)
        return 1;
    return !lig_tensor_contiguous(tensor);
}

/* Strided device memory cannot be traversed from the host, and a copy would not have the caller's
 * layout.
 */
static lig_status check_flat(const lig_backend *backend, const lig_tensor *tensors, size_t count,
                             int *flat)
{
    *flat = 0;
    for (size_t i = 0; i < count; i++) {
        if (!needs_flat(backend, &tensors[i]))
            continue;
        *flat = 1;
        if (tensors[i].memory != LIG_MEMORY_HOST && !lig_tensor_contiguous(&tensors[i]))
            return lig_fail(
                LIG_E_UNSUPPORTED,
                "tensor '%s' is not contiguous in device memory (make it contiguous first)",
                tensors[i].name);
    }
    return LIG_OK;
}

/* Makes *view a contiguous host tensor with its own memory. */
static lig_status flat_create(const lig_tensor *tensor, lig_tensor *view)
{
    void *data;

    LIG_TRY(ligi_alloc(&data, tensor->bytes, tensor->name));
    *view = *tensor;
    view->data = data;
    view->strides = NULL;
    view->memory = LIG_MEMORY_HOST;
    view->device = 0;
    return LIG_OK;
}

static lig_status flat_from_tensor(const lig_tensor *tensor, const lig_tensor *view)
{
    if (tensor->memory != LIG_MEMORY_HOST)
        return ligi_memory_to_host(view->data, tensor->data, tensor->bytes, tensor->memory,
                                   tensor->device);
    lig_tensor_pack(tensor, view->data);
    return LIG_OK;
}

static lig_status flat_to_tensor(const lig_tensor *tensor, const lig_tensor *view)
{
    if (tensor->memory != LIG_MEMORY_HOST)
        return ligi_memory_from_host(tensor->data, view->data, tensor->bytes, tensor->memory,
                                     tensor->device);
    lig_tensor_unpack(tensor, view->data);
    return LIG_OK;
}

static void views_destroy(const lig_tensor *tensors, lig_tensor *views, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (views[i].data != tensors[i].data)
            free(views[i].data);
    free(views);
}

/* The tensors in the form passed to a plugin; strides of a contiguous tensor are omitted, as
 * guaranteed to plugins. */
static lig_status views_create(const lig_backend *backend, const lig_tensor *tensors, size_t count,
                               lig_tensor **views)
{
    lig_tensor *made;

    LIG_TRY(ligi_calloc(&made, count, sizeof *made, "the list of tensors"));
    for (size_t i = 0; i < count; i++) {
        made[i] = tensors[i];
        made[i].strides = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (!needs_flat(backend, &tensors[i]))
            continue;
        lig_status status = flat_create(&tensors[i], &made[i]);
        if (status != LIG_OK) {
            views_destroy(tensors, made, count);
            return status;
        }
    }
    *views = made;
    return LIG_OK;
}

static lig_status save_views(lig_backend *backend, const char *set, const lig_tensor *tensors,
                             size_t count)
{
    lig_tensor *views;

    LIG_TRY(views_create(backend, tensors, count, &views));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        if (views[i].data != tensors[i].data)
            status = flat_from_tensor(&tensors[i], &views[i]);
    if (status == LIG_OK)
        status = backend->ops->save(backend->self, set, views, count);
    views_destroy(tensors, views, count);
    return status;
}

static lig_status stream_put(lig_backend *backend, void *stream, size_t index,
                             const lig_tensor *tensor)
{
    lig_tensor view = *tensor;

    view.strides = NULL;
    if (!needs_flat(backend, tensor))
        return backend->ops->put(stream, index, &view);
    LIG_TRY(flat_create(tensor, &view));
    lig_status status = flat_from_tensor(tensor, &view);
    if (status == LIG_OK)
        status = backend->ops->put(stream, index, &view);
    free(view.data);
    return status;
}

/* One tensor at a time, so that at most one is staged. */
static lig_status save_stream(lig_backend *backend, const char *set, const lig_tensor *tensors,
                              size_t count)
{
    const lig_backend_ops *ops = backend->ops;
    lig_tensor *views;
    void *stream = NULL;

    LIG_TRY(ligi_calloc(&views, count, sizeof *views, "the list of tensors"));
    for (size_t i = 0; i < count; i++) {
        views[i] = tensors[i];
        views[i].data = NULL;
        views[i].strides = NULL;
    }
    lig_status status = ops->begin(backend->self, set, views, count, &stream);
    free(views);
    if (status != LIG_OK)
        return status;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = stream_put(backend, stream, i, &tensors[i]);
    if (status == LIG_OK)
        return ops->commit(stream);
    ops->abort(stream);
    return status;
}

lig_status lig_backend_save(lig_backend *backend, const char *set, const lig_tensor *tensors,
                            size_t count)
{
    int flat;

    LIG_TRY(check_call(backend, set));
    if (backend->ops->save == NULL)
        return no_such_call(backend, "save");
    LIG_TRY(lig_tensors_check(tensors, count));
    LIG_TRY(check_flat(backend, tensors, count, &flat));
    int streamed = flat && backend->ops->begin != NULL;
    lig_status status = streamed ? save_stream(backend, set, tensors, count)
                                 : save_views(backend, set, tensors, count);
    return ligi_backend_heard(backend->name, "save", status);
}

lig_status lig_backend_load(lig_backend *backend, const char *set, const lig_tensor *tensors,
                            size_t count)
{
    lig_tensor *views;
    int flat;

    LIG_TRY(check_call(backend, set));
    if (backend->ops->load == NULL)
        return no_such_call(backend, "load");
    LIG_TRY(lig_tensors_check(tensors, count));
    LIG_TRY(check_flat(backend, tensors, count, &flat));
    LIG_TRY(views_create(backend, tensors, count, &views));
    /* A backend may leave bytes as they are: what it is given then holds what the tensor holds. */
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && flat && status == LIG_OK; i++)
        if (views[i].data != tensors[i].data)
            status = flat_from_tensor(&tensors[i], &views[i]);
    if (status == LIG_OK)
        status = backend->ops->load(backend->self, set, views, count);
    for (size_t i = 0; i < count && flat && status == LIG_OK; i++)
        if (views[i].data != tensors[i].data)
            status = flat_to_tensor(&tensors[i], &views[i]);
    views_destroy(tensors, views, count);
    return ligi_backend_heard(backend->name, "load", status);
}

lig_status lig_backend_list(lig_backend *backend, size_t index, char *set, size_t set_bytes)
{
    LIG_TRY(check_call(backend, "*"));
    if (backend->ops->list == NULL)
        return no_such_call(backend, "list");
    return ligi_backend_heard(backend->name, "list",
                              backend->ops->list(backend->self, index, set, set_bytes));
}

lig_status lig_backend_drop(lig_backend *backend, const char *set)
{
    LIG_TRY(check_call(backend, set));
    if (backend->ops->drop == NULL)
        return no_such_call(backend, "drop");
    return ligi_backend_heard(backend->name, "drop", backend->ops->drop(backend->self, set));
}
