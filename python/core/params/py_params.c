#include "params/py_params.h"

#include <string.h>

/* --- the handle --- */

lig_params *ligi_py_params_enter(PyObject *object)
{
    ligi_py_params *self = (ligi_py_params *)object;
    if (!self->params || self->closing) {
        ligi_py_fail(ligi_py_state_of(object), LIG_E_CLOSED, "the server is closed");
        return NULL;
    }
    self->users++;
    return self->params;
}

static void free_handle(ligi_py_params *self)
{
    lig_params *params = self->params;
    self->params = NULL;
    Py_BEGIN_ALLOW_THREADS
    lig_params_close(params);
    Py_END_ALLOW_THREADS
}

void ligi_py_params_leave(PyObject *object)
{
    ligi_py_params *self = (ligi_py_params *)object;
    if (--self->users == 0 && self->closing && self->params)
        free_handle(self);
}

/* Whether the worker that this thread is in a call of is being closed. */
static int worker_closes(const ligi_py_params *self)
{
    unsigned long me = PyThread_get_thread_ident();
    for (const ligi_py_params_worker *one = self->workers; one; one = one->next)
        if (one->busy && one->closing && one->thread == me)
            return 1;
    return 0;
}

/* Called by waiting calls, which have released the GIL. */
static int patience(void *context)
{
    const ligi_py_params *self = context;
    PyGILState_STATE state = PyGILState_Ensure();
    int goes_on = !self->closing && !worker_closes(self) && PyErr_CheckSignals() == 0;
    PyGILState_Release(state);
    return goes_on;
}

/* --- tables --- */

typedef struct tables {
    lig_params_table *items;
    Py_buffer *lengths; /* one a table; .obj is NULL where there are none */
    Py_ssize_t count;
} tables;

static void tables_drop(tables *self)
{
    for (Py_ssize_t i = 0; self->lengths && i < self->count; i++)
        if (self->lengths[i].obj)
            PyBuffer_Release(&self->lengths[i]);
    PyMem_Free(self->lengths);
    PyMem_Free(self->items);
}

/* (name or None, keys, length, lengths as uint32 or None, (kind, lr, eps, beta1, beta2, decay),
 * (kind, a, b, seed)) */
static int read_table(PyObject *tuple, lig_params_table *table, Py_buffer *buffer)
{
    PyObject *lengths;
    unsigned long long keys, seed;
    lig_params_optimizer *optimizer = &table->optimizer;
    if (!PyArg_ParseTuple(tuple, "zKIO(Iddddd)(IddK)", &table->name, &keys, &table->length,
                          &lengths, &optimizer->kind, &optimizer->lr, &optimizer->eps,
                          &optimizer->beta1, &optimizer->beta2, &optimizer->weight_decay,
                          &table->init.kind, &table->init.a, &table->init.b, &seed))
        return -1;
    table->key_count = keys;
    table->init.seed = seed;
    if (lengths == Py_None)
        return 0;
    if (PyObject_GetBuffer(lengths, buffer, PyBUF_SIMPLE) < 0) {
        buffer->obj = NULL;
        return -1;
    }
    if ((uint64_t)buffer->len / sizeof(uint32_t) != keys) {
        PyErr_SetString(PyExc_ValueError, "expected one length per key");
        return -1;
    }
    table->lengths = buffer->buf;
    return 0;
}

static int read_tables(PyObject *given, tables *self)
{
    self->count = PyTuple_Size(given);
    self->items = PyMem_Calloc((size_t)self->count + 1, sizeof *self->items);
    self->lengths = PyMem_Calloc((size_t)self->count + 1, sizeof *self->lengths);
    if (!self->items || !self->lengths) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (read_table(PyTuple_GetItem(given, i), &self->items[i], &self->lengths[i]) < 0)
            return -1;
    return 0;
}

/* --- open and close --- */

static int open_params(ligi_py_params *self, const lig_params_options *options)
{
    lig_params *params = NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_open(&params, options));
    if (status != LIG_OK) {
        ligi_py_raise(ligi_py_state_of((PyObject *)self), status);
        return -1;
    }
    self->params = params;
    self->alone = options->node_count == 1;
    self->dtype = options->dtype;
    self->element_bytes = lig_dtype_bytes(options->dtype);
    return 0;
}

/* Params(numbers, tables, address, transport, host, secret, times): numbers are role, rank, nodes,
 * workers, dtype, techniques, flags, threads of a batch; times timeout, liveness, spin and round in
 * nanoseconds. */
static int params_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    ligi_py_params *self = (ligi_py_params *)object;
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    PyObject *given;
    tables found = {0};
    Py_buffer secret = {0};
    long long timeout, liveness, spin, round;
    if (self->params || self->closing) {
        ligi_py_fail(ligi_py_state_of(object), LIG_E_EXISTS, "this server is already open");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "(IIIIIIII)O!zzzz*(LLLL)", &options.role, &options.rank,
                          &options.node_count, &options.worker_count, &options.dtype,
                          &options.techniques, &options.flags, &options.batch_threads,
                          &PyTuple_Type, &given, &options.address, &options.transport,
                          &options.host, &secret, &timeout, &liveness, &spin, &round))
        return -1;
    options.timeout_ns = timeout;
    options.liveness_ns = liveness;
    options.spin_ns = spin;
    options.round_ns = round;
    options.secret = secret.buf;
    options.secret_bytes = (size_t)secret.len;
    options.patience = patience;
    options.patience_context = self;
    int done = read_tables(given, &found);
    options.tables = found.items;
    options.table_count = (uint32_t)found.count;
    if (done == 0)
        done = open_params(self, &options);
    tables_drop(&found);
    if (secret.obj)
        PyBuffer_Release(&secret);
    return done;
}

static PyObject *params_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_params *self = (ligi_py_params *)object;
    if (!self->params || self->closing)
        Py_RETURN_NONE;
    self->closing = 1; /* calls on other threads see it soon; the last one frees */
    if (self->users == 0)
        free_handle(self);
    Py_RETURN_NONE;
}

static void params_dealloc(PyObject *object)
{
    ligi_py_params *self = (ligi_py_params *)object;
    if (self->params)
        free_handle(self);
    ligi_py_free(object);
}

/* --- calls --- */

static PyObject *ended(PyObject *object, lig_status status)
{
    ligi_py_params_leave(object);
    return ligi_py_none(ligi_py_state_of(object), status);
}

static PyObject *params_shutdown(PyObject *object, PyObject *timeout)
{
    ligi_py_params *self = (ligi_py_params *)object;
    int64_t left = ligi_py_milliseconds(ligi_py_state_of(object), timeout), whole = left;
    lig_params *params = left == -2 ? NULL : ligi_py_params_enter(object);
    if (!params)
        return NULL;
    lig_status status;
    for (;;) {
        int64_t slice = ligi_py_slice(left);
        status = LIGI_PY_UNLOCKED(lig_params_shutdown(params, slice));
        left -= left < 0 ? 0 : slice;
        if (status != LIG_E_TIMEOUT || left == 0 || self->closing || PyErr_CheckSignals() < 0)
            break;
    }
    if (status == LIG_E_TIMEOUT && !PyErr_Occurred()) {
        ligi_py_late(ligi_py_state_of(object), whole);
        ligi_py_params_leave(object);
        return NULL;
    }
    return ended(object, status);
}

static PyObject *params_barrier(PyObject *object, PyObject *timeout)
{
    int64_t timeout_ns = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    lig_params *params = timeout_ns == -2 ? NULL : ligi_py_params_enter(object);
    if (!params)
        return NULL;
    return ended(object, LIGI_PY_UNLOCKED(lig_params_barrier(params, timeout_ns)));
}

typedef lig_status (*keeping)(lig_params *, const char *, const char *, int64_t);

static PyObject *keep_call(PyObject *object, PyObject *args, keeping call)
{
    const char *uri, *model;
    PyObject *timeout;
    if (!PyArg_ParseTuple(args, "ssO", &uri, &model, &timeout))
        return NULL;
    int64_t timeout_ns = ligi_py_milliseconds(ligi_py_state_of(object), timeout);
    lig_params *params = timeout_ns == -2 ? NULL : ligi_py_params_enter(object);
    if (!params)
        return NULL;
    return ended(object, LIGI_PY_UNLOCKED(call(params, uri, model, timeout_ns)));
}

static PyObject *params_save(PyObject *object, PyObject *args)
{
    return keep_call(object, args, lig_params_save);
}

static PyObject *params_load(PyObject *object, PyObject *args)
{
    return keep_call(object, args, lig_params_load);
}

static PyObject *params_offset(PyObject *object, PyObject *name)
{
    const char *table = ligi_py_text(ligi_py_state_of(object), name, "the name of a table");
    lig_params *params = table ? ligi_py_params_enter(object) : NULL;
    if (!params)
        return NULL;
    int64_t key = 0;
    lig_status status = lig_params_offset(params, table, &key);
    PyObject *none = ended(object, status);
    Py_XDECREF(none);
    return none ? PyLong_FromLongLong(key) : NULL;
}

static PyObject *params_length(PyObject *object, PyObject *number)
{
    long long key = ligi_py_whole(ligi_py_state_of(object), number);
    lig_params *params = PyErr_Occurred() ? NULL : ligi_py_params_enter(object);
    if (!params)
        return NULL;
    uint32_t length = lig_params_length(params, key);
    ligi_py_params_leave(object);
    return PyLong_FromUnsignedLong(length);
}

static PyObject *params_set_lr(PyObject *object, PyObject *args)
{
    const char *table;
    double lr;
    if (!PyArg_ParseTuple(args, "zd", &table, &lr))
        return NULL;
    lig_params *params = ligi_py_params_enter(object);
    return params ? ended(object, lig_params_set_lr(params, table, lr)) : NULL;
}

static PyObject *params_get_lr(PyObject *object, PyObject *args)
{
    const char *table;
    double lr = 0;
    if (!PyArg_ParseTuple(args, "z", &table))
        return NULL;
    lig_params *params = ligi_py_params_enter(object);
    if (!params)
        return NULL;
    PyObject *none = ended(object, lig_params_get_lr(params, table, &lr));
    Py_XDECREF(none);
    return none ? PyFloat_FromDouble(lr) : NULL;
}

/* Of all rows that can be sampled. */
static uint32_t sampled_length(const lig_params *params, const lig_params_sampling *sampling)
{
    int64_t first = sampling->min;
    while (sampling->weights && first < sampling->max - 1 &&
           sampling->weights[first - sampling->min] == 0)
        first++;
    return lig_params_length(params, first);
}

/* enable_sampling(scheme, distribution, min, max, weights or None, replacement, pool, reuse, seed)
 */
static PyObject *params_enable_sampling(PyObject *object, PyObject *args)
{
    lig_params_sampling sampling = {0};
    PyObject *weights;
    long long from, to;
    unsigned long long seed;
    ligi_py_flat flat = {0};
    const ligi_py_state *state = ligi_py_state_of(object);
    if (!PyArg_ParseTuple(args, "IILLOpIIK", &sampling.scheme, &sampling.distribution, &from, &to,
                          &weights, &sampling.with_replacement, &sampling.pool_size,
                          &sampling.reuse, &seed))
        return NULL;
    sampling.min = from;
    sampling.max = to;
    sampling.seed = seed;
    if (weights != Py_None && ligi_py_flat_read(state, weights, "weights", 0, &flat) < 0)
        return NULL;
    sampling.weights = flat.data;
    PyObject *result = NULL;
    if (weights != Py_None &&
        (flat.dtype != LIG_FLOAT64 || to < from || flat.count != (uint64_t)to - (uint64_t)from)) {
        ligi_py_fail(state, LIG_E_INVALID, "%lld keys have %llu weights", to - from,
                     (unsigned long long)flat.count);
        goto weights;
    }
    lig_params *params = ligi_py_params_enter(object);
    if (!params)
        goto weights;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_enable_sampling(params, &sampling));
    if (status == LIG_OK)
        ((ligi_py_params *)object)->sample_length = sampled_length(params, &sampling);
    result = ended(object, status);
weights:
    ligi_py_flat_drop(&flat);
    return result;
}

static PyObject *params_stats(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_params_stats s;
    lig_params *params = ligi_py_params_enter(object);
    if (!params)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_stats_get(params, &s));
    PyObject *none = ended(object, status);
    if (!none)
        return NULL;
    Py_DECREF(none);
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsK}", "pulls", s.pulls, "pushes",
                         s.pushes, "sets", s.sets, "local", s.local, "replica", s.replica, "shared",
                         s.shared, "remote", s.remote, "intents", s.intents, "relocations_in",
                         s.relocations_in, "relocations_out", s.relocations_out, "replications",
                         s.replications, "drops", s.drops, "forwarded", s.forwarded, "rounds",
                         s.rounds, "bytes_sent", s.bytes_sent, "bytes_received", s.bytes_received,
                         "rows_owned", s.rows_owned, "rows_copied", s.rows_copied, "samples",
                         s.samples);
}

static PyObject *params_stats_reset(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_params *params = ligi_py_params_enter(object);
    if (!params)
        return NULL;
    return ended(object, LIGI_PY_UNLOCKED(lig_params_stats_reset(params)));
}

static PyObject *params_facts(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_params *params = ligi_py_params_enter(object);
    if (!params)
        return NULL;
    PyObject *facts = Py_BuildValue("IIK", lig_params_rank(params), lig_params_node_count(params),
                                    (unsigned long long)lig_params_key_count(params));
    ligi_py_params_leave(object);
    return facts;
}

static PyMethodDef methods[] = {
    {"attach", ligi_py_params_attach, METH_VARARGS,
     "attach(worker, id, ticket class, local ticket): open the worker."},
    {"close", params_close, METH_NOARGS, "close(): leave without waiting, and free the memory."},
    {"shutdown", params_shutdown, METH_O,
     "shutdown(milliseconds): wait for all nodes. Call close afterwards."},
    {"barrier", params_barrier, METH_O, "barrier(milliseconds): wait for all nodes"},
    {"save", params_save, METH_VARARGS, "save(uri, model, milliseconds)"},
    {"load", params_load, METH_VARARGS, "load(uri, model, milliseconds)"},
    {"offset", params_offset, METH_O, "offset(table) -> first key"},
    {"length", params_length, METH_O, "length(key) -> elements, 0 for an invalid key"},
    {"set_lr", params_set_lr, METH_VARARGS, "set_lr(table or None, lr)"},
    {"get_lr", params_get_lr, METH_VARARGS, "get_lr(table or None) -> float"},
    {"enable_sampling", params_enable_sampling, METH_VARARGS,
     "enable_sampling(scheme, distribution, min, max, weights, replacement, pool, reuse, seed)"},
    {"stats", params_stats, METH_NOARGS, "stats() -> dict"},
    {"stats_reset", params_stats_reset, METH_NOARGS, "stats_reset()"},
    {"facts", params_facts, METH_NOARGS, "facts() -> (rank, nodes, keys)"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, params_init},
    {Py_tp_dealloc, params_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "One node of a parameter manager, or its scheduler."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Params", sizeof(ligi_py_params), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int ligi_py_params_init(PyObject *module)
{
    if (ligi_py_add_type(module, &spec, NULL) < 0 || ligi_py_params_worker_init(module) < 0)
        return -1;
    return ligi_py_device_rows_init(module);
}
