#include "py_core.h"

#include <string.h>

typedef struct model {
    PyObject_HEAD
    const lig_model *model;
    ligi_py_region *region;
    int view, readonly;
} model;

PyObject *ligi_py_model_new(const ligi_py_state *state, const lig_model *described,
                            ligi_py_region *region, int view, int readonly)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->model_type, Py_tp_alloc);
    model *self = region ? (model *)allocate(state->model_type, 0) : NULL;
    if (!self) {
        ligi_py_region_drop(region);
        return NULL;
    }
    self->model = described;
    self->region = region;
    self->view = view;
    self->readonly = readonly;
    return (PyObject *)self;
}

static void model_dealloc(PyObject *object)
{
    ligi_py_region_drop(((model *)object)->region);
    ligi_py_free(object);
}

static const lig_model *of(PyObject *object)
{
    return ((model *)object)->model;
}

/* Stored text was checked when it was written, but a file is hostile. */
static PyObject *text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes ? bytes : "", bytes ? (Py_ssize_t)strlen(bytes) : 0,
                                "backslashreplace");
}

#define NUMBER(field, make)                                                                        \
    static PyObject *get_##field(PyObject *object, void *Py_UNUSED(unused))                        \
    {                                                                                              \
        return make(of(object)->field);                                                            \
    }
NUMBER(id, PyLong_FromUnsignedLongLong)
NUMBER(parent, PyLong_FromUnsignedLongLong)
NUMBER(created_ns, PyLong_FromLongLong)
NUMBER(bytes, PyLong_FromUnsignedLongLong)
NUMBER(own_bytes, PyLong_FromUnsignedLongLong)
NUMBER(tensor_count, PyLong_FromSize_t)
NUMBER(name, text)
NUMBER(parent_name, text)
NUMBER(meta, text)
NUMBER(structure, text)

/* Takes over the value; on failure the dict is NULL. */
static void put(PyObject **dict, const char *name, PyObject *value)
{
    PyObject *key = text(name);
    if (!key || !value || PyDict_SetItem(*dict, key, value) < 0)
        Py_CLEAR(*dict);
    Py_XDECREF(key);
    Py_XDECREF(value);
}

static PyObject *get_metrics(PyObject *object, void *Py_UNUSED(unused))
{
    const lig_model *self = of(object);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < self->metric_count; i++)
        put(&dict, self->metrics[i].name, PyFloat_FromDouble(self->metrics[i].value));
    return dict;
}

static PyObject *get_tags(PyObject *object, void *Py_UNUSED(unused))
{
    const lig_model *self = of(object);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < self->tag_count; i++)
        put(&dict, self->tags[i].name, text(self->tags[i].value));
    return dict;
}

static PyObject *get_complete(PyObject *object, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(of(object)->tensors != NULL || of(object)->tensor_count == 0);
}

static PyObject *model_names(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const lig_model *self = of(object);
    size_t count = self->tensors ? self->tensor_count : 0;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, text(self->tensors[i].tensor.name));
    return list;
}

static const lig_stored_tensor *tensor_at(PyObject *object, PyObject *at)
{
    const lig_model *self = of(object);
    size_t index = PyLong_AsSize_t(at);
    if (index == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (self->tensors && index < self->tensor_count)
        return &self->tensors[index];
    PyErr_Format(PyExc_IndexError, "the model has %zu tensors", self->tensor_count);
    return NULL;
}

/* Tied tensors point backwards in a sound file; only then is the index passed on. */
static long long tied_index(const lig_model *self, const lig_stored_tensor *stored)
{
    int64_t index = stored - self->tensors;
    return stored->tied >= 0 && stored->tied < index ? stored->tied : -1;
}

static PyObject *stored_tuple(PyObject *object, const lig_stored_tensor *stored)
{
    const lig_tensor *tensor = &stored->tensor;
    PyObject *shape = ligi_py_i64_tuple(tensor->shape, tensor->ndim);
    PyObject *print =
        PyBytes_FromStringAndSize((const char *)stored->fingerprint, sizeof stored->fingerprint);
    if (!shape || !print) {
        Py_XDECREF(shape);
        Py_XDECREF(print);
        return NULL;
    }
    return Py_BuildValue("NiNKKKKNL", text(tensor->name), (int)tensor->dtype, shape,
                         (unsigned long long)tensor->bytes, (unsigned long long)stored->owner,
                         (unsigned long long)stored->pack, (unsigned long long)stored->offset,
                         print, tied_index(of(object), stored));
}

static PyObject *model_tensor(PyObject *object, PyObject *at)
{
    const lig_stored_tensor *stored = tensor_at(object, at);
    return stored ? stored_tuple(object, stored) : NULL;
}

static PyObject *model_tensors(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const lig_model *self = of(object);
    size_t count = self->tensors ? self->tensor_count : 0;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, stored_tuple(object, &self->tensors[i]));
    return list;
}

static PyObject *model_memory(PyObject *object, PyObject *at)
{
    model *self = (model *)object;
    const lig_stored_tensor *stored = tensor_at(object, at);
    if (!stored)
        return NULL;
    if (!self->view)
        return PyErr_Format(PyExc_ValueError, "the model is not mapped");
    return ligi_py_memory_new(ligi_py_state_of(object), self->region, stored->tensor.data,
                              stored->tensor.bytes, self->readonly);
}

static PyMethodDef methods[] = {
    {"names", model_names, METH_NOARGS, "names() -> list of the tensors' names"},
    {"tensor", model_tensor, METH_O,
     "tensor(i) -> (name, dtype number, shape, bytes, owner, pack, offset, fingerprint, index it "
     "is tied to or -1)"},
    {"tensors", model_tensors, METH_NOARGS, "tensors() -> list of tensor(i)"},
    {"memory", model_memory, METH_O, "memory(i) -> Memory of tensor i of a mapped model"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"id", get_id, NULL, NULL, NULL},
    {"parent_id", get_parent, NULL, NULL, NULL},
    {"created_ns", get_created_ns, NULL, NULL, NULL},
    {"bytes", get_bytes, NULL, NULL, NULL},
    {"own_bytes", get_own_bytes, NULL, NULL, NULL},
    {"tensor_count", get_tensor_count, NULL, NULL, NULL},
    {"name", get_name, NULL, NULL, NULL},
    {"parent_name", get_parent_name, NULL, NULL, NULL},
    {"meta", get_meta, NULL, NULL, NULL},
    {"structure", get_structure, NULL, NULL, NULL},
    {"metrics", get_metrics, NULL, NULL, NULL},
    {"tags", get_tags, NULL, NULL, NULL},
    {"complete", get_complete, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, model_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The description of a stored model."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Model", sizeof(model), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int ligi_py_model_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->model_type);
}
