#include "pipe/methods/methods.h"

#include <math.h>
#include <string.h>

#include "pipe/methods/exact.h"
#include "pipe/methods/memory_fit.h"
#include "pipe/methods/multilevel.h"

#define EXACT_STEPS UINT64_C(30000000)
#define EXACT_CELLS (UINT64_C(1) << 26)

/* Retries with less memory, for what only a whole plan shows: relays, replicas of tied
 * parameters. */
#define TRIES 5

static lig_status run_exact(const ligi_search *search, uint64_t steps, ligi_found *out)
{
    int proven = 0;
    uint32_t units = search->graph->unit_count;
    if ((uint64_t)search->graph->net_count * search->goal->stage_count > EXACT_CELLS)
        return lig_fail(LIG_E_LIMIT, "%u nodes are too many for the method exact: use acyclic",
                        units);
    LIG_TRY(ligi_acyclic(search, out));
    double nearest_ms = out->nearest_ms;
    LIG_TRY(ligi_exact(search, steps * search->effort, out, &proven));
    out->nearest_ms = nearest_ms;
    if (!proven)
        return lig_fail(LIG_E_LIMIT,
                        "%u nodes in %u stages have too many assignments for the method exact: use "
                        "acyclic, or increase effort",
                        units, search->goal->stage_count);
    return LIG_OK;
}

/* Turns every stage into a separate device with its share of speed and memory. */
static lig_status split_devices(ligi_goal *goal, ligi_scratch *scratch)
{
    uint32_t stages = goal->stage_count;
    uint32_t *device = LIGI_TAKE(scratch, uint32_t, stages),
             *ones = LIGI_TAKE(scratch, uint32_t, stages);
    double *speed = LIGI_TAKE(scratch, double, stages), *room = LIGI_TAKE(scratch, double, stages);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t shared = goal->stage_device[s];
        device[s] = s;
        ones[s] = 1;
        speed[s] = goal->speed[shared] / goal->device_stages[shared];
        room[s] = goal->room[shared] / goal->device_stages[shared];
    }
    goal->stage_device = device;
    goal->device_stages = ones;
    goal->speed = speed;
    goal->room = room;
    goal->device_count = stages;
    return LIG_OK;
}

static lig_status run_chain(const ligi_measure_job *job, uint32_t method, const ligi_wish *wish,
                            ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_goal goal;
    lig_status status =
        ligi_goal_make(job->options, job->graph, job->options->stages, NULL, &goal, &scratch);
    ligi_search search = {job->graph, &goal, wish->balance, wish->effort, wish->seed};
    /* As one of several candidates it must not take longer than the others. */
    uint64_t steps = job->options->method == LIG_PIPE_EXACT ? EXACT_STEPS : EXACT_STEPS / 30;
    out->stage = assignment->stage;
    if (status == LIG_OK) {
        for (uint32_t d = 0; d < goal.device_count; d++)
            goal.room[d] *= wish->room_factor;
        assignment->stage_count = goal.stage_count;
        assignment->device_count = goal.device_count;
        memcpy(assignment->stage_device, goal.stage_device,
               goal.stage_count * sizeof *goal.stage_device);
    }
    if (status == LIG_OK && wish->even_stages)
        status = split_devices(&goal, &scratch);
    if (status == LIG_OK) {
        switch (method) {
        case LIG_PIPE_CONTIGUOUS: status = ligi_contiguous(&search, out); break;
        case LIG_PIPE_MULTILEVEL: status = ligi_multilevel(&search, out); break;
        case LIG_PIPE_EXACT: status = run_exact(&search, steps, out); break;
        default: status = ligi_acyclic(&search, out); break;
        }
    }
    ligi_scratch_free(&scratch);
    return status;
}

static lig_status run_once(const ligi_measure_job *job, uint32_t method, const ligi_wish *wish,
                           ligi_assignment *assignment, ligi_found *out)
{
    if (method == LIG_PIPE_MIXED)
        return ligi_mixed(job, wish, assignment, out);
    if (method == LIG_PIPE_METIS)
        return ligi_metis_stages(job, wish, assignment, out);
    return run_chain(job, method, wish, assignment, out);
}

/* --- what cannot be met --- */

static lig_status refuse_balance(const ligi_measure_job *job, double balance, double nearest_ms)
{
    double bound;
    uint32_t devices = lig_pipe_device_count(job->options);
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    double *speeds = LIGI_TAKE(&scratch, double, devices);
    LIG_TRY(ligi_scratch_check(&scratch));
    for (uint32_t d = 0; d < devices; d++)
        speeds[d] = job->options->speed ? job->options->speed[d] : 1;
    bound = ligi_bound_ms(job->graph, speeds, devices);
    ligi_scratch_free(&scratch);
    return lig_fail(LIG_E_LIMIT,
                    "no stages found with a bottleneck of at most %.6g times the lower bound of "
                    "%.6g ms: the closest is %.6g times",
                    balance, bound, nearest_ms / bound);
}

static lig_status refuse_apart(void)
{
    return lig_fail(LIG_E_LIMIT,
                    "the pairs of nodes to be kept apart do not fit into so few stages");
}

static lig_status refuse_memory(const ligi_measure_job *job, double factor)
{
    double largest = 0;
    for (uint32_t d = 0; d < lig_pipe_device_count(job->options); d++)
        largest = fmax(largest, job->options->memory[d]);
    return lig_fail(LIG_E_LIMIT,
                    "%u stages do not fit into the devices' memory (%.4g GB on the largest): they "
                    "need %.4f times as much (%.4g GB)",
                    job->options->stages, largest / 1e9, factor, factor * largest / 1e9);
}

/* Before failing for lack of memory, stages that need as little as possible are tried: they fit, or
 * show how much memory would suffice. */
static lig_status last_resort(const ligi_measure_job *job, uint32_t method, double balance,
                              ligi_assignment *assignment, ligi_figures *figures)
{
    double use;
    int simple = method != LIG_PIPE_EXACT && method != LIG_PIPE_METIS && method != LIG_PIPE_MIXED;
    LIG_TRY(ligi_fit_memory(job, balance, assignment, figures, &use));
    if (simple && use <= 1 + 1e-9)
        return LIG_OK;
    if (isinf(use) && balance > 0)
        LIG_TRY(ligi_fit_memory(job, 0, assignment, figures, &use));
    return isinf(use) ? refuse_apart() : refuse_memory(job, fmax(use, 1.0001));
}

lig_status ligi_method_run(const ligi_measure_job *job, uint32_t method, double balance,
                           int even_stages, ligi_assignment *assignment, ligi_figures *figures)
{
    ligi_wish wish = {.balance = balance, .seed = job->options->seed, .room_factor = 1};
    ligi_found out = {0};
    wish.effort = job->options->effort ? job->options->effort : 1;
    wish.even_stages = even_stages;
    for (int i = 0; i < TRIES; i++) {
        uint32_t device = 0;
        LIG_TRY(run_once(job, method, &wish, assignment, &out));
        if (!out.found)
            break;
        LIG_TRY(ligi_measure(job, assignment, figures));
        double use = ligi_measure_memory(job, assignment, figures->device_bytes, &device);
        if (use <= 1 + 1e-9)
            return LIG_OK;
        wish.room_factor *= 0.995 / use;
    }
    if (job->options->memory && (out.found || isinf(out.nearest_ms)))
        return last_resort(job, method, balance, assignment, figures);
    return balance > 0 && isfinite(out.nearest_ms) ? refuse_balance(job, balance, out.nearest_ms)
                                                   : refuse_apart();
}
