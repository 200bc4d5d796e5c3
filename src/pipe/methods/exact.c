#include "pipe/methods/exact.h"

#include <math.h>
#include <string.h>

/* Units are placed in topological order, each in a stage no earlier than its producers': exactly
 * the acyclic assignments. A branch is pruned if the placed units already cost too much, or if the
 * rest cannot fit. */
typedef struct tree {
    const ligi_graph *graph;
    const ligi_goal *goal;
    uint32_t *stage;
    uint32_t *stage_units; /* [stage] */
    uint32_t *users;       /* [net * stage_count + stage] */
    double *load, *bytes;  /* [device] */
    double *load_before;   /* [unit]: its device's previous load, restored without rounding */
    double *bytes_before;
    double *limit;  /* [device]: load */
    double *left;   /* [unit + 1]: load of the units not placed yet */
    uint32_t empty; /* stages without a unit */
    double *cut;    /* [unit + 1]: after that many units */
    int by_load;    /* the objective: bottleneck, or cut */
    double best;
    uint32_t *best_stage;
    int found;
    uint64_t steps;
} tree;

static lig_status tree_init(tree *t, const ligi_search *search, ligi_scratch *scratch)
{
    uint32_t n = search->graph->unit_count, stages = search->goal->stage_count;
    *t = (tree){.graph = search->graph, .goal = search->goal, .empty = stages};
    t->stage = LIGI_TAKE(scratch, uint32_t, n);
    t->load_before = LIGI_TAKE(scratch, double, n);
    t->bytes_before = LIGI_TAKE(scratch, double, n);
    t->stage_units = LIGI_TAKE(scratch, uint32_t, stages);
    t->users = LIGI_TAKE(scratch, uint32_t, (size_t)search->graph->net_count *stages);
    t->load = LIGI_TAKE(scratch, double, search->goal->device_count);
    t->bytes = LIGI_TAKE(scratch, double, search->goal->device_count);
    t->limit = LIGI_TAKE(scratch, double, search->goal->device_count);
    t->left = LIGI_TAKE(scratch, double, (size_t)n + 1);
    t->cut = LIGI_TAKE(scratch, double, (size_t)n + 1);
    t->best_stage = LIGI_TAKE(scratch, uint32_t, n);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t u = n; u-- > 0;)
        t->left[u] = t->left[u + 1] + search->graph->load[u];
    return LIG_OK;
}

static void set_cap(tree *t, double cap_ms)
{
    for (uint32_t d = 0; d < t->goal->device_count; d++)
        t->limit[d] = cap_ms * t->goal->speed[d] * (1 + 1e-12);
}

static uint32_t first_stage(const tree *t, uint32_t unit)
{
    uint32_t low = 0;
    for (uint32_t i = t->graph->in_begin[unit]; i < t->graph->in_begin[unit + 1]; i++) {
        uint32_t stage = t->stage[t->graph->source[t->graph->in_net[i]]];
        low = stage > low ? stage : low;
    }
    return low;
}

static int apart_kept(const tree *t, uint32_t unit, uint32_t stage)
{
    const ligi_graph *graph = t->graph;
    for (uint32_t i = 0;
         graph->apart_begin && i < graph->apart_begin[unit + 1] - graph->apart_begin[unit]; i++) {
        uint32_t other = graph->apart[graph->apart_begin[unit] + i];
        if (other < unit && t->stage[other] == stage)
            return 0;
    }
    return 1;
}

static void place(tree *t, uint32_t unit, uint32_t stage)
{
    const ligi_graph *graph = t->graph;
    uint32_t device = t->goal->stage_device[stage], stages = t->goal->stage_count;
    t->stage[unit] = stage;
    t->load_before[unit] = t->load[device];
    t->bytes_before[unit] = t->bytes[device];
    t->load[device] += graph->load[unit];
    t->bytes[device] += graph->fixed[unit] + graph->flight[unit] * t->goal->flight[stage];
    t->empty -= t->stage_units[stage]++ == 0;
    t->cut[unit + 1] = t->cut[unit];
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++) {
        uint32_t net = graph->in_net[i];
        if (t->users[(size_t)net * stages + stage]++ == 0 && t->stage[graph->source[net]] != stage)
            t->cut[unit + 1] += graph->bytes[net];
    }
}

static void take_back(tree *t, uint32_t unit)
{
    const ligi_graph *graph = t->graph;
    uint32_t stage = t->stage[unit], device = t->goal->stage_device[stage],
             stages = t->goal->stage_count;
    t->load[device] = t->load_before[unit];
    t->bytes[device] = t->bytes_before[unit];
    t->empty += --t->stage_units[stage] == 0;
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        t->users[(size_t)graph->in_net[i] * stages + stage]--;
}

/* Whether an assignment better than the best is still possible, with `placed` units in place. */
static int hopeful(const tree *t, uint32_t placed, uint32_t device)
{
    double room = 0;
    if (t->load[device] > t->limit[device] ||
        t->bytes[device] > t->goal->room[device] * (1 + 1e-12))
        return 0;
    if (t->empty > t->graph->unit_count - placed)
        return 0;
    if (!t->by_load && t->cut[placed] >= t->best * (1 - 1e-12))
        return 0;
    for (uint32_t d = 0; d < t->goal->device_count; d++)
        room += t->limit[d] - t->load[d];
    return t->left[placed] <= room * (1 + 1e-12);
}

static double worth(const tree *t)
{
    double most = 0;
    if (!t->by_load)
        return t->cut[t->graph->unit_count];
    for (uint32_t d = 0; d < t->goal->device_count; d++)
        most = fmax(most, t->load[d] / t->goal->speed[d]);
    return most;
}

static void keep(tree *t)
{
    t->best = worth(t);
    t->found = 1;
    memcpy(t->best_stage, t->stage, t->graph->unit_count * sizeof *t->stage);
    if (t->by_load)
        set_cap(t, t->best * (1 - 4e-12));
}

/* Depth first without recursion: unit `at` tries its stages in turn. Returns 0 if the steps ran
 * out. */
static int walk(tree *t, uint64_t steps_most)
{
    uint32_t n = t->graph->unit_count, at = 0, next = 0;
    for (;;) {
        if (next < t->goal->stage_count) {
            if (++t->steps > steps_most)
                return 0;
            if (!apart_kept(t, at, next)) {
                next++;
                continue;
            }
            place(t, at, next);
            if (!hopeful(t, at + 1, t->goal->stage_device[next])) {
                take_back(t, at);
                next++;
                continue;
            }
            if (++at < n) {
                next = first_stage(t, at);
                continue;
            }
            keep(t);
        }
        if (at == 0)
            return 1;
        take_back(t, --at);
        next = t->stage[at] + 1;
    }
}

/* Clears the state that an interrupted search leaves. */
static void reset(tree *t)
{
    memset(t->stage_units, 0, t->goal->stage_count * sizeof *t->stage_units);
    memset(t->users, 0, (size_t)t->graph->net_count * t->goal->stage_count * sizeof *t->users);
    memset(t->load, 0, t->goal->device_count * sizeof *t->load);
    memset(t->bytes, 0, t->goal->device_count * sizeof *t->bytes);
    t->empty = t->goal->stage_count;
}

static void take_start(tree *t, const ligi_found *out)
{
    if (!out->found)
        return;
    for (uint32_t u = 0; u < t->graph->unit_count; u++)
        place(t, u, out->stage[u]);
    keep(t);
    reset(t);
}

lig_status ligi_exact(const ligi_search *search, uint64_t steps_most, ligi_found *out, int *proven)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    tree t;
    lig_status status = tree_init(&t, search, &scratch);
    *proven = status == LIG_OK;
    if (status == LIG_OK && search->balance == 0) {
        t.by_load = 1;
        set_cap(&t, INFINITY);
        take_start(&t, out);
        *proven = walk(&t, steps_most);
        search->goal->cap_ms = t.found ? t.best : INFINITY;
        reset(&t);
    } else if (status == LIG_OK) {
        ligi_cap_balance(search);
    }
    if (status == LIG_OK && *proven) {
        t.by_load = 0;
        t.best = INFINITY;
        set_cap(&t, search->goal->cap_ms);
        ligi_found first = {t.best_stage, t.found, 0};
        take_start(&t, t.found ? &first : out);
        *proven = walk(&t, steps_most);
    }
    out->found = out->found || t.found;
    if (status == LIG_OK && t.found)
        memcpy(out->stage, t.best_stage, search->graph->unit_count * sizeof *out->stage);
    ligi_scratch_free(&scratch);
    return status;
}
