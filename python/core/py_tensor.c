#include "dlpack_abi.h"
#include "py_core.h"

#include <string.h>

/* --- Reader: how the tensors of one type are read ------------------------------------------- */

typedef ligi_py_reader reader;

static int reader_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtypes", "address", "mutable", "contiguous", "strides", "odd",
                            "plain",  "count",   "written", "exchange",   NULL};
    reader *self = (reader *)object;
    PyObject *dtypes, *given[9] = {Py_None, Py_None, Py_None, Py_None, Py_None,
                                   Py_None, Py_None, Py_None, Py_None};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOOOOOOOO", names, &PyDict_Type, &dtypes,
                                     &given[0], &given[1], &given[2], &given[3], &given[4],
                                     &given[5], &given[6], &given[7], &given[8]))
        return -1;
    self->dtypes = Py_NewRef(dtypes);
    self->address = Py_NewRef(given[0]);
    self->mutable = Py_NewRef(given[1]);
    self->contiguous = Py_NewRef(given[2]);
    self->strides = Py_NewRef(given[3]);
    self->odd = Py_NewRef(given[4]);
    self->plain = Py_NewRef(given[5]);
    self->count = Py_NewRef(given[6]);
    self->written = Py_NewRef(given[7]);
    self->exchange = Py_NewRef(given[8]);
    self->dtype = PyUnicode_InternFromString("dtype");
    self->shape = PyUnicode_InternFromString("shape");
    return self->dtype && self->shape ? 0 : -1;
}

static void reader_dealloc(PyObject *object)
{
    reader *self = (reader *)object;
    Py_XDECREF(self->dtypes);
    Py_XDECREF(self->address);
    Py_XDECREF(self->mutable);
    Py_XDECREF(self->contiguous);
    Py_XDECREF(self->strides);
    Py_XDECREF(self->odd);
    Py_XDECREF(self->plain);
    Py_XDECREF(self->count);
    Py_XDECREF(self->written);
    Py_XDECREF(self->exchange);
    Py_XDECREF(self->dtype);
    Py_XDECREF(self->shape);
    ligi_py_free(object);
}

static PyType_Slot reader_slots[] = {
    {Py_tp_init, reader_init},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_doc, "Reads tensors of one type without Python code."},
    {0, NULL},
};
static PyType_Spec reader_spec = {"ligament._core.Reader", sizeof(reader), 0, Py_TPFLAGS_DEFAULT,
                                  reader_slots};

/* --- Batch: building ------------------------------------------------------------------------ */

/* While a batch is built its numbers may move, so that a tensor notes places in them instead of
 * pointers. */
#define NO_STRIDES UINT64_MAX

static int64_t *add_numbers(ligi_py_batch *self, size_t count)
{
    if (self->number_count + count > self->number_room) {
        size_t room = self->number_room * 2 + count;
        int64_t *numbers = PyMem_Realloc(self->numbers, room * sizeof *numbers);
        if (!numbers) {
            PyErr_NoMemory();
            return NULL;
        }
        self->numbers = numbers;
        self->number_room = room;
    }
    int64_t *first = self->numbers + self->number_count;
    self->number_count += count;
    return first;
}

static int add_tuple(ligi_py_batch *self, PyObject *tuple, uint32_t *count)
{
    Py_ssize_t ndim = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (ndim < 0 || ndim > LIG_NDIM_MAX) {
        PyErr_Format(PyExc_TypeError, "a shape must be a tuple of at most %d numbers, not %R",
                     LIG_NDIM_MAX, tuple);
        return -1;
    }
    int64_t *numbers = add_numbers(self, (size_t)ndim);
    if (!numbers)
        return -1;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    *count = (uint32_t)ndim;
    return 0;
}

static int add_shape(ligi_py_batch *self, size_t index, PyObject *shape)
{
    lig_tensor *tensor = &self->tensors[index];
    tensor->reserved[0] = self->number_count;
    tensor->reserved[1] = NO_STRIDES;
    return add_tuple(self, shape, &tensor->ndim);
}

static int add_strides(ligi_py_batch *self, size_t index, PyObject *strides)
{
    uint32_t ndim;
    self->tensors[index].reserved[1] = self->number_count;
    if (add_tuple(self, strides, &ndim) < 0)
        return -1;
    if (ndim == self->tensors[index].ndim)
        return 0;
    PyErr_SetString(PyExc_TypeError, "shape and strides differ in length");
    return -1;
}

static int product(const int64_t *shape, uint32_t ndim, uint64_t element_bytes, uint64_t *bytes)
{
    *bytes = element_bytes;
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*bytes, (uint64_t)shape[i], bytes))
            return -1;
    return 0;
}

/* Strides of contiguous tensors are omitted, so that the library need not check them again. */
static int finish_tensor(ligi_py_batch *self, size_t index)
{
    lig_tensor *tensor = &self->tensors[index];
    const int64_t *shape = self->numbers + tensor->reserved[0];
    if (product(shape, tensor->ndim, lig_dtype_bytes(tensor->dtype), &tensor->bytes) < 0) {
        ligi_py_fail(ligi_py_state_of((PyObject *)self), LIG_E_INVALID,
                     "tensor '%s' has a shape that exceeds the address space", tensor->name);
        return -1;
    }
    if (tensor->reserved[1] == NO_STRIDES)
        return 0;
    lig_tensor view = *tensor;
    view.shape = shape;
    view.strides = self->numbers + tensor->reserved[1];
    if (lig_tensor_contiguous(&view)) {
        tensor->reserved[1] = NO_STRIDES;
        return 0;
    }
    for (uint32_t i = 0; self->writable && tensor->bytes > 0 && i < tensor->ndim; i++) {
        if (view.strides[i] == 0 && shape[i] > 1) {
            ligi_py_fail(ligi_py_state_of((PyObject *)self), LIG_E_INVALID,
                         "tensor '%s' is expanded (several of its elements share memory) and "
                         "cannot be filled",
                         tensor->name);
            return -1;
        }
    }
    return 0;
}

static int set_dtype(lig_tensor *tensor, PyObject *dtypes, PyObject *dtype)
{
    PyObject *code = PyDict_GetItemWithError(dtypes, dtype);
    if (!code)
        return PyErr_Occurred() ? -1 : 0;
    long number = PyLong_AsLong(code);
    if (number <= 0 || !lig_dtype_bytes((uint32_t)number)) {
        PyErr_SetString(PyExc_ValueError, "not a dtype number");
        return -1;
    }
    tensor->dtype = (uint16_t)number;
    return 1;
}

static int truth(PyObject *callable, PyObject *object)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(callable, object, NULL);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* Like truth, for an attribute. */
static int truth_of(PyObject *object, PyObject *name)
{
    PyObject *answer = PyObject_GetAttr(object, name);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* The readers return 1: done, 0: another type, ask Python, -1: an exception is set. */
static int read_dtype_and_shape(ligi_py_batch *self, size_t index, const reader *how,
                                PyObject *object)
{
    PyObject *dtype = PyObject_GetAttr(object, how->dtype);
    int known = dtype ? set_dtype(&self->tensors[index], how->dtypes, dtype) : -1;
    Py_XDECREF(dtype);
    if (known <= 0)
        return known;
    PyObject *shape = PyObject_GetAttr(object, how->shape);
    int done = shape ? add_shape(self, index, shape) : -1;
    Py_XDECREF(shape);
    return done < 0 ? -1 : 1;
}

/* Values that differ from the bytes come from complex numbers: conjugates, and their imaginary
 * parts, which are views with gaps unless they have one element. The question costs, so that it is
 * asked only then. */
static int may_be_odd(const ligi_py_batch *self, size_t index, int contiguous)
{
    const lig_tensor *tensor = &self->tensors[index];
    uint64_t count;
    if (!contiguous || (tensor->dtype >= LIG_COMPLEX32 && tensor->dtype <= LIG_COMPLEX128))
        return 1;
    return product(self->numbers + tensor->reserved[0], tensor->ndim, 1, &count) < 0 || count <= 1;
}

static int read_by_address(ligi_py_batch *self, size_t index, const reader *how, PyObject *object)
{
    int plain = truth_of(object, how->plain);
    if (plain <= 0)
        return plain;
    int known = read_dtype_and_shape(self, index, how, object);
    if (known <= 0)
        return known;
    int contiguous = truth(how->contiguous, object);
    if (contiguous < 0)
        return -1;
    int odd = may_be_odd(self, index, contiguous) ? truth(how->odd, object) : 0;
    if (odd != 0)
        return odd < 0 ? -1 : 0;
    PyObject *address =
        PyObject_CallFunctionObjArgs(self->writable ? how->mutable : how->address, object, NULL);
    if (!address) { /* no memory of the usual kind behind it: sparse and the like */
        PyErr_Clear();
        return 0;
    }
    self->tensors[index].data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (PyErr_Occurred())
        return -1;
    if (contiguous)
        return 1;
    PyObject *strides = PyObject_CallFunctionObjArgs(how->strides, object, NULL);
    int done = strides ? add_strides(self, index, strides) : -1;
    Py_XDECREF(strides);
    return done < 0 ? -1 : 1;
}

static int add_buffer_layout(ligi_py_batch *self, size_t index, const Py_buffer *buffer)
{
    lig_tensor *tensor = &self->tensors[index];
    uint64_t element_bytes = lig_dtype_bytes(tensor->dtype);
    if (buffer->ndim > LIG_NDIM_MAX || (uint64_t)buffer->itemsize != element_bytes)
        return 0;
    tensor->ndim = (uint32_t)buffer->ndim;
    tensor->reserved[0] = self->number_count;
    tensor->reserved[1] = self->number_count + tensor->ndim;
    int64_t *numbers = add_numbers(self, 2 * (size_t)tensor->ndim);
    if (!numbers)
        return -1;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        numbers[i] = buffer->shape[i];
        numbers[tensor->ndim + i] = buffer->strides[i] / buffer->itemsize;
        if (buffer->strides[i] % buffer->itemsize)
            return 0;
    }
    tensor->data = buffer->buf;
    return 1;
}

static int read_by_buffer(ligi_py_batch *self, size_t index, const reader *how, PyObject *object)
{
    PyObject *dtype = PyObject_GetAttr(object, how->dtype);
    int known = dtype ? set_dtype(&self->tensors[index], how->dtypes, dtype) : -1;
    Py_XDECREF(dtype);
    if (known <= 0)
        return known;
    if (!self->buffers) {
        self->buffers = PyMem_Calloc(self->count, sizeof *self->buffers);
        if (!self->buffers) {
            PyErr_NoMemory();
            return -1;
        }
    }
    Py_buffer *buffer = &self->buffers[index];
    int flags = self->writable ? PyBUF_STRIDES | PyBUF_WRITABLE : PyBUF_STRIDES;
    if (PyObject_GetBuffer(object, buffer, flags) < 0) {
        PyErr_Clear();
        buffer->obj = NULL;
        return 0;
    }
    int done = add_buffer_layout(self, index, buffer);
    if (done != 1)
        PyBuffer_Release(buffer);
    return done;
}

/* One in device memory. */
static int read_on_device(ligi_py_batch *self, size_t index, const reader *how, PyObject *object)
{
    lig_tensor *tensor = &self->tensors[index];
    dlpack_tensor found;
    uint32_t dtype;
    uint64_t count;
    if (!ligi_py_exchange_read(how, object, &found, &dtype, &count) ||
        found.device_type != DLPACK_CUDA)
        return 0;
    tensor->reserved[0] = self->number_count;
    tensor->reserved[1] = NO_STRIDES;
    int64_t *numbers = add_numbers(self, (size_t)found.ndim);
    if (!numbers)
        return -1;
    for (int32_t i = 0; i < found.ndim; i++)
        numbers[i] = found.shape[i];
    tensor->ndim = (uint32_t)found.ndim;
    tensor->dtype = (uint16_t)dtype;
    tensor->data = found.data;
    tensor->memory = LIG_MEMORY_CUDA;
    tensor->device = found.device_id;
    return 1;
}

static int read_registered(ligi_py_batch *self, const ligi_py_state *state, size_t index,
                           PyObject *object)
{
    const reader *how =
        (reader *)PyDict_GetItemWithError(state->readers, (PyObject *)Py_TYPE(object));
    if (!how)
        return PyErr_Occurred() ? -1 : 0;
    int done = self->on_device ? read_on_device(self, index, how, object) : 0;
    if (done == 0)
        done = how->address == Py_None ? read_by_buffer(self, index, how, object)
                                       : read_by_address(self, index, how, object);
    if (done < 0 && PyErr_ExceptionMatches(
                        PyExc_Exception)) { /* a kind of tensor that lacks what others have */
        PyErr_Clear();
        done = 0;
    }
    if (done == 1)
        PyList_SetItem(self->holders, (Py_ssize_t)index, Py_NewRef(object));
    return done;
}

/* (holder, address, dtype number, shape, strides or None[, CUDA device]) */
static int read_described(ligi_py_batch *self, size_t index, PyObject *tuple)
{
    PyObject *holder, *address, *shape, *strides;
    int dtype, device = -1;
    if (!PyArg_ParseTuple(tuple, "OOiOO|i", &holder, &address, &dtype, &shape, &strides, &device))
        return -1;
    lig_tensor *tensor = &self->tensors[index];
    tensor->data = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return -1;
    tensor->dtype = (uint16_t)dtype;
    if (device >= 0) {
        tensor->memory = LIG_MEMORY_CUDA;
        tensor->device = device;
    }
    if (add_shape(self, index, shape) < 0 ||
        (strides != Py_None && add_strides(self, index, strides) < 0))
        return -1;
    return PyList_SetItem(self->holders, (Py_ssize_t)index, Py_NewRef(holder)) < 0 ? -1 : 1;
}

static int read_by_python(ligi_py_batch *self, const ligi_py_state *state, size_t index,
                          PyObject *object)
{
    PyObject *name = PyTuple_GetItem(self->names, (Py_ssize_t)index);
    PyObject *answer = state->describe
                           ? PyObject_CallFunctionObjArgs(state->describe, object, name,
                                                          self->writable ? Py_True : Py_False, NULL)
                           : PyErr_Format(PyExc_TypeError, "not a tensor: %R", object);
    if (!answer)
        return -1;
    int done = PyTuple_CheckExact(answer) ? read_described(self, index, answer)
                                          : read_registered(self, state, index, answer);
    if (done == 0)
        PyErr_Format(PyExc_TypeError, "cannot read tensor '%U': %R", name,
                     (PyObject *)Py_TYPE(object));
    Py_DECREF(answer);
    return done == 1 ? 1 : -1;
}

static int read_tensor(ligi_py_batch *self, const ligi_py_state *state, size_t index,
                       PyObject *object)
{
    lig_tensor *tensor = &self->tensors[index];
    tensor->name = ligi_py_text(state, PyTuple_GetItem(self->names, (Py_ssize_t)index),
                                "the name of a tensor");
    if (!tensor->name)
        return -1;
    size_t before = self->number_count;
    int done = PyTuple_CheckExact(object) ? read_described(self, index, object)
                                          : read_registered(self, state, index, object);
    if (done == 0 ||
        (done == 1 && !tensor->data)) { /* no memory: empty, or none that can be read */
        self->number_count = before;
        done = read_by_python(self, state, index, object);
    }
    return done == 1 ? finish_tensor(self, index) : -1;
}

static void point_at_numbers(ligi_py_batch *self)
{
    for (size_t i = 0; i < self->count; i++) {
        lig_tensor *tensor = &self->tensors[i];
        tensor->shape = self->numbers + tensor->reserved[0];
        tensor->strides =
            tensor->reserved[1] == NO_STRIDES ? NULL : self->numbers + tensor->reserved[1];
        tensor->reserved[0] = tensor->reserved[1] = 0;
    }
}

static int batch_allocate(ligi_py_batch *self, Py_ssize_t count)
{
    self->count = (size_t)count;
    self->tensors = PyMem_Calloc(self->count + 1, sizeof *self->tensors);
    self->number_room = 4 * self->count + 4;
    self->numbers = PyMem_Malloc(self->number_room * sizeof *self->numbers);
    self->holders = PyList_New(count);
    if (!self->tensors || !self->numbers || !self->holders) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        PyList_SetItem(self->holders, i, Py_NewRef(Py_None));
    return 0;
}

int ligi_py_batch_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keys[] = {"names", "objects", "writable", "on_device", NULL};
    ligi_py_batch *self = (ligi_py_batch *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *names, *objects;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|pp", keys, &names, &objects, &self->writable,
                                     &self->on_device))
        return -1;
    if (self->tensors) {
        PyErr_SetString(PyExc_TypeError, "the batch has already been built");
        return -1;
    }
    PyObject *list = PySequence_List(objects); /* ours: describe may run code that changes theirs */
    self->names = PySequence_Tuple(names);
    if (!list || !self->names || batch_allocate(self, PyList_Size(list)) < 0)
        goto list;
    if (PyTuple_Size(self->names) != PyList_Size(list)) {
        PyErr_SetString(PyExc_ValueError, "the number of names must equal the number of tensors");
        goto list;
    }
    for (size_t i = 0; i < self->count; i++)
        if (read_tensor(self, state, i, PyList_GetItem(list, (Py_ssize_t)i)) < 0)
            goto list;
    point_at_numbers(self);
    Py_DECREF(list);
    return 0;
list:
    Py_XDECREF(list);
    return -1;
}

/* --- module --------------------------------------------------------------------------------- */

static PyObject *set_reader(PyObject *module, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    PyObject *type, *how;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &type, state->reader_type, &how))
        return NULL;
    if (PyDict_SetItem(state->readers, type, how) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_describe(PyObject *module, PyObject *callable)
{
    ligi_py_state *state = ligi_py_state_of(module);
    PyObject *old = state->describe;
    state->describe = Py_NewRef(callable);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *follow(PyObject *module, PyObject *args)
{
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "iK", &device, &stream))
        return NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_memory_follow(LIG_MEMORY_CUDA, device, (void *)(uintptr_t)stream));
    return ligi_py_none(ligi_py_state_of(module), status);
}

static PyObject *dtype_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 1; dict && i < LIG_DTYPE_COUNT; i++) {
        PyObject *code = PyLong_FromLong((long)i);
        if (!code || PyDict_SetItemString(dict, lig_dtype_name(i), code) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(code);
    }
    return dict;
}

static PyObject *dtype_bytes(PyObject *Py_UNUSED(module), PyObject *code)
{
    long number = PyLong_AsLong(code);
    return number < 0 ? NULL : PyLong_FromLong((long)lig_dtype_bytes((uint32_t)number));
}

static PyMethodDef functions[] = {
    {"set_reader", set_reader, METH_VARARGS,
     "set_reader(type, reader): set the reader for tensors of exactly this type."},
    {"set_describe", set_describe, METH_O,
     "set_describe(callable(object, name, writable)): for tensors of all other types."},
    {"follow", follow, METH_VARARGS,
     "follow(device, stream): copies of CUDA memory wait for what is queued on the stream now."},
    {"dtype_names", dtype_names, METH_NOARGS, "dtype_names() -> {name: number}"},
    {"dtype_bytes", dtype_bytes, METH_O, "dtype_bytes(number) -> bytes of one element"},
    {NULL, NULL, 0, NULL},
};

int ligi_py_tensor_init(PyObject *module)
{
    ligi_py_state *state = ligi_py_state_of(module);
    state->readers = PyDict_New();
    if (!state->readers || ligi_py_add_type(module, &reader_spec, &state->reader_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
