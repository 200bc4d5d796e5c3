#include "params/py_params.h"

/* With the GIL in hand a call may take as long as this; more, and other threads run meanwhile. */
#define QUICK_BYTES (UINT64_C(16) << 10)
#define QUICK_KEYS 64
#define TICKETS 1024 /* of a worker; what is kept beyond has ended */

typedef lig_status (*issue)(lig_params_worker *, const int64_t *, size_t, const void *, uint64_t,
                            int64_t *);

typedef struct movement {
    ligi_py_flat keys, values;
    int asynchronous, quick;
    int64_t ticket;
} movement;

static void rows_drop(movement *self)
{
    ligi_py_flat_drop(&self->keys);
    ligi_py_flat_drop(&self->values);
}

static int check_dtype(const ligi_py_params_worker *self, const ligi_py_flat *values)
{
    if (values->dtype == self->owner->dtype)
        return 0;
    ligi_py_fail(self->state, LIG_E_INVALID, "vals has dtype %s, but the rows have %s",
                 lig_dtype_name(values->dtype), lig_dtype_name(self->owner->dtype));
    return -1;
}

/* Reads (keys, vals) and whether to wait. */
static int rows_read(const ligi_py_params_worker *self, PyObject *const given[3], int writable,
                     movement *rows)
{
    rows->asynchronous = given[2] ? PyObject_IsTrue(given[2]) : 0;
    if (rows->asynchronous < 0 || ligi_py_flat_keys(self->state, given[0], "keys", &rows->keys) < 0)
        return -1;
    if (ligi_py_flat_read(self->state, given[1], "vals", writable, &rows->values) < 0 ||
        check_dtype(self, &rows->values) < 0) {
        rows_drop(rows);
        return -1;
    }
    rows->quick = rows->keys.count <= QUICK_KEYS &&
                  rows->values.count * self->owner->element_bytes <= QUICK_BYTES;
    rows->ticket = LIG_PARAMS_LOCAL;
    return 0;
}

/* Releases the objects of tickets that ended without a wait. */
static void sweep(ligi_py_params_worker *self)
{
    PyObject *numbers = PyDict_Keys(self->kept);
    for (Py_ssize_t i = 0; numbers && i < PyList_Size(numbers); i++) {
        PyObject *number = PyList_GetItem(numbers, i);
        if (lig_params_done(self->worker, PyLong_AsLongLong(number)) &&
            PyDict_DelItem(self->kept, number) < 0)
            PyErr_Clear();
    }
    Py_XDECREF(numbers);
}

/* kept[ticket] = the owner of the memory. If it cannot be stored, it must still outlive the
 * pull. */
static PyObject *keep(ligi_py_params_worker *self, const movement *rows, int keys)
{
    PyObject *values = ligi_py_flat_keep(&rows->values);
    PyObject *both = keys ? ligi_py_flat_keep(&rows->keys) : Py_NewRef(Py_None);
    PyObject *item = values && both ? PyTuple_Pack(2, values, both) : NULL;
    PyObject *number = PyLong_FromLongLong(rows->ticket);
    if (PyDict_Size(self->kept) >= 2 * TICKETS)
        sweep(self);
    if (!item || !number || PyDict_SetItem(self->kept, number, item) < 0) {
        Py_XINCREF(rows->values.holder);
        Py_XINCREF(rows->keys.holder);
        Py_CLEAR(number);
    }
    Py_XDECREF(values);
    Py_XDECREF(both);
    Py_XDECREF(item);
    return number;
}

/* The end of every call: a ticket, or -1. `fills`: 0, 1 for values, 2 for keys as well. */
static PyObject *settle(PyObject *object, movement *rows, lig_status status, int fills)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    PyObject *number = NULL;
    int late = status == LIG_OK && rows->ticket != LIG_PARAMS_LOCAL;
    if (late && fills) {
        number = keep(self, rows, fills == 2);
        if (!number)
            return NULL;
    }
    if (late && !rows->asynchronous)
        status = ligi_py_worker_await(object, rows->ticket, LIG_FOREVER);
    if (PyErr_Occurred() || status != LIG_OK) {
        Py_XDECREF(number);
        return ligi_py_raise(self->state, status);
    }
    if (fills && (ligi_py_flat_written(&rows->values) < 0 ||
                  (fills == 2 && ligi_py_flat_written(&rows->keys) < 0))) {
        Py_XDECREF(number);
        return NULL;
    }
    if (!late)
        return Py_NewRef(self->local);
    if (!number)
        number = PyLong_FromLongLong(rows->ticket);
    if (!number || !rows->asynchronous)
        return number;
    PyObject *ticket = PyObject_CallFunctionObjArgs(self->ticket, number, object, NULL);
    Py_DECREF(number);
    return ticket;
}

static const char *const names_of[] = {"keys", "vals", "asynchronous", NULL};
static const char *const old_names[] = {"keys", "vals", "async", NULL};

/* "async" is a keyword of Python, but can be given as **{"async": True}. */
static int three(const ligi_py_call *call, PyObject *given[3])
{
    if (ligi_py_arguments(call, names_of, 2, given) == 0)
        return 0;
    if (!call->names)
        return -1;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (ligi_py_arguments(call, old_names, 2, given) == 0) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return 0;
    }
    PyErr_Restore(type, value, trace);
    return -1;
}

PyObject *ligi_py_worker_pull(LIGI_PY_FAST)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    const ligi_py_call call = {args, count, names};
    PyObject *given[3];
    movement rows = {0};
    lig_status status = LIG_OK;
    int here = 0;
    lig_params_worker *worker = three(&call, given) < 0 ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    if (rows_read(self, given, 1, &rows) < 0) {
        ligi_py_worker_leave(object);
        return NULL;
    }
    /* A few rows that are here are copied before another thread could take the GIL. */
    if (rows.quick)
        status = lig_params_pull_if_local(worker, rows.keys.data, rows.keys.count, rows.values.data,
                                          rows.values.count, &here);
    if (status == LIG_OK && !here) {
        status =
            LIGI_PY_UNLOCKED(lig_params_pull(worker, rows.keys.data, rows.keys.count,
                                             rows.values.data, rows.values.count, &rows.ticket));
    }
    PyObject *result = settle(object, &rows, status, 1);
    rows_drop(&rows);
    ligi_py_worker_leave(object);
    return result;
}

static PyObject *give(PyObject *object, const ligi_py_call *call, issue issue_rows)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    PyObject *given[3];
    movement rows = {0};
    lig_status status;
    lig_params_worker *worker = three(call, given) < 0 ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    if (rows_read(self, given, 0, &rows) < 0) {
        ligi_py_worker_leave(object);
        return NULL;
    }
    if (rows.quick && self->owner->alone) {
        status = issue_rows(worker, rows.keys.data, rows.keys.count, rows.values.data,
                            rows.values.count, &rows.ticket);
    } else {
        status = LIGI_PY_UNLOCKED(issue_rows(worker, rows.keys.data, rows.keys.count,
                                             rows.values.data, rows.values.count, &rows.ticket));
    }
    PyObject *result = settle(object, &rows, status, 0);
    rows_drop(&rows);
    ligi_py_worker_leave(object);
    return result;
}

PyObject *ligi_py_worker_push(LIGI_PY_FAST)
{
    return give(object, &(ligi_py_call){args, count, names}, lig_params_push);
}

PyObject *ligi_py_worker_set(LIGI_PY_FAST)
{
    return give(object, &(ligi_py_call){args, count, names}, lig_params_set);
}

PyObject *ligi_py_worker_push_sums(LIGI_PY_FAST)
{
    static const char *const known[] = {"keys", "vals", "places", "asynchronous", NULL};
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    const ligi_py_call call = {args, count, names};
    PyObject *given[4], *result = NULL;
    movement rows = {0};
    ligi_py_flat places = {0};
    if (ligi_py_arguments(&call, known, 2, given) < 0)
        return NULL;
    int placed = given[2] && given[2] != Py_None;
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    PyObject *const three_of[3] = {given[0], given[1], given[3]};
    if (rows_read(self, three_of, 0, &rows) < 0)
        goto worker;
    if (placed && ligi_py_flat_keys(self->state, given[2], "places", &places) < 0)
        goto rows;
    if (placed && places.count != rows.keys.count) {
        ligi_py_fail(self->state, LIG_E_INVALID, "%llu places for %llu keys",
                     (unsigned long long)places.count, (unsigned long long)rows.keys.count);
        goto places;
    }
    lig_params_gradients gradients = {rows.keys.data, rows.keys.count, placed ? places.data : NULL,
                                      rows.values.data, rows.values.count};
    lig_status status = LIGI_PY_UNLOCKED(lig_params_push_sums(worker, &gradients, &rows.ticket));
    result = settle(object, &rows, status, 0);
places:
    if (placed)
        ligi_py_flat_drop(&places);
rows:
    rows_drop(&rows);
worker:
    ligi_py_worker_leave(object);
    return result;
}

static int check_state_dtype(const ligi_py_params_worker *self, const ligi_py_flat *state)
{
    uint32_t wanted = self->owner->dtype == LIG_FLOAT64 ? LIG_FLOAT64 : LIG_FLOAT32;
    if (state->count == 0 || state->dtype == wanted)
        return 0;
    ligi_py_fail(self->state, LIG_E_INVALID, "state has dtype %s, expected %s",
                 lig_dtype_name(state->dtype), lig_dtype_name(wanted));
    return -1;
}

static PyObject *access_rows(PyObject *object, const ligi_py_call *call, int writes)
{
    static const char *const known[] = {"keys", "vals", "state", NULL};
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    PyObject *given[3], *result = NULL;
    movement rows = {0};
    ligi_py_flat body = {0};
    if (ligi_py_arguments(call, known, 3, given) < 0)
        return NULL;
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    PyObject *const waiting[3] = {given[0], given[1], NULL};
    if (rows_read(self, waiting, !writes, &rows) < 0)
        goto worker;
    if (ligi_py_flat_read(self->state, given[2], "state", !writes, &body) < 0)
        goto rows;
    if (check_state_dtype(self, &body) < 0)
        goto body;
    lig_params_rows bodies = {rows.keys.data,    rows.keys.count, rows.values.data,
                              rows.values.count, body.data,       body.count};
    lig_status status = LIGI_PY_UNLOCKED(writes ? lig_params_set_rows(worker, &bodies)
                                                : lig_params_get_rows(worker, &bodies));
    if (status != LIG_OK)
        ligi_py_raise(self->state, status);
    else if (writes ||
             (ligi_py_flat_written(&rows.values) == 0 && ligi_py_flat_written(&body) == 0))
        result = Py_NewRef(Py_None);
body:
    ligi_py_flat_drop(&body);
rows:
    rows_drop(&rows);
worker:
    ligi_py_worker_leave(object);
    return result;
}

PyObject *ligi_py_worker_get_rows(LIGI_PY_FAST)
{
    return access_rows(object, &(ligi_py_call){args, count, names}, 0);
}

PyObject *ligi_py_worker_set_rows(LIGI_PY_FAST)
{
    return access_rows(object, &(ligi_py_call){args, count, names}, 1);
}

PyObject *ligi_py_worker_pull_if_local(LIGI_PY_FAST)
{
    static const char *const known[] = {"key", "vals", NULL};
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    const ligi_py_call call = {args, count, names};
    PyObject *given[3] = {NULL};
    movement rows = {0};
    int here = 0;
    if (ligi_py_arguments(&call, known, 2, given) < 0)
        return NULL;
    lig_params_worker *worker = ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    PyObject *result = NULL;
    if (rows_read(self, given, 1, &rows) < 0)
        goto worker;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_pull_if_local(
        worker, rows.keys.data, rows.keys.count, rows.values.data, rows.values.count, &here));
    if (status != LIG_OK)
        ligi_py_raise(self->state, status);
    else if (!here || ligi_py_flat_written(&rows.values) == 0)
        result = PyBool_FromLong(here);
    rows_drop(&rows);
worker:
    ligi_py_worker_leave(object);
    return result;
}

static int read_sample(const ligi_py_params_worker *self, PyObject *const given[4], movement *rows)
{
    if (ligi_py_flat_read(self->state, given[1], "keys", 1, &rows->keys) < 0)
        return -1;
    if (rows->keys.dtype != LIG_INT64) {
        ligi_py_fail(self->state, LIG_E_INVALID, "keys have dtype %s, expected int64",
                     lig_dtype_name(rows->keys.dtype));
        return -1;
    }
    if (ligi_py_flat_read(self->state, given[2], "vals", 1, &rows->values) < 0)
        return -1;
    rows->asynchronous = given[3] ? PyObject_IsTrue(given[3]) : 0;
    rows->ticket = LIG_PARAMS_LOCAL;
    if (rows->asynchronous < 0 || check_dtype(self, &rows->values) < 0)
        return -1;
    uint64_t length = self->owner->sample_length;
    if (length == 0 || rows->values.count / length == rows->keys.count)
        if (length == 0 || rows->values.count % length == 0)
            return 0; /* without a length the library reports that sampling is not enabled */
    ligi_py_fail(self->state, LIG_E_INVALID,
                 "vals has %llu elements, but %llu rows of %llu elements need %llu",
                 (unsigned long long)rows->values.count, (unsigned long long)rows->keys.count,
                 (unsigned long long)length, (unsigned long long)(rows->keys.count * length));
    return -1;
}

PyObject *ligi_py_worker_pull_sample(LIGI_PY_FAST)
{
    static const char *const known[] = {"id", "keys", "vals", "asynchronous", NULL};
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    const ligi_py_call call = {args, count, names};
    PyObject *given[4], *result = NULL;
    movement rows = {0};
    if (ligi_py_arguments(&call, known, 3, given) < 0)
        return NULL;
    long long sample = ligi_py_whole(self->state, given[0]);
    lig_params_worker *worker = PyErr_Occurred() ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    if (read_sample(self, given, &rows) < 0)
        goto rows;
    lig_status status = LIGI_PY_UNLOCKED(lig_params_pull_sample(
        worker, sample, rows.keys.data, rows.keys.count, rows.values.data, &rows.ticket));
    result = settle(object, &rows, status, 2);
rows:
    rows_drop(&rows);
    ligi_py_worker_leave(object);
    return result;
}

PyObject *ligi_py_worker_intent(LIGI_PY_FAST)
{
    static const char *const known[] = {"keys", "start", "end", NULL};
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    const ligi_py_call call = {args, count, names};
    PyObject *given[3];
    ligi_py_flat keys = {0};
    if (ligi_py_arguments(&call, known, 2, given) < 0)
        return NULL;
    long long start = ligi_py_whole(self->state, given[1]);
    long long end = PyErr_Occurred() || !given[2] ? 0 : ligi_py_whole(self->state, given[2]);
    lig_params_worker *worker = PyErr_Occurred() ? NULL : ligi_py_worker_enter(object);
    if (!worker)
        return NULL;
    PyObject *result = NULL;
    if (ligi_py_flat_keys(self->state, given[0], "keys", &keys) < 0)
        goto worker;
    lig_status status;
    if (keys.count <= 64 * QUICK_KEYS) {
        status = lig_params_intent(worker, keys.data, keys.count, start, end);
    } else {
        status = LIGI_PY_UNLOCKED(lig_params_intent(worker, keys.data, keys.count, start, end));
    }
    result = status == LIG_OK ? PyLong_FromLong(-1) : ligi_py_raise(self->state, status);
    ligi_py_flat_drop(&keys);
worker:
    ligi_py_worker_leave(object);
    return result;
}

PyObject *ligi_py_worker_elements(PyObject *object, PyObject *given)
{
    ligi_py_params_worker *self = (ligi_py_params_worker *)object;
    ligi_py_flat keys = {0};
    uint64_t elements = 0;
    if (!ligi_py_worker_enter(object))
        return NULL;
    PyObject *result = NULL;
    if (ligi_py_flat_keys(self->state, given, "keys", &keys) < 0)
        goto worker;
    lig_status status = lig_params_lengths(self->owner->params, keys.data, keys.count, &elements);
    result = status == LIG_OK ? PyLong_FromUnsignedLongLong(elements)
                              : ligi_py_raise(self->state, status);
    ligi_py_flat_drop(&keys);
worker:
    ligi_py_worker_leave(object);
    return result;
}
