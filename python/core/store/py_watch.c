#include "store/py_store.h"

#include <string.h>

/* It does not count as a user of the Store: closing that ends a wait here. */
typedef struct watch {
    PyObject_HEAD
    lig_watch *watch; /* NULL after close */
    int waiting, closing;
} watch;

/* --- interrupts ------------------------------------------------------------------------------ */

int ligi_py_check_signals(void *Py_UNUSED(context))
{
    PyGILState_STATE gil = PyGILState_Ensure();
    int raised = PyErr_CheckSignals() < 0;
    PyGILState_Release(gil);
    return raised;
}

/* --- the watch ------------------------------------------------------------------------------- */

static int watch_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    watch *self = (watch *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *store_object, *name_object, *since_object;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!OO", state->store_type, &store_object, &name_object,
                          &since_object) ||
        ligi_py_optional_text(state, name_object, "the pattern", &name) < 0)
        return -1;
    uint64_t since = LIG_WATCH_NOW;
    if (since_object != Py_None) {
        int64_t given = ligi_py_whole(state, since_object);
        if (given < 0) {
            if (!PyErr_Occurred())
                ligi_py_fail(state, LIG_E_INVALID, "invalid since: %lld (a version is at least 0)",
                             (long long)given);
            return -1;
        }
        since = (uint64_t)given;
    }
    ligi_py_store *owner = (ligi_py_store *)store_object;
    lig_store *store = self->watch ? NULL : ligi_py_store_enter(owner);
    if (!store)
        return -1;
    lig_watch *made = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_store_watch(store, name, since, &made));
    self->watch = made;
    PyObject *done = ligi_py_store_finish(owner, status);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static void end(watch *self)
{
    lig_watch *ended = self->watch;
    self->watch = NULL;
    Py_BEGIN_ALLOW_THREADS
    lig_watch_close(ended);
    Py_END_ALLOW_THREADS
}

static void watch_dealloc(PyObject *object)
{
    end((watch *)object);
    ligi_py_free(object);
}

/* A wait of another thread ends with its slice, and closes. */
static PyObject *watch_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    watch *self = (watch *)object;
    self->closing = 1;
    if (!self->waiting)
        end(self);
    Py_RETURN_NONE;
}

static PyObject *watch_since(PyObject *object, void *Py_UNUSED(unused))
{
    watch *self = (watch *)object;
    if (!self->watch)
        return ligi_py_fail(ligi_py_state_of(object), LIG_E_CLOSED, "the watch is closed");
    return PyLong_FromUnsignedLongLong(lig_watch_since(self->watch));
}

static PyObject *event_tuple(const lig_event *event)
{
    return Py_BuildValue(
        "KLiKNNI", (unsigned long long)event->version, (long long)event->date_ns, (int)event->kind,
        (unsigned long long)event->model,
        PyUnicode_DecodeUTF8(event->name, (Py_ssize_t)strlen(event->name), "backslashreplace"),
        PyUnicode_DecodeUTF8(event->other, (Py_ssize_t)strlen(event->other), "backslashreplace"),
        (unsigned int)event->more);
}

/* Waits in slices, so that close and Ctrl-C are heard. */
static lig_status next_event(watch *self, int64_t left, lig_event *event)
{
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        lig_status status = LIGI_PY_UNLOCKED(lig_watch_next(self->watch, slice, event));
        if (status != LIG_E_TIMEOUT || left == slice)
            return status;
        left -= left == LIG_FOREVER ? 0 : slice;
        if (PyErr_Occurred() || PyErr_CheckSignals() < 0)
            return LIG_E_CLOSED;
        if (self->closing)
            return lig_fail(LIG_E_CLOSED, "the watch was closed");
    }
}

static PyObject *watch_next(PyObject *object, PyObject *seconds)
{
    watch *self = (watch *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    int64_t timeout = ligi_py_timeout(state, seconds);
    if (timeout == -2)
        return NULL;
    if (!self->watch)
        return ligi_py_fail(state, LIG_E_CLOSED, "the watch is closed");
    if (self->waiting)
        return ligi_py_fail(state, LIG_E_BUSY,
                            "another thread waits for the next event (use one watch per thread)");
    lig_event event;
    self->waiting = 1;
    lig_status status = next_event(self, timeout, &event);
    self->waiting = 0;
    PyObject *result = status == LIG_OK          ? event_tuple(&event)
                       : status == LIG_E_TIMEOUT ? Py_NewRef(Py_None)
                                                 : ligi_py_raise(state, status);
    if (self->closing)
        end(self);
    return result;
}

static PyMethodDef methods[] = {
    {"next", watch_next, METH_O,
     "next(seconds or None) -> (version, date_ns, kind, model, name, other, more), or None"},
    {"close", watch_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {{"since", watch_since, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_init, watch_init},
    {Py_tp_dealloc, watch_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "Watch(store, pattern or None, since or None)"},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Watch", sizeof(watch), 0, Py_TPFLAGS_DEFAULT, slots};

int ligi_py_watch_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, NULL);
}
