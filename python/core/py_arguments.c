#include "py_arguments.h"

static Py_ssize_t dict_size(PyObject *dict)
{
    if (dict == Py_None)
        return 0;
    if (PyDict_Check(dict))
        return PyDict_Size(dict);
    PyErr_Format(PyExc_TypeError, "metrics and tags must be dicts, not %R",
                 (PyObject *)Py_TYPE(dict));
    return -1;
}

lig_metric *ligi_py_metrics_of(const ligi_py_state *state, PyObject *dict, size_t *count)
{
    Py_ssize_t size = dict_size(dict), position = 0;
    lig_metric *metrics = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *metrics);
    PyObject *key, *value;
    *count = 0;
    while (metrics && size > 0 && PyDict_Next(dict, &position, &key, &value)) {
        lig_metric *metric = &metrics[(*count)++];
        metric->name = ligi_py_text(state, key, "the name of a metric");
        metric->value = metric->name ? PyFloat_AsDouble(value) : 0;
        if (PyErr_Occurred()) {
            PyMem_Free(metrics);
            return NULL;
        }
    }
    return metrics;
}

lig_tag *ligi_py_tags_of(const ligi_py_state *state, PyObject *dict, size_t *count)
{
    Py_ssize_t size = dict_size(dict), position = 0;
    lig_tag *tags = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *tags);
    PyObject *key, *value;
    *count = 0;
    while (tags && size > 0 && PyDict_Next(dict, &position, &key, &value)) {
        lig_tag *tag = &tags[(*count)++];
        tag->name = ligi_py_text(state, key, "the name of a tag");
        tag->value =
            tag->name && value != Py_None ? ligi_py_text(state, value, "the value of a tag") : NULL;
        if (PyErr_Occurred()) {
            PyMem_Free(tags);
            return NULL;
        }
    }
    return tags;
}

int ligi_py_optional_text(const ligi_py_state *state, PyObject *object, const char *what,
                          const char **text)
{
    *text = object == Py_None ? NULL : ligi_py_text(state, object, what);
    return object == Py_None || *text ? 0 : -1;
}

static void no_key(const ligi_py_state *state, const char *what, Py_ssize_t at, PyObject *key)
{
    PyObject *shown = PyObject_ASCII(key);
    const char *text = shown ? PyUnicode_AsUTF8AndSize(shown, NULL) : NULL;
    if (text)
        ligi_py_fail(state, LIG_E_INVALID, "%s %zd is not a number from 0 to 2**64 - 1: %.80s",
                     what, at, text);
    Py_XDECREF(shown);
}

uint64_t *ligi_py_keys(const ligi_py_state *state, PyObject *keys, const char *what, size_t *count)
{
    PyObject *list = PySequence_List(keys);
    if (!list && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "expected a list of %ss, not %R", what, keys);
    }
    if (!list)
        return NULL;
    Py_ssize_t size = PyList_Size(list);
    uint64_t *numbers = PyMem_Malloc(((size_t)size + 1) * sizeof *numbers);
    if (!numbers)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; numbers && i < size; i++) {
        PyObject *number = PyNumber_Index(PyList_GetItem(list, i));
        numbers[i] = number ? PyLong_AsUnsignedLongLong(number) : 0;
        Py_XDECREF(number);
        if (!PyErr_Occurred())
            continue;
        PyErr_Clear();
        no_key(state, what, i, PyList_GetItem(list, i));
        PyMem_Free(numbers);
        numbers = NULL;
    }
    Py_DECREF(list);
    *count = (size_t)size;
    return numbers;
}
