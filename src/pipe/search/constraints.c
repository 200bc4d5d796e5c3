#include "pipe/search/constraints.h"

#include <math.h>

#include "pipe/schedule/schedule.h"

uint32_t lig_pipe_device_count(const lig_pipe_options *options)
{
    if (options->device_count)
        return options->device_count;
    return options->schedule == LIG_PIPE_ZBV ? (options->stages + 1) / 2 : options->stages;
}

static lig_status check_numbers(const lig_pipe_options *options)
{
    if (options->stages == 0 || options->stages > LIG_PIPE_STAGES_MAX)
        return lig_fail(LIG_E_INVALID, "invalid number of stages: %u (expected 1 to %u)",
                        options->stages, LIG_PIPE_STAGES_MAX);
    if (options->microbatches == 0 || options->microbatches > LIG_PIPE_MICROBATCHES_MAX)
        return lig_fail(LIG_E_INVALID, "invalid number of micro-batches: %u (expected 1 to %u)",
                        options->microbatches, LIG_PIPE_MICROBATCHES_MAX);
    if (options->method >= LIG_PIPE_METHOD_COUNT)
        return lig_fail(LIG_E_INVALID, "unknown partitioning method %u", options->method);
    if (options->schedule >= LIG_PIPE_SCHEDULE_COUNT)
        return lig_fail(LIG_E_INVALID, "unknown schedule %u", options->schedule);
    if (options->ties > LIG_PIPE_TIES_TOGETHER)
        return lig_fail(LIG_E_INVALID, "unknown rule %u for tied parameters", options->ties);
    if (!(options->optimizer_factor >= 0) || isinf(options->optimizer_factor))
        return lig_fail(LIG_E_INVALID, "invalid optimizer_factor: %g (expected a number >= 0)",
                        options->optimizer_factor);
    if (options->balance != 0 && !(options->balance >= 1 && isfinite(options->balance)))
        return lig_fail(LIG_E_INVALID, "invalid balance: %g (expected at least 1, or 0 for none)",
                        options->balance);
    if (!(options->bandwidth >= 0) || !(options->latency_ms >= 0) || isinf(options->latency_ms))
        return lig_fail(LIG_E_INVALID, "bandwidth and latency must be numbers >= 0");
    return LIG_OK;
}

static lig_status check_devices(const lig_pipe_options *options)
{
    uint32_t count = lig_pipe_device_count(options);
    int free_places = options->method == LIG_PIPE_METIS || options->method == LIG_PIPE_MIXED;
    if (count > options->stages && !free_places)
        return lig_fail(LIG_E_INVALID, "%u devices for %u stages: at least %u stages are required",
                        count, options->stages, count);
    for (uint32_t d = 0; options->speed && d < count; d++)
        if (!(options->speed[d] > 0) || isinf(options->speed[d]))
            return lig_fail(LIG_E_INVALID, "invalid speed of device %u: %g (expected a number > 0)",
                            d, options->speed[d]);
    for (uint32_t d = 0; options->memory && d < count; d++)
        if (!(options->memory[d] >= 0))
            return lig_fail(LIG_E_INVALID, "invalid memory of device %u: %g bytes", d,
                            options->memory[d]);
    for (uint64_t i = 0; options->bandwidth_matrix && i < (uint64_t)count * count; i++)
        if (i / count != i % count && !(options->bandwidth_matrix[i] >= 0))
            return lig_fail(LIG_E_INVALID, "invalid bandwidth from device %u to device %u: %g",
                            (unsigned)(i / count), (unsigned)(i % count),
                            options->bandwidth_matrix[i]);
    return LIG_OK;
}

lig_status ligi_partition_options_check(const lig_pipe_options *options)
{
    LIG_TRY(check_numbers(options));
    return check_devices(options);
}

double ligi_bound_ms(const ligi_graph *graph, const double *speed, uint32_t device_count)
{
    double sum = 0, fastest = 0;
    for (uint32_t d = 0; d < device_count; d++) {
        sum += speed[d];
        fastest = speed[d] > fastest ? speed[d] : fastest;
    }
    return fmax(graph->load_sum / sum, graph->load_max / fastest);
}

static uint32_t usual_device(const lig_pipe_options *options, uint32_t stage, uint32_t device_count)
{
    if (options->schedule == LIG_PIPE_ZBV && stage >= device_count)
        return (2 * device_count - 1 - stage) % device_count;
    return stage % device_count;
}

lig_status ligi_goal_make(const lig_pipe_options *options, const ligi_graph *graph,
                          uint32_t stage_count, const uint32_t *stage_device, ligi_goal *goal,
                          ligi_scratch *scratch)
{
    uint32_t devices = lig_pipe_device_count(options);
    *goal = (ligi_goal){.stage_count = stage_count, .device_count = devices, .cap_ms = INFINITY};
    goal->stage_device = LIGI_TAKE(scratch, uint32_t, stage_count);
    goal->device_stages = LIGI_TAKE(scratch, uint32_t, devices);
    goal->speed = LIGI_TAKE(scratch, double, devices);
    goal->room = LIGI_TAKE(scratch, double, devices);
    goal->flight = LIGI_TAKE(scratch, double, stage_count);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t s = 0; s < stage_count; s++) {
        goal->stage_device[s] = stage_device ? stage_device[s] : usual_device(options, s, devices);
        goal->device_stages[goal->stage_device[s]]++;
    }
    for (uint32_t d = 0; d < devices; d++) {
        goal->speed[d] = options->speed ? options->speed[d] : 1;
        goal->room[d] = options->memory && options->memory[d] > 0 ? options->memory[d] : INFINITY;
    }
    goal->bound_ms = ligi_bound_ms(graph, goal->speed, devices);
    ligi_schedule shape = {options->schedule, stage_count, devices, options->microbatches,
                           goal->stage_device};
    return ligi_schedule_flight(&shape, goal->flight);
}

double ligi_goal_limit(const ligi_goal *goal, uint32_t device)
{
    return goal->cap_ms * goal->speed[device] * (1 + 1e-12);
}

double ligi_goal_share(const ligi_goal *goal, uint32_t stage)
{
    uint32_t device = goal->stage_device[stage];
    return ligi_goal_limit(goal, device) / goal->device_stages[device];
}
