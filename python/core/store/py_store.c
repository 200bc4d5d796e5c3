#include "py_core.h"
#include <ligament/serve.h>

#include <stdlib.h>
#include <string.h>

#include "store/py_find.h"
#include "store/py_part.h"

/* --- the handle: closing does not wait for calls of other threads; the last call to end closes
 * --- */

lig_store *ligi_py_store_enter(ligi_py_store *self)
{
    if (!self->store || self->closing) {
        ligi_py_fail(ligi_py_state_of((PyObject *)self), LIG_E_CLOSED, "the store is closed");
        return NULL;
    }
    self->users++;
    return self->store;
}

static void leave(ligi_py_store *self)
{
    self->users--;
    if (self->users > 0 || !self->closing || !self->store)
        return;
    lig_store *store = self->store;
    self->store = NULL;
    Py_BEGIN_ALLOW_THREADS
    lig_store_close(store);
    Py_END_ALLOW_THREADS
}

PyObject *ligi_py_store_finish(ligi_py_store *self, lig_status status)
{
    PyObject *result = ligi_py_none(ligi_py_state_of((PyObject *)self), status);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    leave(self);
    PyErr_Restore(type, value, traceback);
    return result;
}

/* Runs a call of the library on the store without the GIL and gives None or the exception. */
#define RUN(self, call)                                                                            \
    do {                                                                                           \
        lig_store *store = ligi_py_store_enter(self);                                              \
        if (!store)                                                                                \
            return NULL;                                                                           \
        return ligi_py_store_finish(self, LIGI_PY_UNLOCKED(call));                                 \
    } while (0)

static int store_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *uri;
    if (!PyArg_ParseTuple(args, "U", &uri) || self->store)
        return -1;
    const char *text = ligi_py_text(state, uri, "the URI of a store");
    if (!text)
        return -1;
    lig_store *store = NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_store_open_interruptible(&store, text, ligi_py_check_signals, NULL));
    if (status != LIG_OK) {
        ligi_py_raise(state, status);
        return -1;
    }
    self->store = store;
    return 0;
}

static PyObject *store_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    self->users++;
    self->closing = 1;
    leave(self);
    Py_RETURN_NONE;
}

static void store_dealloc(PyObject *object)
{
    ligi_py_store *self = (ligi_py_store *)object;
    if (self->store) {
        Py_BEGIN_ALLOW_THREADS
        lig_store_close(self->store);
        Py_END_ALLOW_THREADS
    }
    ligi_py_free(object);
}

static PyObject *store_uri(PyObject *object, void *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    return PyUnicode_FromString(self->store ? lig_store_uri(self->store) : "");
}

/* --- listing --------------------------------------------------------------------------------- */

static void drop_model(void *model)
{
    lig_model_destroy(model);
}

PyObject *ligi_py_model_own(const ligi_py_state *state, lig_model *model)
{
    return ligi_py_model_new(state, model, ligi_py_region_create(model, drop_model), 0, 1);
}

static PyObject *store_model(PyObject *object, PyObject *which)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    ligi_py_version version;
    if (ligi_py_version_of(state, which, &version) < 0)
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    if (!store)
        return NULL;
    lig_model *model = NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(version.name ? lig_store_model(store, version.name, &model)
                                      : lig_store_model_id(store, version.id, &model));
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? ligi_py_model_own(state, model) : NULL;
}

PyObject *ligi_py_models_list(const ligi_py_state *state, lig_model *const *models, size_t count,
                              ligi_py_region *region)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        ligi_py_region_hold(region);
        ligi_py_put_item(&list, i, ligi_py_model_new(state, models[i], region, 0, 1));
    }
    return list;
}

typedef struct models { /* one allocation of the library behind many Model objects */
    lig_model **models;
    size_t count;
} models;

static void drop_models(void *handle)
{
    models *self = handle;
    lig_models_destroy(self->models, self->count);
    free(self);
}

static PyObject *models_list(const ligi_py_state *state, lig_model **list, size_t count)
{
    models *all = malloc(sizeof *all);
    if (!all) {
        lig_models_destroy(list, count);
        return PyErr_NoMemory();
    }
    *all = (models){list, count};
    ligi_py_region *region = ligi_py_region_create(all, drop_models);
    PyObject *result = region ? ligi_py_models_list(state, list, count, region) : NULL;
    ligi_py_region_drop(region);
    return result;
}

static PyObject *store_models(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name, *tags, *order;
    Py_ssize_t limit;
    lig_query query = LIG_QUERY_INIT;
    if (!PyArg_ParseTuple(args, "OOOn", &name, &tags, &order, &limit))
        return NULL;
    query.limit = limit > 0 ? (size_t)limit : 0;
    if (ligi_py_optional_text(state, name, "the pattern", &query.name) < 0 ||
        ligi_py_optional_text(state, order, "the order", &query.order) < 0)
        return NULL;
    lig_tag *wanted = ligi_py_tags_of(state, tags, &query.tag_count);
    query.tags = wanted;
    lig_store *store = wanted ? ligi_py_store_enter(self) : NULL;
    if (!store) {
        PyMem_Free(wanted);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    lig_model **list = NULL;
    size_t count = 0;
    lig_status status = LIGI_PY_UNLOCKED(lig_store_models(store, &query, &list, &count));
    PyMem_Free(wanted);
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? models_list(state, list, count) : NULL;
}

static PyObject *store_aliases(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    lig_store *store = ligi_py_store_enter(self);
    PyObject *dict = store ? PyDict_New() : NULL;
    lig_status status = LIG_OK;
    for (size_t i = 0; dict && status == LIG_OK; i++) {
        char *alias = NULL, *model = NULL;
        status = LIGI_PY_UNLOCKED(lig_store_alias_at(store, i, &alias, &model));
        if (status != LIG_OK)
            break;
        PyObject *value =
            PyUnicode_DecodeUTF8(model, (Py_ssize_t)strlen(model), "backslashreplace");
        if (!value || PyDict_SetItemString(dict, alias, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
        lig_text_destroy(alias);
        lig_text_destroy(model);
    }
    if (!store)
        return NULL;
    PyObject *result = ligi_py_store_finish(self, status == LIG_E_NOTFOUND ? LIG_OK : status);
    if (!result)
        Py_CLEAR(dict);
    Py_XDECREF(result);
    return dict;
}

static PyObject *store_stat(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    lig_store *store = ligi_py_store_enter(self);
    lig_store_stats stats = {0};
    char text[512] = "";
    lig_status status;
    if (!store)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = lig_store_stat(store, &stats);
    if (status == LIG_OK)
        status = lig_store_describe(store, text, sizeof text);
    Py_END_ALLOW_THREADS
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    if (!result)
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "models", (unsigned long long)stats.models, "tensors",
        (unsigned long long)stats.tensors, "packs", (unsigned long long)stats.packs, "bytes",
        (unsigned long long)stats.bytes, "stored_bytes", (unsigned long long)stats.stored_bytes,
        "version", (unsigned long long)stats.version, "medium", text);
}

/* --- change and care ------------------------------------------------------------------------ */

static PyObject *store_update(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name, *metrics, *tags, *meta, *new_name, *result = NULL;
    lig_update update = LIG_UPDATE_INIT;
    if (!PyArg_ParseTuple(args, "UOOOO", &name, &metrics, &tags, &meta, &new_name))
        return NULL;
    const char *model = ligi_py_text(state, name, "the name of a model");
    if (!model || ligi_py_optional_text(state, meta, "meta", &update.meta) < 0 ||
        ligi_py_optional_text(state, new_name, "the new name", &update.name) < 0)
        return NULL;
    lig_metric *numbers = ligi_py_metrics_of(state, metrics, &update.metric_count);
    lig_tag *words = numbers ? ligi_py_tags_of(state, tags, &update.tag_count) : NULL;
    update.metrics = numbers;
    update.tags = words;
    lig_store *store = words ? ligi_py_store_enter(self) : NULL;
    if (store) {
        lig_status status = LIGI_PY_UNLOCKED(lig_store_update(store, model, &update));
        result = ligi_py_store_finish(self, status);
    }
    PyMem_Free(numbers);
    PyMem_Free(words);
    return result;
}

static PyObject *store_alias(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *alias, *name;
    const char *model;
    if (!PyArg_ParseTuple(args, "UO", &alias, &name))
        return NULL;
    const char *text = ligi_py_text(state, alias, "an alias");
    if (!text || ligi_py_optional_text(state, name, "the name of a model", &model) < 0)
        return NULL;
    RUN(self, lig_store_alias(store, text, model));
}

static PyObject *store_retire(PyObject *object, PyObject *name)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const char *model = ligi_py_text(ligi_py_state_of(object), name, "the name of a model");
    if (!model)
        return NULL;
    RUN(self, lig_store_retire(store, model));
}

static PyObject *store_retire_now(PyObject *object, PyObject *name)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const char *model = ligi_py_text(ligi_py_state_of(object), name, "the name of a model");
    if (!model)
        return NULL;
    RUN(self, lig_store_retire_now(store, model));
}

static PyObject *store_restore(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name, *other;
    const char *as;
    if (!PyArg_ParseTuple(args, "UO", &name, &other))
        return NULL;
    const char *model = ligi_py_text(state, name, "the name of a model");
    if (!model || ligi_py_optional_text(state, other, "the name of a model", &as) < 0)
        return NULL;
    RUN(self, lig_store_restore(store, model, as));
}

static PyObject *report_dict(lig_report *report)
{
    PyObject *problems = PyList_New(0);
    for (size_t i = 0; problems && i < report->problem_count; i++) {
        const char *text = report->problems[i];
        PyObject *sentence =
            PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
        if (!sentence || PyList_Append(problems, sentence) < 0)
            Py_CLEAR(problems);
        Py_XDECREF(sentence);
    }
    PyObject *result = NULL;
    if (problems)
        result = Py_BuildValue(
            "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N}", "models", (unsigned long long)report->models,
            "tensors", (unsigned long long)report->tensors, "packs",
            (unsigned long long)report->packs, "bytes", (unsigned long long)report->bytes,
            "freed_bytes", (unsigned long long)report->freed_bytes, "leftover_bytes",
            (unsigned long long)report->leftover_bytes, "repaired",
            (unsigned long long)report->repaired, "problems", problems);
    lig_report_destroy(report);
    return result;
}

static PyObject *reported(ligi_py_store *self, lig_status status, lig_report *report)
{
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? report_dict(report) : NULL;
}

/* Called without the GIL on the thread that called the library. */
static int call_progress(void *context, uint64_t done, uint64_t total)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyErr_CheckSignals() < 0
                           ? NULL
                           : PyObject_CallFunction(context, "KK", (unsigned long long)done,
                                                   (unsigned long long)total);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return result == NULL;
}

static PyObject *store_check(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    int repair;
    PyObject *hook;
    if (!PyArg_ParseTuple(args, "pO", &repair, &hook))
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    if (!store)
        return NULL;
    lig_report *report = NULL;
    lig_progress progress = {call_progress, hook};
    lig_status status = LIGI_PY_UNLOCKED(
        lig_store_check_progress(store, repair ? LIG_CHECK_REPAIR : 0, &progress, &report));
    return reported(self, status, report);
}

static PyObject *store_shutdown_server(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    RUN(self, lig_store_shutdown_server(store));
}

static PyObject *store_compact(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_store *self = (ligi_py_store *)object;
    lig_store *store = ligi_py_store_enter(self);
    if (!store)
        return NULL;
    lig_report *report = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_store_compact(store, &report));
    return reported(self, status, report);
}

static PyMethodDef methods[] = {
    {"close", store_close, METH_NOARGS, NULL},
    {"save", ligi_py_store_save, METH_VARARGS, "save(name, batch, options) -> Model"},
    {"save_start", ligi_py_store_save_start, METH_VARARGS,
     "save_start(name, batch, options) -> Ticket"},
    {"save_copy", ligi_py_store_save_copy, METH_VARARGS,
     "save_copy(name, batch, options, flags, arena) -> Ticket: copies tensors whose flag is 1 "
     "before it returns."},
    {"join", ligi_py_store_join, METH_VARARGS, "join(name, (bytes, ...), options) -> Model"},
    {"find", ligi_py_store_find, METH_VARARGS,
     "find(graph, tags, exclude, prefer, limit, lease_ns) -> [Match]"},
    {"resolve", ligi_py_store_resolve, METH_O,
     "resolve(name, id or Match) -> Ref: one version of a model, independent of later changes"},
    {"model", store_model, METH_O, "model(name or id) -> Model"},
    {"models", store_models, METH_VARARGS, "models(pattern, tags, order, limit) -> [Model]"},
    {"aliases", store_aliases, METH_NOARGS, "aliases() -> {alias: model}"},
    {"update", store_update, METH_VARARGS, "update(name, metrics, tags, meta, new_name)"},
    {"alias", store_alias, METH_VARARGS, "alias(alias, model or None)"},
    {"retire", store_retire, METH_O, "retire(name)"},
    {"retire_now", store_retire_now, METH_O, "retire_now(name)"},
    {"restore", store_restore, METH_VARARGS, "restore(name, as_)"},
    {"lineage", ligi_py_store_lineage, METH_O,
     "lineage(name or id) -> (Model, [ancestor], [child])"},
    {"time_stamps", ligi_py_store_time_stamps, METH_O, "time_stamps(name or None) -> dict"},
    {"shutdown_server", store_shutdown_server, METH_NOARGS, NULL},
    {"clear_time_stamps", ligi_py_store_clear_time_stamps, METH_O, NULL},
    {"check", store_check, METH_VARARGS,
     "check(repair, progress) -> report; progress(done, total) is called between reads"},
    {"compact", store_compact, METH_NOARGS, "compact() -> report"},
    {"stat", store_stat, METH_NOARGS, "stat() -> dict"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {{"uri", store_uri, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_init, store_init}, {Py_tp_dealloc, store_dealloc}, {Py_tp_methods, methods},
    {Py_tp_getset, getset},   {Py_tp_doc, "Store(uri)"},      {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Store", sizeof(ligi_py_store), 0, Py_TPFLAGS_DEFAULT,
                           slots};

static PyObject *served_uri(PyObject *module, PyObject *given)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    char uri[LIG_SERVED_URI_BYTES];
    const char *name = ligi_py_text(state, given, "the name of a store");
    if (!name)
        return NULL;
    lig_status status = lig_served_uri(name, uri, sizeof uri);
    return status == LIG_OK ? PyUnicode_FromString(uri) : ligi_py_raise(state, status);
}

static PyMethodDef functions[] = {
    {"served_uri", served_uri, METH_O,
     "served_uri(text) -> URI of a store that is named by host:port or an address file"},
    {NULL, NULL, 0, NULL},
};

int ligi_py_store_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->store_type) < 0
               ? -1
               : PyModule_AddFunctions(module, functions);
}
