/* The public calls: check, build units, run a method, fill the caller's plan. */
#include <math.h>
#include <string.h>

#include "pipe/graph/graph_check.h"
#include "pipe/methods/auto.h"
#include "pipe/methods/methods.h"

/* A job and everything it owns. */
typedef struct task {
    ligi_measure_job job;
    ligi_graph graph;
    ligi_assignment assignment;
    ligi_figures figures;
    ligi_scratch scratch;
} task;

static lig_status check_plan(const lig_pipe_plan *plan)
{
    if (!plan->stage || !plan->stage_device)
        return lig_fail(LIG_E_INVALID, "stage and stage_device of the plan must not be NULL");
    return LIG_OK;
}

static lig_status task_init(task *t, const lig_pipe_graph *graph, const lig_pipe_options *options)
{
    *t = (task){.job = {graph, options, &t->graph}};
    LIG_TRY(ligi_partition_options_check(options));
    LIG_TRY(ligi_graph_check(graph));
    LIG_TRY(ligi_graph_make(graph, options, &t->graph, &t->scratch));
    uint32_t devices = lig_pipe_device_count(options);
    t->assignment.stage = LIGI_TAKE(&t->scratch, uint32_t, t->graph.unit_count);
    t->assignment.stage_device = LIGI_TAKE(&t->scratch, uint32_t, t->graph.unit_count);
    t->assignment.device_count = devices;
    t->figures.device_ms = LIGI_TAKE(&t->scratch, double, devices);
    t->figures.device_bytes = LIGI_TAKE(&t->scratch, double, devices);
    return ligi_scratch_check(&t->scratch);
}

static lig_status check_size(const task *t)
{
    uint32_t stages = t->job.options->stages, nodes = t->job.input->node_count,
             units = t->graph.unit_count;
    if (stages > nodes)
        return lig_fail(LIG_E_INVALID, "%u stages requested, but the graph has only %u nodes",
                        stages, nodes);
    if (stages > units)
        return lig_fail(
            LIG_E_INVALID,
            "%u stages requested, but the nodes that must stay together leave only %u units",
            stages, units);
    return LIG_OK;
}

static lig_status fill_bounds(const task *t, double *lower_bound_ms, double *step_bound_ms)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    const lig_pipe_options *options = t->job.options;
    uint32_t devices = lig_pipe_device_count(options);
    double *speed = LIGI_TAKE(&scratch, double, devices), fastest = 0, critical = 0;
    lig_status status = ligi_scratch_check(&scratch);
    for (uint32_t d = 0; status == LIG_OK && d < devices; d++) {
        speed[d] = options->speed ? options->speed[d] : 1;
        fastest = fmax(fastest, speed[d]);
    }
    if (status == LIG_OK)
        status = ligi_critical_ms(&t->graph, &critical);
    if (status == LIG_OK) {
        *lower_bound_ms = ligi_bound_ms(&t->graph, speed, devices);
        *step_bound_ms = fmax(critical / fastest, *lower_bound_ms * options->microbatches);
    }
    ligi_scratch_free(&scratch);
    return status;
}

static void fill_arrays(const task *t, lig_pipe_plan *plan)
{
    const ligi_assignment *assignment = &t->assignment;
    size_t devices = assignment->device_count * sizeof(double);
    if (plan->stage_device)
        memcpy(plan->stage_device, assignment->stage_device,
               assignment->stage_count * sizeof *plan->stage_device);
    for (uint32_t i = 0; i < t->job.input->node_count; i++) {
        plan->stage[i] = assignment->stage[t->graph.unit_of[i]];
        if (plan->device)
            plan->device[i] = assignment->stage_device[plan->stage[i]];
    }
    if (plan->device_ms)
        memcpy(plan->device_ms, t->figures.device_ms, devices);
    if (plan->device_bytes)
        memcpy(plan->device_bytes, t->figures.device_bytes, devices);
}

static lig_status fill_plan(const task *t, lig_pipe_plan *plan)
{
    double lower_bound_ms, step_bound_ms;
    LIG_TRY(fill_bounds(t, &lower_bound_ms, &step_bound_ms));
    fill_arrays(t, plan);
    plan->stage_count = t->assignment.stage_count;
    plan->device_count = t->assignment.device_count;
    plan->bottleneck_ms = t->figures.bottleneck_ms;
    plan->lower_bound_ms = lower_bound_ms;
    plan->cut_bytes = t->figures.cut_bytes;
    plan->relay_bytes = t->figures.relay_bytes;
    plan->step_ms = t->figures.step_ms;
    plan->step_bound_ms = step_bound_ms;
    plan->bubble = t->figures.bubble;
    plan->seed = t->job.options->seed;
    return LIG_OK;
}

static lig_status partition(task *t, lig_pipe_plan *plan)
{
    const lig_pipe_options *options = t->job.options;
    uint32_t method = options->method;
    LIG_TRY(check_size(t));
    if (method == LIG_PIPE_AUTO)
        LIG_TRY(ligi_auto(&t->job, &t->assignment, &t->figures, &method));
    else
        LIG_TRY(ligi_method_run(&t->job, method, options->balance, 0, &t->assignment, &t->figures));
    LIG_TRY(fill_plan(t, plan));
    plan->method = method;
    plan->optimal = method == LIG_PIPE_EXACT || options->stages == 1;
    return LIG_OK;
}

lig_status lig_pipe_partition(const lig_pipe_graph *graph, const lig_pipe_options *options,
                              lig_pipe_plan *plan)
{
    task t;
    LIG_TRY(check_plan(plan));
    lig_status status = task_init(&t, graph, options);
    if (status == LIG_OK)
        status = partition(&t, plan);
    ligi_scratch_free(&t.scratch);
    return status;
}

/* --- plans made elsewhere --- */

static lig_status read_stages(task *t, const lig_pipe_plan *plan)
{
    const lig_pipe_graph *input = t->job.input;
    char text[LIGI_NODE_NAME_BYTES];
    if (plan->stage_count == 0 || plan->stage_count > t->graph.unit_count)
        return lig_fail(LIG_E_INVALID, "the plan has %u stages for %u nodes", plan->stage_count,
                        input->node_count);
    t->assignment.stage_count = plan->stage_count;
    for (uint32_t i = 0; i < input->node_count; i++) {
        if (plan->stage[i] >= plan->stage_count)
            return lig_fail(LIG_E_INVALID, "%s is in stage %u, but the plan has %u stages",
                            ligi_graph_node_name(input, i, text), plan->stage[i],
                            plan->stage_count);
        t->assignment.stage[t->graph.unit_of[i]] = plan->stage[i];
    }
    for (uint32_t i = 0; i < input->node_count; i++)
        if (t->assignment.stage[t->graph.unit_of[i]] != plan->stage[i])
            return lig_fail(LIG_E_INVALID,
                            "%s is in stage %u, but must share stage %u with other nodes",
                            ligi_graph_node_name(input, i, text), plan->stage[i],
                            t->assignment.stage[t->graph.unit_of[i]]);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t device =
            plan->stage_device ? plan->stage_device[s] : s % t->assignment.device_count;
        if (device >= t->assignment.device_count)
            return lig_fail(LIG_E_INVALID, "stage %u is on device %u, but there are %u devices", s,
                            device, t->assignment.device_count);
        t->assignment.stage_device[s] = device;
    }
    return LIG_OK;
}

static lig_status check_flow(const task *t, uint32_t *units)
{
    const ligi_graph *graph = &t->graph;
    const uint32_t *stage = t->assignment.stage;
    char from[LIGI_NODE_NAME_BYTES], to[LIGI_NODE_NAME_BYTES];
    for (uint32_t net = 0; net < graph->net_count; net++)
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
            uint32_t a = graph->source[net], b = graph->pin[p];
            if (stage[b] < stage[a])
                return lig_fail(
                    LIG_E_INVALID, "a value flows back from %s in stage %u to %s in stage %u",
                    ligi_graph_node_name(t->job.input, graph->member[a], from), stage[a],
                    ligi_graph_node_name(t->job.input, graph->member[b], to), stage[b]);
        }
    for (uint32_t u = 0; u < graph->unit_count; u++)
        units[stage[u]]++;
    for (uint32_t s = 0; s < t->assignment.stage_count; s++)
        if (!units[s])
            return lig_fail(LIG_E_INVALID, "stage %u of the plan is empty", s);
    for (uint32_t u = 0; graph->apart_begin && u < graph->unit_count; u++)
        for (uint32_t i = graph->apart_begin[u]; i < graph->apart_begin[u + 1]; i++)
            if (stage[graph->apart[i]] == stage[u])
                return lig_fail(
                    LIG_E_INVALID, "%s and %s must be kept apart, but both are in stage %u",
                    ligi_graph_node_name(t->job.input, graph->member[u], from),
                    ligi_graph_node_name(t->job.input, graph->member[graph->apart[i]], to),
                    stage[u]);
    return LIG_OK;
}

static lig_status judge(task *t, lig_pipe_plan *plan)
{
    LIG_TRY(read_stages(t, plan));
    uint32_t *units = LIGI_TAKE(&t->scratch, uint32_t, plan->stage_count), device = 0;
    LIG_TRY(ligi_scratch_check(&t->scratch));
    LIG_TRY(check_flow(t, units));
    LIG_TRY(ligi_measure(&t->job, &t->assignment, &t->figures));
    double use = ligi_measure_memory(&t->job, &t->assignment, t->figures.device_bytes, &device);
    if (use > 1 + 1e-9)
        return lig_fail(LIG_E_LIMIT, "device %u needs %.4g GB of memory but has %.4g GB", device,
                        t->figures.device_bytes[device] / 1e9,
                        t->job.options->memory[device] / 1e9);
    return fill_plan(t, plan);
}

lig_status lig_pipe_measure(const lig_pipe_graph *graph, const lig_pipe_options *options,
                            lig_pipe_plan *plan)
{
    task t;
    if (!plan->stage)
        return lig_fail(LIG_E_INVALID, "the plan has no stages to measure");
    lig_status status = task_init(&t, graph, options);
    if (status == LIG_OK)
        status = judge(&t, plan);
    ligi_scratch_free(&t.scratch);
    return status;
}

lig_status lig_pipe_bound(const lig_pipe_graph *graph, const lig_pipe_options *options,
                          double *lower_bound_ms, double *step_bound_ms)
{
    task t;
    lig_status status = task_init(&t, graph, options);
    if (status == LIG_OK)
        status = fill_bounds(&t, lower_bound_ms, step_bound_ms);
    ligi_scratch_free(&t.scratch);
    return status;
}

lig_status lig_pipe_fold(const lig_pipe_graph *graph, const lig_pipe_options *options,
                         const lig_pipe_plan *plan, lig_pipe_stages *stages)
{
    task t;
    if (!plan->stage)
        return lig_fail(LIG_E_INVALID, "the plan has no stages to fold");
    lig_status status = task_init(&t, graph, options);
    if (status == LIG_OK)
        status = read_stages(&t, plan);
    if (status == LIG_OK)
        status = ligi_fold(graph, options, &t.graph, &t.assignment, stages);
    ligi_scratch_free(&t.scratch);
    return status;
}
