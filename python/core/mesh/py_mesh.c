#include "mesh/py_mesh.h"

#include <stdio.h>
#include <string.h>

/* --- the handle --- */

lig_mesh *ligi_py_mesh_enter(PyObject *object)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    if (!self->mesh || self->closing) {
        ligi_py_fail(ligi_py_state_of(object), LIG_E_CLOSED, "the mesh is closed");
        return NULL;
    }
    self->users++;
    return self->mesh;
}

static void free_handle(ligi_py_mesh *self)
{
    lig_mesh *mesh = self->mesh;
    self->mesh = NULL;
    Py_BEGIN_ALLOW_THREADS
    lig_mesh_close(mesh);
    Py_END_ALLOW_THREADS
}

void ligi_py_mesh_leave(PyObject *object)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    if (--self->users == 0 && self->closing && self->mesh)
        free_handle(self);
}

PyObject *ligi_py_mesh_finish(PyObject *object, lig_status status)
{
    ligi_py_mesh_leave(object);
    return ligi_py_none(ligi_py_state_of(object), status);
}

PyObject *ligi_py_late(const ligi_py_state *state, int64_t timeout_ns)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", lig_error_text());
    return ligi_py_fail(state, LIG_E_TIMEOUT, "%s (%.0f ms)", text, (double)timeout_ns / 1e6);
}

ligi_py_batch *ligi_py_batch_of(PyObject *object, PyObject *batch)
{
    if (Py_TYPE(batch) == ligi_py_state_of(object)->batch_type)
        return (ligi_py_batch *)batch;
    PyErr_Format(PyExc_TypeError, "expected a Batch, not %R", (PyObject *)Py_TYPE(batch));
    return NULL;
}

/* "I" of PyArg_Parse cuts what is too large. */
static int to_count(PyObject *object, void *out)
{
    long long value = PyLong_AsLongLong(object);
    if (value >= 0 && value <= UINT32_MAX) {
        *(uint32_t *)out = (uint32_t)value;
        return 1;
    }
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%R is not a number from 0 to 2**32 - 1", object);
    return 0;
}

/* -1: any. */
static int to_rank(PyObject *object, void *out)
{
    *(uint32_t *)out = LIG_MESH_ANY_RANK;
    if (PyLong_AsLong(object) == -1 && !PyErr_Occurred())
        return 1;
    PyErr_Clear();
    return to_count(object, out);
}

/* Called by open and barrier, which have released the GIL. */
static int patience(void *Py_UNUSED(unused))
{
    PyGILState_STATE state = PyGILState_Ensure();
    int goes_on = PyErr_CheckSignals() == 0;
    PyGILState_Release(state);
    return goes_on;
}

static int mesh_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"role",       "rank",        "workers",   "servers",
                            "group_size", "address",     "transport", "secret",
                            "timeout_ns", "liveness_ns", "spin_ns",   "receive_bytes",
                            "host",       "flags",       "device",    NULL};
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    lig_mesh_options options = LIG_MESH_OPTIONS_INIT;
    long long timeout, liveness, spin;
    unsigned long long receive;
    int device = -1;
    Py_buffer secret = {0};
    if (self->mesh) {
        ligi_py_fail(state, LIG_E_EXISTS, "this mesh is already open");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "IO&O&O&O&ssz*LLLKzI|i", names, &options.role, to_rank, &options.rank,
            to_count, &options.worker_count, to_count, &options.server_count, to_count,
            &options.group_size, &options.address, &options.transport, &secret, &timeout, &liveness,
            &spin, &receive, &options.host, &options.flags, &device))
        return -1;
    options.patience = patience;
    options.timeout_ns = timeout;
    options.liveness_ns = liveness;
    options.spin_ns = spin;
    options.receive_bytes = receive;
    if (device >= 0) {
        options.receive_memory = LIG_MEMORY_CUDA;
        options.receive_device = device;
    }
    options.secret = secret.buf;
    options.secret_bytes = (size_t)secret.len;
    lig_mesh *mesh = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_mesh_open(&mesh, &options));
    if (secret.obj)
        PyBuffer_Release(&secret);
    if (status != LIG_OK) {
        ligi_py_raise(state, status);
        return -1;
    }
    self->worker_count = options.worker_count;
    self->mesh = mesh;
    return 0;
}

static PyObject *mesh_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    if (!self->mesh || self->closing)
        Py_RETURN_NONE;
    self->closing = 1;
    if (self->users == 0) {
        free_handle(self);
        Py_RETURN_NONE;
    }
    self->users++; /* calls on other threads end by the stop; the last one frees */
    Py_BEGIN_ALLOW_THREADS
    lig_mesh_stop(self->mesh, 0);
    Py_END_ALLOW_THREADS
    ligi_py_mesh_leave(object);
    Py_RETURN_NONE;
}

static void mesh_dealloc(PyObject *object)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    if (self->mesh)
        free_handle(self);
    Py_XDECREF(self->registered);
    ligi_py_free(object);
}

/* --- workers --- */

/* kept[handler] = item; done here because a signal may arrive between any two lines of Python. If
 * the item cannot be stored, it must still outlive the request. */
static PyObject *keep(PyObject *kept, uint64_t handler, PyObject *item)
{
    PyObject *number = PyLong_FromUnsignedLongLong(handler);
    if (number && PyDict_SetItem(kept, number, item) == 0)
        return number;
    Py_INCREF(item);
    Py_XDECREF(number);
    return NULL;
}

static PyObject *mesh_push_pull(PyObject *object, PyObject *args)
{
    PyObject *push_object, *push_keys, *pull_object, *pull_keys, *kept, *item, *result = NULL;
    lig_mesh_request request = {0};
    ligi_py_stream on = {0, NULL};
    uint64_t handler = 0, *pushed = NULL, *pulled = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO!O|O&", &push_object, &push_keys, &pull_object, &pull_keys,
                          &PyDict_Type, &kept, &item, ligi_py_to_stream, &on))
        return NULL;
    ligi_py_batch *push = ligi_py_batch_of(object, push_object);
    ligi_py_batch *pull = push ? ligi_py_batch_of(object, pull_object) : NULL;
    pushed =
        pull ? ligi_py_keys(ligi_py_state_of(object), push_keys, "push key", &request.push_count)
             : NULL;
    pulled =
        pushed ? ligi_py_keys(ligi_py_state_of(object), pull_keys, "pull key", &request.pull_count)
               : NULL;
    if (!pulled)
        goto keys;
    if (request.push_count != push->count || request.pull_count != pull->count) {
        ligi_py_fail(ligi_py_state_of(object), LIG_E_INVALID,
                     "the number of keys must match the number of tensors: %zu push tensors have "
                     "%zu keys, %zu pull tensors have %zu",
                     push->count, request.push_count, pull->count, request.pull_count);
        goto keys;
    }
    request.push = push->tensors;
    request.pull = pull->tensors;
    request.push_keys = pushed;
    request.pull_keys = pulled;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        goto keys;
    lig_status status =
        LIGI_PY_UNLOCKED(on.given ? lig_mesh_push_pull_on(mesh, &request, on.stream, &handler)
                                  : lig_mesh_push_pull(mesh, &request, &handler));
    ligi_py_mesh_leave(object);
    result = status == LIG_OK ? keep(kept, handler, item)
                              : ligi_py_raise(ligi_py_state_of(object), status);
keys:
    PyMem_Free(pushed);
    PyMem_Free(pulled);
    return result;
}

/* A handler that does not fit into 64 bits was never assigned, nor was the largest one. */
static uint64_t handler_of(PyObject *number)
{
    PyObject *whole = PyNumber_Index(number);
    uint64_t handler = whole ? PyLong_AsUnsignedLongLong(whole) : UINT64_MAX;
    if (whole && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Clear();
    Py_XDECREF(whole);
    return handler;
}

static PyObject *mesh_wait(PyObject *object, PyObject *args)
{
    PyObject *number, *timeout;
    ligi_py_stream on = {0, NULL};
    if (!PyArg_ParseTuple(args, "OO|O&", &number, &timeout, ligi_py_to_stream, &on))
        return NULL;
    uint64_t handler = handler_of(number);
    int64_t left = PyErr_Occurred() ? -2 : ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    int64_t whole = left;
    lig_mesh *mesh = left == -2 ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status;
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        status = LIGI_PY_UNLOCKED(on.given ? lig_mesh_wait_on(mesh, handler, on.stream, slice)
                                           : lig_mesh_wait(mesh, handler, slice));
        left -= left < 0 ? 0 : slice;
        if (status != LIG_E_TIMEOUT || left == 0)
            break;
        if (PyErr_CheckSignals() < 0) {
            ligi_py_mesh_leave(object);
            return NULL;
        }
    }
    ligi_py_mesh_leave(object);
    if (status == LIG_E_TIMEOUT)
        return ligi_py_late(ligi_py_state_of(object), whole);
    return ligi_py_none(ligi_py_state_of(object), status);
}

static PyObject *mesh_done(PyObject *object, PyObject *number)
{
    uint64_t handler = handler_of(number);
    lig_mesh *mesh = PyErr_Occurred() ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    int done = LIGI_PY_UNLOCKED(lig_mesh_done(mesh, handler));
    ligi_py_mesh_leave(object);
    return PyBool_FromLong(done);
}

static PyObject *mesh_cancel(PyObject *object, PyObject *number)
{
    uint64_t handler = handler_of(number);
    lig_mesh *mesh = PyErr_Occurred() ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    return ligi_py_mesh_finish(object, LIGI_PY_UNLOCKED(lig_mesh_cancel(mesh, handler)));
}

static PyObject *mesh_handlers(PyObject *object, PyObject *number)
{
    uint64_t handlers[2 * LIG_MESH_TENSORS_MAX];
    size_t count = 0;
    uint64_t handler = handler_of(number);
    lig_mesh *mesh = PyErr_Occurred() ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(
        lig_mesh_get_all_handlers(mesh, handler, handlers, 2 * LIG_MESH_TENSORS_MAX, &count));
    ligi_py_mesh_leave(object);
    return status == LIG_OK ? ligi_py_u64_list(handlers, count)
                            : ligi_py_raise(ligi_py_state_of(object), status);
}

static PyObject *mesh_trace(PyObject *object, PyObject *number)
{
    uint64_t stamps[LIG_MESH_STAMPS];
    uint64_t handler = handler_of(number);
    lig_mesh *mesh = PyErr_Occurred() ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_mesh_fetch_trace(mesh, handler, stamps));
    ligi_py_mesh_leave(object);
    return status == LIG_OK ? ligi_py_u64_list(stamps, LIG_MESH_STAMPS)
                            : ligi_py_raise(ligi_py_state_of(object), status);
}

/* --- all --- */

static PyObject *mesh_barrier(PyObject *object, PyObject *args)
{
    unsigned int with;
    PyObject *timeout;
    if (!PyArg_ParseTuple(args, "IO", &with, &timeout))
        return NULL;
    int64_t timeout_ns = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    lig_mesh *mesh = timeout_ns == -2 ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    return ligi_py_mesh_finish(object, LIGI_PY_UNLOCKED(lig_mesh_barrier(mesh, with, timeout_ns)));
}

lig_status ligi_py_sliced(PyObject *object, lig_status (*call)(lig_mesh *, int64_t), int64_t left)
{
    ligi_py_mesh *self = (ligi_py_mesh *)object;
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        lig_status status = LIGI_PY_UNLOCKED(call(self->mesh, slice));
        left -= left < 0 ? 0 : slice;
        if (status != LIG_E_TIMEOUT || left == 0 || self->closing || PyErr_CheckSignals() < 0)
            return status;
    }
}

static PyObject *mesh_linger(PyObject *object, PyObject *timeout)
{
    int64_t timeout_ns = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    lig_mesh *mesh = timeout_ns == -2 ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = ligi_py_sliced(object, lig_mesh_linger, timeout_ns);
    ligi_py_mesh_leave(object);
    if (PyErr_Occurred())
        return NULL;
    if (status == LIG_OK || status == LIG_E_TIMEOUT)
        return PyBool_FromLong(status == LIG_OK);
    return ligi_py_raise(ligi_py_state_of(object), status);
}

static PyObject *mesh_members(PyObject *object, PyObject *Py_UNUSED(unused))
{
    size_t count = 0;
    lig_mesh_member *members = PyMem_Calloc(LIG_MESH_MEMBERS_MAX + 1, sizeof *members);
    if (!members)
        return PyErr_NoMemory();
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    PyObject *list = NULL;
    if (!mesh)
        goto members;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_mesh_members(mesh, members, LIG_MESH_MEMBERS_MAX + 1, &count));
    ligi_py_mesh_leave(object);
    list = status == LIG_OK ? PyList_New(0) : ligi_py_raise(ligi_py_state_of(object), status);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item =
            Py_BuildValue("IIsIsI", members[i].role, members[i].rank, members[i].host,
                          members[i].state, members[i].transport, members[i].incarnation);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
members:
    PyMem_Free(members);
    return list;
}

static PyObject *mesh_stats(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_mesh_stats stats;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_mesh_stats_get(mesh, &stats));
    ligi_py_mesh_leave(object);
    if (status != LIG_OK)
        return ligi_py_raise(ligi_py_state_of(object), status);
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsKsKsKsK}", "requests", stats.requests, "responses", stats.responses,
        "bytes_pushed", stats.bytes_pushed, "bytes_pulled", stats.bytes_pulled, "bytes_shared",
        stats.bytes_shared, "refused", stats.refused, "failed", stats.failed, "in_flight",
        stats.in_flight, "buffer_bytes", stats.buffer_bytes, "peers_lost", stats.peers_lost,
        "peers_rejoined", stats.peers_rejoined, "clock_offset_ns_max", stats.clock_offset_ns_max);
}

static PyObject *mesh_fileno(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    int fd = lig_mesh_fileno(mesh);
    ligi_py_mesh_leave(object);
    return fd >= 0 ? PyLong_FromLong(fd) : ligi_py_raise(ligi_py_state_of(object), LIG_E_CLOSED);
}

static PyObject *mesh_trace_to(PyObject *object, PyObject *folder)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    const char *path = folder == Py_None ? NULL : ligi_py_text(state, folder, "a folder");
    if (!path && PyErr_Occurred())
        return NULL;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    return ligi_py_mesh_finish(object, LIGI_PY_UNLOCKED(lig_mesh_trace_to(mesh, path)));
}

static PyObject *mesh_rank(PyObject *object, void *Py_UNUSED(unused))
{
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    uint32_t rank = lig_mesh_rank(mesh);
    ligi_py_mesh_leave(object);
    return PyLong_FromUnsignedLong(rank);
}

static PyObject *nanosecond(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(lig_mesh_nanosecond());
}

static PyMethodDef methods[] = {
    {"close", mesh_close, METH_NOARGS, "close(): leave without waiting, and free the memory."},
    {"linger", mesh_linger, METH_O,
     "linger(milliseconds) -> bool: stop; for the member that runs the rendezvous, whether all "
     "others have left. Call close afterwards."},
    {"push_pull", mesh_push_pull, METH_VARARGS,
     "push_pull(push batch, keys, pull batch, keys, stream=None) -> handler; the batches are "
     "borrowed until the wait."},
    {"wait", mesh_wait, METH_VARARGS, "wait(handler, milliseconds, stream=None)"},
    {"done", mesh_done, METH_O, "done(handler) -> bool"},
    {"cancel", mesh_cancel, METH_O, "cancel(handler)"},
    {"handlers", mesh_handlers, METH_O, "handlers(handler) -> list"},
    {"trace", mesh_trace, METH_O, "trace(handler) -> eight timestamps"},
    {"get_batch", ligi_py_mesh_get_batch, METH_VARARGS,
     "get_batch(milliseconds, mode) -> [(handler, worker, [(memory, dtype, shape)], keys, pulls)]"},
    {"respond", ligi_py_mesh_respond, METH_VARARGS,
     "respond(batch, handler, milliseconds) -> bool: whether the batch may be reused"},
    {"respond_rows", ligi_py_mesh_respond_rows, METH_VARARGS,
     "respond_rows(batch of one, rows, handlers, milliseconds) -> bool"},
    {"refuse", ligi_py_mesh_refuse, METH_VARARGS, "refuse(handler, status, message)"},
    {"settle", ligi_py_mesh_settle, METH_O,
     "settle(milliseconds) -> bool: whether no response is in use any more"},
    {"register", ligi_py_mesh_register, METH_VARARGS, "register(batch of one, workers, keys)"},
    {"barrier", mesh_barrier, METH_VARARGS, "barrier(roles, milliseconds)"},
    {"members", mesh_members, METH_NOARGS,
     "members() -> [(role, rank, host, state, transport, incarnation)]"},
    {"stats", mesh_stats, METH_NOARGS, "stats() -> dict"},
    {"fileno", mesh_fileno, METH_NOARGS, "fileno() -> int"},
    {"trace_to", mesh_trace_to, METH_O, "trace_to(folder or None)"},
    {"empty", ligi_py_mesh_empty, METH_O, "empty(bytes) -> shareable Memory"},
    {"empty_on", ligi_py_mesh_empty_on, METH_VARARGS,
     "empty_on(bytes, device) -> shareable Memory of a CUDA device"},
    {"flag", ligi_py_mesh_flag, METH_VARARGS,
     "flag(action, device, stream, flag or 0, sequence): LIG_MESH_FLAG_*, addresses on the device"},
    {"flag_map", ligi_py_mesh_flag_map, METH_VARARGS,
     "flag_map(device, address, bytes, owner) -> Memory: pinned memory as the device sees it"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"rank", mesh_rank, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, mesh_init}, {Py_tp_dealloc, mesh_dealloc},        {Py_tp_methods, methods},
    {Py_tp_getset, getset},  {Py_tp_doc, "One member of a mesh."}, {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Mesh", sizeof(ligi_py_mesh), 0, Py_TPFLAGS_DEFAULT,
                           slots};

static PyMethodDef functions[] = {
    {"nanosecond", nanosecond, METH_NOARGS, "nanosecond() -> int: the clock of all timestamps."},
    {NULL, NULL, 0, NULL},
};

int ligi_py_mesh_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, NULL) < 0 ? -1
                                                     : PyModule_AddFunctions(module, functions);
}
