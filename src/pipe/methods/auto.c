#include "pipe/methods/auto.h"

#include <math.h>
#include <string.h>

#include "pipe/methods/methods.h"
#include "pipe/methods/tune_step.h"

/* Steps spent on an exact answer that was not requested explicitly. */
#define EXACT_UNITS 24
#define MULTILEVEL_UNITS 20000

typedef struct contest {
    const ligi_measure_job *job;
    ligi_assignment *best;
    ligi_assignment trial;
    ligi_figures *best_figures;
    ligi_figures trial_figures;
    uint32_t method;
    int some;
    lig_status refusal; /* of the last candidate that failed */
} contest;

static int better(const contest *c)
{
    const ligi_figures *a = &c->trial_figures, *b = c->best_figures;
    if (!c->some)
        return 1;
    if (c->job->options->balance > 0 && a->cut_bytes != b->cut_bytes)
        return a->cut_bytes < b->cut_bytes;
    /* Step times that differ by rounding are equal; the smaller cut then wins. */
    if (fabs(a->step_ms - b->step_ms) > 1e-9 * b->step_ms)
        return a->step_ms < b->step_ms;
    return a->cut_bytes < b->cut_bytes;
}

static void keep(contest *c, uint32_t method)
{
    ligi_figures figures = *c->best_figures;
    size_t devices = c->trial.device_count * sizeof(double);
    memcpy(figures.device_ms, c->trial_figures.device_ms, devices);
    memcpy(figures.device_bytes, c->trial_figures.device_bytes, devices);
    *c->best_figures = c->trial_figures;
    c->best_figures->device_ms = figures.device_ms;
    c->best_figures->device_bytes = figures.device_bytes;
    memcpy(c->best->stage, c->trial.stage, c->job->graph->unit_count * sizeof *c->trial.stage);
    memcpy(c->best->stage_device, c->trial.stage_device,
           c->trial.stage_count * sizeof *c->trial.stage_device);
    c->best->stage_count = c->trial.stage_count;
    c->best->device_count = c->trial.device_count;
    c->method = method;
    c->some = 1;
}

/* A failed candidate is not an error as long as another one succeeds. */
static lig_status enter(contest *c, uint32_t method, double balance, int even_stages)
{
    lig_status status =
        ligi_method_run(c->job, method, balance, even_stages, &c->trial, &c->trial_figures);
    if (status == LIG_E_LIMIT) {
        c->refusal = status;
        return LIG_OK;
    }
    LIG_TRY(status);
    if (better(c))
        keep(c, method);
    return LIG_OK;
}

static int transfers_cost(const lig_pipe_options *options)
{
    return options->bandwidth > 0 || options->bandwidth_matrix || options->latency_ms > 0;
}

static lig_status hold(contest *c)
{
    static const double looser[] = {1.005, 1.02, 1.05, 1.12, 1.25};
    const lig_pipe_options *options = c->job->options;
    uint32_t units = c->job->graph->unit_count;
    int shared = lig_pipe_device_count(options) < options->stages;
    LIG_TRY(enter(c, LIG_PIPE_CONTIGUOUS, options->balance, 0));
    if (units <= EXACT_UNITS && options->effort <= 1)
        LIG_TRY(enter(c, LIG_PIPE_EXACT, options->balance, 0));
    LIG_TRY(enter(c, LIG_PIPE_ACYCLIC, options->balance, 0));
    if (options->balance > 0)
        return LIG_OK;
    /* Schedules that cycle through a device's stages need these balanced, not only their sum. */
    if (shared)
        LIG_TRY(enter(c, LIG_PIPE_ACYCLIC, 0, 1));
    if (units <= MULTILEVEL_UNITS)
        LIG_TRY(enter(c, LIG_PIPE_MULTILEVEL, 0, 0));
    /* If transfers take time, slightly less balance for a smaller cut may pay off. */
    for (size_t i = 0; transfers_cost(options) && i < sizeof looser / sizeof *looser; i++)
        LIG_TRY(enter(c, LIG_PIPE_ACYCLIC, looser[i], shared));
    return LIG_OK;
}

/* Optimises the winner again, with the step time as the objective. Unchanged if that would violate
 * memory limits. */
static lig_status tune_best(contest *c)
{
    uint32_t device = 0;
    double factor = 1;
    for (int i = 0; i < 3; i++) {
        memcpy(c->trial.stage, c->best->stage, c->job->graph->unit_count * sizeof *c->trial.stage);
        memcpy(c->trial.stage_device, c->best->stage_device,
               c->best->stage_count * sizeof *c->trial.stage_device);
        c->trial.stage_count = c->best->stage_count;
        c->trial.device_count = c->best->device_count;
        LIG_TRY(ligi_tune(c->job, c->job->options->seed, factor, &c->trial));
        LIG_TRY(ligi_measure(c->job, &c->trial, &c->trial_figures));
        double use = ligi_measure_memory(c->job, &c->trial, c->trial_figures.device_bytes, &device);
        if (use <= 1 + 1e-9)
            break;
        factor *= 0.99 / use;
        if (i == 2)
            return LIG_OK;
    }
    /* Moved units are not intervals, and the proof was for another objective. */
    if (better(c))
        keep(c, c->method == LIG_PIPE_MULTILEVEL ? c->method : LIG_PIPE_ACYCLIC);
    return LIG_OK;
}

lig_status ligi_auto(const ligi_measure_job *job, ligi_assignment *assignment,
                     ligi_figures *figures, uint32_t *method)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t n = job->graph->unit_count, devices = lig_pipe_device_count(job->options);
    contest c = {.job = job, .best = assignment, .best_figures = figures};
    c.trial.stage = LIGI_TAKE(&scratch, uint32_t, n);
    c.trial.stage_device = LIGI_TAKE(&scratch, uint32_t, n);
    c.trial_figures.device_ms = LIGI_TAKE(&scratch, double, devices);
    c.trial_figures.device_bytes = LIGI_TAKE(&scratch, double, devices);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK)
        status = hold(&c);
    if (status == LIG_OK && !c.some)
        status = c.refusal;
    else if (status == LIG_OK && job->options->balance == 0)
        status = tune_best(&c);
    *method = c.method;
    ligi_scratch_free(&scratch);
    return status;
}
