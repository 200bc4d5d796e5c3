#include "py_core.h"

typedef struct checkpoint {
    PyObject_HEAD
    lig_checkpoint *checkpoint;
    PyThread_type_lock lock; /* one call at a time: the library's handle belongs to one thread */
} checkpoint;

static int checkpoint_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    checkpoint *self = (checkpoint *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *backend, *config;
    if (!PyArg_ParseTuple(args, "UU", &backend, &config) || self->checkpoint)
        return -1;
    const char *name = ligi_py_text(state, backend, "the name of a backend");
    const char *text = name ? ligi_py_text(state, config, "the config of a backend") : NULL;
    if (!text)
        return -1;
    self->lock = PyThread_allocate_lock();
    if (!self->lock) {
        PyErr_NoMemory();
        return -1;
    }
    lig_status status = LIGI_PY_UNLOCKED(lig_checkpoint_open(&self->checkpoint, name, text));
    if (status == LIG_OK)
        return 0;
    ligi_py_raise(state, status);
    return -1;
}

static PyObject *checkpoint_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    checkpoint *self = (checkpoint *)object;
    if (!self->lock)
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    lig_checkpoint_close(self->checkpoint);
    self->checkpoint = NULL;
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void checkpoint_dealloc(PyObject *object)
{
    checkpoint *self = (checkpoint *)object;
    Py_BEGIN_ALLOW_THREADS
    lig_checkpoint_close(self->checkpoint);
    Py_END_ALLOW_THREADS
    if (self->lock)
        PyThread_free_lock(self->lock);
    ligi_py_free(object);
}

enum action { SAVE, LOAD, LOAD_PART, DROP };

static lig_status act(checkpoint *self, enum action action, const char *set,
                      const ligi_py_batch *batch)
{
    if (!self->checkpoint)
        return lig_fail(LIG_E_CLOSED, "the backend is closed");
    if (action == SAVE)
        return lig_checkpoint_save(self->checkpoint, set, batch->tensors, batch->count);
    if (action == LOAD)
        return lig_checkpoint_load(self->checkpoint, set, batch->tensors, batch->count);
    if (action == LOAD_PART)
        return lig_checkpoint_load_part(self->checkpoint, set, batch->tensors, batch->count);
    return lig_checkpoint_drop(self->checkpoint, set);
}

static PyObject *run(PyObject *object, enum action action, PyObject *name,
                     const ligi_py_batch *batch)
{
    checkpoint *self = (checkpoint *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    const char *set = ligi_py_text(state, name, "the name of a set");
    if (!set)
        return NULL;
    if (!self->lock)
        return ligi_py_fail(state, LIG_E_CLOSED, "the backend was never opened");
    lig_status status;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    status = act(self, action, set, batch);
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
    return ligi_py_none(state, status);
}

static PyObject *checkpoint_save(PyObject *object, PyObject *args)
{
    PyObject *set;
    ligi_py_batch *batch;
    if (!PyArg_ParseTuple(args, "UO!", &set, ligi_py_state_of(object)->batch_type, &batch))
        return NULL;
    return run(object, SAVE, set, batch);
}

static PyObject *checkpoint_load(PyObject *object, PyObject *args)
{
    PyObject *set;
    ligi_py_batch *batch;
    int part = 0;
    if (!PyArg_ParseTuple(args, "UO!|p", &set, ligi_py_state_of(object)->batch_type, &batch, &part))
        return NULL;
    if (!batch->writable)
        return PyErr_Format(PyExc_ValueError, "the batch is not writable");
    return run(object, part ? LOAD_PART : LOAD, set, batch);
}

static lig_status describe(checkpoint *self, const char *set, lig_model **model)
{
    if (!self->checkpoint)
        return lig_fail(LIG_E_CLOSED, "the backend is closed");
    return lig_checkpoint_model(self->checkpoint, set, model);
}

static PyObject *checkpoint_names(PyObject *object, PyObject *set)
{
    checkpoint *self = (checkpoint *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    const char *text = ligi_py_text(state, set, "the name of a set");
    if (!text)
        return NULL;
    if (!self->lock)
        return ligi_py_fail(state, LIG_E_CLOSED, "the backend was never opened");
    lig_model *model = NULL;
    lig_status status;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    status = describe(self, text, &model);
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names && i < model->tensor_count; i++) {
        PyObject *name = PyUnicode_FromString(model->tensors[i].tensor.name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    lig_model_destroy(model);
    return names;
}

static PyObject *checkpoint_drop(PyObject *object, PyObject *set)
{
    return run(object, DROP, set, NULL);
}

static PyMethodDef methods[] = {
    {"save", checkpoint_save, METH_VARARGS, "save(set, batch)"},
    {"load", checkpoint_load, METH_VARARGS,
     "load(set, batch, part=False): fill the batch; with part, the set may contain more tensors."},
    {"names", checkpoint_names, METH_O, "names(set) -> list of the names of its tensors"},
    {"drop", checkpoint_drop, METH_O, "drop(set)"},
    {"close", checkpoint_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, checkpoint_init},
    {Py_tp_dealloc, checkpoint_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Checkpoint(backend, config)"},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Checkpoint", sizeof(checkpoint), 0, Py_TPFLAGS_DEFAULT,
                           slots};

static PyObject *plugin_load(PyObject *module, PyObject *path)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    const char *text = ligi_py_text(state, path, "the path of a plugin");
    if (!text)
        return NULL;
    const char *name = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_plugin_load(text, &name));
    return status == LIG_OK ? PyUnicode_FromString(name) : ligi_py_raise(state, status);
}

static PyObject *credential_set(PyObject *module, PyObject *arguments)
{
    const char *name, *value;
    if (!PyArg_ParseTuple(arguments, "sz:credential_set", &name, &value))
        return NULL;
    return ligi_py_none(ligi_py_state_of(module), lig_credential_set(name, value));
}

static PyObject *backends(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *dict = PyDict_New();
    const char *name;
    for (size_t i = 0; dict && (name = lig_backend_name(i)) != NULL; i++) {
        const lig_backend_ops *ops = lig_backend_find(name);
        if (PyDict_SetItemString(dict, name, ops && ops->volume ? Py_True : Py_False) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

static PyMethodDef functions[] = {
    {"plugin_load", plugin_load, METH_O, "plugin_load(path) -> name of its backend"},
    {"credential_set", credential_set, METH_VARARGS,
     "credential_set(name, value): a credential of this process; None removes it"},
    {"backends", backends, METH_NOARGS, "backends() -> {name: whether it can hold a store}"},
    {NULL, NULL, 0, NULL},
};

int ligi_py_checkpoint_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->checkpoint_type) < 0
               ? -1
               : PyModule_AddFunctions(module, functions);
}
