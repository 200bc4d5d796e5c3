/* Tensors of frameworks that provide DLPack's table of functions: they are read without a call of
 * Python. */
#include "dlpack_abi.h"
#include "py_core.h"

const dlpack_exchange *ligi_py_exchange(const ligi_py_reader *how)
{
    const dlpack_exchange *table = how->exchange == Py_None
                                       ? NULL
                                       : PyCapsule_GetPointer(how->exchange, "dlpack_exchange_api");
    while (table && table->major > 1)
        table = table->older;
    return table && table->major == 1 && table->describe ? table : NULL;
}

static int in_order(const dlpack_tensor *tensor, uint64_t *count)
{
    int64_t step = 1;
    *count = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        if (tensor->strides && tensor->shape[i] > 1 && tensor->strides[i] != step)
            return 0;
        step *= tensor->shape[i];
        *count *= (uint64_t)tensor->shape[i];
    }
    return 1;
}

/* Values that differ from the bytes come from complex numbers: conjugates, and imaginary parts,
 * which have gaps unless they are one element. */
static int may_be_odd(uint32_t dtype, uint64_t count)
{
    if (dtype >= LIG_COMPLEX32 && dtype <= LIG_COMPLEX128)
        return 1;
    return count <= 1 && dtype != LIG_INT64;
}

int ligi_py_exchange_read(const ligi_py_reader *how, PyObject *object, dlpack_tensor *tensor,
                          uint32_t *dtype, uint64_t *count)
{
    const dlpack_exchange *table = ligi_py_exchange(how);
    *tensor = (dlpack_tensor){0};
    if (!table || table->describe(object, tensor) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (!in_order(tensor, count) || *count == 0 || !tensor->data || tensor->ndim > LIG_NDIM_MAX)
        return 0;
    *dtype = ligi_py_dlpack_dtype(tensor->dtype);
    tensor->data = (char *)tensor->data + tensor->byte_offset;
    return *dtype != 0 && !may_be_odd(*dtype, *count);
}

/* --- where the tensors of a request are ----------------------------------------------------- */

typedef struct look {
    const ligi_py_state *state;
    const dlpack_exchange *table; /* of a tensor in device memory; NULL: none so far */
    int32_t device;
} look;

/* 0: Python has to look. */
static int look_at(look *at, PyObject *object)
{
    dlpack_tensor tensor;
    uint32_t dtype;
    uint64_t count;
    const ligi_py_reader *how =
        (ligi_py_reader *)PyDict_GetItemWithError(at->state->readers, (PyObject *)Py_TYPE(object));
    if (!how)
        return 0;
    if (!ligi_py_exchange(how))
        return how->address == Py_None; /* a buffer: host memory */
    if (!ligi_py_exchange_read(how, object, &tensor, &dtype, &count))
        return 0;
    if (tensor.device_type != DLPACK_CUDA)
        return tensor.device_type == DLPACK_CPU;
    if (at->table && at->device != tensor.device_id)
        return 0;
    at->table = ligi_py_exchange(how);
    at->device = tensor.device_id;
    return 1;
}

static int look_at_all(look *at, PyObject *objects)
{
    PyObject *list = PySequence_List(objects);
    int known = list != NULL;
    for (Py_ssize_t i = 0; known && i < PyList_Size(list); i++)
        known = look_at(at, PyList_GetItem(list, i));
    Py_XDECREF(list);
    PyErr_Clear();
    return known;
}

static PyObject *placed(PyObject *module, PyObject *args)
{
    PyObject *push, *pull;
    void *stream = NULL;
    look at = {.state = ligi_py_state_of(module)};
    if (!PyArg_ParseTuple(args, "OO", &push, &pull))
        return NULL;
    if (!look_at_all(&at, push) || !look_at_all(&at, pull) || !at.table)
        Py_RETURN_NONE;
    if (at.table->stream(DLPACK_CUDA, at.device, &stream) < 0)
        return NULL;
    return Py_BuildValue("iK", (int)at.device, (unsigned long long)(uintptr_t)stream);
}

static PyMethodDef functions[] = {
    {"placed", placed, METH_VARARGS,
     "placed(push, pull) -> (CUDA device, its framework's current stream) if tensors are in device "
     "memory and a Batch can read all of those; None: unknown, or none is."},
    {NULL, NULL, 0, NULL},
};

int ligi_py_exchange_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
