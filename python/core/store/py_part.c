#include "store/py_part.h"

/* --- the type ------------------------------------------------------------------------------- */

static int numbers_of(PyObject *tuple, int64_t *out, Py_ssize_t count)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_TypeError,
                        "a box must be (shape, start, order) with tuples of equal length");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static Py_ssize_t count_numbers(PyObject *list)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        PyObject *shape, *start, *order;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "OOO", &shape, &start, &order))
            return -1;
        total += PyTuple_Check(shape) ? 2 * PyTuple_Size(shape) : 0;
    }
    return total;
}

static int fill_box(PyObject *tuple, lig_box *box, int64_t **next)
{
    PyObject *shape, *start;
    unsigned long long order;
    if (!PyArg_ParseTuple(tuple, "OOK", &shape, &start, &order))
        return -1;
    box->order = order;
    if (shape == Py_None)
        return 0;
    Py_ssize_t count = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    if (numbers_of(shape, *next, count) < 0 || numbers_of(start, *next + count, count) < 0)
        return -1;
    box->shape = *next;
    box->start = *next + count;
    *next += 2 * count;
    return 0;
}

static int part_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    ligi_py_part *self = (ligi_py_part *)object;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list) || self->boxes)
        return self->boxes
                   ? (PyErr_SetString(PyExc_ValueError, "the Part has already been built"), -1)
                   : -1;
    Py_ssize_t total = count_numbers(list);
    if (total < 0)
        return -1;
    self->count = (size_t)PyList_Size(list);
    self->boxes = PyMem_Calloc(self->count + 1, sizeof *self->boxes);
    self->numbers = PyMem_Calloc((size_t)total + 1, sizeof *self->numbers);
    if (!self->boxes || !self->numbers)
        return PyErr_NoMemory(), -1;
    int64_t *next = self->numbers;
    for (size_t i = 0; i < self->count; i++)
        if (fill_box(PyList_GetItem(list, (Py_ssize_t)i), &self->boxes[i], &next) < 0)
            return -1;
    return 0;
}

static void part_dealloc(PyObject *object)
{
    ligi_py_part *self = (ligi_py_part *)object;
    lig_part_close(self->part, NULL);
    PyMem_Free(self->boxes);
    PyMem_Free(self->numbers);
    ligi_py_free(object);
}

static PyObject *part_bytes(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_part *self = (ligi_py_part *)object;
    const void *data;
    size_t bytes;
    if (!self->part)
        return PyErr_Format(PyExc_ValueError, "the part has not been written, or is closed");
    lig_status status = lig_part_bytes(self->part, &data, &bytes);
    if (status != LIG_OK)
        return ligi_py_raise(ligi_py_state_of(object), status);
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)bytes);
}

static PyObject *part_close(PyObject *object, PyObject *given)
{
    ligi_py_part *self = (ligi_py_part *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    lig_part *part = self->part;
    if (!PyObject_TypeCheck(given, state->store_type))
        return PyErr_Format(PyExc_TypeError, "a part is closed with its store");
    self->part = NULL;
    lig_store *store = part ? ligi_py_store_enter((ligi_py_store *)given) : NULL;
    if (part && !store) { /* already closed: the next process to open the store removes leftovers */
        PyErr_Clear();
        lig_part_close(part, NULL);
    }
    if (!store)
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    lig_part_close(part, store);
    Py_END_ALLOW_THREADS
    return ligi_py_store_finish((ligi_py_store *)given, LIG_OK);
}

static PyMethodDef part_methods[] = {
    {"bytes", part_bytes, METH_NOARGS, "bytes() -> bytes: the argument of Store.join."},
    {"close", part_close, METH_O,
     "close(store): release the packs; those that no model uses are removed."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot part_slots[] = {
    {Py_tp_init, part_init},
    {Py_tp_dealloc, part_dealloc},
    {Py_tp_methods, part_methods},
    {Py_tp_doc, "Part(boxes): [(shape or None, start or None, order)] for the tensors of a save."},
    {0, NULL},
};
static PyType_Spec part_spec = {"ligament._core.Part", sizeof(ligi_py_part), 0, Py_TPFLAGS_DEFAULT,
                                part_slots};

int ligi_py_part_init(PyObject *module)
{
    return ligi_py_add_type(module, &part_spec, &ligi_py_state_of(module)->part_type);
}

/* --- options and join ----------------------------------------------------------------------- */

int ligi_py_part_options(const ligi_py_state *state, PyObject *object, const ligi_py_batch *batch,
                         lig_save_options *options)
{
    if (object == Py_None)
        return 0;
    ligi_py_part *part = (ligi_py_part *)object;
    if (!PyObject_TypeCheck(object, state->part_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a Part");
        return -1;
    }
    if (!batch || part->part || part->count != batch->count) {
        PyErr_SetString(PyExc_ValueError,
                        "the part has already been written, or has other tensors");
        return -1;
    }
    for (size_t i = 0; i < part->count; i++) {
        const lig_box *box = &part->boxes[i];
        if (box->shape && (uint32_t)(box->start - box->shape) != batch->tensors[i].ndim) {
            PyErr_Format(PyExc_ValueError,
                         "the box of tensor %zu has a different number of dimensions", i);
            return -1;
        }
    }
    options->boxes = part->boxes;
    options->part = &part->part;
    return 0;
}

PyObject *ligi_py_store_join(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name, *list, *tuple, *result = NULL;
    lig_save_options options;
    if (!PyArg_ParseTuple(args, "UO!O!", &name, &PyTuple_Type, &list, &PyTuple_Type, &tuple))
        return NULL;
    const char *model = ligi_py_text(state, name, "the name of a model");
    size_t count = (size_t)PyTuple_Size(list);
    lig_part_data *parts = model ? PyMem_Calloc(count + 1, sizeof *parts) : NULL;
    if (!parts)
        return model ? PyErr_NoMemory() : NULL;
    for (size_t i = 0; i < count; i++) {
        char *data;
        Py_ssize_t bytes;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(list, (Py_ssize_t)i), &data, &bytes) < 0) {
            PyMem_Free(parts);
            return NULL;
        }
        parts[i] = (lig_part_data){data, (size_t)bytes};
    }
    lig_model *saved = NULL;
    if (ligi_py_options_init(state, tuple, NULL, &options) == 0) {
        options.model = &saved;
        lig_store *store = ligi_py_store_enter(self);
        if (store) {
            lig_status status =
                LIGI_PY_UNLOCKED(lig_store_join(store, model, parts, count, &options));
            result = ligi_py_store_finish(self, status);
        }
        ligi_py_options_fini(&options);
    }
    PyMem_Free(parts);
    return ligi_py_saved(state, result, saved);
}
