#include "store/py_find.h"

/* --- which version -------------------------------------------------------------------------- */

int ligi_py_version_of(const ligi_py_state *state, PyObject *object, ligi_py_version *version)
{
    *version = (ligi_py_version){0};
    if (!PyLong_Check(object)) {
        version->name = ligi_py_text(state, object, "the name of a model");
        return version->name ? 0 : -1;
    }
    version->id = PyLong_AsUnsignedLongLong(object);
    return PyErr_Occurred() ? -1 : 0;
}

lig_status ligi_py_version_resolve(lig_store *store, const ligi_py_version *version, lig_ref **ref)
{
    return version->name ? lig_store_resolve(store, version->name, ref)
                         : lig_store_resolve_id(store, version->id, ref);
}

/* --- Ref ------------------------------------------------------------------------------------ */

/* Every user of the ref holds the object or its region, so it is released with the last one. */
typedef struct ref {
    PyObject_HEAD
    const lig_ref *ref;
    ligi_py_region *region;
} ref;

/* Only objects hold this region, a Ref or its Models, so that the last one has the GIL. A release
 * writes to the lease, and may wait for another process that commits. */
static void drop_ref(void *handle)
{
    Py_BEGIN_ALLOW_THREADS
    lig_ref_release(handle);
    Py_END_ALLOW_THREADS
}

/* Takes over a hold of the region. */
static PyObject *ref_new(const ligi_py_state *state, const lig_ref *found, ligi_py_region *region)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->ref_type, Py_tp_alloc);
    ref *self = region ? (ref *)allocate(state->ref_type, 0) : NULL;
    if (!self) {
        ligi_py_region_drop(region);
        return NULL;
    }
    self->ref = found;
    self->region = region;
    return (PyObject *)self;
}

static void ref_dealloc(PyObject *object)
{
    ref *self = (ref *)object;
    ligi_py_region_drop(self->region);
    ligi_py_free(object);
}

/* A match has its ref, which lives as long as the matches of its search. */
static PyObject *match_ref(ligi_py_store *self, PyObject *object)
{
    ligi_py_region *region;
    const lig_match *found = ligi_py_match_in(self, object, &region);
    if (!found)
        return NULL;
    ligi_py_region_hold(region);
    return ref_new(ligi_py_state_of((PyObject *)self), found->ref, region);
}

PyObject *ligi_py_store_resolve(PyObject *object, PyObject *which)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    ligi_py_version version;
    if (Py_TYPE(which) == state->match_type)
        return match_ref(self, which);
    if (ligi_py_version_of(state, which, &version) < 0)
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    if (!store)
        return NULL;
    lig_ref *found = NULL;
    lig_status status = LIGI_PY_UNLOCKED(ligi_py_version_resolve(store, &version, &found));
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? ref_new(state, found, ligi_py_region_create(found, drop_ref)) : NULL;
}

static PyObject *ref_model(PyObject *object, void *Py_UNUSED(unused))
{
    ref *self = (ref *)object;
    ligi_py_region_hold(self->region);
    return ligi_py_model_new(ligi_py_state_of(object), lig_ref_model(self->ref), self->region, 0,
                             1);
}

static PyObject *finish(const ligi_py_state *state, lig_status status)
{
    return status == LIG_OK ? Py_NewRef(Py_None) : ligi_py_raise(state, status);
}

/* --- load ----------------------------------------------------------------------------------- */

static PyObject *ref_load(PyObject *object, PyObject *given)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    if (!PyObject_TypeCheck(given, state->batch_type))
        return PyErr_Format(PyExc_TypeError, "expected a Batch");
    ligi_py_batch *batch = (ligi_py_batch *)given;
    if (!batch->writable)
        return PyErr_Format(PyExc_ValueError, "the batch is not writable");
    return finish(
        state, LIGI_PY_UNLOCKED(lig_ref_load(((ref *)object)->ref, batch->tensors, batch->count)));
}

static int fill_slices(PyObject *list, lig_read *read, lig_slice **next)
{
    if (list == Py_None)
        return 0;
    if (!PyTuple_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "slices must be tuples of (start, step, count)");
        return -1;
    }
    read->slices = *next;
    for (Py_ssize_t i = 0; i < PyTuple_Size(list); i++) {
        long long start, step, count;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "LLL", &start, &step, &count))
            return -1;
        *(*next)++ = (lig_slice){start, step, count};
    }
    return 0;
}

static lig_read *reads_of(const ligi_py_state *state, ligi_py_batch *batch, PyObject *names,
                          PyObject *slices)
{
    size_t room = (batch->count + 1) * sizeof(lig_read);
    size_t dims = 0;
    for (size_t i = 0; i < batch->count; i++) {
        PyObject *list = PyTuple_GetItem(slices, (Py_ssize_t)i);
        if (!list)
            return NULL;
        dims += PyTuple_Check(list) ? (size_t)PyTuple_Size(list) : 0;
    }
    lig_read *reads = PyMem_Calloc(1, room + dims * sizeof(lig_slice));
    if (!reads)
        return (lig_read *)PyErr_NoMemory();
    lig_slice *next = (lig_slice *)((char *)reads + room);
    for (size_t i = 0; i < batch->count; i++) {
        PyObject *name = PyTuple_GetItem(names, (Py_ssize_t)i);
        reads[i].into = batch->tensors[i];
        reads[i].name = name ? ligi_py_text(state, name, "the name of a tensor") : NULL;
        if (!reads[i].name ||
            fill_slices(PyTuple_GetItem(slices, (Py_ssize_t)i), &reads[i], &next) < 0) {
            PyMem_Free(reads);
            return NULL;
        }
    }
    return reads;
}

static PyObject *ref_read(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *names, *slices;
    ligi_py_batch *batch;
    if (!PyArg_ParseTuple(args, "O!O!O!", state->batch_type, &batch, &PyTuple_Type, &names,
                          &PyTuple_Type, &slices))
        return NULL;
    if (!batch->writable)
        return PyErr_Format(PyExc_ValueError, "the batch is not writable");
    lig_read *reads = reads_of(state, batch, names, slices);
    if (!reads)
        return NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_ref_read(((ref *)object)->ref, reads, batch->count, 0));
    PyMem_Free(reads);
    return finish(state, status);
}

static void drop_view(void *view)
{
    lig_view_destroy(view);
}

static PyObject *ref_map(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    int writable, verify;
    if (!PyArg_ParseTuple(args, "pp", &writable, &verify))
        return NULL;
    lig_view *view = NULL;
    uint32_t flags = (writable ? LIG_VIEW_PRIVATE : 0) | (verify ? 0 : LIG_READ_UNVERIFIED);
    lig_status status = LIGI_PY_UNLOCKED(lig_ref_map(((ref *)object)->ref, flags, &view));
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    return ligi_py_model_new(state, lig_view_model(view), ligi_py_region_create(view, drop_view), 1,
                             !writable);
}

/* --- other calls ---------------------------------------------------------------------------- */

static PyObject *ref_copy(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    ligi_py_store *other;
    PyObject *renamed;
    const char *new_name;
    int replace;
    if (!PyArg_ParseTuple(args, "O!Op", state->store_type, &other, &renamed, &replace) ||
        ligi_py_optional_text(state, renamed, "the new name", &new_name) < 0)
        return NULL;
    lig_store *to = ligi_py_store_enter(other);
    if (!to)
        return NULL;
    return ligi_py_store_finish(other,
                                LIGI_PY_UNLOCKED(lig_ref_copy(((ref *)object)->ref, to, new_name,
                                                              replace ? LIG_SAVE_REPLACE : 0)));
}

static PyObject *ref_diff(PyObject *object, PyObject *other)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    if (!PyObject_TypeCheck(other, state->ref_type))
        return PyErr_Format(PyExc_TypeError, "expected a Ref");
    lig_diff *diff = NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_ref_diff(((ref *)object)->ref, ((ref *)other)->ref, &diff));
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    PyObject *tuple = ligi_py_diff_tuple(diff);
    lig_diff_destroy(diff);
    return tuple;
}

static PyMethodDef methods[] = {
    {"load", ref_load, METH_O, "load(batch): fill the batch."},
    {"read", ref_read, METH_VARARGS, "read(batch, names, slices): fill the batch with slices."},
    {"map", ref_map, METH_VARARGS, "map(writable, verify) -> Model with memory"},
    {"copy", ref_copy, METH_VARARGS, "copy(other store, new name or None, replace)"},
    {"diff", ref_diff, METH_O, "diff(ref) -> (same, changed, reshaped, removed, added, bytes)"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {{"model", ref_model, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, ref_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "One version of a model, which stays readable as long as the object lives."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Ref", sizeof(ref), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int ligi_py_ref_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->ref_type);
}
