#include "pipe/methods/bins_to_stages.h"

#include <math.h>
#include <string.h>

/* Units whose producers are done, queued in their bin's list. */
typedef struct run {
    const ligi_graph *graph;
    const uint32_t *bin;
    uint32_t *waits;
    uint32_t *next;  /* [unit]: of the bin's list */
    uint32_t *first; /* [bin], LIGI_NONE: empty */
    double *load;    /* [bin]: of its list */
} run;

static void enlist(run *r, uint32_t unit)
{
    uint32_t bin = r->bin[unit];
    r->next[unit] = r->first[bin];
    r->first[bin] = unit;
    r->load[bin] += r->graph->load[unit];
}

/* The bin with the most ready work comes next: the more a stage takes in one go, the fewer stages
 * there are. */
static uint32_t busiest(const run *r, uint32_t bins)
{
    uint32_t best = LIGI_NONE;
    for (uint32_t b = 0; b < bins; b++)
        if (r->first[b] != LIGI_NONE && (best == LIGI_NONE || r->load[b] > r->load[best]))
            best = b;
    return best;
}

static void finish(run *r, uint32_t unit)
{
    const ligi_graph *graph = r->graph;
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
            if (--r->waits[graph->pin[p]] == 0)
                enlist(r, graph->pin[p]);
}

static uint32_t run_bins(run *r, uint32_t bins, uint32_t *stage, uint32_t *stage_device)
{
    uint32_t stages = 0;
    for (uint32_t bin; (bin = busiest(r, bins)) != LIGI_NONE; stages++) {
        stage_device[stages] = bin;
        while (r->first[bin] != LIGI_NONE) {
            uint32_t unit = r->first[bin];
            r->first[bin] = r->next[unit];
            r->load[bin] -= r->graph->load[unit];
            stage[unit] = stages;
            finish(r, unit);
        }
        r->load[bin] = 0;
    }
    return stages;
}

/* Stages in order, some of them merged with the previous one. Neighbours in a topological order can
 * always be merged. */
typedef struct chain {
    double *load;     /* [stage] */
    uint32_t *device; /* of the merged stage that starts here */
    uint32_t *into;   /* [stage]: where its units are now */
    uint32_t *after;  /* [stage]: next start, LIGI_NONE at the end */
} chain;

static void join_next(chain *c, uint32_t s)
{
    uint32_t other = c->after[s];
    if (c->load[other] > c->load[s])
        c->device[s] = c->device[other];
    c->load[s] += c->load[other];
    c->into[other] = s;
    c->after[s] = c->after[other];
}

/* Merging neighbours on one device is free; then the lightest pair. */
static uint32_t join_stages(chain *c, uint32_t count, uint32_t stages_most)
{
    for (;;) {
        uint32_t best = LIGI_NONE;
        double least = INFINITY;
        for (uint32_t s = 0; c->after[s] != LIGI_NONE; s = c->after[s]) {
            double cost =
                c->device[s] == c->device[c->after[s]] ? -1 : c->load[s] + c->load[c->after[s]];
            if (cost < least) {
                least = cost;
                best = s;
            }
        }
        if (best == LIGI_NONE || (count <= stages_most && least >= 0))
            return count;
        join_next(c, best);
        count--;
    }
}

static void apply_chain(const ligi_graph *graph, chain *c, ligi_assignment *assignment)
{
    uint32_t count = 0;
    /* `into` points to an earlier stage, so one pass resolves all. */
    for (uint32_t s = 0; s < assignment->stage_count; s++) {
        if (c->into[s] == s) {
            assignment->stage_device[count] = c->device[s];
            c->into[s] = count++;
        } else {
            c->into[s] = c->into[c->into[s]];
        }
    }
    for (uint32_t u = 0; u < graph->unit_count; u++)
        assignment->stage[u] = c->into[assignment->stage[u]];
    assignment->stage_count = count;
}

static lig_status limit_stages(const ligi_graph *graph, uint32_t stages_most,
                               ligi_assignment *assignment, ligi_scratch *scratch)
{
    uint32_t count = assignment->stage_count;
    chain c = {LIGI_TAKE(scratch, double, count), LIGI_TAKE(scratch, uint32_t, count),
               LIGI_TAKE(scratch, uint32_t, count), LIGI_TAKE(scratch, uint32_t, count)};
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t s = 0; s < count; s++) {
        c.device[s] = assignment->stage_device[s];
        c.into[s] = s;
        c.after[s] = s + 1 < count ? s + 1 : LIGI_NONE;
    }
    for (uint32_t u = 0; u < graph->unit_count; u++)
        c.load[assignment->stage[u]] += graph->load[u];
    join_stages(&c, count, stages_most);
    apply_chain(graph, &c, assignment);
    return LIG_OK;
}

/* Merging examines every pair for every merge, so runs of a long list are coarsened first. */
#define STAGES_TO_JOIN 2000

static void fold_runs(const ligi_graph *graph, ligi_assignment *assignment)
{
    uint32_t factor = assignment->stage_count / STAGES_TO_JOIN + 1;
    if (factor == 1)
        return;
    for (uint32_t u = 0; u < graph->unit_count; u++)
        assignment->stage[u] /= factor;
    assignment->stage_count = (assignment->stage_count + factor - 1) / factor;
    for (uint32_t s = 0; s < assignment->stage_count; s++)
        assignment->stage_device[s] = assignment->stage_device[s * factor];
}

lig_status ligi_bins_to_stages(const ligi_graph *graph, const uint32_t *bin, uint32_t stages_most,
                               ligi_assignment *assignment)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t bins = assignment->device_count;
    run r = {.graph = graph, .bin = bin};
    r.waits = LIGI_TAKE(&scratch, uint32_t, graph->unit_count);
    r.next = LIGI_TAKE(&scratch, uint32_t, graph->unit_count);
    r.first = LIGI_TAKE(&scratch, uint32_t, bins);
    r.load = LIGI_TAKE(&scratch, double, bins);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK) {
        memset(r.first, 0xff, bins * sizeof *r.first);
        for (uint32_t u = graph->unit_count; u-- > 0;) {
            r.waits[u] = graph->in_begin[u + 1] - graph->in_begin[u];
            if (!r.waits[u])
                enlist(&r, u);
        }
        assignment->stage_count = run_bins(&r, bins, assignment->stage, assignment->stage_device);
        fold_runs(graph, assignment);
        status = limit_stages(graph, stages_most, assignment, &scratch);
    }
    ligi_scratch_free(&scratch);
    return status;
}
