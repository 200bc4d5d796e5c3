/* ligament._core: partitioning and simulation. Python hands over arrays (the buffer protocol),
 * never its own objects: a graph is a dict of arrays under the names of lig_pipe_graph's fields,
 * options a dict under those of lig_pipe_options. */
#include "py_core.h"

#include <ligament/pipe.h>

#include <stdlib.h>
#include <string.h>

enum { BUFFER_MAX = 32 };

/* Arrays that a call borrows: released together. */
typedef struct loan {
    const ligi_py_state *state;
    PyObject *from; /* dict */
    Py_buffer views[BUFFER_MAX];
    size_t view_count;
    const char **names;
} loan;

static void loan_end(loan *lent)
{
    for (size_t i = 0; i < lent->view_count; i++)
        PyBuffer_Release(&lent->views[i]);
    free((void *)lent->names);
}

/* The array `key` with `count` elements of `size` bytes; NULL if it is absent or None. -1 with
 * an exception. */
static int borrow(loan *lent, const char *key, size_t size, size_t count, const void **data)
{
    *data = NULL;
    PyObject *object = PyDict_GetItemString(lent->from, key);
    if (!object || object == Py_None)
        return 0;
    Py_buffer *view = &lent->views[lent->view_count];
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    lent->view_count++;
    if (view->itemsize != (Py_ssize_t)size || (size_t)view->len != size * count) {
        ligi_py_fail(lent->state, LIG_E_INVALID,
                     "%s has %zd bytes, expected %zu elements of %zu bytes", key, view->len, count,
                     size);
        return -1;
    }
    *data = count ? view->buf : NULL;
    return 0;
}

/* A number of the dict; what is absent stays as it is. -1 with an exception. */
static int number(PyObject *from, const char *key, double *value)
{
    PyObject *object = PyDict_GetItemString(from, key);
    if (!object || object == Py_None)
        return 0;
    *value = PyFloat_AsDouble(object);
    return *value == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static int whole(PyObject *from, const char *key, uint32_t *value)
{
    PyObject *object = PyDict_GetItemString(from, key);
    if (!object || object == Py_None)
        return 0;
    unsigned long found = PyLong_AsUnsignedLong(object);
    if (found == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    *value = found > UINT32_MAX ? UINT32_MAX : (uint32_t)found;
    return 0;
}

static int seed_of(PyObject *from, uint64_t *seed)
{
    PyObject *object = PyDict_GetItemString(from, "seed");
    if (!object)
        return 0;
    *seed = PyLong_AsUnsignedLongLong(object);
    return *seed == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static int node_names(loan *lent, uint32_t count)
{
    PyObject *list = PyDict_GetItemString(lent->from, "name");
    if (!list || list == Py_None || !count)
        return 0;
    if (!PyList_Check(list) || PyList_Size(list) != (Py_ssize_t)count) {
        ligi_py_fail(lent->state, LIG_E_INVALID, "names must be a list of %u strings", count);
        return -1;
    }
    lent->names = calloc(count, sizeof *lent->names);
    if (!lent->names) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < count; i++) {
        lent->names[i] = ligi_py_text(lent->state, PyList_GetItem(list, i), "a node's name");
        if (!lent->names[i])
            return -1;
    }
    return 0;
}

static int read_graph(loan *lent, lig_pipe_graph *graph)
{
    if (whole(lent->from, "node_count", &graph->node_count) < 0 ||
        whole(lent->from, "edge_count", &graph->edge_count) < 0 ||
        whole(lent->from, "apart_count", &graph->apart_count) < 0 ||
        whole(lent->from, "tie_count", &graph->tie_count) < 0 ||
        node_names(lent, graph->node_count) < 0)
        return -1;
    graph->name = lent->names;
    size_t nodes = graph->node_count, edges = graph->edge_count, ties = graph->tie_count,
           apart = graph->apart_count;
    uint32_t uses = 0;
    if (whole(lent->from, "tie_use_count", &uses) < 0)
        return -1;
    const struct {
        const char *key;
        size_t size, count;
        const void **data;
    } arrays[] = {
        {"forward_ms", 8, nodes, (const void **)&graph->forward_ms},
        {"backward_ms", 8, nodes, (const void **)&graph->backward_ms},
        {"weight_ms", 8, nodes, (const void **)&graph->weight_ms},
        {"parameter_bytes", 8, nodes, (const void **)&graph->parameter_bytes},
        {"buffer_bytes", 8, nodes, (const void **)&graph->buffer_bytes},
        {"activation_bytes", 8, nodes, (const void **)&graph->activation_bytes},
        {"output_bytes", 8, nodes, (const void **)&graph->output_bytes},
        {"edge_from", 4, edges, (const void **)&graph->edge_from},
        {"edge_to", 4, edges, (const void **)&graph->edge_to},
        {"edge_bytes", 8, edges, (const void **)&graph->edge_bytes},
        {"edge_value", 4, edges, (const void **)&graph->edge_value},
        {"group", 4, nodes, (const void **)&graph->group},
        {"apart_first", 4, apart, (const void **)&graph->apart_first},
        {"apart_second", 4, apart, (const void **)&graph->apart_second},
        {"tie_bytes", 8, ties, (const void **)&graph->tie_bytes},
        {"tie_begin", 4, ties ? ties + 1 : 0, (const void **)&graph->tie_begin},
        {"tie_node", 4, uses, (const void **)&graph->tie_node},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (borrow(lent, arrays[i].key, arrays[i].size, arrays[i].count, arrays[i].data) < 0)
            return -1;
    return 0;
}

static int parsed(const ligi_py_state *state, PyObject *from, const char *key,
                  lig_status (*parse)(const char *, uint32_t *), uint32_t *value)
{
    PyObject *object = PyDict_GetItemString(from, key);
    if (!object || object == Py_None)
        return 0;
    const char *name = ligi_py_text(state, object, key);
    if (!name)
        return -1;
    lig_status status = parse(name, value);
    if (status != LIG_OK) {
        ligi_py_raise(state, status);
        return -1;
    }
    return 0;
}

static int read_options(loan *lent, lig_pipe_options *options)
{
    PyObject *from = lent->from;
    if (whole(from, "stages", &options->stages) < 0 ||
        whole(from, "microbatches", &options->microbatches) < 0 ||
        whole(from, "ties", &options->ties) < 0 ||
        whole(from, "recompute", &options->recompute) < 0 ||
        whole(from, "device_count", &options->device_count) < 0 ||
        whole(from, "effort", &options->effort) < 0 ||
        number(from, "optimizer_factor", &options->optimizer_factor) < 0 ||
        number(from, "balance", &options->balance) < 0 ||
        number(from, "bandwidth", &options->bandwidth) < 0 ||
        number(from, "latency_ms", &options->latency_ms) < 0 || seed_of(from, &options->seed) < 0 ||
        parsed(lent->state, from, "method", lig_pipe_method_parse, &options->method) < 0 ||
        parsed(lent->state, from, "schedule", lig_pipe_schedule_parse, &options->schedule) < 0)
        return -1;
    size_t devices = options->device_count;
    if (borrow(lent, "speed", 8, devices, (const void **)&options->speed) < 0 ||
        borrow(lent, "memory", 8, devices, (const void **)&options->memory) < 0 ||
        borrow(lent, "bandwidth_matrix", 8, devices * devices,
               (const void **)&options->bandwidth_matrix) < 0)
        return -1;
    return 0;
}

/* --- results -------------------------------------------------------------------------------- */

static int put(PyObject *into, const char *key, PyObject *value)
{
    int result = value ? PyDict_SetItemString(into, key, value) : -1;
    Py_XDECREF(value);
    return result;
}

static PyObject *wholes(const uint32_t *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, PyLong_FromUnsignedLong(values[i]));
    return list;
}

static PyObject *numbers(const double *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        ligi_py_put_item(&list, i, PyFloat_FromDouble(values[i]));
    return list;
}

static PyObject *plan_dict(const lig_pipe_plan *plan, uint32_t node_count)
{
    PyObject *made = PyDict_New();
    if (!made)
        return NULL;
    if (put(made, "stage", wholes(plan->stage, node_count)) < 0 ||
        put(made, "device", wholes(plan->device, node_count)) < 0 ||
        put(made, "stage_device", wholes(plan->stage_device, plan->stage_count)) < 0 ||
        put(made, "device_ms", numbers(plan->device_ms, plan->device_count)) < 0 ||
        put(made, "device_bytes", numbers(plan->device_bytes, plan->device_count)) < 0 ||
        put(made, "method", PyUnicode_FromString(lig_pipe_method_name(plan->method))) < 0 ||
        put(made, "optimal", PyBool_FromLong(plan->optimal)) < 0 ||
        put(made, "bottleneck_ms", PyFloat_FromDouble(plan->bottleneck_ms)) < 0 ||
        put(made, "lower_bound_ms", PyFloat_FromDouble(plan->lower_bound_ms)) < 0 ||
        put(made, "cut_bytes", PyFloat_FromDouble(plan->cut_bytes)) < 0 ||
        put(made, "relay_bytes", PyFloat_FromDouble(plan->relay_bytes)) < 0 ||
        put(made, "step_ms", PyFloat_FromDouble(plan->step_ms)) < 0 ||
        put(made, "step_bound_ms", PyFloat_FromDouble(plan->step_bound_ms)) < 0 ||
        put(made, "bubble", PyFloat_FromDouble(plan->bubble)) < 0 ||
        put(made, "seed", PyLong_FromUnsignedLongLong(plan->seed)) < 0)
        Py_CLEAR(made);
    return made;
}

/* The arrays of lig_pipe_stages, by name. */
enum { STAGE_ARRAYS = 9 };
static const char *const stage_keys[STAGE_ARRAYS] = {
    "forward_ms", "backward_ms", "weight_ms",    "forward_send_ms", "backward_send_ms",
    "send_bytes", "fixed_bytes", "flight_bytes", "work_bytes"};

static void point_stages(lig_pipe_stages *stages, double *room, size_t count)
{
    double **const fields[STAGE_ARRAYS] = {
        &stages->forward_ms,      &stages->backward_ms,      &stages->weight_ms,
        &stages->forward_send_ms, &stages->backward_send_ms, &stages->send_bytes,
        &stages->fixed_bytes,     &stages->flight_bytes,     &stages->work_bytes};
    for (size_t i = 0; i < STAGE_ARRAYS; i++)
        *fields[i] = room + i * count;
}

/* Folds the plan into a chain of stages and adds it to `made` as "stages". */
static int add_stages(const ligi_py_state *state, const lig_pipe_graph *graph,
                      const lig_pipe_options *options, const lig_pipe_plan *plan, PyObject *made)
{
    size_t count = plan->stage_count;
    lig_pipe_stages stages = LIG_PIPE_STAGES_INIT;
    double *room = calloc(count * STAGE_ARRAYS + 1, sizeof *room);
    uint32_t *device = calloc(count + 1, sizeof *device);
    PyObject *into = NULL;
    int result = -1;
    if (!room || !device) {
        PyErr_NoMemory();
        goto free_room;
    }
    point_stages(&stages, room, count);
    stages.device = device;
    lig_status status = lig_pipe_fold(graph, options, plan, &stages);
    if (status != LIG_OK) {
        ligi_py_raise(state, status);
        goto free_room;
    }
    into = PyDict_New();
    if (!into || put(into, "device", wholes(device, count)) < 0 ||
        put(into, "device_count", PyLong_FromUnsignedLong(stages.device_count)) < 0 ||
        put(into, "tie_ms", PyFloat_FromDouble(stages.tie_ms)) < 0)
        goto free_room;
    for (size_t i = 0; i < STAGE_ARRAYS; i++)
        if (put(into, stage_keys[i], numbers(room + i * count, count)) < 0)
            goto free_room;
    result = PyDict_SetItemString(made, "stages", into);
free_room:
    Py_XDECREF(into);
    free(room);
    free(device);
    return result;
}

typedef lig_status (*planner)(const lig_pipe_graph *, const lig_pipe_options *, lig_pipe_plan *);

/* Room for a plan in two blocks, freed through `stage` and `device_ms`. */
static int plan_room(lig_pipe_plan *plan, uint32_t nodes, uint32_t devices)
{
    plan->stage = calloc((size_t)nodes * 3 + 1, sizeof *plan->stage);
    plan->device_ms = calloc((size_t)devices * 2 + 1, sizeof *plan->device_ms);
    if (!plan->stage || !plan->device_ms) {
        PyErr_NoMemory();
        return -1;
    }
    plan->device = plan->stage + nodes;
    plan->stage_device = plan->device + nodes;
    plan->device_bytes = plan->device_ms + devices;
    return 0;
}

/* For `measure`: the stages of a plan made elsewhere. */
static int read_plan(loan *lent, uint32_t nodes, lig_pipe_plan *plan)
{
    const uint32_t *stage = NULL, *stage_device = NULL;
    if (whole(lent->from, "stage_count", &plan->stage_count) < 0 ||
        borrow(lent, "stage", 4, nodes, (const void **)&stage) < 0)
        return -1;
    if (plan->stage_count > nodes || !stage) {
        ligi_py_fail(lent->state, LIG_E_INVALID, "invalid plan of %u stages for %u nodes",
                     plan->stage_count, nodes);
        return -1;
    }
    if (borrow(lent, "stage_device", 4, plan->stage_count, (const void **)&stage_device) < 0)
        return -1;
    memcpy(plan->stage, stage, nodes * sizeof *stage);
    if (stage_device)
        memcpy(plan->stage_device, stage_device, plan->stage_count * sizeof *stage_device);
    else
        plan->stage_device = NULL;
    return 0;
}

static PyObject *make_plan(PyObject *module, PyObject *args, planner run, int given)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    PyObject *graph_dict, *options_dict, *plan_given = NULL, *made = NULL;
    if (!PyArg_ParseTuple(args, given ? "O!O!O!" : "O!O!", &PyDict_Type, &graph_dict, &PyDict_Type,
                          &options_dict, &PyDict_Type, &plan_given))
        return NULL;
    lig_pipe_graph graph = LIG_PIPE_GRAPH_INIT;
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    lig_pipe_plan plan = LIG_PIPE_PLAN_INIT;
    loan for_graph = {.state = state, .from = graph_dict},
         for_options = {.state = state, .from = options_dict};
    loan for_plan = {.state = state, .from = plan_given};
    if (read_graph(&for_graph, &graph) < 0 || read_options(&for_options, &options) < 0 ||
        plan_room(&plan, graph.node_count, lig_pipe_device_count(&options)) < 0 ||
        (given && read_plan(&for_plan, graph.node_count, &plan) < 0))
        goto free_plan;
    uint32_t *const places = plan.stage + 2 * (size_t)graph.node_count;
    lig_status status = LIGI_PY_UNLOCKED(run(&graph, &options, &plan));
    if (status != LIG_OK) {
        ligi_py_raise(state, status);
        goto free_plan;
    }
    if (!plan.stage_device) {
        plan.stage_device = places;
        for (uint32_t s = 0; s < plan.stage_count; s++)
            places[s] = s % plan.device_count;
    }
    made = plan_dict(&plan, graph.node_count);
    if (made && add_stages(state, &graph, &options, &plan, made) < 0)
        Py_CLEAR(made);
free_plan:
    free(plan.stage);
    free(plan.device_ms);
    loan_end(&for_plan);
    loan_end(&for_options);
    loan_end(&for_graph);
    return made;
}

static PyObject *pipe_partition(PyObject *module, PyObject *args)
{
    return make_plan(module, args, lig_pipe_partition, 0);
}

static PyObject *pipe_measure(PyObject *module, PyObject *args)
{
    return make_plan(module, args, lig_pipe_measure, 1);
}

/* --- simulation ----------------------------------------------------------------------------- */

static PyObject *event_list(const lig_pipe_event *events, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        const lig_pipe_event *e = &events[i];
        ligi_py_put_item(&list, i,
                         Py_BuildValue("(IIIIdd)", e->device, e->stage, e->microbatch, e->work,
                                       e->begin_ms, e->end_ms));
    }
    return list;
}

static int read_stages(loan *lent, lig_pipe_stages *stages)
{
    if (whole(lent->from, "stage_count", &stages->stage_count) < 0 ||
        whole(lent->from, "device_count", &stages->device_count) < 0 ||
        number(lent->from, "tie_ms", &stages->tie_ms) < 0)
        return -1;
    size_t count = stages->stage_count;
    double **const fields[STAGE_ARRAYS] = {
        &stages->forward_ms,      &stages->backward_ms,      &stages->weight_ms,
        &stages->forward_send_ms, &stages->backward_send_ms, &stages->send_bytes,
        &stages->fixed_bytes,     &stages->flight_bytes,     &stages->work_bytes};
    if (borrow(lent, "device", 4, count, (const void **)&stages->device) < 0)
        return -1;
    for (size_t i = 0; i < STAGE_ARRAYS; i++) {
        if (borrow(lent, stage_keys[i], 8, count, (const void **)fields[i]) < 0)
            return -1;
        if (!*fields[i]) {
            ligi_py_fail(lent->state, LIG_E_INVALID, "%s of the stages is missing", stage_keys[i]);
            return -1;
        }
    }
    if (!stages->device) {
        ligi_py_fail(lent->state, LIG_E_INVALID, "the devices of the stages are missing");
        return -1;
    }
    return 0;
}

static PyObject *timeline_dict(const lig_pipe_timeline *line, uint32_t device_count)
{
    PyObject *made = PyDict_New();
    if (!made || put(made, "events", event_list(line->events, line->event_count)) < 0 ||
        put(made, "device_busy_ms", numbers(line->device_busy_ms, device_count)) < 0 ||
        put(made, "device_bytes", numbers(line->device_bytes, device_count)) < 0 ||
        put(made, "step_ms", PyFloat_FromDouble(line->step_ms)) < 0 ||
        put(made, "bubble", PyFloat_FromDouble(line->bubble)) < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *pipe_simulate(PyObject *module, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(module);
    PyObject *from, *made = NULL;
    const char *name;
    unsigned int microbatches;
    if (!PyArg_ParseTuple(args, "O!sI", &PyDict_Type, &from, &name, &microbatches))
        return NULL;
    uint32_t schedule;
    lig_status status = lig_pipe_schedule_parse(name, &schedule);
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    if (microbatches == 0 || microbatches > LIG_PIPE_MICROBATCHES_MAX)
        return ligi_py_fail(state, LIG_E_INVALID,
                            "invalid number of micro-batches: %u (expected 1 to %u)", microbatches,
                            LIG_PIPE_MICROBATCHES_MAX);
    lig_pipe_stages stages = LIG_PIPE_STAGES_INIT;
    lig_pipe_timeline line = LIG_PIPE_TIMELINE_INIT;
    loan lent = {.state = state, .from = from};
    if (read_stages(&lent, &stages) < 0)
        goto free_line;
    line.event_capacity = 3 * (size_t)stages.stage_count * microbatches;
    line.events = calloc(line.event_capacity + 1, sizeof *line.events);
    line.device_busy_ms = calloc(2 * (size_t)stages.device_count + 1, sizeof *line.device_busy_ms);
    if (!line.events || !line.device_busy_ms) {
        PyErr_NoMemory();
        goto free_line;
    }
    line.device_bytes = line.device_busy_ms + stages.device_count;
    status = LIGI_PY_UNLOCKED(lig_pipe_simulate(&stages, schedule, microbatches, &line));
    made =
        status == LIG_OK ? timeline_dict(&line, stages.device_count) : ligi_py_raise(state, status);
free_line:
    free(line.events);
    free(line.device_busy_ms);
    loan_end(&lent);
    return made;
}

static PyObject *pipe_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *methods = PyList_New(0), *schedules = PyList_New(0);
    for (uint32_t i = 0; methods && i < LIG_PIPE_METHOD_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(lig_pipe_method_name(i));
        if (!name || PyList_Append(methods, name) < 0)
            Py_CLEAR(methods);
        Py_XDECREF(name);
    }
    for (uint32_t i = 0; schedules && i < LIG_PIPE_SCHEDULE_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(lig_pipe_schedule_name(i));
        if (!name || PyList_Append(schedules, name) < 0)
            Py_CLEAR(schedules);
        Py_XDECREF(name);
    }
    return Py_BuildValue("(NN)", methods, schedules);
}

static PyMethodDef functions[] = {
    {"pipe_partition", pipe_partition, METH_VARARGS,
     "pipe_partition(graph, options) -> dict: the plan and its stages."},
    {"pipe_measure", pipe_measure, METH_VARARGS,
     "pipe_measure(graph, options, plan) -> dict: as pipe_partition."},
    {"pipe_simulate", pipe_simulate, METH_VARARGS,
     "pipe_simulate(stages, schedule, microbatches) -> dict: the timeline."},
    {"pipe_names", pipe_names, METH_NOARGS, "pipe_names() -> (methods, schedules)."},
    {NULL, NULL, 0, NULL},
};

int ligi_py_pipe_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
