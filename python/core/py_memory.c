#include "py_core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack_abi.h"

/* --- region --------------------------------------------------------------------------------- */

struct ligi_py_region {
    atomic_size_t count;
    void *handle;
    void (*drop)(void *handle);
};

ligi_py_region *ligi_py_region_create(void *handle, void (*drop)(void *handle))
{
    ligi_py_region *region = malloc(sizeof *region);
    if (!region) {
        drop(handle);
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&region->count, 1);
    region->handle = handle;
    region->drop = drop;
    return region;
}

void ligi_py_region_hold(ligi_py_region *region)
{
    atomic_fetch_add_explicit(&region->count, 1, memory_order_relaxed);
}

void ligi_py_region_drop(ligi_py_region *region)
{
    if (!region || atomic_fetch_sub_explicit(&region->count, 1, memory_order_acq_rel) != 1)
        return;
    region->drop(region->handle);
    free(region);
}

/* --- dtypes --------------------------------------------------------------------------------- */

static const dlpack_dtype dlpack_dtypes[LIG_DTYPE_COUNT] = {
    [LIG_BOOL] = {6, 8, 1},
    [LIG_INT8] = {0, 8, 1},
    [LIG_INT16] = {0, 16, 1},
    [LIG_INT32] = {0, 32, 1},
    [LIG_INT64] = {0, 64, 1},
    [LIG_UINT8] = {1, 8, 1},
    [LIG_UINT16] = {1, 16, 1},
    [LIG_UINT32] = {1, 32, 1},
    [LIG_UINT64] = {1, 64, 1},
    [LIG_FLOAT16] = {2, 16, 1},
    [LIG_BFLOAT16] = {4, 16, 1},
    [LIG_FLOAT32] = {2, 32, 1},
    [LIG_FLOAT64] = {2, 64, 1},
    [LIG_COMPLEX32] = {5, 32, 1},
    [LIG_COMPLEX64] = {5, 64, 1},
    [LIG_COMPLEX128] = {5, 128, 1},
    [LIG_FLOAT8_E3M4] = {7, 8, 1},
    [LIG_FLOAT8_E4M3] = {8, 8, 1},
    [LIG_FLOAT8_E4M3B11FNUZ] = {9, 8, 1},
    [LIG_FLOAT8_E4M3FN] = {10, 8, 1},
    [LIG_FLOAT8_E4M3FNUZ] = {11, 8, 1},
    [LIG_FLOAT8_E5M2] = {12, 8, 1},
    [LIG_FLOAT8_E5M2FNUZ] = {13, 8, 1},
    [LIG_FLOAT8_E8M0FNU] = {14, 8, 1},
};

uint32_t ligi_py_dlpack_dtype(dlpack_dtype dtype)
{
    for (uint32_t i = 1; i < LIG_DTYPE_COUNT; i++)
        if (dlpack_dtypes[i].lanes && memcmp(&dlpack_dtypes[i], &dtype, sizeof dtype) == 0)
            return i;
    return LIG_DTYPE_NONE;
}

/* --- export --------------------------------------------------------------------------------- */

typedef struct export { /* what a capsule of ours points at; shape follows in the same allocation */
    union {
        dlpack_managed managed;
        dlpack_versioned versioned;
    } as;
    ligi_py_region *region;
    int64_t shape[];
} export;

static void delete_managed(dlpack_managed *managed)
{
    export *self = managed->context;
    ligi_py_region_drop(self->region);
    free(self);
}

static void delete_versioned(dlpack_versioned *versioned)
{
    export *self = versioned->context;
    ligi_py_region_drop(self->region);
    free(self);
}

static void capsule_destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        versioned->deleter(versioned);
    }
}

typedef struct memory {
    PyObject_HEAD
    ligi_py_region *region;
    void *data;
    uint64_t bytes;
    int readonly;
    int32_t device; /* -1: host memory */
} memory;

static int fill_tensor(memory *self, dlpack_tensor *tensor, int64_t *shape, uint32_t dtype,
                       PyObject *dims)
{
    uint64_t bytes = lig_dtype_bytes(dtype);
    Py_ssize_t ndim = PyTuple_Size(dims);
    for (Py_ssize_t i = 0; i < ndim; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(dims, i));
        if (PyErr_Occurred())
            return -1;
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            bytes = UINT64_MAX;
    }
    if (bytes > self->bytes) {
        PyErr_SetString(PyExc_ValueError, "the shape is larger than the memory");
        return -1;
    }
    /* Strides are set although they may be NULL: some readers of old capsules use them. */
    int64_t stride = 1;
    for (Py_ssize_t i = ndim; i-- > 0;) {
        shape[ndim + i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
    *tensor = (dlpack_tensor){.data = self->data,
                              .device_type = self->device < 0 ? DLPACK_CPU : DLPACK_CUDA,
                              .device_id = self->device < 0 ? 0 : self->device,
                              .ndim = (int32_t)ndim,
                              .dtype = dlpack_dtypes[dtype],
                              .shape = shape,
                              .strides = shape + ndim};
    return 0;
}

/* Holds the region. The caller fills `as` with the tensor. NULL: with an exception. */
static export *export_begin(memory *self, dlpack_tensor *tensor, uint32_t dtype, PyObject *dims)
{
    export *out = malloc(sizeof *out + 2 * (size_t)PyTuple_Size(dims) * sizeof out->shape[0]);
    if (!out) {
        PyErr_NoMemory();
        return NULL;
    }
    if (fill_tensor(self, tensor, out->shape, dtype, dims) < 0) {
        free(out);
        return NULL;
    }
    ligi_py_region_hold(self->region);
    out->region = self->region;
    return out;
}

static void fill_versioned(const memory *self, export *out, dlpack_tensor tensor)
{
    out->as.versioned = (dlpack_versioned){
        1, 0, out, delete_versioned, self->readonly ? DLPACK_READ_ONLY : 0, tensor};
}

static PyObject *memory_dlpack(PyObject *object, PyObject *args)
{
    memory *self = (memory *)object;
    int dtype, versioned = 0;
    PyObject *dims;
    if (!PyArg_ParseTuple(args, "iO!|p", &dtype, &PyTuple_Type, &dims, &versioned))
        return NULL;
    if (dtype <= 0 || dtype >= LIG_DTYPE_COUNT || !dlpack_dtypes[dtype].lanes)
        return ligi_py_fail(
            ligi_py_state_of(object), LIG_E_UNSUPPORTED, "DLPack does not support dtype %s",
            dtype > 0 && dtype < LIG_DTYPE_COUNT ? lig_dtype_name((uint32_t)dtype) : "this");
    dlpack_tensor tensor;
    export *out = export_begin(self, &tensor, (uint32_t)dtype, dims);
    if (!out)
        return NULL;
    if (versioned)
        fill_versioned(self, out, tensor);
    else
        out->as.managed = (dlpack_managed){tensor, out, delete_managed};
    PyObject *capsule =
        PyCapsule_New(&out->as, versioned ? "dltensor_versioned" : "dltensor", capsule_destroy);
    if (!capsule) {
        ligi_py_region_drop(out->region);
        free(out);
    }
    return capsule;
}

/* A framework that reads bytes as a tensor at once. What it does with the description when it fails
 * is not defined: it stays. None: it cannot. */
static PyObject *memory_tensor(PyObject *object, PyObject *args)
{
    memory *self = (memory *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *how, *dims;
    int dtype;
    void *made = NULL;
    if (!PyArg_ParseTuple(args, "O!iO!", state->reader_type, &how, &dtype, &PyTuple_Type, &dims))
        return NULL;
    const dlpack_exchange *table = ligi_py_exchange((ligi_py_reader *)how);
    if (!table || !table->make || dtype <= 0 || dtype > LIG_COMPLEX128 ||
        !dlpack_dtypes[dtype].lanes)
        Py_RETURN_NONE;
    dlpack_tensor tensor;
    export *out = export_begin(self, &tensor, (uint32_t)dtype, dims);
    if (!out)
        return NULL;
    fill_versioned(self, out, tensor);
    return table->make(&out->as.versioned, &made) < 0 ? NULL : made;
}

/* --- Memory --------------------------------------------------------------------------------- */

PyObject *ligi_py_memory_new(const ligi_py_state *state, ligi_py_region *region, void *data,
                             uint64_t bytes, int readonly)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->memory_type, Py_tp_alloc);
    memory *self = (memory *)allocate(state->memory_type, 0);
    if (!self)
        return NULL;
    ligi_py_region_hold(region);
    self->region = region;
    self->data = data;
    self->bytes = bytes;
    self->readonly = readonly;
    self->device = -1;
    return (PyObject *)self;
}

PyObject *ligi_py_memory_on(const ligi_py_state *state, ligi_py_region *region, void *data,
                            uint64_t bytes, int32_t device)
{
    memory *self = (memory *)ligi_py_memory_new(state, region, data, bytes, 0);
    if (self)
        self->device = device;
    return (PyObject *)self;
}

void *ligi_py_memory_data(const ligi_py_state *state, PyObject *object, uint64_t *bytes)
{
    if (Py_TYPE(object) != state->memory_type) {
        PyErr_Format(PyExc_TypeError, "expected a Memory, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    *bytes = ((memory *)object)->bytes;
    return ((memory *)object)->data;
}

static void memory_dealloc(PyObject *object)
{
    ligi_py_region_drop(((memory *)object)->region);
    ligi_py_free(object);
}

static int memory_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    memory *self = (memory *)object;
    if (self->device >= 0) {
        PyErr_Format(PyExc_BufferError, "the memory is on CUDA device %d", (int)self->device);
        return -1;
    }
    void *data = self->bytes ? self->data : self; /* never NULL, also when empty */
    return PyBuffer_FillInfo(view, object, data, (Py_ssize_t)self->bytes, self->readonly, flags);
}

static Py_ssize_t memory_length(PyObject *object)
{
    return (Py_ssize_t)((memory *)object)->bytes;
}

static PyObject *memory_address(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr(((memory *)object)->data);
}

static PyObject *memory_readonly(PyObject *object, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((memory *)object)->readonly);
}

static PyObject *memory_device(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromLong(((memory *)object)->device);
}

static PyMethodDef memory_methods[] = {
    {"dlpack", memory_dlpack, METH_VARARGS,
     "dlpack(dtype number, shape, versioned=False) -> capsule"},
    {"tensor", memory_tensor, METH_VARARGS,
     "tensor(reader, dtype number, shape) -> a tensor of the reader's framework, or None"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef memory_getset[] = {
    {"address", memory_address, NULL, NULL, NULL},
    {"readonly", memory_readonly, NULL, NULL, NULL},
    {"device", memory_device, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_bf_getbuffer, memory_getbuffer},
    {Py_sq_length, memory_length},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_getset},
    {Py_tp_doc,
     "Bytes of a mapping or of an aligned allocation; valid as long as they are referenced."},
    {0, NULL},
};
static PyType_Spec memory_spec = {"ligament._core.Memory", sizeof(memory), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  memory_slots};

/* --- import --------------------------------------------------------------------------------- */

static void foreign_destroy(PyObject *capsule)
{
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, "ligament.managed");
    if (managed && managed->deleter)
        managed->deleter(managed);
}

static void foreign_versioned_destroy(PyObject *capsule)
{
    dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "ligament.versioned");
    if (versioned && versioned->deleter)
        versioned->deleter(versioned);
}

/* The tuple that a Batch reads, with read-only added; `holder` is taken over. */
static PyObject *describe_foreign(const ligi_py_state *state, PyObject *holder,
                                  const dlpack_tensor *tensor, int readonly)
{
    uint32_t dtype = ligi_py_dlpack_dtype(tensor->dtype);
    PyObject *shape = NULL, *strides = NULL;
    if (tensor->device_type != DLPACK_CPU && tensor->device_type != DLPACK_CUDA_HOST) {
        ligi_py_fail(state, LIG_E_UNSUPPORTED,
                     "the tensor is on a device (DLPack type %d), not in host memory",
                     (int)tensor->device_type);
        goto holder;
    }
    if (!dtype || tensor->ndim < 0 || tensor->ndim > LIG_NDIM_MAX) {
        ligi_py_fail(state, LIG_E_UNSUPPORTED,
                     "no dtype for DLPack code %d of %d bits and %d lanes", tensor->dtype.code,
                     tensor->dtype.bits, tensor->dtype.lanes);
        goto holder;
    }
    shape = ligi_py_i64_tuple(tensor->shape, (size_t)tensor->ndim);
    strides = tensor->strides ? ligi_py_i64_tuple(tensor->strides, (size_t)tensor->ndim)
                              : Py_NewRef(Py_None);
    if (!shape || !strides)
        goto shape;
    uintptr_t data = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    return Py_BuildValue("NKiNNi", holder, (unsigned long long)data, (int)dtype, shape, strides,
                         readonly);
shape:
    Py_XDECREF(shape);
    Py_XDECREF(strides);
holder:
    Py_XDECREF(holder);
    return NULL;
}

static PyObject *from_dlpack(PyObject *module, PyObject *capsule)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (versioned->major != 1)
            return ligi_py_fail(state, LIG_E_UNSUPPORTED, "DLPack version %u", versioned->major);
        PyObject *holder =
            PyCapsule_New(versioned, "ligament.versioned", foreign_versioned_destroy);
        if (!holder || PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0)
            return NULL;
        return describe_foreign(state, holder, &versioned->tensor,
                                (int)(versioned->flags & DLPACK_READ_ONLY));
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        PyObject *holder = PyCapsule_New(managed, "ligament.managed", foreign_destroy);
        if (!holder || PyCapsule_SetName(capsule, "used_dltensor") < 0)
            return NULL;
        return describe_foreign(state, holder, &managed->tensor, 0);
    }
    return PyErr_Format(PyExc_TypeError, "expected an unused DLPack capsule, not %R", capsule);
}

static PyObject *allocate_memory(PyObject *module, PyObject *args)
{
    unsigned long long bytes, alignment;
    if (!PyArg_ParseTuple(args, "KK", &bytes, &alignment))
        return NULL;
    void *data = NULL;
    if (bytes > PY_SSIZE_T_MAX ||
        posix_memalign(&data, (size_t)alignment, bytes ? (size_t)bytes : 1) != 0)
        return ligi_py_fail(ligi_py_state_of(module), LIG_E_NOMEM, "out of memory for %llu bytes",
                            bytes);
    ligi_py_region *region = ligi_py_region_create(data, free);
    if (!region)
        return NULL;
    PyObject *result = ligi_py_memory_new(ligi_py_state_of(module), region, data, bytes, 0);
    ligi_py_region_drop(region);
    return result;
}

static PyMethodDef functions[] = {
    {"allocate", allocate_memory, METH_VARARGS, "allocate(bytes, alignment) -> Memory"},
    {"from_dlpack", from_dlpack, METH_O,
     "from_dlpack(capsule) -> (holder, address, dtype number, shape, strides or None, read-only)"},
    {NULL, NULL, 0, NULL},
};

int ligi_py_memory_init(PyObject *module)
{
    return ligi_py_add_type(module, &memory_spec, &ligi_py_state_of(module)->memory_type) < 0
               ? -1
               : PyModule_AddFunctions(module, functions);
}
