#include "pipe/search/plan_figures.h"

#include <math.h>
#include <string.h>

lig_status ligi_critical_ms(const ligi_graph *graph, double *critical_ms)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    double *end = LIGI_TAKE(&scratch, double, graph->unit_count), longest = 0;
    lig_status status = ligi_scratch_check(&scratch);
    for (uint32_t u = 0; status == LIG_OK && u < graph->unit_count; u++) {
        double begin = 0;
        for (uint32_t i = graph->in_begin[u]; i < graph->in_begin[u + 1]; i++)
            begin = fmax(begin, end[graph->source[graph->in_net[i]]]);
        end[u] = begin + graph->load[u];
        longest = fmax(longest, end[u]);
    }
    *critical_ms = longest;
    ligi_scratch_free(&scratch);
    return status;
}

static void count_loads(const ligi_measure_job *job, const ligi_assignment *assignment,
                        double *device_ms)
{
    for (uint32_t d = 0; d < assignment->device_count; d++)
        device_ms[d] = 0;
    for (uint32_t u = 0; u < job->graph->unit_count; u++)
        device_ms[assignment->stage_device[assignment->stage[u]]] += job->graph->load[u];
    for (uint32_t d = 0; job->options->speed && d < assignment->device_count; d++)
        device_ms[d] /= job->options->speed[d];
}

static lig_status measure(const ligi_measure_job *job, const ligi_assignment *assignment,
                          ligi_figures *figures, ligi_scratch *scratch)
{
    lig_pipe_stages stages;
    lig_pipe_timeline timeline = LIG_PIPE_TIMELINE_INIT;
    uint32_t *seen = LIGI_TAKE(scratch, uint32_t, assignment->stage_count);
    double *device_ms = LIGI_TAKE(scratch, double, assignment->device_count);
    LIG_TRY(ligi_stages_take(&stages, assignment->stage_count, scratch));
    LIG_TRY(ligi_fold(job->input, job->options, job->graph, assignment, &stages));
    timeline.device_bytes = figures->device_bytes;
    LIG_TRY(
        lig_pipe_simulate(&stages, job->options->schedule, job->options->microbatches, &timeline));
    figures->step_ms = timeline.step_ms;
    figures->bubble = timeline.bubble;
    figures->cut_bytes =
        ligi_graph_cut(job->graph, assignment->stage, assignment->stage_count, seen);
    figures->relay_bytes = figures->bottleneck_ms = 0;
    for (uint32_t s = 0; s < assignment->stage_count; s++)
        figures->relay_bytes += stages.send_bytes[s];
    count_loads(job, assignment, device_ms);
    for (uint32_t d = 0; d < assignment->device_count; d++)
        figures->bottleneck_ms = fmax(figures->bottleneck_ms, device_ms[d]);
    if (figures->device_ms)
        memcpy(figures->device_ms, device_ms, assignment->device_count * sizeof *device_ms);
    return LIG_OK;
}

lig_status ligi_measure(const ligi_measure_job *job, const ligi_assignment *assignment,
                        ligi_figures *figures)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    lig_status status = measure(job, assignment, figures, &scratch);
    ligi_scratch_free(&scratch);
    return status;
}

double ligi_measure_memory(const ligi_measure_job *job, const ligi_assignment *assignment,
                           const double *device_bytes, uint32_t *device)
{
    double most = 0;
    for (uint32_t d = 0; job->options->memory && d < assignment->device_count; d++) {
        double limit = job->options->memory[d];
        if (limit > 0 && device_bytes[d] / limit > most) {
            most = device_bytes[d] / limit;
            *device = d;
        }
    }
    return most;
}
