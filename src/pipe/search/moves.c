#include "pipe/search/move_cost.h"

#include <math.h>
#include <string.h>

static uint32_t count_wide(const ligi_graph *graph, uint32_t *row)
{
    uint32_t rows = 0;
    for (uint32_t net = 0; net < graph->net_count; net++) {
        int wide = graph->pin_begin[net + 1] - graph->pin_begin[net] > LIGI_NARROW_PINS;
        row[net] = wide ? rows++ : LIGI_NONE;
    }
    return rows;
}

static uint32_t count_fans(const ligi_graph *graph, uint32_t *row)
{
    uint32_t rows = 0;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        int many = graph->in_begin[u + 1] - graph->in_begin[u] > LIGI_NARROW_NETS;
        row[u] = many ? rows++ : LIGI_NONE;
    }
    return rows;
}

lig_status ligi_moves_init(ligi_moves *moves, const ligi_graph *graph, const ligi_goal *goal,
                           ligi_scratch *scratch)
{
    *moves = (ligi_moves){.graph = graph, .goal = goal, .stage_count = goal->stage_count};
    moves->stage = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    moves->stage_units = LIGI_TAKE(scratch, uint32_t, goal->stage_count);
    moves->device_load = LIGI_TAKE(scratch, double, goal->device_count);
    moves->device_bytes = LIGI_TAKE(scratch, double, goal->device_count);
    moves->limit = LIGI_TAKE(scratch, double, goal->device_count);
    moves->open = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    moves->open_at = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    moves->wide_row = LIGI_TAKE(scratch, uint32_t, graph->net_count);
    moves->fan_row = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t rows = count_wide(graph, moves->wide_row);
    moves->wide = LIGI_TAKE(scratch, uint32_t, (size_t)rows * goal->stage_count);
    if (!rows)
        moves->wide_row = NULL;
    rows = count_fans(graph, moves->fan_row);
    moves->fan = LIGI_TAKE(scratch, uint32_t, (size_t)rows * goal->stage_count);
    if (!rows)
        moves->fan_row = NULL;
    ligi_moves_set_limits(moves);
    return ligi_scratch_check(scratch);
}

void ligi_moves_set_limits(ligi_moves *moves)
{
    for (uint32_t d = 0; d < moves->goal->device_count; d++)
        moves->limit[d] = ligi_goal_limit(moves->goal, d);
}

static void refresh_open(ligi_moves *moves, uint32_t unit)
{
    uint32_t low, high, at = moves->open_at[unit];
    ligi_moves_range(moves, unit, &low, &high);
    if (low < high && at == LIGI_NONE) {
        moves->open_at[unit] = moves->open_count;
        moves->open[moves->open_count++] = unit;
    } else if (low >= high && at != LIGI_NONE) {
        uint32_t last = moves->open[--moves->open_count];
        moves->open[at] = last;
        moves->open_at[last] = at;
        moves->open_at[unit] = LIGI_NONE;
    }
}

static void count_figures(ligi_moves *moves)
{
    const ligi_graph *graph = moves->graph;
    const ligi_goal *goal = moves->goal;
    memset(moves->stage_units, 0, goal->stage_count * sizeof *moves->stage_units);
    memset(moves->device_load, 0, goal->device_count * sizeof *moves->device_load);
    memset(moves->device_bytes, 0, goal->device_count * sizeof *moves->device_bytes);
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        uint32_t stage = moves->stage[u], device = goal->stage_device[stage];
        moves->stage_units[stage]++;
        moves->device_load[device] += graph->load[u];
        moves->device_bytes[device] += graph->fixed[u] + graph->flight[u] * goal->flight[stage];
    }
}

static double net_cost(const ligi_moves *moves, uint32_t net)
{
    const ligi_graph *graph = moves->graph;
    uint32_t own = moves->stage[graph->source[net]], stages = 0;
    const uint32_t *users = ligi_wide_users(moves, net);
    if (users) {
        for (uint32_t s = 0; s < moves->stage_count; s++)
            stages += users[s] && s != own;
        return stages * graph->bytes[net];
    }
    for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
        uint32_t stage = moves->stage[graph->pin[p]], q = graph->pin_begin[net];
        while (moves->stage[graph->pin[q]] != stage)
            q++;
        stages += stage != own && q == p;
    }
    return stages * graph->bytes[net];
}

static void load_fans(ligi_moves *moves)
{
    const ligi_graph *graph = moves->graph;
    for (uint32_t u = 0; moves->fan_row && u < graph->unit_count; u++) {
        if (moves->fan_row[u] == LIGI_NONE)
            continue;
        uint32_t *sources = moves->fan + (size_t)moves->fan_row[u] * moves->stage_count;
        memset(sources, 0, moves->stage_count * sizeof *sources);
        for (uint32_t i = graph->in_begin[u]; i < graph->in_begin[u + 1]; i++)
            sources[moves->stage[graph->source[graph->in_net[i]]]]++;
    }
}

void ligi_moves_load(ligi_moves *moves, const uint32_t *stage)
{
    const ligi_graph *graph = moves->graph;
    if (stage != moves->stage)
        memcpy(moves->stage, stage, graph->unit_count * sizeof *stage);
    count_figures(moves);
    moves->cut = 0;
    for (uint32_t net = 0; net < graph->net_count; net++) {
        if (ligi_wide_users(moves, net)) {
            uint32_t *users = moves->wide + (size_t)moves->wide_row[net] * moves->stage_count;
            memset(users, 0, moves->stage_count * sizeof *users);
            for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
                users[moves->stage[graph->pin[p]]]++;
        }
        moves->cut += net_cost(moves, net);
    }
    load_fans(moves);
    moves->open_count = 0;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        moves->open_at[u] = LIGI_NONE;
        refresh_open(moves, u);
    }
}

/* Updates the rows that count units by stage after a move. */
static void recount(ligi_moves *moves, uint32_t unit, uint32_t from, uint32_t to)
{
    const ligi_graph *graph = moves->graph;
    for (uint32_t i = graph->in_begin[unit]; moves->wide_row && i < graph->in_begin[unit + 1];
         i++) {
        uint32_t row = moves->wide_row[graph->in_net[i]];
        if (row == LIGI_NONE)
            continue;
        moves->wide[(size_t)row * moves->stage_count + from]--;
        moves->wide[(size_t)row * moves->stage_count + to]++;
    }
    if (!moves->fan_row || graph->out_begin[unit] == graph->out_begin[unit + 1])
        return;
    uint32_t end = graph->pin_begin[graph->out_begin[unit + 1]];
    for (uint32_t p = graph->pin_begin[graph->out_begin[unit]]; p < end; p++) {
        uint32_t row = moves->fan_row[graph->pin[p]];
        if (row == LIGI_NONE)
            continue;
        moves->fan[(size_t)row * moves->stage_count + from]--;
        moves->fan[(size_t)row * moves->stage_count + to]++;
    }
}

void ligi_moves_apply(ligi_moves *moves, uint32_t unit, uint32_t to, double delta)
{
    const ligi_graph *graph = moves->graph;
    const ligi_goal *goal = moves->goal;
    uint32_t from = moves->stage[unit], source = goal->stage_device[from],
             target = goal->stage_device[to];
    moves->stage[unit] = to;
    moves->cut += delta;
    moves->stage_units[from]--;
    moves->stage_units[to]++;
    moves->device_load[source] -= graph->load[unit];
    moves->device_load[target] += graph->load[unit];
    moves->device_bytes[source] -= graph->fixed[unit] + graph->flight[unit] * goal->flight[from];
    moves->device_bytes[target] += graph->fixed[unit] + graph->flight[unit] * goal->flight[to];
    recount(moves, unit, from, to);
    refresh_open(moves, unit);
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        refresh_open(moves, graph->source[graph->in_net[i]]);
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
            refresh_open(moves, graph->pin[p]);
}

double ligi_moves_bottleneck(const ligi_moves *moves)
{
    double most = 0;
    for (uint32_t d = 0; d < moves->goal->device_count; d++)
        most = fmax(most, moves->device_load[d] / moves->goal->speed[d]);
    return most;
}

double ligi_moves_overload(const ligi_moves *moves)
{
    double over = 0;
    for (uint32_t d = 0; d < moves->goal->device_count; d++)
        if (moves->device_load[d] > moves->limit[d])
            over += (moves->device_load[d] - moves->limit[d]) / moves->limit[d];
    return over;
}

int ligi_moves_sound(const ligi_moves *moves)
{
    for (uint32_t d = 0; d < moves->goal->device_count; d++)
        if (moves->device_bytes[d] > moves->goal->room[d] * (1 + 1e-12))
            return 0;
    for (uint32_t u = 0; moves->graph->apart_begin && u < moves->graph->unit_count; u++)
        if (!ligi_apart_kept(moves, u, moves->stage[u]))
            return 0;
    return 1;
}

lig_status ligi_best_init(ligi_best *best, const ligi_moves *moves, ligi_scratch *scratch)
{
    uint32_t n = moves->graph->unit_count;
    best->stage = LIGI_TAKE(scratch, uint32_t, n);
    best->changed = LIGI_TAKE(scratch, uint32_t, n);
    best->marked = LIGI_TAKE(scratch, uint8_t, n);
    best->changed_count = 0;
    LIG_TRY(ligi_scratch_check(scratch));
    memcpy(best->stage, moves->stage, n * sizeof *best->stage);
    return LIG_OK;
}

void ligi_best_note(ligi_best *best, uint32_t unit)
{
    if (best->marked[unit])
        return;
    best->marked[unit] = 1;
    best->changed[best->changed_count++] = unit;
}

static void forget(ligi_best *best)
{
    while (best->changed_count)
        best->marked[best->changed[--best->changed_count]] = 0;
}

void ligi_best_keep(ligi_best *best, const ligi_moves *moves)
{
    for (uint32_t i = 0; i < best->changed_count; i++)
        best->stage[best->changed[i]] = moves->stage[best->changed[i]];
    forget(best);
}

void ligi_best_restore(ligi_best *best, ligi_moves *moves)
{
    forget(best);
    ligi_moves_load(moves, best->stage);
}
