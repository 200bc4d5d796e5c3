#include "mesh/py_mesh.h"

#include <stdlib.h>

/* --- views of what arrived --- */

/* Keeps an arrival's memory: the library's, and the objects behind registered places. */
typedef struct keep {
    lig_mesh_hold *hold;
    PyObject *registered;
} keep;

/* Tensors made of it may end on any thread. */
static void keep_drop(void *handle)
{
    keep *self = handle;
    lig_mesh_hold_drop(self->hold);
    if (self->registered && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(self->registered);
        PyGILState_Release(state);
    }
    free(self);
}

static ligi_py_region *keep_region(PyObject *object, lig_mesh *mesh, uint64_t handler)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    keep *kept = calloc(1, sizeof *kept);
    if (!kept) {
        PyErr_NoMemory();
        return NULL;
    }
    lig_status status = lig_mesh_hold_take(mesh, handler, &kept->hold);
    if (status != LIG_OK) {
        free(kept);
        ligi_py_raise(ligi_py_state_of(object), status);
        return NULL;
    }
    kept->registered = Py_XNewRef(self->registered);
    return ligi_py_region_create(kept, keep_drop);
}

/* (memory or None, dtype, shape) of each. */
static PyObject *tensors_of(const ligi_py_state *state, const lig_tensor *tensors, uint32_t count,
                            ligi_py_region *region)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list && i < count; i++) {
        int32_t device = tensors[i].memory == LIG_MEMORY_HOST ? -1 : tensors[i].device;
        PyObject *memory =
            region ? ligi_py_memory_on(state, region, tensors[i].data, tensors[i].bytes, device)
                   : Py_NewRef(Py_None);
        PyObject *shape = memory ? ligi_py_i64_tuple(tensors[i].shape, tensors[i].ndim) : NULL;
        PyObject *item = shape ? Py_BuildValue("OiO", memory, (int)tensors[i].dtype, shape) : NULL;
        Py_XDECREF(memory);
        Py_XDECREF(shape);
        ligi_py_put_item(&list, i, item);
    }
    return list;
}

static PyObject *arrival_of(PyObject *object, lig_mesh *mesh, const lig_mesh_arrival *arrival)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    ligi_py_region *region = keep_region(object, mesh, arrival->handler);
    if (!region)
        return NULL;
    PyObject *tensors = tensors_of(state, arrival->tensors, arrival->tensor_count, region);
    PyObject *keys = tensors ? ligi_py_u64_list(arrival->keys, arrival->tensor_count) : NULL;
    PyObject *pulls = keys ? tensors_of(state, arrival->pulls, arrival->pull_count, NULL) : NULL;
    PyObject *item =
        pulls ? Py_BuildValue("KIOOO", arrival->handler, arrival->worker, tensors, keys, pulls)
              : NULL;
    Py_XDECREF(tensors);
    Py_XDECREF(keys);
    Py_XDECREF(pulls);
    ligi_py_region_drop(region);
    return item;
}

static lig_status take(lig_mesh *mesh, uint32_t mode, int64_t left, lig_mesh_arrival *arrivals,
                       size_t room, size_t *count)
{
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        lig_status status =
            LIGI_PY_UNLOCKED(lig_mesh_get_batch(mesh, mode, slice, arrivals, room, count));
        left -= left < 0 ? 0 : slice;
        if (status != LIG_E_TIMEOUT || left == 0 || PyErr_CheckSignals() < 0)
            return status;
    }
}

PyObject *ligi_py_mesh_get_batch(PyObject *object, PyObject *args)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    PyObject *timeout, *list = NULL;
    unsigned int mode;
    size_t count = 0, room = self->worker_count;
    if (!PyArg_ParseTuple(args, "OI", &timeout, &mode))
        return NULL;
    int64_t left = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    if (left == -2)
        return NULL;
    lig_mesh_arrival *arrivals = PyMem_Calloc(room + 1, sizeof *arrivals);
    if (!arrivals)
        return PyErr_NoMemory();
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        goto arrivals;
    lig_status status = take(mesh, mode, left, arrivals, room, &count);
    if (status == LIG_OK)
        list = PyList_New((Py_ssize_t)count);
    else if (status == LIG_E_TIMEOUT && !PyErr_Occurred())
        ligi_py_late(ligi_py_state_of(object), left);
    else if (!PyErr_Occurred())
        ligi_py_raise(ligi_py_state_of(object), status);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item = arrival_of(object, mesh, &arrivals[i]);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    ligi_py_mesh_leave(object);
arrivals:
    PyMem_Free(arrivals);
    return list;
}

/* --- answers --- */

/* True, or False when the tensors are still borrowed, or an exception. */
static PyObject *sent(PyObject *object, lig_status status)
{
    if (status == LIG_OK || status == LIG_E_TIMEOUT)
        return PyBool_FromLong(status == LIG_OK);
    return ligi_py_raise(ligi_py_state_of(object), status);
}

PyObject *ligi_py_mesh_respond(PyObject *object, PyObject *args)
{
    PyObject *batch_object, *timeout;
    unsigned long long handler;
    ligi_py_stream on = {0, NULL};
    if (!PyArg_ParseTuple(args, "OKO|O&", &batch_object, &handler, &timeout, ligi_py_to_stream,
                          &on))
        return NULL;
    ligi_py_batch *batch = ligi_py_batch_of(object, batch_object);
    int64_t timeout_ns = batch ? ligi_py_milliseconds(ligi_py_state_of(object), timeout) : -2;
    lig_mesh *mesh = timeout_ns == -2 ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(
        on.given ? lig_mesh_respond_on(mesh, handler, batch->tensors, batch->count, on.stream,
                                       timeout_ns)
                 : lig_mesh_respond(mesh, handler, batch->tensors, batch->count, timeout_ns));
    ligi_py_mesh_leave(object);
    return sent(object, status);
}

PyObject *ligi_py_mesh_respond_rows(PyObject *object, PyObject *args)
{
    PyObject *batch_object, *rows_object, *handlers_object, *timeout, *result = NULL;
    uint64_t *rows = NULL, *handlers = NULL;
    size_t row_count, count;
    ligi_py_stream on = {0, NULL};
    if (!PyArg_ParseTuple(args, "OOOO|O&", &batch_object, &rows_object, &handlers_object, &timeout,
                          ligi_py_to_stream, &on))
        return NULL;
    ligi_py_batch *batch = ligi_py_batch_of(object, batch_object);
    int64_t timeout_ns = batch ? ligi_py_milliseconds(ligi_py_state_of(object), timeout) : -2;
    if (timeout_ns == -2)
        return NULL;
    rows = ligi_py_keys(ligi_py_state_of(object), rows_object, "number of rows", &row_count);
    handlers =
        rows ? ligi_py_keys(ligi_py_state_of(object), handlers_object, "handler", &count) : NULL;
    if (!handlers)
        goto numbers;
    if (row_count != count || batch->count != 1) {
        ligi_py_fail(ligi_py_state_of(object), LIG_E_INVALID,
                     "%zu tensors for %zu requests and %zu buffers: expected one tensor per "
                     "request and one buffer",
                     row_count, count, batch->count);
        goto numbers;
    }
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        goto numbers;
    lig_mesh_rows what = {batch->tensors, (const int64_t *)rows, handlers, count};
    lig_status status = LIGI_PY_UNLOCKED(
        on.given ? lig_mesh_respond_vec_on(mesh, &what, on.stream, timeout_ns)
                 : lig_mesh_respond_vec(mesh, what.buffer, what.rows, handlers, count, timeout_ns));
    ligi_py_mesh_leave(object);
    result = sent(object, status);
numbers:
    PyMem_Free(rows);
    PyMem_Free(handlers);
    return result;
}

PyObject *ligi_py_mesh_refuse(PyObject *object, PyObject *args)
{
    unsigned long long handler;
    int number;
    const char *sentence;
    if (!PyArg_ParseTuple(args, "Kis", &handler, &number, &sentence))
        return NULL;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    return ligi_py_mesh_finish(
        object, LIGI_PY_UNLOCKED(lig_mesh_refuse(mesh, handler, (lig_status)number, sentence)));
}

PyObject *ligi_py_mesh_settle(PyObject *object, PyObject *timeout)
{
    int64_t timeout_ns = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    lig_mesh *mesh = timeout_ns == -2 ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = ligi_py_sliced(object, lig_mesh_settle, timeout_ns);
    ligi_py_mesh_leave(object);
    return PyErr_Occurred() ? NULL : sent(object, status);
}

/* The registered buffers, with the batch for these keys added; without keys, it is kept forever. */
static PyObject *with_batch(const ligi_py_mesh *self, PyObject *batch, const uint32_t *ranks,
                            const uint64_t *keys, size_t count)
{
    PyObject *all = self->registered ? PyDict_Copy(self->registered) : PyDict_New();
    if (all && count == 0 && PyDict_SetItem(all, batch, batch) < 0)
        Py_CLEAR(all);
    for (size_t i = 0; all && i < count; i++) {
        PyObject *place = Py_BuildValue("IK", (unsigned int)ranks[i], (unsigned long long)keys[i]);
        if (!place || PyDict_SetItem(all, place, batch) < 0)
            Py_CLEAR(all);
        Py_XDECREF(place);
    }
    return all;
}

static uint32_t *ranks_of(const ligi_py_state *state, PyObject *object, size_t *count)
{
    uint64_t *wide = ligi_py_keys(state, object, "worker rank", count);
    uint32_t *ranks = wide ? PyMem_Malloc((*count + 1) * sizeof *ranks) : NULL;
    for (size_t i = 0; ranks && i < *count; i++) {
        ranks[i] = wide[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)wide[i];
    }
    if (wide && !ranks)
        ligi_py_fail(state, LIG_E_NOMEM, "out of memory for %zu ranks", *count);
    PyMem_Free(wide);
    return ranks;
}

PyObject *ligi_py_mesh_register(PyObject *object, PyObject *args)
{
    PyObject *batch_object, *workers, *keys_object, *result = NULL;
    const ligi_py_state *state = ligi_py_state_of(object);
    uint32_t *ranks = NULL;
    uint64_t *keys = NULL;
    size_t rank_count, count;
    if (!PyArg_ParseTuple(args, "OOO", &batch_object, &workers, &keys_object))
        return NULL;
    ligi_py_batch *batch = ligi_py_batch_of(object, batch_object);
    ranks = batch ? ranks_of(state, workers, &rank_count) : NULL;
    keys = ranks ? ligi_py_keys(ligi_py_state_of(object), keys_object, "push key", &count) : NULL;
    if (!keys)
        goto numbers;
    if (rank_count != count || batch->count != 1) {
        ligi_py_fail(state, LIG_E_INVALID,
                     "the number of worker ranks (%zu) must equal the number of keys (%zu)",
                     rank_count, count);
        goto numbers;
    }
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    PyObject *all = with_batch(self, batch_object, ranks, keys, count);
    PyObject *part = all ? with_batch(self, batch_object, NULL, NULL, 0) : NULL;
    lig_mesh *mesh = part ? ligi_py_mesh_enter(object) : NULL;
    if (!mesh)
        goto places;
    lig_status status = lig_mesh_register_recv_buffer(mesh, batch->tensors, ranks, keys, count);
    ligi_py_mesh_leave(object);
    result = status == LIG_OK ? Py_NewRef(Py_None) : ligi_py_raise(state, status);
    int some = status == LIG_E_BUSY || status == LIG_E_LIMIT || status == LIG_E_NOMEM;
    if (status == LIG_OK || some) { /* places before the one that failed are set */
        PyObject *old = self->registered;
        self->registered = Py_NewRef(status == LIG_OK ? all : part);
        Py_XDECREF(old);
    }
places:
    Py_XDECREF(all);
    Py_XDECREF(part);
numbers:
    PyMem_Free(ranks);
    PyMem_Free(keys);
    return result;
}
