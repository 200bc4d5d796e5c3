#include "pipe/methods/memory_fit.h"

#include <math.h>
#include <string.h>

#include "pipe/graph/topological_order.h"
#include "pipe/search/interval_stages.h"

#define TIGHTNESSES 12

/* One attempt: contiguous stages whose sums stay within `factor` of the memory. */
static lig_status try_factor(const ligi_measure_job *job, const ligi_goal *full, double balance,
                             double factor, ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_goal goal = *full;
    goal.room = LIGI_TAKE(&scratch, double, goal.device_count);
    lig_status status = ligi_scratch_check(&scratch);
    for (uint32_t d = 0; status == LIG_OK && d < goal.device_count; d++)
        goal.room[d] = full->room[d] * factor;
    ligi_search search = {job->graph, &goal, balance, 1, 0};
    out->stage = assignment->stage;
    if (status == LIG_OK)
        status = ligi_contiguous(&search, out);
    ligi_scratch_free(&scratch);
    return status;
}

typedef struct fitting {
    const ligi_measure_job *job;
    ligi_goal goal;
    double balance;
    ligi_assignment *best;
    ligi_assignment trial;
    ligi_figures figures;
    double use;
} fitting;

static lig_status fit(fitting *f, double factor)
{
    ligi_found out = {0};
    uint32_t device = 0;
    LIG_TRY(try_factor(f->job, &f->goal, f->balance, factor, &f->trial, &out));
    if (!out.found)
        return LIG_OK;
    LIG_TRY(ligi_measure(f->job, &f->trial, &f->figures));
    double use = ligi_measure_memory(f->job, &f->trial, f->figures.device_bytes, &device);
    if (use < f->use) {
        f->use = use;
        memcpy(f->best->stage, f->trial.stage, f->job->graph->unit_count * sizeof *f->trial.stage);
    }
    return LIG_OK;
}

static lig_status fitting_init(fitting *f, const ligi_measure_job *job, double balance,
                               ligi_assignment *assignment, ligi_scratch *scratch)
{
    *f = (fitting){.job = job, .balance = balance, .best = assignment, .use = INFINITY};
    LIG_TRY(
        ligi_goal_make(job->options, job->graph, job->options->stages, NULL, &f->goal, scratch));
    f->trial.stage = LIGI_TAKE(scratch, uint32_t, job->graph->unit_count);
    f->trial.stage_device = f->goal.stage_device;
    f->trial.stage_count = assignment->stage_count = f->goal.stage_count;
    f->trial.device_count = assignment->device_count = f->goal.device_count;
    f->figures.device_bytes = LIGI_TAKE(scratch, double, f->goal.device_count);
    LIG_TRY(ligi_scratch_check(scratch));
    memcpy(assignment->stage_device, f->goal.stage_device,
           f->goal.stage_count * sizeof *f->goal.stage_device);
    return LIG_OK;
}

/* The tightest factor that the sums allow is not always the best: they do not include relays and
 * recomputed inputs. The attempts are fixed multiples of it, so that running again with the memory
 * stated in the error message yields the same stages, and they fit. */
static lig_status fit_all(fitting *f, ligi_scratch *scratch)
{
    uint32_t *order = LIGI_TAKE(scratch, uint32_t, f->job->graph->unit_count);
    double tightest;
    LIG_TRY(ligi_scratch_check(scratch));
    LIG_TRY(ligi_order_make(f->job->graph, LIGI_ORDER_GIVEN, NULL, order));
    LIG_TRY(ligi_interval_memory(f->job->graph, &f->goal, order, &tightest));
    for (int i = 0; isfinite(tightest) && i < TIGHTNESSES; i++)
        LIG_TRY(fit(f, tightest * (1 + 1e-6) * pow(1.08, i)));
    return LIG_OK;
}

lig_status ligi_fit_memory(const ligi_measure_job *job, double balance, ligi_assignment *assignment,
                           ligi_figures *figures, double *use)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    fitting f;
    lig_status status = fitting_init(&f, job, balance, assignment, &scratch);
    if (status == LIG_OK)
        status = fit_all(&f, &scratch);
    *use = f.use;
    ligi_scratch_free(&scratch);
    if (status == LIG_OK && isfinite(*use))
        status = ligi_measure(job, assignment, figures);
    return status;
}
