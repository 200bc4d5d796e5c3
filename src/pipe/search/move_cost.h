/* The inner loop of every search: pricing a move. In a header so that it is inlined into each of
 * them; calls would cost as much as the work. */
#ifndef LIGI_MOVE_COST_H
#define LIGI_MOVE_COST_H

#include "pipe/search/moves.h"

/* Users by stage, where they are counted. */
static inline const uint32_t *ligi_wide_users(const ligi_moves *moves, uint32_t net)
{
    if (!moves->wide_row || moves->wide_row[net] == LIGI_NONE)
        return NULL;
    return moves->wide + (size_t)moves->wide_row[net] * moves->stage_count;
}

static inline uint32_t ligi_first_user_stage(const ligi_moves *moves, uint32_t net)
{
    const ligi_graph *graph = moves->graph;
    const uint32_t *users = ligi_wide_users(moves, net);
    uint32_t first = users ? 0 : moves->stage_count;
    if (users)
        while (!users[first])
            first++;
    else
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
            if (moves->stage[graph->pin[p]] < first)
                first = moves->stage[graph->pin[p]];
    return first;
}

static inline uint32_t ligi_last_source_stage(const ligi_moves *moves, uint32_t unit)
{
    const ligi_graph *graph = moves->graph;
    uint32_t last = 0;
    if (moves->fan_row && moves->fan_row[unit] != LIGI_NONE) {
        const uint32_t *sources = moves->fan + (size_t)moves->fan_row[unit] * moves->stage_count;
        for (last = moves->stage_count - 1; !sources[last];)
            last--;
        return last;
    }
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++) {
        uint32_t stage = moves->stage[graph->source[graph->in_net[i]]];
        last = stage > last ? stage : last;
    }
    return last;
}

/* The range of stages for `unit`. */
static inline void ligi_moves_range(const ligi_moves *moves, uint32_t unit, uint32_t *low,
                                    uint32_t *high)
{
    const ligi_graph *graph = moves->graph;
    uint32_t to = moves->stage_count - 1;
    *low = ligi_last_source_stage(moves, unit);
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++) {
        uint32_t stage = ligi_first_user_stage(moves, net);
        to = stage < to ? stage : to;
    }
    *high = to;
}

/* Returns 1 if a unit other than `except` uses the net in `stage`. */
static inline int ligi_is_user(const ligi_moves *moves, uint32_t net, uint32_t stage,
                               uint32_t except)
{
    const ligi_graph *graph = moves->graph;
    const uint32_t *users = ligi_wide_users(moves, net);
    if (users)
        return users[stage] > (except != LIGI_NONE && moves->stage[except] == stage);
    for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
        if (moves->stage[graph->pin[p]] == stage && graph->pin[p] != except)
            return 1;
    return 0;
}

/* The change of the cut if `unit` moves to stage `to`, which must be in its range. */
static inline double ligi_moves_delta(const ligi_moves *moves, uint32_t unit, uint32_t to)
{
    const ligi_graph *graph = moves->graph;
    uint32_t from = moves->stage[unit];
    double delta = 0;
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        delta += graph->bytes[net] * (ligi_is_user(moves, net, from, LIGI_NONE) -
                                      ligi_is_user(moves, net, to, LIGI_NONE));
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++) {
        uint32_t net = graph->in_net[i], source = moves->stage[graph->source[net]];
        if (to != source && !ligi_is_user(moves, net, to, unit))
            delta += graph->bytes[net];
        if (from != source && !ligi_is_user(moves, net, from, unit))
            delta -= graph->bytes[net];
    }
    return delta;
}

/* Returns 1 if no unit that must be kept apart from `unit` is in `stage`. */
static inline int ligi_apart_kept(const ligi_moves *moves, uint32_t unit, uint32_t stage)
{
    const ligi_graph *graph = moves->graph;
    for (uint32_t i = graph->apart_begin[unit]; i < graph->apart_begin[unit + 1]; i++)
        if (moves->stage[graph->apart[i]] == stage)
            return 0;
    return 1;
}

/* Returns 1 if the memory of `to` has room for the unit. */
static inline int ligi_moves_room(const ligi_moves *moves, uint32_t unit, uint32_t to)
{
    const ligi_graph *graph = moves->graph;
    const ligi_goal *goal = moves->goal;
    uint32_t from = moves->stage[unit], source = goal->stage_device[from];
    uint32_t target = goal->stage_device[to];
    double bytes = graph->fixed[unit] + graph->flight[unit] * goal->flight[to];
    if (target == source)
        bytes -= graph->fixed[unit] + graph->flight[unit] * goal->flight[from];
    return bytes <= 0 || moves->device_bytes[target] + bytes <= goal->room[target];
}

/* Returns 1 if `to` has room for the unit, the unit is not the last of its stage, and no unit to be
 * kept apart from it is there. `soft` ignores load and memory. */
static inline int ligi_moves_fit(const ligi_moves *moves, uint32_t unit, uint32_t to, int soft)
{
    const ligi_goal *goal = moves->goal;
    uint32_t from = moves->stage[unit], target = goal->stage_device[to];
    if (moves->stage_units[from] == 1)
        return 0;
    if (moves->graph->apart_begin && !ligi_apart_kept(moves, unit, to))
        return 0;
    if (soft)
        return 1;
    double load = goal->stage_device[from] == target ? 0 : moves->graph->load[unit];
    return moves->device_load[target] + load <= moves->limit[target] &&
           ligi_moves_room(moves, unit, to);
}

#endif
