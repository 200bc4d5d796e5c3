#include "cli.h"
#include "formats/graph_json.h"
#include "output/timeline_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Everything a call allocates; freed in one place. */
typedef struct work {
    cli_graph graph;
    lig_pipe_options options;
    lig_pipe_plan plan;
    lig_pipe_timeline timeline;
    lig_pipe_stages stages;
    double *speed, *memory;
} work;

static void work_fini(work *w)
{
    lig_pipe_stages *stages = &w->stages;
    void *blocks[] = {w->plan.stage,
                      w->plan.device,
                      w->plan.stage_device,
                      w->plan.device_ms,
                      w->plan.device_bytes,
                      w->timeline.events,
                      stages->device,
                      stages->forward_ms,
                      stages->backward_ms,
                      stages->weight_ms,
                      stages->forward_send_ms,
                      stages->backward_send_ms,
                      stages->send_bytes,
                      stages->fixed_bytes,
                      stages->flight_bytes,
                      stages->work_bytes,
                      w->speed,
                      w->memory};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    cli_graph_fini(&w->graph);
}

/* --- options ------------------------------------------------------------------------------------
 */

static lig_status read_real(const char *flag, const char *text, double *number)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0)
        return lig_fail(LIG_E_INVALID,
                        "invalid value for --%s: '%s' (expected a number of at least 0)", flag,
                        text);
    *number = value;
    return LIG_OK;
}

/* "80G" is 80 * 10^9, "80Gi" 80 * 2^30; a trailing B is ignored. */
static lig_status read_size(const char *flag, const char *text, double *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end), factor = 1;
    const char *unit = *end != '\0' ? strchr(units, *end & ~0x20) : NULL;
    if (unit != NULL) {
        int binary = end[1] == 'i';
        for (const char *at = units; at <= unit; at++)
            factor *= binary ? 1024 : 1000;
        end += 1 + binary;
    }
    end += *end == 'B';
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0) /* 0 means no limit in C */
        return lig_fail(LIG_E_INVALID,
                        "invalid value for --%s: '%s' (expected a positive number of bytes, or a "
                        "size such as 80G or 80Gi)",
                        flag, text);
    *bytes = value * factor;
    return LIG_OK;
}

/* One value for all devices, or one per device, separated by commas. Returns memory for free(). */
static lig_status read_list(const cli_call *call, const char *flag, uint32_t count,
                            lig_status (*read)(const char *, const char *, double *), double **out)
{
    const char *text = cli_value(call, flag);
    char *copy, *rest;
    uint32_t given = 0;
    if (text == NULL)
        return LIG_OK;
    LIG_TRY(cli_alloc(out, count, sizeof **out));
    LIG_TRY(cli_format(&copy, "%s", text));
    lig_status status = LIG_OK;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL && status == LIG_OK;
         item = strtok_r(NULL, ",", &rest), given++)
        if (given < count)
            status = read(flag, item, &(*out)[given]);
    free(copy);
    LIG_TRY(status);
    if (given != 1 && given != count)
        return lig_fail(LIG_E_INVALID, "--%s has %u values, but there are %u devices", flag, given,
                        count);
    for (uint32_t i = 1; given == 1 && i < count; i++)
        (*out)[i] = (*out)[0];
    return LIG_OK;
}

static lig_status read_whole(const cli_call *call, const char *flag, uint32_t least, uint32_t most,
                             uint32_t *number)
{
    uint64_t value = *number;
    LIG_TRY(cli_number(call, flag, least, most, &value));
    *number = (uint32_t)value;
    return LIG_OK;
}

static lig_status read_optimizer(const cli_call *call, double *factor)
{
    const char *text = cli_value(call, "optimizer");
    if (text == NULL || strcmp(text, "adam") == 0)
        return LIG_OK;
    if (strcmp(text, "sgd") == 0 || strcmp(text, "none") == 0) {
        *factor = text[0] == 's';
        return LIG_OK;
    }
    return read_real("optimizer", text, factor);
}

static lig_status read_numbers(const cli_call *call, lig_pipe_options *options)
{
    const char *balance = cli_value(call, "balance"), *latency = cli_value(call, "latency");
    const char *bandwidth = cli_value(call, "bandwidth");
    LIG_TRY(read_whole(call, "stages", 1, LIG_PIPE_STAGES_MAX, &options->stages));
    LIG_TRY(read_whole(call, "microbatches", 1, LIG_PIPE_MICROBATCHES_MAX, &options->microbatches));
    LIG_TRY(read_whole(call, "devices", 1, LIG_PIPE_STAGES_MAX, &options->device_count));
    LIG_TRY(read_whole(call, "effort", 1, 1000, &options->effort));
    LIG_TRY(cli_number(call, "seed", 0, UINT64_MAX, &options->seed));
    LIG_TRY(read_optimizer(call, &options->optimizer_factor));
    if (balance != NULL)
        LIG_TRY(read_real("balance", balance, &options->balance));
    if (latency != NULL)
        LIG_TRY(read_real("latency", latency, &options->latency_ms));
    return bandwidth != NULL ? read_size("bandwidth", bandwidth, &options->bandwidth) : LIG_OK;
}

static lig_status read_options(const cli_call *call, work *w)
{
    const char *method = cli_value(call, "method"), *schedule = cli_value(call, "schedule");
    lig_pipe_options *options = &w->options;
    *options = (lig_pipe_options)LIG_PIPE_OPTIONS_INIT;
    LIG_TRY(read_numbers(call, options));
    if (method != NULL)
        LIG_TRY(lig_pipe_method_parse(method, &options->method));
    if (schedule != NULL)
        LIG_TRY(lig_pipe_schedule_parse(schedule, &options->schedule));
    options->recompute = (uint32_t)cli_has(call, "recompute");
    options->ties = cli_has(call, "ties-together") ? LIG_PIPE_TIES_TOGETHER : LIG_PIPE_TIES_SUM;
    uint32_t count = lig_pipe_device_count(options);
    LIG_TRY(read_list(call, "memory", count, read_size, &w->memory));
    LIG_TRY(read_list(call, "speed", count, read_real, &w->speed));
    options->memory = w->memory;
    options->speed = w->speed;
    return LIG_OK;
}

/* --- output ---------------------------------------------------------------------------------- */

static lig_status make_plan(work *w)
{
    size_t nodes = w->graph.graph.node_count + 1u, devices = lig_pipe_device_count(&w->options);
    LIG_TRY(cli_alloc(&w->plan.stage, nodes, sizeof *w->plan.stage));
    LIG_TRY(cli_alloc(&w->plan.device, nodes, sizeof *w->plan.device));
    LIG_TRY(cli_alloc(&w->plan.stage_device, nodes, sizeof *w->plan.stage_device));
    LIG_TRY(cli_alloc(&w->plan.device_ms, devices, sizeof *w->plan.device_ms));
    LIG_TRY(cli_alloc(&w->plan.device_bytes, devices, sizeof *w->plan.device_bytes));
    return lig_pipe_partition(&w->graph.graph, &w->options, &w->plan);
}

static lig_status make_timeline(work *w)
{
    lig_pipe_stages *stages = &w->stages;
    double **arrays[] = {&stages->forward_ms,      &stages->backward_ms,      &stages->weight_ms,
                         &stages->forward_send_ms, &stages->backward_send_ms, &stages->send_bytes,
                         &stages->fixed_bytes,     &stages->flight_bytes,     &stages->work_bytes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        LIG_TRY(cli_alloc(arrays[i], w->plan.stage_count, sizeof **arrays[i]));
    LIG_TRY(cli_alloc(&stages->device, w->plan.stage_count, sizeof *stages->device));
    LIG_TRY(lig_pipe_fold(&w->graph.graph, &w->options, &w->plan, stages));
    w->timeline.event_capacity = (size_t)3 * w->plan.stage_count * w->options.microbatches;
    LIG_TRY(cli_alloc(&w->timeline.events, w->timeline.event_capacity, sizeof *w->timeline.events));
    return lig_pipe_simulate(stages, w->options.schedule, w->options.microbatches, &w->timeline);
}

static void put_indexes(cli_json_writer *writer, const char *key, const uint32_t *list,
                        uint32_t count)
{
    cli_json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++)
        cli_json_put_u64(writer, NULL, list[i]);
    cli_json_close(writer, ']');
}

static void put_figures(cli_json_writer *writer, const char *key, const double *list,
                        uint32_t count)
{
    cli_json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++)
        cli_json_put_double(writer, NULL, list[i]);
    cli_json_close(writer, ']');
}

static void print_json(const work *w)
{
    const lig_pipe_plan *plan = &w->plan;
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    put_indexes(&writer, "stage", plan->stage, w->graph.graph.node_count);
    put_indexes(&writer, "device", plan->device, w->graph.graph.node_count);
    cli_json_put_double(&writer, "bottleneck_ms", plan->bottleneck_ms);
    cli_json_put_double(&writer, "lower_bound_ms", plan->lower_bound_ms);
    cli_json_put_double(&writer, "cut_bytes", plan->cut_bytes);
    cli_json_put_double(&writer, "step_ms", plan->step_ms);
    cli_json_put_text(&writer, "method", lig_pipe_method_name(plan->method));
    cli_json_put_u64(&writer, "seed", plan->seed);
    cli_json_put_u64(&writer, "stage_count", plan->stage_count);
    cli_json_put_u64(&writer, "device_count", plan->device_count);
    put_indexes(&writer, "stage_device", plan->stage_device, plan->stage_count);
    cli_json_put_text(&writer, "schedule", lig_pipe_schedule_name(w->options.schedule));
    cli_json_put_double(&writer, "step_bound_ms", plan->step_bound_ms);
    cli_json_put_double(&writer, "bubble", plan->bubble);
    cli_json_put_double(&writer, "relay_bytes", plan->relay_bytes);
    cli_json_put_bool(&writer, "optimal", (int)plan->optimal);
    put_figures(&writer, "device_ms", plan->device_ms, plan->device_count);
    put_figures(&writer, "device_bytes", plan->device_bytes, plan->device_count);
    cli_json_close(&writer, '}');
}

static lig_status add_stage(cli_table *table, const work *w, uint32_t stage)
{
    const lig_pipe_plan *plan = &w->plan;
    uint32_t nodes = 0, device = plan->stage_device[stage];
    char cells[6][32];
    for (uint32_t i = 0; i < w->graph.graph.node_count; i++)
        nodes += plan->stage[i] == stage;
    snprintf(cells[0], sizeof cells[0], "%u", stage);
    snprintf(cells[1], sizeof cells[1], "%u", device);
    snprintf(cells[2], sizeof cells[2], "%u", nodes);
    snprintf(cells[3], sizeof cells[3], "%.3f",
             w->stages.forward_ms[stage] + w->stages.backward_ms[stage]);
    cli_size_text((uint64_t)w->stages.send_bytes[stage], cells[4], sizeof cells[4]);
    cli_size_text((uint64_t)plan->device_bytes[device], cells[5], sizeof cells[5]);
    const char *texts[] = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]};
    return cli_table_add(table, texts);
}

static lig_status print_table(const work *w)
{
    static const cli_column columns[] = {{"STAGE", 1, 0}, {"DEVICE", 1, 0},
                                         {"NODES", 1, 0}, {"LOAD ms", 1, 0},
                                         {"SENDS", 1, 0}, {"DEVICE MEMORY", 1, 0}};
    const lig_pipe_plan *plan = &w->plan;
    cli_table *table;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, columns, 6));
    for (uint32_t s = 0; s < plan->stage_count && status == LIG_OK; s++)
        status = add_stage(table, w, s);
    status = cli_table_end(table, status);
    double gap = plan->lower_bound_ms > 0 ? plan->bottleneck_ms / plan->lower_bound_ms - 1 : 0;
    printf("%s: bottleneck %.3f ms, %.2f %% above the bound of %.3f; cut %.6g MB; step %.3f ms "
           "with %s "
           "(bubble %.1f %%)%s\n",
           lig_pipe_method_name(plan->method), plan->bottleneck_ms, 100 * gap, plan->lower_bound_ms,
           plan->cut_bytes / 1e6, plan->step_ms, lig_pipe_schedule_name(w->options.schedule),
           100 * plan->bubble, plan->optimal ? "; optimal" : "");
    return status;
}

static lig_status answer(const cli_call *call, work *w)
{
    LIG_TRY(make_plan(w));
    if (call->json) {
        print_json(w);
        return LIG_OK;
    }
    LIG_TRY(make_timeline(w));
    if (!cli_has(call, "svg"))
        return print_table(w);
    cli_timeline_svg(stdout, &w->plan, &w->timeline, &w->options);
    return LIG_OK;
}

static int run(cli_call *call)
{
    work w = {.plan = LIG_PIPE_PLAN_INIT};
    if (call->json && cli_has(call, "svg"))
        return cli_misused(call, "--json and --svg cannot be combined");
    lig_status status = read_options(call, &w);
    if (status == LIG_E_INVALID)
        cli_wrong(call, status);
    if (status == LIG_OK)
        status = cli_graph_read(call->words[0], &w.graph);
    if (status == LIG_OK)
        status = answer(call, &w);
    work_fini(&w);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"stages", 'k', "N", "number of stages, or of bins for metis and mixed (4)"},
    {"method", 'm', "NAME", "auto, contiguous, acyclic, multilevel, exact, metis or mixed"},
    {"balance", 'b', "X", "minimise the cut with a bottleneck of at most X times the lower bound"},
    {"schedule", 's', "NAME", "1f1b, gpipe, interleaved, zb-h1 or zbv"},
    {"microbatches", 0, "N", "micro-batches per step (8)"},
    {"devices", 'd', "N", "number of devices, if fewer than stages"},
    {"memory", 0, "SIZE[,SIZE...]",
     "memory of each device: 80G, 24Gi (one value for all, or one per device)"},
    {"speed", 0, "X[,X...]",
     "speed relative to the profiled device (one value for all, or one per device)"},
    {"bandwidth", 0, "SIZE", "bytes per second between devices; by default transfers are free"},
    {"latency", 0, "MS", "latency of a transfer"},
    {"optimizer", 0, "NAME",
     "adam, sgd, none, or bytes of gradient and optimizer state per byte of parameter"},
    {"recompute", 0, NULL, "keep only a stage's inputs and rerun its forward pass"},
    {"ties-together", 0, NULL, "keep nodes that share a parameter in one stage"},
    {"effort", 0, "N", "search N times as long"},
    {"seed", 0, "N", "seed of the random number generator (0)"},
    {"svg", 0, NULL, "write a timeline of the step as SVG to standard output"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_partition = {
    .name = "partition",
    .usage = "FILE [options]",
    .summary = "Partitions a model's graph into pipeline stages",
    .details = "FILE is JSON ('-' reads standard input): {\"nodes\": [{\"name\", \"forward_ms\", "
               "\"backward_ms\",\n"
               "\"parameter_bytes\", \"activation_bytes\", \"output_bytes\"}, ...], \"edges\": "
               "[[from, to], ...]}.\n"
               "Edges refer to nodes by index; missing values are 0.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
