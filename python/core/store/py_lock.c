#include "store/py_store.h"

typedef struct lock {
    PyObject_HEAD
    lig_lock *lock; /* NULL after release */
} lock;

static int lock_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    lock *self = (lock *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *store_object, *name_object;
    if (!PyArg_ParseTuple(args, "O!U", state->store_type, &store_object, &name_object))
        return -1;
    const char *name = ligi_py_text(state, name_object, "the name of a run");
    ligi_py_store *owner = (ligi_py_store *)store_object;
    lig_store *store = name && !self->lock ? ligi_py_store_enter(owner) : NULL;
    if (!store)
        return -1;
    lig_lock *taken = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_store_lock(store, name, &taken));
    self->lock = taken;
    PyObject *done = ligi_py_store_finish(owner, status);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static void release(lock *self)
{
    lig_lock *held = self->lock;
    self->lock = NULL;
    if (!held)
        return;
    Py_BEGIN_ALLOW_THREADS
    lig_lock_release(held);
    Py_END_ALLOW_THREADS
}

static void lock_dealloc(PyObject *object)
{
    release((lock *)object);
    ligi_py_free(object);
}

static PyObject *lock_release(PyObject *object, PyObject *Py_UNUSED(unused))
{
    release((lock *)object);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"release", lock_release, METH_NOARGS, "release(): unlock the name."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, lock_init},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Lock(store, name): a lock of the name by this process."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Lock", sizeof(lock), 0, Py_TPFLAGS_DEFAULT, slots};

int ligi_py_lock_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, NULL);
}
