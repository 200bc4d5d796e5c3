#include "store/py_find.h"

#include <stdlib.h>
#include <string.h>

/* --- Match ---------------------------------------------------------------------------------- */

typedef struct match {
    PyObject_HEAD
    lig_match *match;
    ligi_py_region *region; /* all matches of one search */
    int released;
} match;

lig_match *ligi_py_match_of(const ligi_py_state *state, PyObject *object)
{
    if (Py_TYPE(object) != state->match_type) {
        PyErr_Format(PyExc_TypeError, "expected a Match, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    match *self = (match *)object;
    if (!self->released)
        return self->match;
    ligi_py_fail(state, LIG_E_CLOSED, "the match with model '%s' was released (search again)",
                 self->match->model->name);
    return NULL;
}

static void release(match *self)
{
    if (self->released)
        return;
    self->released = 1;
    Py_BEGIN_ALLOW_THREADS
    lig_match_release(self->match);
    Py_END_ALLOW_THREADS
}

static void match_dealloc(PyObject *object)
{
    match *self = (match *)object;
    if (self->match)
        release(self);
    ligi_py_region_drop(self->region);
    ligi_py_free(object);
}

static PyObject *match_release(PyObject *object, PyObject *Py_UNUSED(unused))
{
    release((match *)object);
    Py_RETURN_NONE;
}

static PyObject *match_model(PyObject *object, void *Py_UNUSED(unused))
{
    match *self = (match *)object;
    ligi_py_region_hold(self->region);
    return ligi_py_model_new(ligi_py_state_of(object), self->match->model, self->region, 0, 1);
}

static PyObject *match_layers(PyObject *object, void *Py_UNUSED(unused))
{
    const lig_match *self = ((match *)object)->match;
    PyObject *list = PyList_New((Py_ssize_t)self->layer_count);
    for (size_t i = 0; list && i < self->layer_count; i++)
        ligi_py_put_item(&list, i, PyLong_FromUnsignedLong(self->layers[i]));
    return list;
}

static PyObject *match_tensors(PyObject *object, void *Py_UNUSED(unused))
{
    const lig_match *self = ((match *)object)->match;
    PyObject *list = PyList_New((Py_ssize_t)self->tensor_count);
    for (size_t i = 0; list && i < self->tensor_count; i++) {
        const char *name = self->tensors[i].name;
        ligi_py_put_item(
            &list, i,
            Py_BuildValue("Nn",
                          PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "backslashreplace"),
                          (Py_ssize_t)self->tensors[i].stored));
    }
    return list;
}

static PyObject *match_bytes(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((match *)object)->match->bytes);
}

static PyObject *match_expires(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromLongLong(((match *)object)->match->expires_ns);
}

static PyObject *match_released(PyObject *object, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((match *)object)->released);
}

static PyMethodDef methods[] = {
    {"release", match_release, METH_NOARGS,
     "release(): end the lease; the matched tensors may be removed from now on."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"model", match_model, NULL, NULL, NULL},
    {"layers", match_layers, NULL, "indexes in the query graph", NULL},
    {"tensors", match_tensors, NULL, "[(name in the query model, index in the stored one)]", NULL},
    {"bytes", match_bytes, NULL, NULL, NULL},
    {"expires_ns", match_expires, NULL, NULL, NULL},
    {"released", match_released, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, match_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The result of a search: a lease."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Match", sizeof(match), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int ligi_py_find_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->match_type);
}

/* --- find ----------------------------------------------------------------------------------- */

typedef struct matches { /* one allocation of the library behind many Match objects */
    lig_match **matches;
    size_t count;
} matches;

/* Only Python objects hold the region of a search, so the last one has the GIL. Unreleased
 * matches are released here, which may wait for another process. */
static void drop_all(lig_match **list, size_t count)
{
    Py_BEGIN_ALLOW_THREADS
    lig_matches_destroy(list, count);
    Py_END_ALLOW_THREADS
}

static void drop_matches(void *handle)
{
    matches *self = handle;
    drop_all(self->matches, self->count);
    free(self);
}

static PyObject *match_new(const ligi_py_state *state, ligi_py_region *region, lig_match *found)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->match_type, Py_tp_alloc);
    match *self = (match *)allocate(state->match_type, 0);
    if (!self)
        return NULL;
    ligi_py_region_hold(region);
    self->region = region;
    self->match = found;
    return (PyObject *)self;
}

static PyObject *matches_list(const ligi_py_state *state, lig_match **list, size_t count)
{
    matches *all = malloc(sizeof *all);
    if (!all) {
        drop_all(list, count);
        return PyErr_NoMemory();
    }
    *all = (matches){list, count};
    ligi_py_region *region = ligi_py_region_create(all, drop_matches);
    PyObject *result = region ? PyList_New((Py_ssize_t)count) : NULL;
    for (size_t i = 0; result && i < count; i++)
        ligi_py_put_item(&result, i, match_new(state, region, list[i]));
    ligi_py_region_drop(region);
    return result;
}

/* Texts are borrowed from the tuple; what is returned is freed by PyMem_Free. */
static const char **names_of(const ligi_py_state *state, PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    const char **names = PyMem_Calloc((size_t)count + 1, sizeof *names);
    if (!names)
        return (const char **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        names[i] = ligi_py_text(state, PyTuple_GetItem(tuple, i), "the name of a model");
        if (!names[i]) {
            PyMem_Free((void *)names);
            return NULL;
        }
    }
    return names;
}

static PyObject *find_with(ligi_py_store *self, const lig_graph *graph,
                           const lig_find_options *options)
{
    lig_store *store = ligi_py_store_enter(self);
    lig_match **list = NULL;
    size_t count = 0;
    if (!store)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_store_find(store, graph, options, &list, &count));
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? matches_list(ligi_py_state_of((PyObject *)self), list, count) : NULL;
}

PyObject *ligi_py_store_find(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *given, *tags, *exclude, *prefer;
    Py_ssize_t limit;
    long long lease_ns;
    lig_find_options options = LIG_FIND_INIT;
    if (!PyArg_ParseTuple(args,
                          "OOO!O"
                          "nL",
                          &given, &tags, &PyTuple_Type, &exclude, &prefer, &limit, &lease_ns))
        return NULL;
    const lig_graph *graph = ligi_py_graph_of(state, given);
    if (!graph || ligi_py_optional_text(state, prefer, "the metric", &options.prefer) < 0)
        return NULL;
    options.limit = limit > 0 ? (size_t)limit : 1;
    options.lease_ns = lease_ns;
    const char **names = names_of(state, exclude);
    lig_tag *words = names ? ligi_py_tags_of(state, tags, &options.tag_count) : NULL;
    options.exclude = names;
    options.exclude_count = (size_t)PyTuple_Size(exclude);
    options.tags = words;
    PyObject *result = words ? find_with((ligi_py_store *)object, graph, &options) : NULL;
    PyMem_Free(words);
    PyMem_Free((void *)names);
    return result;
}

lig_match *ligi_py_match_in(ligi_py_store *self, PyObject *object, ligi_py_region **region)
{
    lig_match *found = ligi_py_match_of(ligi_py_state_of((PyObject *)self), object);
    lig_store *store = found ? ligi_py_store_enter(self) : NULL;
    if (!store)
        return NULL;
    lig_status status = lig_store_load_match(store, found, NULL, 0); /* moves nothing */
    PyObject *same = ligi_py_store_finish(self, status);
    Py_XDECREF(same);
    *region = ((match *)object)->region;
    return same ? found : NULL;
}
