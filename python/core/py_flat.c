#include "dlpack_abi.h"
#include "py_core.h"

/* The fast readers return 1: done, 0: not supported or unusual; then the slow reader is used,
 * which has an error message for every case. */

static int known_dtype(const ligi_py_reader *how, PyObject *object, uint32_t *dtype)
{
    PyObject *found = PyObject_GetAttr(object, how->dtype);
    PyObject *code = found ? PyDict_GetItemWithError(how->dtypes, found) : NULL;
    Py_XDECREF(found);
    *dtype = code ? (uint32_t)PyLong_AsLong(code) : 0;
    return *dtype != 0;
}

static int by_buffer(const ligi_py_reader *how, PyObject *object, int writable, ligi_py_flat *flat)
{
    if (!known_dtype(how, object, &flat->dtype))
        return 0;
    int flags = writable ? PyBUF_ND | PyBUF_WRITABLE : PyBUF_ND;
    if (PyObject_GetBuffer(object, &flat->buffer, flags) < 0)
        return 0;
    flat->has_buffer = 1;
    if ((uint64_t)flat->buffer.itemsize != lig_dtype_bytes(flat->dtype))
        return 0;
    flat->data = flat->buffer.buf;
    flat->count = (uint64_t)flat->buffer.len / (uint64_t)flat->buffer.itemsize;
    return 1;
}

static int is_true(PyObject *answer)
{
    int yes = answer && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    return yes;
}

/* Values that differ from the bytes come from complex numbers: conjugates, and imaginary parts,
 * which have gaps unless they are one element. */
static int may_be_odd(const ligi_py_flat *flat)
{
    if (flat->dtype >= LIG_COMPLEX32 && flat->dtype <= LIG_COMPLEX128)
        return 1;
    return flat->count <= 1 && flat->dtype != LIG_INT64;
}

static int by_address(const ligi_py_reader *how, PyObject *object, int writable, ligi_py_flat *flat)
{
    if (how->count == Py_None || !is_true(PyObject_GetAttr(object, how->plain)) ||
        !known_dtype(how, object, &flat->dtype) ||
        !is_true(PyObject_CallFunctionObjArgs(how->contiguous, object, NULL)))
        return 0;
    PyObject *count = PyObject_CallFunctionObjArgs(how->count, object, NULL);
    flat->count = count ? PyLong_AsUnsignedLongLong(count) : 0;
    Py_XDECREF(count);
    if (may_be_odd(flat)) {
        PyObject *odd = PyObject_CallFunctionObjArgs(how->odd, object, NULL);
        if (!odd || is_true(odd))
            return 0;
    }
    PyObject *address =
        PyObject_CallFunctionObjArgs(writable ? how->mutable : how->address, object, NULL);
    flat->data = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    flat->written = writable && how->written != Py_None ? how->written : NULL;
    return flat->data != NULL && !PyErr_Occurred();
}

/* The framework's own table of functions: one call for all values that by_address needs. */
static int by_exchange(const ligi_py_reader *how, PyObject *object, int writable,
                       ligi_py_flat *flat)
{
    dlpack_tensor tensor;
    if (!ligi_py_exchange_read(how, object, &tensor, &flat->dtype, &flat->count) ||
        tensor.device_type != DLPACK_CPU)
        return 0;
    flat->data = tensor.data;
    flat->written = writable && how->written != Py_None ? how->written : NULL;
    return 1;
}

static int fast(const ligi_py_state *state, PyObject *object, int writable, ligi_py_flat *flat)
{
    const ligi_py_reader *how =
        (ligi_py_reader *)PyDict_GetItemWithError(state->readers, (PyObject *)Py_TYPE(object));
    if (!how)
        return 0;
    if (how->address == Py_None)
        return by_buffer(how, object, writable, flat);
    if (by_exchange(how, object, writable, flat))
        return 1;
    PyErr_Clear();
    return by_address(how, object, writable, flat);
}

static int take_batch(const ligi_py_state *state, ligi_py_batch *batch, const char *name,
                      ligi_py_flat *flat)
{
    const lig_tensor *tensor = &batch->tensors[0];
    flat->data = tensor->data;
    flat->dtype = tensor->dtype;
    flat->count = tensor->bytes / lig_dtype_bytes(tensor->dtype);
    if (!tensor->strides)
        return 0;
    if (batch->writable) {
        ligi_py_fail(
            state, LIG_E_INVALID,
            "%s is not contiguous and cannot be filled (pass a contiguous tensor and copy from it)",
            name);
        return -1;
    }
    flat->packed = PyMem_Malloc(tensor->bytes + 1);
    if (!flat->packed) {
        PyErr_NoMemory();
        return -1;
    }
    lig_tensor_pack(tensor, flat->packed);
    flat->data = flat->packed;
    return 0;
}

/* The general path: accepts any tensor, and gives a reason for every refusal. */
static int slow(const ligi_py_state *state, PyObject *object, const char *name, int writable,
                ligi_py_flat *flat)
{
    PyObject *batch =
        PyObject_CallFunction((PyObject *)state->batch_type, "((s)[O]i)", name, object, writable);
    if (!batch)
        return -1;
    flat->holder = batch;
    if (take_batch(state, (ligi_py_batch *)batch, name, flat) < 0)
        return -1;
    const ligi_py_reader *how =
        (ligi_py_reader *)PyDict_GetItemWithError(state->readers, (PyObject *)Py_TYPE(object));
    flat->written = writable && how && how->written != Py_None ? how->written : NULL;
    flat->tensor = Py_NewRef(object);
    return 0;
}

int ligi_py_flat_read(const ligi_py_state *state, PyObject *object, const char *name, int writable,
                      ligi_py_flat *flat)
{
    *flat = (ligi_py_flat){0};
    if (fast(state, object, writable, flat)) {
        flat->holder = Py_NewRef(object);
        flat->tensor = Py_NewRef(object);
        return 0;
    }
    PyErr_Clear();
    ligi_py_flat_drop(flat);
    if (slow(state, object, name, writable, flat) == 0)
        return 0;
    ligi_py_flat_drop(flat);
    return -1;
}

static int key_of(const ligi_py_state *state, PyObject *number, Py_ssize_t at, const char *name,
                  int64_t *key)
{
    *key = PyLong_AsLongLong(number);
    if (*key != -1 || !PyErr_Occurred())
        return 0;
    int too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (too_large)
        ligi_py_fail(state, LIG_E_INVALID, "%s[%zd] does not fit into 64 bits", name, at);
    else
        PyErr_Format(PyExc_TypeError, "%s[%zd] is not an integer: %R", name, at, number);
    return -1;
}

/* A list or tuple as an array of ours. */
static int from_sequence(const ligi_py_state *state, PyObject *object, const char *name,
                         ligi_py_flat *flat)
{
    Py_ssize_t size = PySequence_Size(object);
    int64_t *keys = PyMem_Malloc(((size_t)size + 1) * sizeof *keys);
    if (!keys) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        /* key_of may run __index__ of a stranger, which may shorten the list. */
        PyObject *number = PySequence_GetItem(object, i);
        int bad = !number || key_of(state, number, i, name, &keys[i]) < 0;
        Py_XDECREF(number);
        if (bad) {
            PyMem_Free(keys);
            return -1;
        }
    }
    *flat = (ligi_py_flat){.data = keys, .packed = keys, .dtype = LIG_INT64};
    flat->count = (uint64_t)size;
    return 0;
}

int ligi_py_flat_keys(const ligi_py_state *state, PyObject *object, const char *name,
                      ligi_py_flat *flat)
{
    *flat = (ligi_py_flat){0};
    if (PyList_Check(object) || PyTuple_Check(object))
        return from_sequence(state, object, name, flat);
    if (PyLong_Check(object)) {
        int64_t *key = PyMem_Malloc(sizeof *key);
        *flat = (ligi_py_flat){.data = key, .packed = key, .dtype = LIG_INT64, .count = 1};
        if (key)
            return key_of(state, object, 0, name, key) < 0 ? (ligi_py_flat_drop(flat), -1) : 0;
        PyErr_NoMemory();
        return -1;
    }
    if (ligi_py_flat_read(state, object, name, 0, flat) < 0)
        return -1;
    if (flat->dtype == LIG_INT64)
        return 0;
    ligi_py_fail(state, LIG_E_INVALID, "%s have dtype %s, expected int64", name,
                 lig_dtype_name(flat->dtype));
    ligi_py_flat_drop(flat);
    return -1;
}

int ligi_py_flat_written(const ligi_py_flat *flat)
{
    if (!flat->written)
        return 0;
    PyObject *list = Py_BuildValue("[O]", flat->tensor);
    PyObject *done = list ? PyObject_CallFunctionObjArgs(flat->written, list, NULL) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

PyObject *ligi_py_flat_keep(const ligi_py_flat *flat)
{
    /* A detached tensor shares the memory and keeps it alive, even if the tensor gets other
     * memory. */
    if (flat->written && flat->holder == flat->tensor)
        return PyObject_CallMethod(flat->holder, "detach", NULL);
    return Py_NewRef(flat->holder ? flat->holder : Py_None);
}

void ligi_py_flat_drop(ligi_py_flat *flat)
{
    if (flat->has_buffer)
        PyBuffer_Release(&flat->buffer);
    PyMem_Free(flat->packed);
    Py_XDECREF(flat->holder);
    Py_XDECREF(flat->tensor);
    *flat = (ligi_py_flat){0};
}
