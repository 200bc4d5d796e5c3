/* ligament._core.DeviceRows: the kernels for rows cached on a device. Arrays are passed by address.
 */
#include "params/py_params.h"

#include <ligament/device_rows.h>

typedef struct device_rows {
    PyObject_HEAD
    lig_device_rows rows;
    int32_t device;
} device_rows;

/* Arguments of a call in order; a cursor, because there are many. */
typedef struct cursor {
    PyObject *list; /* a tuple */
    Py_ssize_t at;
} cursor;

static int64_t next_whole(cursor *from)
{
    PyObject *item = PyErr_Occurred() ? NULL : PyTuple_GetItem(from->list, from->at++);
    return item ? PyLong_AsLongLong(item) : -1;
}

static void *next_address(cursor *from)
{
    PyObject *item = PyErr_Occurred() ? NULL : PyTuple_GetItem(from->list, from->at++);
    return item ? PyLong_AsVoidPtr(item) : NULL;
}

static double next_number(cursor *from)
{
    PyObject *item = PyErr_Occurred() ? NULL : PyTuple_GetItem(from->list, from->at++);
    return item ? PyFloat_AsDouble(item) : -1;
}

static int rows_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(named))
{
    device_rows *self = (device_rows *)object;
    cursor from = {args, 0};
    self->device = (int32_t)next_whole(&from);
    self->rows.slot_of = next_address(&from);
    self->rows.used = next_address(&from);
    self->rows.read = next_address(&from);
    self->rows.leaders = next_address(&from);
    self->rows.values = next_address(&from);
    self->rows.state = next_address(&from);
    self->rows.pending = next_address(&from);
    self->rows.dirty = next_address(&from);
    self->rows.missed = next_address(&from);
    self->rows.report = next_address(&from);
    self->rows.length = next_whole(&from);
    self->rows.state_length = next_whole(&from);
    self->rows.kind = next_whole(&from);
    self->rows.eps = next_number(&from);
    self->rows.decay = next_number(&from);
    if (PyErr_Occurred())
        return -1;
    lig_status status = LIGI_PY_UNLOCKED(lig_device_rows_load(self->device));
    if (status != LIG_OK)
        ligi_py_raise(ligi_py_state_of(object), status);
    return status == LIG_OK ? 0 : -1;
}

/* Those of find and sum. */
static int read_lookup(PyObject *args, void **stream, lig_device_batch *batch)
{
    cursor from = {args, 0};
    *stream = next_address(&from);
    *batch = (lig_device_batch){.ids = next_address(&from)};
    batch->slots = next_address(&from);
    batch->count = next_whole(&from);
    batch->bound = next_whole(&from);
    batch->tick = next_whole(&from);
    batch->epoch = next_whole(&from);
    batch->starts = next_address(&from);
    batch->bags = next_whole(&from);
    batch->size = next_whole(&from);
    batch->mean = next_whole(&from);
    batch->padding = next_whole(&from);
    batch->bag = next_address(&from);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *rows_find(PyObject *object, PyObject *args)
{
    const device_rows *self = (device_rows *)object;
    lig_device_batch batch;
    void *stream;
    int missing = 0;
    if (read_lookup(args, &stream, &batch) < 0)
        return NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_device_rows_find(&self->rows, self->device, stream, &batch, &missing));
    return status == LIG_OK ? PyBool_FromLong(!missing)
                            : ligi_py_raise(ligi_py_state_of(object), status);
}

static PyObject *rows_sum(PyObject *object, PyObject *args)
{
    const device_rows *self = (device_rows *)object;
    lig_device_batch batch;
    void *stream;
    if (read_lookup(args, &stream, &batch) < 0)
        return NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_device_rows_sum(&self->rows, self->device, stream, &batch));
    return ligi_py_none(ligi_py_state_of(object), status);
}

static PyObject *rows_step(PyObject *object, PyObject *args)
{
    const device_rows *self = (device_rows *)object;
    cursor from = {args, 0};
    void *stream = next_address(&from);
    lig_device_batch batch = {.ids = next_address(&from)};
    batch.slots = next_address(&from);
    batch.count = next_whole(&from);
    batch.size = next_whole(&from);
    batch.places = next_address(&from);
    batch.padding = next_whole(&from);
    batch.gradients = next_address(&from);
    batch.sums = next_address(&from);
    batch.rate = next_number(&from);
    if (PyErr_Occurred())
        return NULL;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_device_rows_step(&self->rows, self->device, stream, &batch));
    return ligi_py_none(ligi_py_state_of(object), status);
}

static PyMethodDef methods[] = {
    {"find", rows_find, METH_VARARGS,
     "find(stream, ids, slots, count, bound, tick, epoch, starts, bags, size, mean, padding, bag)"
     " -> bool: whether all rows are cached and current. Waits for the lookup."},
    {"sum", rows_sum, METH_VARARGS, "sum(those of find): only fills the bags"},
    {"step", rows_step, METH_VARARGS,
     "step(stream, ids, slots, count, size, places, padding, gradients, sums, rate)"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, rows_init},
    {Py_tp_methods, methods},
    {Py_tp_doc, "DeviceRows(device, addresses and numbers of lig_device_rows): the kernels for "
                "rows that are cached on a device."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.DeviceRows", sizeof(device_rows), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int ligi_py_device_rows_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, NULL);
}
