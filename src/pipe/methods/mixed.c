#include "pipe/methods/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/methods/metis.h"
#include "pipe/search/coarsen.h"

#define LEVELS_MAX 40

/* Fills piece[unit] with about `wanted` pieces, as balanced as pairing makes them. */
static lig_status cut_pieces(const ligi_graph *graph, uint32_t wanted, ligi_random *random,
                             uint32_t *piece, ligi_graph *coarse, ligi_scratch *scratch)
{
    const ligi_graph *fine = graph;
    double most = graph->load_sum / wanted;
    uint32_t *cluster = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t u = 0; u < graph->unit_count; u++)
        piece[u] = u;
    *coarse = *graph;
    for (uint32_t i = 0; i < LEVELS_MAX && fine->unit_count > wanted; i++) {
        uint32_t count = 0;
        LIG_TRY(ligi_coarsen(fine, most, random, cluster, &count));
        if (count == fine->unit_count) {
            /* No more pairs below this weight: increase it until the number is reached. */
            most *= 1.25;
            continue;
        }
        ligi_graph *next = LIGI_TAKE(scratch, ligi_graph, 1);
        LIG_TRY(ligi_scratch_check(scratch));
        LIG_TRY(ligi_graph_contract(fine, cluster, count, next, scratch));
        for (uint32_t u = 0; u < graph->unit_count; u++)
            piece[u] = cluster[piece[u]];
        fine = next;
    }
    *coarse = *fine;
    return LIG_OK;
}

typedef struct ranked {
    double load;
    uint32_t piece;
} ranked;

static int compare_ranked(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->load != b->load)
        return a->load > b->load ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

/* Largest first, to the device that finishes first, preferring those with enough memory. The stages
 * are not known yet, so the number of micro-batches in flight is taken to be the number of
 * devices. */
static lig_status fill_bins(const ligi_graph *coarse, const ligi_goal *goal, double flying,
                            uint32_t *bin, ligi_scratch *scratch)
{
    ranked *rank = LIGI_TAKE(scratch, ranked, coarse->unit_count);
    double *load = LIGI_TAKE(scratch, double, goal->device_count);
    double *bytes = LIGI_TAKE(scratch, double, goal->device_count);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t c = 0; c < coarse->unit_count; c++)
        rank[c] = (ranked){coarse->load[c], c};
    qsort(rank, coarse->unit_count, sizeof *rank, compare_ranked);
    for (uint32_t i = 0; i < coarse->unit_count; i++) {
        uint32_t c = rank[i].piece, best = 0;
        double need = coarse->fixed[c] + coarse->flight[c] * flying, least = INFINITY;
        for (uint32_t d = 0; d < goal->device_count; d++) {
            double end = (load[d] + coarse->load[c]) / goal->speed[d];
            double penalty = bytes[d] + need > goal->room[d] ? coarse->load_sum * 1e3 : 0;
            if (end + penalty < least) {
                least = end + penalty;
                best = d;
            }
        }
        bin[c] = best;
        load[best] += coarse->load[c];
        bytes[best] += need;
    }
    return LIG_OK;
}

/* Converts bins to stages, then moves units between them. */
static lig_status settle_bins(const ligi_measure_job *job, const ligi_wish *wish,
                              const uint32_t *bin, uint32_t stages_most,
                              ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_random random = {wish->seed};
    ligi_goal goal;
    lig_status status = ligi_bins_to_stages(job->graph, bin, stages_most, assignment);
    if (status == LIG_OK)
        status = ligi_goal_make(job->options, job->graph, assignment->stage_count,
                                assignment->stage_device, &goal, &scratch);
    for (uint32_t d = 0; status == LIG_OK && d < goal.device_count; d++)
        goal.room[d] *= wish->room_factor;
    ligi_search search = {job->graph, &goal, wish->balance, wish->effort, wish->seed};
    out->stage = assignment->stage;
    if (status == LIG_OK)
        status = ligi_settle(&search, &random, out);
    ligi_scratch_free(&scratch);
    return status;
}

static lig_status try_pieces(const ligi_measure_job *job, const ligi_wish *wish, uint32_t wanted,
                             ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_random random = {wish->seed ^ wanted};
    ligi_graph coarse;
    ligi_goal goal;
    uint32_t n = job->graph->unit_count;
    uint32_t *piece = LIGI_TAKE(&scratch, uint32_t, n),
             *piece_bin = LIGI_TAKE(&scratch, uint32_t, n);
    uint32_t *bin = LIGI_TAKE(&scratch, uint32_t, n);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK)
        status = ligi_goal_make(job->options, job->graph, assignment->device_count, NULL, &goal,
                                &scratch);
    if (status == LIG_OK)
        status = cut_pieces(job->graph, wanted, &random, piece, &coarse, &scratch);
    double flying = fmin(job->options->microbatches, assignment->device_count);
    if (status == LIG_OK)
        status = fill_bins(&coarse, &goal, flying, piece_bin, &scratch);
    for (uint32_t u = 0; status == LIG_OK && u < n; u++)
        bin[u] = piece_bin[piece[u]];
    if (status == LIG_OK)
        status = settle_bins(job, wish, bin, wanted, assignment, out);
    ligi_scratch_free(&scratch);
    return status;
}

/* Copies an assignment over another one's arrays. */
static void copy_assignment(ligi_assignment *to, const ligi_assignment *from, uint32_t units)
{
    memcpy(to->stage, from->stage, units * sizeof *to->stage);
    memcpy(to->stage_device, from->stage_device, from->stage_count * sizeof *to->stage_device);
    to->stage_count = from->stage_count;
    to->device_count = from->device_count;
}

/* Tries two, three and four pieces per device, or the requested number of stages; the shortest step
 * wins. */
lig_status ligi_mixed(const ligi_measure_job *job, const ligi_wish *wish,
                      ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t devices = lig_pipe_device_count(job->options), n = job->graph->unit_count;
    ligi_assignment trial = {LIGI_TAKE(&scratch, uint32_t, n), LIGI_TAKE(&scratch, uint32_t, n), 0,
                             devices};
    lig_status status = ligi_scratch_check(&scratch);
    double least = INFINITY;
    int asked = job->options->stages > devices;
    *out = (ligi_found){.stage = assignment->stage, .nearest_ms = INFINITY};
    for (uint32_t factor = 2; status == LIG_OK && factor <= (asked ? 2 : 4); factor++) {
        uint32_t wanted = asked ? job->options->stages : factor * devices;
        ligi_found found = {0};
        ligi_figures figures = {0};
        status = try_pieces(job, wish, wanted < n ? wanted : n, &trial, &found);
        out->nearest_ms = fmin(out->nearest_ms, found.nearest_ms);
        if (status == LIG_OK && found.found)
            status = ligi_measure(job, &trial, &figures);
        if (status == LIG_OK && found.found && figures.step_ms < least) {
            least = figures.step_ms;
            out->found = 1;
            copy_assignment(assignment, &trial, n);
        }
    }
    ligi_scratch_free(&scratch);
    return status;
}

/* METIS ignores the direction of edges between bins; four stages per device preserve most of its
 * result, and more would be dominated by borders. */
lig_status ligi_metis_stages(const ligi_measure_job *job, const ligi_wish *wish,
                             ligi_assignment *assignment, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_goal goal;
    uint32_t devices = lig_pipe_device_count(job->options), n = job->graph->unit_count;
    uint32_t *bin = LIGI_TAKE(&scratch, uint32_t, n);
    lig_status status = ligi_scratch_check(&scratch);
    assignment->device_count = devices;
    if (status == LIG_OK)
        status = ligi_goal_make(job->options, job->graph, devices, NULL, &goal, &scratch);
    if (status == LIG_OK)
        status = ligi_metis(job->graph, &goal, wish->balance > 0 ? wish->balance : 1.01, wish->seed,
                            bin);
    uint32_t most = job->options->stages > devices ? job->options->stages : 4 * devices;
    if (status == LIG_OK)
        status = settle_bins(job, wish, bin, most, assignment, out);
    ligi_scratch_free(&scratch);
    return status;
}
