#include "py_core.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ligi_py_state *ligi_py_state_of(PyObject *object)
{
    if (PyModule_Check(object))
        return PyModule_GetState(object);
    return PyType_GetModuleState(Py_TYPE(object));
}

static PyObject *raise_text(const ligi_py_state *state, lig_status status, const char *text,
                            int number)
{
    PyObject *key = PyLong_FromLong(status);
    PyObject *type =
        key && state && state->errors ? PyDict_GetItemWithError(state->errors, key) : NULL;
    PyObject *sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    Py_XDECREF(key);
    if (!sentence)
        return NULL;
    PyObject *error =
        PyObject_CallFunctionObjArgs(type ? type : PyExc_RuntimeError, sentence, NULL);
    Py_DECREF(sentence);
    if (!error)
        return NULL;
    if (number != 0 && PyObject_HasAttrString(error, "errno")) {
        PyObject *value = PyLong_FromLong(number);
        if (!value || PyObject_SetAttrString(error, "errno", value) < 0)
            PyErr_Clear();
        Py_XDECREF(value);
    }
    /* An error that accompanies a Ctrl-C is often its consequence, and the Ctrl-C would
     * interrupt the code that prints it: KeyboardInterrupt is raised instead. */
    if (PyErr_CheckSignals() == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}

PyObject *ligi_py_raise(const ligi_py_state *state, lig_status status)
{
    if (PyErr_Occurred())
        return NULL;
    return raise_text(state, status, lig_error_text(), lig_error_number());
}

PyObject *ligi_py_none(const ligi_py_state *state, lig_status status)
{
    if (status != LIG_OK || PyErr_Occurred())
        return ligi_py_raise(state, status);
    Py_RETURN_NONE;
}

PyObject *ligi_py_fail(const ligi_py_state *state, lig_status status, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return raise_text(state, status, text, 0);
}

int ligi_py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type || PyModule_AddType(module, type) < 0) {
        Py_XDECREF((PyObject *)type);
        return -1;
    }
    if (out)
        *out = type;
    else
        Py_DECREF((PyObject *)type);
    return 0;
}

void ligi_py_free(PyObject *instance)
{
    PyTypeObject *type = Py_TYPE(instance);
    PyObject_Free(instance);
    Py_DECREF((PyObject *)type);
}

const char *ligi_py_text(const ligi_py_state *state, PyObject *object, const char *what)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", what,
                     (PyObject *)Py_TYPE(object));
        return NULL;
    }
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(object, &bytes);
    if (!text) {
        PyErr_Clear();
        ligi_py_fail(state, LIG_E_INVALID, "%s cannot be encoded as UTF-8", what);
        return NULL;
    }
    if (strlen(text) != (size_t)bytes) {
        ligi_py_fail(state, LIG_E_INVALID, "%s '%.200s...' contains a NUL character", what, text);
        return NULL;
    }
    return text;
}

int64_t ligi_py_whole(const ligi_py_state *state, PyObject *number)
{
    long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        ligi_py_fail(state, LIG_E_INVALID, "a number does not fit into 64 bits");
    }
    return value;
}

static int64_t duration(const ligi_py_state *state, PyObject *number, const char *unit,
                        double unit_ns)
{
    if (number == Py_None)
        return LIG_FOREVER;
    double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred())
        return -2;
    if (isnan(value) || value < 0) {
        ligi_py_fail(state, LIG_E_INVALID,
                     "a timeout must be None or a non-negative number of %s, not %g", unit, value);
        return -2;
    }
    return value * unit_ns > 9e18 ? LIG_FOREVER : (int64_t)(value * unit_ns);
}

void ligi_py_put_item(PyObject **list, size_t index, PyObject *item)
{
    if (!item || PyList_SetItem(*list, (Py_ssize_t)index, item) < 0)
        Py_CLEAR(*list);
}

PyObject *ligi_py_i64_list(const int64_t *numbers, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, PyLong_FromLongLong(numbers[i]));
    return list;
}

PyObject *ligi_py_u64_list(const uint64_t *numbers, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, PyLong_FromUnsignedLongLong(numbers[i]));
    return list;
}

PyObject *ligi_py_i64_tuple(const int64_t *numbers, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

int64_t ligi_py_timeout(const ligi_py_state *state, PyObject *seconds)
{
    return duration(state, seconds, "seconds", 1e9);
}

int64_t ligi_py_milliseconds(const ligi_py_state *state, PyObject *timeout)
{
    return duration(state, timeout, "milliseconds", 1e6);
}

static PyObject *set_errors(PyObject *module, PyObject *errors)
{
    ligi_py_state *state = ligi_py_state_of(module);
    PyObject *old = state->errors;
    state->errors = Py_NewRef(errors);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyUnicode_FromString(lig_version());
}

static int call_pending(void *callable)
{
    PyObject *result = PyObject_CallNoArgs(callable);
    Py_DECREF((PyObject *)callable);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *call_on_main_thread(PyObject *module, PyObject *callable)
{
    (void)module;
    int refused = Py_AddPendingCall(call_pending, Py_NewRef(callable)) < 0;
    if (refused)
        Py_DECREF(callable);
    return PyBool_FromLong(!refused);
}

static PyMethodDef functions[] = {
    {"call_on_main_thread", call_on_main_thread, METH_O,
     "call_on_main_thread(callable) -> bool: call it soon, between two instructions of the main "
     "thread; False: too many calls are waiting."},
    {"set_errors", set_errors, METH_O,
     "set_errors(classes): set the exception class of each status number."},
    {"version", version, METH_NOARGS, "version() -> str: version of the loaded library."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    static int (*const hooks[])(PyObject *) = {
        ligi_py_tensor_init,   ligi_py_batch_type_init, ligi_py_memory_init,     ligi_py_model_init,
        ligi_py_ticket_init,   ligi_py_store_init,      ligi_py_checkpoint_init, ligi_py_graph_init,
        ligi_py_find_init,     ligi_py_pipe_init,       ligi_py_part_init,       ligi_py_ref_init,
        ligi_py_mesh_init,     ligi_py_params_init,     ligi_py_lock_init,       ligi_py_watch_init,
        ligi_py_exchange_init,
    };
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++)
        if (hooks[i](module) < 0)
            return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    ligi_py_state *state = ligi_py_state_of(module);
    Py_VISIT(state->errors);
    Py_VISIT(state->readers);
    Py_VISIT(state->describe);
    Py_VISIT(state->reader_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->memory_type);
    Py_VISIT(state->model_type);
    Py_VISIT(state->ticket_type);
    Py_VISIT(state->store_type);
    Py_VISIT(state->checkpoint_type);
    Py_VISIT(state->graph_type);
    Py_VISIT(state->match_type);
    Py_VISIT(state->part_type);
    Py_VISIT(state->params_worker_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    ligi_py_state *state = ligi_py_state_of(module);
    Py_CLEAR(state->errors);
    Py_CLEAR(state->readers);
    Py_CLEAR(state->describe);
    Py_CLEAR(state->reader_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->model_type);
    Py_CLEAR(state->ticket_type);
    Py_CLEAR(state->store_type);
    Py_CLEAR(state->checkpoint_type);
    Py_CLEAR(state->graph_type);
    Py_CLEAR(state->match_type);
    Py_CLEAR(state->part_type);
    Py_CLEAR(state->params_worker_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ligament._core",
    .m_doc = "Binding of the C library. Private: use `ligament`.",
    .m_size = sizeof(ligi_py_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
