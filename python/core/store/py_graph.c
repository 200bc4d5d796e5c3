#include "store/py_find.h"

#include <string.h>

typedef struct graph {
    PyObject_HEAD
    lig_graph graph;
    lig_layer *layers;
    lig_call *calls;
    lig_input *inputs;
    PyObject *kind, *names, *signatures; /* strong: the texts above are borrowed from them */
} graph;

const lig_graph *ligi_py_graph_of(const ligi_py_state *state, PyObject *object)
{
    if (Py_TYPE(object) == state->graph_type)
        return &((graph *)object)->graph;
    PyErr_Format(PyExc_TypeError, "expected a Graph, not %R", (PyObject *)Py_TYPE(object));
    return NULL;
}

static int take_layers(graph *self, const ligi_py_state *state)
{
    size_t count = (size_t)PyTuple_Size(self->names);
    if ((size_t)PyTuple_Size(self->signatures) != count) {
        PyErr_SetString(PyExc_ValueError, "expected one signature per layer");
        return -1;
    }
    self->layers = PyMem_Calloc(count + 1, sizeof *self->layers);
    if (!self->layers) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        lig_layer *layer = &self->layers[i];
        char *bytes;
        Py_ssize_t size;
        layer->name =
            ligi_py_text(state, PyTuple_GetItem(self->names, (Py_ssize_t)i), "the name of a layer");
        if (!layer->name ||
            PyBytes_AsStringAndSize(PyTuple_GetItem(self->signatures, (Py_ssize_t)i), &bytes,
                                    &size) < 0)
            return -1;
        layer->signature = bytes;
        layer->signature_bytes = (size_t)size;
    }
    self->graph.layers = self->layers;
    self->graph.layer_count = count;
    return 0;
}

/* The next number of a flat list of them. */
static int next_number(PyObject *numbers, Py_ssize_t *at, uint32_t *number)
{
    PyObject *item = PyTuple_GetItem(numbers, (*at)++);
    unsigned long long value = item ? PyLong_AsUnsignedLongLong(item) : 0;
    if (PyErr_Occurred())
        return -1;
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the numbers of a graph must have 32 bits");
        return -1;
    }
    *number = (uint32_t)value;
    return 0;
}

/* `numbers`: of each call its layer, how many inputs, and call and output of each input. */
static int take_calls(graph *self, size_t count, PyObject *numbers)
{
    Py_ssize_t size = PyTuple_Size(numbers), at = 0;
    self->calls = PyMem_Calloc(count + 1, sizeof *self->calls);
    self->inputs = PyMem_Calloc((size_t)size / 2 + 1, sizeof *self->inputs);
    if (!self->calls || !self->inputs) {
        PyErr_NoMemory();
        return -1;
    }
    lig_input *next = self->inputs;
    for (size_t i = 0; i < count; i++) {
        lig_call *call = &self->calls[i];
        if (next_number(numbers, &at, &call->layer) < 0 ||
            next_number(numbers, &at, &call->input_count) < 0)
            return -1;
        if (call->input_count > (uint64_t)(size - at) / 2) {
            PyErr_SetString(PyExc_ValueError, "a call has fewer inputs than declared");
            return -1;
        }
        call->inputs = next;
        for (uint32_t j = 0; j < call->input_count; j++, next++)
            if (next_number(numbers, &at, &next->call) < 0 ||
                next_number(numbers, &at, &next->output) < 0)
                return -1;
    }
    self->graph.calls = self->calls;
    self->graph.call_count = count;
    return 0;
}

static int graph_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    graph *self = (graph *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    PyObject *kind, *names, *signatures, *numbers;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "UO!O!nO!", &kind, &PyTuple_Type, &names, &PyTuple_Type,
                          &signatures, &count, &PyTuple_Type, &numbers))
        return -1;
    if (self->kind || count < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "the Graph has already been built, or the number of calls is negative");
        return -1;
    }
    self->kind = Py_NewRef(kind);
    self->names = Py_NewRef(names);
    self->signatures = Py_NewRef(signatures);
    self->graph.kind = ligi_py_text(state, kind, "the kind of a graph");
    if (!self->graph.kind || take_layers(self, state) < 0)
        return -1;
    return take_calls(self, (size_t)count, numbers);
}

static void graph_dealloc(PyObject *object)
{
    graph *self = (graph *)object;
    PyMem_Free(self->layers);
    PyMem_Free(self->calls);
    PyMem_Free(self->inputs);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->names);
    Py_XDECREF(self->signatures);
    ligi_py_free(object);
}

static PyType_Slot slots[] = {
    {Py_tp_init, graph_init},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_doc, "Graph(kind, names, signatures, call count, numbers): a graph for the C library."},
    {0, NULL},
};
static PyType_Spec spec = {"ligament._core.Graph", sizeof(graph), 0, Py_TPFLAGS_DEFAULT, slots};

int ligi_py_graph_init(PyObject *module)
{
    return ligi_py_add_type(module, &spec, &ligi_py_state_of(module)->graph_type);
}
