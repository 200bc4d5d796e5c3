#include "pipe/methods/tune_step.h"

#include <math.h>
#include <string.h>

#include "pipe/schedule/simulate.h"
#include "pipe/search/move_cost.h"

/* Simulated operations per search: a few tenths of a second. */
#define WORKS_MOST 6e6
#define TRIES_LEAST 200
#define TRIES_MOST 40000

typedef struct tuning {
    const ligi_measure_job *job;
    ligi_goal goal;
    ligi_moves moves;
    lig_pipe_stages stages; /* kept up to date move by move */
    ligi_step *step;
    double *forward, *backward, *weight; /* [unit], at speed 1 */
    ligi_random random;
} tuning;

static double at(const double *figure, uint32_t i)
{
    return figure ? figure[i] : 0;
}

static lig_status sum_units(tuning *t, ligi_scratch *scratch)
{
    const lig_pipe_graph *input = t->job->input;
    uint32_t n = t->job->graph->unit_count;
    t->forward = LIGI_TAKE(scratch, double, n);
    t->backward = LIGI_TAKE(scratch, double, n);
    t->weight = LIGI_TAKE(scratch, double, n);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t i = 0; i < input->node_count; i++) {
        uint32_t u = t->job->graph->unit_of[i];
        double forward = at(input->forward_ms, i), backward = at(input->backward_ms, i);
        t->forward[u] += forward;
        t->backward[u] += backward + (t->job->options->recompute ? forward : 0);
        t->weight[u] += input->weight_ms ? input->weight_ms[i] : backward / 2;
    }
    return LIG_OK;
}

static uint32_t last_user_stage(const ligi_moves *moves, uint32_t net)
{
    const ligi_graph *graph = moves->graph;
    const uint32_t *users = ligi_wide_users(moves, net);
    uint32_t last = 0;
    if (users) {
        for (last = moves->stage_count - 1; !users[last];)
            last--;
        return last;
    }
    for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
        if (moves->stage[graph->pin[p]] > last)
            last = moves->stage[graph->pin[p]];
    return last;
}

/* Adds the bytes of a net, times `sign`, to the borders that it crosses. */
static void count_net(tuning *t, uint32_t net, double sign)
{
    uint32_t last = last_user_stage(&t->moves, net);
    for (uint32_t s = t->moves.stage[t->job->graph->source[net]]; s < last; s++)
        t->stages.send_bytes[s] += sign * t->job->graph->bytes[net];
}

static void count_nets(tuning *t, uint32_t unit, double sign)
{
    const ligi_graph *graph = t->job->graph;
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        count_net(t, graph->in_net[i], sign);
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        count_net(t, net, sign);
}

static void count_times(tuning *t, uint32_t unit, double sign)
{
    uint32_t s = t->moves.stage[unit];
    double rate = sign / t->goal.speed[t->goal.stage_device[s]];
    t->stages.forward_ms[s] += rate * t->forward[unit];
    t->stages.backward_ms[s] += rate * t->backward[unit];
    t->stages.weight_ms[s] += rate * t->weight[unit];
}

static void move(tuning *t, uint32_t unit, uint32_t to, double delta)
{
    count_nets(t, unit, -1);
    count_times(t, unit, -1);
    ligi_moves_apply(&t->moves, unit, to, delta);
    count_times(t, unit, 1);
    count_nets(t, unit, 1);
}

/* Subtracting and adding leaves rounding residue: below this a border is empty. */
static double step_time(tuning *t)
{
    lig_pipe_timeline timeline = LIG_PIPE_TIMELINE_INIT;
    for (uint32_t s = 0; s < t->stages.stage_count; s++) {
        t->stages.send_bytes[s] = t->stages.send_bytes[s] < 1e-6 ? 0 : t->stages.send_bytes[s];
        t->stages.forward_ms[s] = fmax(0, t->stages.forward_ms[s]);
        t->stages.backward_ms[s] = fmax(0, t->stages.backward_ms[s]);
        t->stages.weight_ms[s] = fmin(t->stages.backward_ms[s], fmax(0, t->stages.weight_ms[s]));
    }
    ligi_fold_transfers(t->job->options, &t->stages);
    return ligi_step_run(t->step, &timeline) == LIG_OK ? timeline.step_ms : INFINITY;
}

static lig_status tuning_init(tuning *t, const ligi_measure_job *job, double room_factor,
                              const ligi_assignment *assignment, ligi_scratch *scratch)
{
    const lig_pipe_options *options = job->options;
    t->job = job;
    LIG_TRY(ligi_goal_make(options, job->graph, assignment->stage_count, assignment->stage_device,
                           &t->goal, scratch));
    for (uint32_t d = 0; d < t->goal.device_count; d++)
        t->goal.room[d] *= room_factor;
    LIG_TRY(ligi_moves_init(&t->moves, job->graph, &t->goal, scratch));
    ligi_moves_load(&t->moves, assignment->stage);
    LIG_TRY(ligi_stages_take(&t->stages, assignment->stage_count, scratch));
    LIG_TRY(ligi_fold(job->input, options, job->graph, assignment, &t->stages));
    LIG_TRY(sum_units(t, scratch));
    return ligi_step_init(&t->step, &t->stages, options->schedule, options->microbatches, scratch);
}

static uint64_t tries_for(const tuning *t)
{
    double works = 2.0 * t->stages.stage_count * t->job->options->microbatches;
    if (t->job->options->schedule == LIG_PIPE_ZB_H1 || t->job->options->schedule == LIG_PIPE_ZBV)
        works *= 1.5;
    double tries = fmin(WORKS_MOST / works, 200.0 * t->job->graph->unit_count);
    uint32_t effort = t->job->options->effort ? t->job->options->effort : 1;
    return tries < TRIES_LEAST ? 0 : (uint64_t)fmin(tries, TRIES_MOST) * effort;
}

/* Annealing again, with the step time as its energy and the cut as tie-break. */
static void cool(tuning *t, ligi_best *best, uint64_t tries, double heat)
{
    ligi_moves *moves = &t->moves;
    double now = step_time(t), least = now, start = now * heat, temperature = start;
    double cut_price = moves->cut > 0 ? now * 1e-6 / moves->cut : 0, least_cut = moves->cut;
    for (uint64_t i = 0; i < tries && moves->open_count; i++) {
        if (i % 64 == 0)
            temperature = start * pow(0.03, (double)i / (double)tries);
        uint32_t unit = moves->open[ligi_random_below(&t->random, moves->open_count)], low, high;
        ligi_moves_range(moves, unit, &low, &high);
        uint32_t from = moves->stage[unit], to = low + ligi_random_below(&t->random, high - low);
        to += to >= from;
        if (!ligi_moves_fit(moves, unit, to, 0))
            continue;
        double delta = ligi_moves_delta(moves, unit, to);
        move(t, unit, to, delta);
        double then = step_time(t), worse = then - now + delta * cut_price;
        if (worse > 0 && ligi_random_unit(&t->random) >= exp(-worse / temperature)) {
            move(t, unit, from, -delta);
            continue;
        }
        now = then;
        ligi_best_note(best, unit);
        if (now < least * (1 - 1e-9) || (now <= least && moves->cut < least_cut * (1 - 1e-9))) {
            least = now;
            least_cut = moves->cut;
            ligi_best_keep(best, moves);
        }
    }
}

static lig_status tune(tuning *t, ligi_assignment *assignment, ligi_scratch *scratch)
{
    ligi_best best;
    uint64_t tries = tries_for(t);
    if (!tries || t->stages.stage_count < 2)
        return LIG_OK;
    LIG_TRY(ligi_best_init(&best, &t->moves, scratch));
    cool(t, &best, tries, 0.01);
    /* Again from the best, with a lower temperature and freshly computed figures. */
    ligi_best_restore(&best, &t->moves);
    memcpy(assignment->stage, best.stage, t->job->graph->unit_count * sizeof *best.stage);
    LIG_TRY(ligi_fold(t->job->input, t->job->options, t->job->graph, assignment, &t->stages));
    cool(t, &best, tries, 0.004);
    memcpy(assignment->stage, best.stage, t->job->graph->unit_count * sizeof *best.stage);
    return LIG_OK;
}

lig_status ligi_tune(const ligi_measure_job *job, uint64_t seed, double room_factor,
                     ligi_assignment *assignment)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    tuning t = {.random = {seed}};
    lig_status status = tuning_init(&t, job, room_factor, assignment, &scratch);
    if (status == LIG_OK)
        status = tune(&t, assignment, &scratch);
    ligi_scratch_free(&scratch);
    return status;
}
