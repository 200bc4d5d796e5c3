#include "store/py_store.h"

#include <stdlib.h>

typedef struct ticket {
    PyObject_HEAD
    lig_ticket *ticket;
    lig_model **saved; /* saved is set when the ticket has succeeded, until it is taken */
    PyObject *model;   /* made of it; NULL: not yet */
    PyObject *store, *batch;
} ticket;

static void drop(lig_ticket *handle, lig_model **saved)
{
    Py_BEGIN_ALLOW_THREADS
    lig_ticket_destroy(handle);
    Py_END_ALLOW_THREADS
    lig_model_destroy(*saved);
    free(saved);
}

PyObject *ligi_py_ticket_new(const ligi_py_state *state, lig_ticket *handle, lig_model **saved,
                             PyObject *store, PyObject *batch)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->ticket_type, Py_tp_alloc);
    ticket *self = (ticket *)allocate(state->ticket_type, 0);
    if (!self) {
        drop(handle, saved);
        return NULL;
    }
    self->ticket = handle;
    self->saved = saved;
    self->store = Py_XNewRef(store);
    self->batch = Py_XNewRef(batch);
    return (PyObject *)self;
}

static void ticket_dealloc(PyObject *object)
{
    ticket *self = (ticket *)object;
    /* The memory is borrowed until the end, so that letting go of a ticket waits for it. */
    drop(self->ticket, self->saved);
    Py_XDECREF(self->batch);
    Py_XDECREF(self->model);
    Py_XDECREF(self->store);
    ligi_py_free(object);
}

static PyObject *ticket_wait(PyObject *object, PyObject *args)
{
    ticket *self = (ticket *)object;
    PyObject *seconds = Py_None;
    if (!PyArg_ParseTuple(args, "|O", &seconds))
        return NULL;
    int64_t left = ligi_py_timeout(ligi_py_state_of(object), seconds);
    if (left == -2)
        return NULL;
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        int over = lig_ticket_done(self->ticket);
        lig_status status = LIGI_PY_UNLOCKED(lig_ticket_wait(self->ticket, slice));
        if (status == LIG_OK)
            Py_RETURN_NONE;
        if (status != LIG_E_TIMEOUT || over || left == 0)
            return ligi_py_raise(ligi_py_state_of(object), status);
        left -= left == LIG_FOREVER ? 0 : slice;
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
}

static PyObject *ticket_progress(PyObject *object, PyObject *args)
{
    ticket *self = (ticket *)object;
    unsigned long long seen;
    PyObject *seconds = Py_None;
    if (!PyArg_ParseTuple(args, "K|O", &seen, &seconds))
        return NULL;
    int64_t left = ligi_py_timeout(ligi_py_state_of(object), seconds);
    if (left == -2)
        return NULL;
    uint64_t done = 0;
    lig_status status = LIGI_PY_UNLOCKED(lig_ticket_progress(self->ticket, seen, left, &done));
    if (status != LIG_OK && status != LIG_E_TIMEOUT)
        return ligi_py_raise(ligi_py_state_of(object), status);
    return PyLong_FromUnsignedLongLong(done);
}

static PyObject *ticket_done(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(lig_ticket_done(((ticket *)object)->ticket));
}

static PyObject *ticket_model(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ticket *self = (ticket *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    lig_model *saved = lig_ticket_done(self->ticket) ? *self->saved : NULL;
    if (saved) { /* with the GIL: of two threads one takes it, and the other finds the model */
        *self->saved = NULL;
        self->model = ligi_py_model_own(state, saved);
        if (!self->model)
            return NULL;
    }
    return self->model ? Py_NewRef(self->model)
                       : PyErr_Format(PyExc_ValueError,
                                      "the save has not ended, or did not produce a model");
}

static PyObject *ticket_cancel(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_ticket_cancel(((ticket *)object)->ticket);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"wait", ticket_wait, METH_VARARGS,
     "wait(seconds=None): wait until the end; raises the error of the operation."},
    {"progress", ticket_progress, METH_VARARGS,
     "progress(seen, seconds=None) -> steps done, as soon as there are more than `seen`"},
    {"done", ticket_done, METH_NOARGS, "done() -> bool"},
    {"model", ticket_model, METH_NOARGS, "model() -> Model: the saved model"},
    {"cancel", ticket_cancel, METH_NOARGS, "cancel(): ask the operation to stop."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, ticket_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "An operation that runs in the background."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Ticket", sizeof(ticket), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int ligi_py_ticket_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->ticket_type);
}
