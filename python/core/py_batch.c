#include "py_core.h"

static void release_buffer(ligi_py_batch *self, size_t index)
{
    if (self->buffers && self->buffers[index].obj)
        PyBuffer_Release(&self->buffers[index]);
}

static void batch_dealloc(PyObject *object)
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (size_t i = 0; i < self->count; i++)
        release_buffer(self, i);
    PyMem_Free(self->buffers);
    PyMem_Free(self->tensors);
    PyMem_Free(self->numbers);
    Py_CLEAR(self->names);
    Py_CLEAR(self->holders);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int batch_traverse(PyObject *object, visitproc visit, void *arg)
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->holders);
    return 0;
}

static Py_ssize_t batch_length(PyObject *object)
{
    return (Py_ssize_t)((ligi_py_batch *)object)->count;
}

static PyObject *batch_tensor(PyObject *object, PyObject *at)
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    Py_ssize_t index = PyLong_AsSsize_t(at);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || (size_t)index >= self->count)
        return PyErr_Format(PyExc_IndexError, "the batch has %zu tensors", self->count);
    const lig_tensor *tensor = &self->tensors[index];
    PyObject *shape = ligi_py_i64_tuple(tensor->shape, tensor->ndim);
    PyObject *strides =
        tensor->strides ? ligi_py_i64_tuple(tensor->strides, tensor->ndim) : Py_NewRef(Py_None);
    if (!shape || !strides) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("sKKiNN", tensor->name, (unsigned long long)(uintptr_t)tensor->data,
                         (unsigned long long)tensor->bytes, (int)tensor->dtype, shape, strides);
}

static PyObject *batch_addresses(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    PyObject *list = PyList_New((Py_ssize_t)self->count);
    for (size_t i = 0; list && i < self->count; i++) {
        const lig_tensor *tensor = &self->tensors[i];
        ligi_py_put_item(&list, i, PyLong_FromVoidPtr(tensor->bytes ? tensor->data : NULL));
    }
    return list;
}

static PyObject *batch_sizes(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    PyObject *list = PyList_New((Py_ssize_t)self->count);
    for (size_t i = 0; list && i < self->count; i++)
        ligi_py_put_item(&list, i, PyLong_FromUnsignedLongLong(self->tensors[i].bytes));
    return list;
}

/* Gives the other's memory the values of ours, tensor by tensor. */
static PyObject *batch_copy_to(PyObject *object, PyObject *given)
{
    ligi_py_batch *self = (ligi_py_batch *)object, *other = (ligi_py_batch *)given;
    if (Py_TYPE(given) != Py_TYPE(object) || !other->writable || other->count != self->count)
        return PyErr_Format(PyExc_ValueError,
                            "expected a writable batch with the same number of tensors");
    for (size_t i = 0; i < self->count; i++)
        if (other->tensors[i].strides || other->tensors[i].bytes != self->tensors[i].bytes)
            return PyErr_Format(PyExc_ValueError, "tensor %zu does not match", i);
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < self->count; i++)
        lig_tensor_pack(&self->tensors[i], other->tensors[i].data);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *batch_hold(PyObject *object, PyObject *args)
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    Py_ssize_t index;
    PyObject *holder;
    if (!PyArg_ParseTuple(args, "nO", &index, &holder))
        return NULL;
    if (index < 0 || (size_t)index >= self->count)
        return PyErr_Format(PyExc_IndexError, "the batch has %zu tensors", self->count);
    release_buffer(self, (size_t)index);
    if (PyList_SetItem(self->holders, index, Py_NewRef(holder)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *batch_release(PyObject *object, PyObject *args)
{
    ligi_py_batch *self = (ligi_py_batch *)object;
    Py_ssize_t from, to;
    if (!PyArg_ParseTuple(args, "nn", &from, &to))
        return NULL;
    for (Py_ssize_t i = from < 0 ? 0 : from; i < to && (size_t)i < self->count; i++) {
        release_buffer(self, (size_t)i);
        if (PyList_SetItem(self->holders, i, Py_NewRef(Py_None)) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef batch_methods[] = {
    {"tensor", batch_tensor, METH_O,
     "tensor(i) -> (name, address, bytes, dtype number, shape, strides or None)"},
    {"addresses", batch_addresses, METH_NOARGS, "addresses() -> list of int; 0 for empty tensors"},
    {"sizes", batch_sizes, METH_NOARGS, "sizes() -> list of bytes"},
    {"copy_to", batch_copy_to, METH_O,
     "copy_to(other): copy the values into the other batch's memory."},
    {"hold", batch_hold, METH_VARARGS,
     "hold(i, object): make this object the owner of the memory."},
    {"release", batch_release, METH_VARARGS,
     "release(from, to): release the objects of these tensors."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_init, ligi_py_batch_init},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_traverse, batch_traverse},
    {Py_tp_methods, batch_methods},
    {Py_sq_length, batch_length},
    {Py_tp_doc,
     "Batch(names, objects, writable=False, on_device=False): tensors for the C library; with "
     "on_device, torch's tensors in device memory are described as such."},
    {0, NULL},
};
static PyType_Spec batch_spec = {"ligament._core.Batch", sizeof(ligi_py_batch), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, batch_slots};

int ligi_py_batch_type_init(PyObject *module)
{
    return ligi_py_add_type(module, &batch_spec, &ligi_py_state_of(module)->batch_type);
}
