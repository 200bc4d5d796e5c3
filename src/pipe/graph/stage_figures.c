#include "pipe/graph/stage_figures.h"

#include <math.h>
#include <string.h>

static double at(const double *figure, uint32_t i)
{
    return figure ? figure[i] : 0;
}

lig_status ligi_stages_take(lig_pipe_stages *stages, uint32_t count, ligi_scratch *scratch)
{
    *stages = (lig_pipe_stages)LIG_PIPE_STAGES_INIT;
    stages->device = LIGI_TAKE(scratch, uint32_t, count);
    stages->forward_ms = LIGI_TAKE(scratch, double, count);
    stages->backward_ms = LIGI_TAKE(scratch, double, count);
    stages->weight_ms = LIGI_TAKE(scratch, double, count);
    stages->forward_send_ms = LIGI_TAKE(scratch, double, count);
    stages->backward_send_ms = LIGI_TAKE(scratch, double, count);
    stages->send_bytes = LIGI_TAKE(scratch, double, count);
    stages->fixed_bytes = LIGI_TAKE(scratch, double, count);
    stages->flight_bytes = LIGI_TAKE(scratch, double, count);
    stages->work_bytes = LIGI_TAKE(scratch, double, count);
    return ligi_scratch_check(scratch);
}

static double bandwidth(const lig_pipe_options *options, uint32_t from, uint32_t to,
                        uint32_t device_count)
{
    if (options->bandwidth_matrix)
        return options->bandwidth_matrix[(size_t)from * device_count + to];
    return options->bandwidth;
}

static double transfer_ms(const lig_pipe_options *options, uint32_t from, uint32_t to,
                          uint32_t device_count, double bytes)
{
    if (from == to || bytes == 0)
        return 0;
    double rate = bandwidth(options, from, to, device_count);
    return options->latency_ms + (rate > 0 ? bytes / rate * 1e3 : 0);
}

static void clear(lig_pipe_stages *stages)
{
    size_t bytes = stages->stage_count * sizeof(double);
    double *arrays[] = {stages->forward_ms,      stages->backward_ms,      stages->weight_ms,
                        stages->forward_send_ms, stages->backward_send_ms, stages->send_bytes,
                        stages->fixed_bytes,     stages->flight_bytes,     stages->work_bytes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        memset(arrays[i], 0, bytes);
}

static void add_nodes(const lig_pipe_graph *input, const lig_pipe_options *options,
                      const ligi_graph *graph, const ligi_assignment *assignment,
                      lig_pipe_stages *stages)
{
    double factor = 1 + options->optimizer_factor;
    for (uint32_t i = 0; i < input->node_count; i++) {
        uint32_t s = assignment->stage[graph->unit_of[i]];
        double speed = options->speed ? options->speed[stages->device[s]] : 1;
        double forward = at(input->forward_ms, i), backward = at(input->backward_ms, i);
        double weight = input->weight_ms ? input->weight_ms[i] : backward / 2;
        stages->forward_ms[s] += forward / speed;
        stages->backward_ms[s] += (backward + (options->recompute ? forward : 0)) / speed;
        stages->weight_ms[s] += weight / speed;
        stages->fixed_bytes[s] +=
            at(input->parameter_bytes, i) * factor + at(input->buffer_bytes, i);
        *(options->recompute ? &stages->work_bytes[s] : &stages->flight_bytes[s]) +=
            at(input->activation_bytes, i);
    }
    /* The sums above were rounded separately. */
    for (uint32_t s = 0; s < stages->stage_count; s++)
        stages->weight_ms[s] = fmin(stages->weight_ms[s], stages->backward_ms[s]);
}

/* A value crosses every border between its source and its last user. A stage that only relays it
 * holds it while the micro-batch is in flight; a stage that uses it counts it among its
 * activations, unless those are recomputed from it. */
static void add_values(const lig_pipe_options *options, const ligi_graph *graph,
                       const ligi_assignment *assignment, lig_pipe_stages *stages, uint32_t *seen)
{
    for (uint32_t net = 0; net < graph->net_count; net++) {
        uint32_t first = assignment->stage[graph->source[net]], last = first;
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
            uint32_t s = assignment->stage[graph->pin[p]];
            seen[s] = net + 1;
            last = s > last ? s : last;
        }
        for (uint32_t s = first; s < last; s++) {
            stages->send_bytes[s] += graph->bytes[net];
            if (options->recompute || seen[s + 1] != net + 1)
                stages->flight_bytes[s + 1] += graph->bytes[net];
        }
    }
}

void ligi_fold_transfers(const lig_pipe_options *options, lig_pipe_stages *stages)
{
    for (uint32_t s = 0; s + 1 < stages->stage_count; s++) {
        uint32_t a = stages->device[s], b = stages->device[s + 1], count = stages->device_count;
        stages->forward_send_ms[s] = transfer_ms(options, a, b, count, stages->send_bytes[s]);
        stages->backward_send_ms[s + 1] = transfer_ms(options, b, a, count, stages->send_bytes[s]);
    }
}

/* Every device with a user holds one replica. Their gradients go around a ring twice, at the pace
 * of its slowest link. */
static void add_tie(const lig_pipe_graph *input, const lig_pipe_options *options, uint32_t t,
                    lig_pipe_stages *stages, const uint32_t *stage_of)
{
    uint32_t copies = 0, before = 0, first = 0;
    double slowest = 0, bytes = input->tie_bytes[t];
    for (uint32_t d = 0; d < stages->device_count; d++) {
        if (stage_of[d] == UINT32_MAX)
            continue;
        stages->fixed_bytes[stage_of[d]] += bytes * (1 + options->optimizer_factor);
        if (copies)
            slowest = fmax(slowest, transfer_ms(options, before, d, stages->device_count, bytes));
        else
            first = d;
        before = d;
        copies++;
    }
    if (copies < 2 || options->optimizer_factor == 0)
        return;
    slowest = fmax(slowest, transfer_ms(options, before, first, stages->device_count, bytes));
    stages->tie_ms += 2.0 * (copies - 1) / copies * slowest;
}

static void add_ties(const lig_pipe_graph *input, const lig_pipe_options *options,
                     const ligi_graph *graph, const ligi_assignment *assignment,
                     lig_pipe_stages *stages, uint32_t *stage_of)
{
    for (uint32_t t = 0; t < input->tie_count; t++) {
        memset(stage_of, 0xff, stages->device_count * sizeof *stage_of);
        for (uint32_t i = input->tie_begin[t]; i < input->tie_begin[t + 1]; i++) {
            uint32_t s = assignment->stage[graph->unit_of[input->tie_node[i]]];
            stage_of[stages->device[s]] = s;
        }
        add_tie(input, options, t, stages, stage_of);
    }
}

lig_status ligi_fold(const lig_pipe_graph *input, const lig_pipe_options *options,
                     const ligi_graph *graph, const ligi_assignment *assignment,
                     lig_pipe_stages *stages)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t *seen = LIGI_TAKE(&scratch, uint32_t, assignment->stage_count);
    uint32_t *stage_of = LIGI_TAKE(&scratch, uint32_t, assignment->device_count);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK) {
        stages->stage_count = assignment->stage_count;
        stages->device_count = assignment->device_count;
        stages->tie_ms = 0;
        memcpy(stages->device, assignment->stage_device,
               assignment->stage_count * sizeof *stages->device);
        clear(stages);
        add_nodes(input, options, graph, assignment, stages);
        add_values(options, graph, assignment, stages, seen);
        ligi_fold_transfers(options, stages);
        add_ties(input, options, graph, assignment, stages, stage_of);
    }
    ligi_scratch_free(&scratch);
    return status;
}
