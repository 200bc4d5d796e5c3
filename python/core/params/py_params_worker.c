#include "params/py_params.h"

/* --- the handle --- */

/* NULL before it was opened. */
static const ligi_py_state *state_of(PyObject *object)
{
    return ((ligi_py_params_worker *)object)->state;
}

lig_params_worker *ligi_py_worker_enter(PyObject *object)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    if (!self->worker || self->closing) {
        if (self->state)
            ligi_py_fail(self->state, LIG_E_CLOSED, "the worker is closed");
        else
            PyErr_SetString(PyExc_RuntimeError, "the worker was not opened");
        return NULL;
    }
    if (self->busy) {
        ligi_py_fail(
            self->state, LIG_E_BUSY,
            "another thread is using this worker: only one thread at a time may use a worker");
        return NULL;
    }
    self->busy = 1;
    self->thread = PyThread_get_thread_ident();
    return self->worker;
}

/* No pull writes into its memory once the worker is closed. */
static void free_worker(ligi_py_params_worker *self)
{
    lig_params_worker *worker = self->worker;
    ligi_py_params_worker **at = &self->owner->workers;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    self->worker = NULL;
    Py_BEGIN_ALLOW_THREADS
    lig_params_worker_close(worker);
    Py_END_ALLOW_THREADS
    Py_CLEAR(self->kept);
    ligi_py_params_leave((PyObject *)self->owner);
}

void ligi_py_worker_leave(PyObject *object)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    self->busy = 0;
    if (self->closing && self->worker)
        free_worker(self);
}

PyObject *ligi_py_params_attach(PyObject *object, PyObject *args)
{
    ligi_py_state *state = ligi_py_state_of(object);
    PyObject *given, *ticket, *local;
    unsigned int id;
    if (!PyArg_ParseTuple(args, "O!IOO", state->params_worker_type, &given, &id, &ticket, &local))
        return NULL;
    ligi_py_params_worker *self = (ligi_py_params_worker *)given;
    if (self->state)
        return ligi_py_fail(state, LIG_E_EXISTS, "this worker is already open");
    PyObject *kept = PyDict_New();
    lig_params *params = kept ? ligi_py_params_enter(object) : NULL;
    if (!params) {
        Py_XDECREF(kept);
        return NULL;
    }
    lig_status status = LIGI_PY_UNLOCKED(lig_params_worker_open(&self->worker, params, id));
    if (status != LIG_OK) {
        Py_DECREF(kept);
        ligi_py_raise(state, status);
        ligi_py_params_leave(object);
        return NULL;
    }
    self->owner = (ligi_py_params *)Py_NewRef(object); /* and stays one of its users */
    self->state = state;
    self->kept = kept;
    self->ticket = Py_NewRef(ticket);
    self->local = Py_NewRef(local);
    self->next = self->owner->workers;
    self->owner->workers = self;
    Py_RETURN_NONE;
}

static PyObject *worker_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    if (!self->worker || self->closing)
        Py_RETURN_NONE;
    self->closing = 1; /* a call on another thread sees it soon, and frees */
    if (!self->busy)
        free_worker(self);
    Py_RETURN_NONE;
}

static int worker_traverse(PyObject *object, visitproc visit, void *arg)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->kept);
    Py_VISIT(self->ticket);
    Py_VISIT(self->local);
    return 0;
}

static void worker_dealloc(PyObject *object)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(object);
    if (self->worker)
        free_worker(self);
    Py_XDECREF(self->kept);
    Py_XDECREF(self->ticket);
    Py_XDECREF(self->local);
    Py_XDECREF((PyObject *)self->owner);
    release(object);
    Py_DECREF(type);
}

/* --- arguments --- */

static int named(const char *const *names, PyObject *name)
{
    for (int i = 0; names[i]; i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return i;
    return -1;
}

int ligi_py_arguments(const ligi_py_call *call, const char *const *names, int needed,
                      PyObject **out)
{
    int known = 0;
    while (names[known])
        out[known++] = NULL;
    if (call->count > known) {
        PyErr_Format(PyExc_TypeError, "expected at most %d arguments, not %zd", known, call->count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < call->count; i++)
        out[i] = call->args[i];
    Py_ssize_t more = call->names ? PyTuple_Size(call->names) : 0;
    for (Py_ssize_t i = 0; i < more; i++) {
        PyObject *name = PyTuple_GetItem(call->names, i);
        int at = named(names, name);
        if (at < 0 || out[at]) {
            PyErr_Format(PyExc_TypeError, "argument %R is %s", name,
                         at < 0 ? "not known" : "given twice");
            return -1;
        }
        out[at] = call->args[call->count + i];
    }
    for (int i = 0; i < needed; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "argument '%s' is missing", names[i]);
            return -1;
        }
    }
    return 0;
}

/* --- waiting --- */

static void let_go(ligi_py_params_worker *self, int64_t ticket)
{
    PyObject *number = PyDict_Size(self->kept) > 0 ? PyLong_FromLongLong(ticket) : NULL;
    if (number && PyDict_DelItem(self->kept, number) < 0)
        PyErr_Clear();
    Py_XDECREF(number);
}

/* The library polls `patience` meanwhile, here and in the other calls that wait. */
lig_status ligi_py_worker_await(PyObject *object, int64_t ticket, int64_t timeout_ns)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_wait(self->worker, ticket, timeout_ns));
    if (!PyErr_Occurred() &&
        (status == LIG_OK || (status != LIG_E_TIMEOUT && lig_params_done(self->worker, ticket))))
        let_go(self, ticket);
    return status;
}

/* None, or the exception of a status; LIG_E_TIMEOUT says the whole time that was waited. */
static PyObject *ended(PyObject *object, lig_status status, int64_t timeout_ns)
{
    const ligi_py_state *state = state_of(object);
    if (PyErr_Occurred())
        return NULL;
    if (status == LIG_E_TIMEOUT && timeout_ns >= 0)
        return ligi_py_late(state, timeout_ns);
    return ligi_py_none(state, status);
}

/* The error text belongs to this thread and is read before anything else is called. */
static PyObject *leave(PyObject *object, lig_status status, int64_t timeout_ns)
{
    PyObject *result = ended(object, status, timeout_ns);
    ligi_py_worker_leave(object);
    return result;
}

static PyObject *worker_wait(LIGI_PY_FAST)
{
    static const char *const known[] = {"ts", "timeout_ms", NULL};
    const ligi_py_call call = {args, count, names};
    PyObject *given[2];
    if (ligi_py_arguments(&call, known, 1, given) < 0)
        return NULL;
    long long ticket = ligi_py_whole(state_of(object), given[0]);
    int64_t timeout_ns =
        PyErr_Occurred() ? -2
                         : ligi_py_milliseconds(state_of(object), given[1] ? given[1] : Py_None);
    if (timeout_ns == -2 || !ligi_py_worker_enter(object))
        return NULL;
    lig_status status = LIG_OK;
    if (ticket != LIG_PARAMS_LOCAL)
        status = ligi_py_worker_await(object, ticket, timeout_ns);
    return leave(object, status, timeout_ns);
}

static PyObject *worker_done(LIGI_PY_FAST)
{
    static const char *const known[] = {"ts", NULL};
    const ligi_py_call call = {args, count, names};
    PyObject *given[1];
    if (ligi_py_arguments(&call, known, 1, given) < 0)
        return NULL;
    long long ticket = ligi_py_whole(state_of(object), given[0]);
    lig_params_worker *worker = PyErr_Occurred() ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    int done = 1;
    if (ticket != LIG_PARAMS_LOCAL) {
        done = LIGI_PY_UNLOCKED(lig_params_done(worker, ticket));
    }
    ligi_py_worker_leave(object);
    return PyBool_FromLong(done);
}

/* An optional timeout and nothing else. */
static int only_timeout(LIGI_PY_FAST, int64_t *timeout)
{
    static const char *const known[] = {"timeout_ms", NULL};
    const ligi_py_call call = {args, count, names};
    PyObject *given[1];
    if (ligi_py_arguments(&call, known, 0, given) < 0)
        return -1;
    *timeout = ligi_py_milliseconds(state_of(object), given[0] ? given[0] : Py_None);
    return *timeout == -2 ? -1 : 0;
}

typedef lig_status (*waiting)(lig_params_worker *worker, int64_t timeout_ns);

/* One call, and so one deadline, for all that it waits for. All but barriers wait for this worker's
 * own operations first: no pull fills anything after them. */
static PyObject *wait_in(LIGI_PY_FAST, waiting call)
{
    int64_t timeout_ns;
    if (only_timeout(object, args, count, names, &timeout_ns) < 0)
        return NULL;
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    lig_status status = LIGI_PY_UNLOCKED(call(worker, timeout_ns));
    if (status == LIG_OK && call != lig_params_worker_barrier)
        PyDict_Clear(((ligi_py_params_worker *)object)->kept);
    return leave(object, status, timeout_ns);
}

#define WAITING(name, call)                                                                        \
    static PyObject *name(LIGI_PY_FAST)                                                            \
    {                                                                                              \
        return wait_in(object, args, count, names, call);                                          \
    }

WAITING(worker_waitall, lig_params_wait_all)
WAITING(worker_wait_sync, lig_params_wait_sync)
WAITING(worker_flush, lig_params_flush)
WAITING(worker_barrier, lig_params_worker_barrier)
WAITING(worker_begin_setup, lig_params_begin_setup)
WAITING(worker_end_setup, lig_params_end_setup)
WAITING(worker_finalize, lig_params_worker_finalize)

/* --- clocks and samples --- */

static PyObject *clock_as_number(PyObject *object, int64_t now)
{
    return now < 0 ? ligi_py_raise(state_of(object), LIG_E_CLOSED) : PyLong_FromLongLong(now);
}

static PyObject *worker_advance_clock(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    int64_t now = lig_params_advance_clock(worker);
    ligi_py_worker_leave(object);
    return clock_as_number(object, now);
}

static PyObject *worker_current_clock(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    int64_t now = lig_params_current_clock(worker);
    ligi_py_worker_leave(object);
    return clock_as_number(object, now);
}

static PyObject *worker_prepare_sample(LIGI_PY_FAST)
{
    static const char *const known[] = {"n", "start", "end", NULL};
    const ligi_py_call call = {args, count, names};
    PyObject *given[3];
    if (ligi_py_arguments(&call, known, 2, given) < 0)
        return NULL;
    long long wanted = ligi_py_whole(state_of(object), given[0]);
    if (wanted < 0 && !PyErr_Occurred())
        return ligi_py_fail(state_of(object), LIG_E_INVALID, "cannot prepare %lld samples", wanted);
    long long start = PyErr_Occurred() ? 0 : ligi_py_whole(state_of(object), given[1]);
    long long end = PyErr_Occurred() || !given[2] ? 0 : ligi_py_whole(state_of(object), given[2]);
    lig_params_worker *worker = PyErr_Occurred() ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    int64_t sample = 0;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_params_prepare_sample(worker, (uint64_t)wanted, start, end, &sample));
    PyObject *none = leave(object, status, LIG_FOREVER);
    Py_XDECREF(none);
    return none ? PyLong_FromLongLong(sample) : NULL;
}

static PyObject *worker_finish_sample(PyObject *object, PyObject *number)
{
    long long sample = ligi_py_whole(state_of(object), number);
    lig_params_worker *worker = PyErr_Occurred() ? NULL : ligi_py_worker_enter(object);
    return worker ? leave(object, lig_params_finish_sample(worker, sample), LIG_FOREVER) : NULL;
}

#define FAST(f) ((PyCFunction)(void (*)(void))(f)), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"pull", FAST(ligi_py_worker_pull),
     "pull(keys, vals, asynchronous=False): fill vals with the rows, one after another. Returns -1 "
     "if all rows were local, otherwise a ticket; vals must not be used until the ticket has been "
     "waited for."},
    {"push", FAST(ligi_py_worker_push),
     "push(keys, vals, asynchronous=False): add vals to the rows, or pass them as gradients to the "
     "optimizer. vals may be changed when the call returns."},
    {"push_sums", FAST(ligi_py_worker_push_sums),
     "push_sums(keys, vals, places=None, asynchronous=False): push the sum of the gradients of "
     "each "
     "key: row places[i] of vals, or row i, belongs to keys[i]."},
    {"get_rows", FAST(ligi_py_worker_get_rows),
     "get_rows(keys, vals, state): fill vals with the rows and state with their optimizer's state. "
     "Only if the job has one node."},
    {"set_rows", FAST(ligi_py_worker_set_rows),
     "set_rows(keys, vals, state): assign rows and their optimizer's state. Only if the job has "
     "one node."},
    {"set", FAST(ligi_py_worker_set),
     "set(keys, vals, asynchronous=False): assign new values to the rows. vals may be changed when "
     "the call returns."},
    {"pull_if_local", FAST(ligi_py_worker_pull_if_local),
     "pull_if_local(key, vals) -> bool: whether all rows are local; only then is vals filled."},
    {"intent", FAST(ligi_py_worker_intent),
     "intent(keys, start, end=0): announce that the keys will be used while start <= clock < end "
     "(0: start + 1)."},
    {"advance_clock", worker_advance_clock, METH_NOARGS, "advance_clock() -> new clock"},
    {"current_clock", worker_current_clock, METH_NOARGS, "current_clock() -> int"},
    {"prepare_sample", FAST(worker_prepare_sample),
     "prepare_sample(n, start, end=0) -> id: announce that n keys will be sampled at these "
     "clocks."},
    {"pull_sample", FAST(ligi_py_worker_pull_sample),
     "pull_sample(id, keys, vals, asynchronous=False): fill keys and vals with the next samples."},
    {"finish_sample", worker_finish_sample, METH_O,
     "finish_sample(id): discard the remaining samples."},
    {"wait", FAST(worker_wait), "wait(ts, timeout_ms=None): wait until the operation has ended."},
    {"waitall", FAST(worker_waitall),
     "waitall(timeout_ms=None): wait until all operations have ended."},
    {"is_finished", FAST(worker_done), "is_finished(ts) -> bool"},
    {"wait_sync", FAST(worker_wait_sync),
     "wait_sync(timeout_ms=None): wait until this node's pushes have reached the owners of the "
     "rows, and received updates are applied."},
    {"flush", FAST(worker_flush),
     "flush(timeout_ms=None): wait until this worker's pushes are in the rows and in every "
     "replica."},
    {"barrier", FAST(worker_barrier),
     "barrier(timeout_ms=None): wait for all workers of all nodes."},
    {"begin_setup", FAST(worker_begin_setup),
     "begin_setup(timeout_ms=None): a barrier before the initial values are set."},
    {"end_setup", FAST(worker_end_setup),
     "end_setup(timeout_ms=None): wait until all values that were set are everywhere, and reset "
     "the statistics."},
    {"finalize", FAST(worker_finalize),
     "finalize(timeout_ms=None): end intents and operations, flush, and wait for all workers."},
    {"elements", ligi_py_worker_elements, METH_O,
     "elements(keys) -> number of elements of their rows"},
    {"_close", worker_close, METH_NOARGS, "_close(): free the memory; pulls in flight end."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, worker_dealloc},
    {Py_tp_traverse, worker_traverse},
    {Py_tp_methods, methods},
    {Py_tp_doc, "One worker of a node: a thread's access to the rows."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.ParamsWorker", sizeof(ligi_py_params_worker), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

int ligi_py_params_worker_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->params_worker_type);
}
