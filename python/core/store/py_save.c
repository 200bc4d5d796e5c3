#include "store/py_find.h"
#include "store/py_part.h"

#include <stdlib.h>

/* --- options -------------------------------------------------------------------------------- */

void ligi_py_options_fini(lig_save_options *options)
{
    PyMem_Free((void *)(uintptr_t)options->metrics);
    PyMem_Free((void *)(uintptr_t)options->tags);
    PyMem_Free((void *)(uintptr_t)options->graphs);
    options->metrics = NULL;
    options->tags = NULL;
    options->graphs = NULL;
}

static lig_graph *graphs_of(const ligi_py_state *state, PyObject *tuple, size_t *count)
{
    *count = tuple ? (size_t)PyTuple_Size(tuple) : 0;
    lig_graph *graphs = PyMem_Calloc(*count + 1, sizeof *graphs);
    for (size_t i = 0; graphs && i < *count; i++) {
        const lig_graph *graph = ligi_py_graph_of(state, PyTuple_GetItem(tuple, (Py_ssize_t)i));
        if (!graph) {
            PyMem_Free(graphs);
            return NULL;
        }
        graphs[i] = *graph;
    }
    return graphs;
}

int ligi_py_options_init(const ligi_py_state *state, PyObject *tuple, const ligi_py_batch *batch,
                         lig_save_options *options)
{
    PyObject *parent, *metrics, *tags, *meta, *structure, *graphs = NULL;
    PyObject *match = Py_None, *part = Py_None;
    *options = (lig_save_options)LIG_SAVE_INIT;
    if (!PyArg_ParseTuple(tuple, "IOOOOO|O!OO", &options->flags, &parent, &metrics, &tags, &meta,
                          &structure, &PyTuple_Type, &graphs, &match, &part) ||
        ligi_py_part_options(state, part, batch, options) < 0)
        return -1;
    if (match != Py_None && !(options->match = ligi_py_match_of(state, match)))
        return -1;
    if (ligi_py_optional_text(state, parent, "the name of the parent", &options->parent) < 0 ||
        ligi_py_optional_text(state, meta, "meta", &options->meta) < 0 ||
        ligi_py_optional_text(state, structure, "the structure", &options->structure) < 0)
        return -1;
    options->metrics = ligi_py_metrics_of(state, metrics, &options->metric_count);
    options->tags = options->metrics ? ligi_py_tags_of(state, tags, &options->tag_count) : NULL;
    options->graphs = options->tags ? graphs_of(state, graphs, &options->graph_count) : NULL;
    if (options->metrics && options->tags && options->graphs)
        return 0;
    ligi_py_options_fini(options);
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    return -1;
}

/* --- what changes after the call ------------------------------------------------------------ */

typedef struct snapshot {
    ligi_py_batch *batch;
    const char *copy; /* copy[i]: tensor i changes after the call, so that its bytes are taken
                         before it returns */
    char *arena;      /* where to; what does not fit is written before the call returns */
    uint64_t arena_bytes;
} snapshot;

#define ARENA_ALIGN UINT64_C(64)

static lig_status wait_for(lig_save *save, size_t index)
{
    uint64_t done = 0;
    LIG_TRY(lig_save_progress(save, index, LIG_FOREVER, &done));
    /* Less means that the save has ended early; the commit reports the reason. */
    return LIG_OK;
}

static lig_status offer_all(const snapshot *work, lig_save *save)
{
    uint64_t used = 0;
    for (size_t i = 0; i < work->batch->count; i++) {
        const lig_tensor *tensor = &work->batch->tensors[i];
        if (!work->copy[i]) {
            LIG_TRY(lig_save_offer(save, tensor->data, tensor->strides));
            continue;
        }
        if (tensor->memory == LIG_MEMORY_HOST && tensor->bytes <= work->arena_bytes - used) {
            lig_tensor_pack(tensor, work->arena + used);
            LIG_TRY(lig_save_offer(save, work->arena + used, NULL));
            uint64_t step = (tensor->bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
            used = step > work->arena_bytes - used ? work->arena_bytes : used + step;
            continue;
        }
        /* Tensors are gathered in order: once this one is, the whole arena is free again. */
        LIG_TRY(lig_save_offer(save, tensor->data, tensor->strides));
        LIG_TRY(wait_for(save, i));
        used = 0;
    }
    return LIG_OK;
}

static lig_status snapshot_save(const snapshot *work, lig_store *store, const char *model,
                                const lig_save_options *options, lig_ticket **ticket)
{
    lig_save *save = NULL;
    LIG_TRY(lig_save_begin(&save, store, model, work->batch->tensors, work->batch->count, options));
    lig_status status = offer_all(work, save);
    if (status != LIG_OK) {
        lig_save_abort(save);
        return status;
    }
    return lig_save_commit(save, ticket);
}

/* --- save ----------------------------------------------------------------------------------- */

PyObject *ligi_py_saved(const ligi_py_state *state, PyObject *result, lig_model *model)
{
    if (!result || !model)
        return result;
    Py_DECREF(result);
    return ligi_py_model_own(state, model);
}

typedef struct arguments {
    const char *model;
    ligi_py_batch *batch;
    PyObject *tuple;
    lig_save_options options;
} arguments;

/* The Ticket of a save that was begun, or NULL with the exception of one that was not. */
static PyObject *ticket_of(PyObject *object, PyObject *result, lig_ticket *ticket,
                           lig_model **saved, PyObject *kept)
{
    PyObject *out = NULL;
    if (result && kept)
        out = ligi_py_ticket_new(ligi_py_state_of(object), ticket, saved, object, kept);
    else
        free(saved);
    if (!saved)
        PyErr_NoMemory();
    Py_XDECREF(result);
    Py_XDECREF(kept);
    return out;
}

static int parse(PyObject *object, PyObject *args, arguments *given)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name;
    if (!PyArg_ParseTuple(args, "UO!O!", &name, state->batch_type, &given->batch, &PyTuple_Type,
                          &given->tuple))
        return -1;
    given->model = ligi_py_text(state, name, "the name of a model");
    return given->model ? ligi_py_options_init(state, given->tuple, given->batch, &given->options)
                        : -1;
}

PyObject *ligi_py_store_save(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    arguments given;
    lig_model *saved = NULL;
    if (parse(object, args, &given) < 0)
        return NULL;
    given.options.model = &saved;
    lig_store *store = ligi_py_store_enter(self);
    PyObject *result = NULL;
    if (store) {
        lig_status status = LIGI_PY_UNLOCKED(lig_store_save(
            store, given.model, given.batch->tensors, given.batch->count, &given.options));
        result = ligi_py_store_finish(self, status);
    }
    ligi_py_options_fini(&given.options);
    return ligi_py_saved(ligi_py_state_of(object), result, saved);
}

PyObject *ligi_py_store_save_start(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    arguments given;
    lig_ticket *ticket = NULL;
    if (parse(object, args, &given) < 0)
        return NULL;
    lig_model **saved = given.options.model = calloc(1, sizeof *saved);
    PyObject *kept = saved ? PyTuple_Pack(2, (PyObject *)given.batch, given.tuple) : NULL;
    lig_store *store = kept ? ligi_py_store_enter(self) : NULL;
    PyObject *result = NULL;
    if (store) {
        lig_status status = LIGI_PY_UNLOCKED(lig_store_save_start(
            store, given.model, given.batch->tensors, given.batch->count, &given.options, &ticket));
        result = ligi_py_store_finish(self, status);
    }
    ligi_py_options_fini(&given.options);
    return ticket_of(object, result, ticket, saved, kept);
}

PyObject *ligi_py_store_save_copy(PyObject *object, PyObject *args)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *name, *tuple, *arena;
    snapshot work = {0};
    Py_ssize_t flag_count;
    lig_save_options options;
    if (!PyArg_ParseTuple(args, "UO!O!y#O", &name, state->batch_type, &work.batch, &PyTuple_Type,
                          &tuple, &work.copy, &flag_count, &arena))
        return NULL;
    work.arena = ligi_py_memory_data(state, arena, &work.arena_bytes);
    const char *model = work.arena ? ligi_py_text(state, name, "the name of a model") : NULL;
    if (!model || (size_t)flag_count != work.batch->count)
        return model ? PyErr_Format(PyExc_ValueError, "expected one flag per tensor") : NULL;
    if (ligi_py_options_init(state, tuple, work.batch, &options) < 0)
        return NULL;
    lig_model **saved = options.model = calloc(1, sizeof *saved);
    PyObject *kept = saved ? PyTuple_Pack(3, (PyObject *)work.batch, arena, tuple) : NULL;
    lig_store *store = kept ? ligi_py_store_enter(self) : NULL;
    PyObject *result = NULL;
    lig_ticket *ticket = NULL;
    if (store) {
        lig_status status = LIGI_PY_UNLOCKED(snapshot_save(&work, store, model, &options, &ticket));
        result = ligi_py_store_finish(self, status);
    }
    ligi_py_options_fini(&options);
    return ticket_of(object, result, ticket, saved, kept);
}
