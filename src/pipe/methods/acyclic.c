#include "pipe/methods/acyclic.h"

#include <math.h>
#include <string.h>

#include "pipe/graph/topological_order.h"
#include "pipe/search/anneal.h"
#include "pipe/search/fm.h"
#include "pipe/search/interval_stages.h"

#define ORDERS 4

void ligi_cap_balance(const ligi_search *search)
{
    search->goal->cap_ms = search->balance * search->goal->bound_ms;
}

lig_status ligi_contiguous(const ligi_search *search, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t *order = LIGI_TAKE(&scratch, uint32_t, search->graph->unit_count);
    lig_status status = ligi_scratch_check(&scratch);
    out->found = 0;
    if (status == LIG_OK)
        status = ligi_order_make(search->graph, LIGI_ORDER_GIVEN, NULL, order);
    if (status == LIG_OK)
        status = ligi_interval_bottleneck(search->graph, search->goal, order, &out->nearest_ms);
    if (status == LIG_OK && search->balance > 0)
        ligi_cap_balance(search);
    else
        search->goal->cap_ms = out->nearest_ms;
    if (status == LIG_OK && isfinite(out->nearest_ms))
        status = ligi_interval_cut(search->graph, search->goal, order, out->stage, &out->found);
    ligi_scratch_free(&scratch);
    return status;
}

static uint64_t steps_for(const ligi_search *search)
{
    uint64_t by_borders = UINT64_C(20000) * (search->goal->stage_count - 1);
    uint64_t by_size = UINT64_C(400) * search->graph->unit_count;
    uint64_t steps = by_borders < by_size ? by_borders : by_size;
    /* A step in a graph with many edges costs more: take fewer, for about the same time. */
    double degree =
        (double)search->graph->pin_begin[search->graph->net_count] / search->graph->unit_count;
    if (degree > 4)
        steps = (uint64_t)((double)steps * 4 / degree);
    return (steps > 2000000 ? 2000000 : steps) * search->effort;
}

/* The assignment found by annealing consists of intervals of some order; the best intervals of that
 * order may be better. Leaves `moves` unchanged if they are not. */
static lig_status cut_again(const ligi_search *search, ligi_moves *moves, uint32_t *order,
                            uint32_t *stage)
{
    int found = 0;
    double before = moves->cut;
    LIG_TRY(ligi_order_of_stages(search->graph, moves->stage, moves->stage_count, order));
    LIG_TRY(ligi_interval_cut(search->graph, search->goal, order, stage, &found));
    if (!found)
        return LIG_OK;
    uint32_t *kept = order;
    memcpy(kept, moves->stage, search->graph->unit_count * sizeof *kept);
    ligi_moves_load(moves, stage);
    if (moves->cut > before || ligi_moves_overload(moves) > 0)
        ligi_moves_load(moves, kept);
    return LIG_OK;
}

/* Hot, then cooler from the best so far: the first run leaves the local minimum, the others explore
 * around the new one. */
static lig_status lower(const ligi_search *search, ligi_random *random, ligi_moves *moves,
                        ligi_scratch *scratch)
{
    uint64_t steps = steps_for(search);
    const ligi_heat heat[] = {{steps, 1.2, 0}, {steps, 1.2, 1}, {steps, 0.6, 0}};
    uint32_t *order = LIGI_TAKE(scratch, uint32_t, search->graph->unit_count);
    uint32_t *stage = LIGI_TAKE(scratch, uint32_t, search->graph->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    for (size_t i = 0; i < sizeof heat / sizeof *heat; i++) {
        LIG_TRY(ligi_anneal_cut(moves, random, heat[i]));
        LIG_TRY(cut_again(search, moves, order, stage));
        LIG_TRY(ligi_fm(moves, 4));
    }
    return LIG_OK;
}

/* The assignment satisfies goal->cap_ms. */
static lig_status lower_cut(const ligi_search *search, ligi_random *random, uint32_t *stage)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_moves moves;
    lig_status status = ligi_moves_init(&moves, search->graph, search->goal, &scratch);
    if (status == LIG_OK) {
        ligi_moves_load(&moves, stage);
        status = lower(search, random, &moves, &scratch);
    }
    if (status == LIG_OK)
        memcpy(stage, moves.stage, search->graph->unit_count * sizeof *stage);
    ligi_scratch_free(&scratch);
    return status;
}

/* The orders to try, and the best start among their intervals. */
typedef struct starts {
    uint32_t *order[ORDERS];
    uint32_t *stage;
    double least_ms; /* smallest bottleneck of intervals */
    uint32_t least_at;
} starts;

static lig_status make_starts(const ligi_search *search, ligi_random *random, starts *s,
                              ligi_scratch *scratch)
{
    static const ligi_order_kind kind[ORDERS] = {LIGI_ORDER_GIVEN, LIGI_ORDER_NARROW,
                                                 LIGI_ORDER_DEEP, LIGI_ORDER_DEEP};
    s->stage = LIGI_TAKE(scratch, uint32_t, search->graph->unit_count);
    s->least_ms = INFINITY;
    for (uint32_t i = 0; i < ORDERS; i++) {
        double cap_ms;
        s->order[i] = LIGI_TAKE(scratch, uint32_t, search->graph->unit_count);
        LIG_TRY(ligi_scratch_check(scratch));
        LIG_TRY(ligi_order_make(search->graph, kind[i], random, s->order[i]));
        LIG_TRY(ligi_interval_bottleneck(search->graph, search->goal, s->order[i], &cap_ms));
        if (cap_ms < s->least_ms) {
            s->least_ms = cap_ms;
            s->least_at = i;
        }
    }
    return LIG_OK;
}

/* The smallest cut among the intervals of all orders within the cap. */
static lig_status best_intervals(const ligi_search *search, starts *s, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    uint32_t *seen = LIGI_TAKE(&scratch, uint32_t, search->goal->stage_count);
    lig_status status = ligi_scratch_check(&scratch);
    double least = INFINITY;
    for (uint32_t i = 0; status == LIG_OK && i < ORDERS; i++) {
        int found = 0;
        status = ligi_interval_cut(search->graph, search->goal, s->order[i], s->stage, &found);
        double cut = found
                         ? ligi_graph_cut(search->graph, s->stage, search->goal->stage_count, seen)
                         : INFINITY;
        if (status == LIG_OK && cut < least) {
            least = cut;
            out->found = 1;
            memcpy(out->stage, s->stage, search->graph->unit_count * sizeof *s->stage);
        }
    }
    ligi_scratch_free(&scratch);
    return status;
}

/* Balances the assignment in out->stage, down to `enough`. */
static lig_status even_out(const ligi_search *search, ligi_random *random, double enough,
                           ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_moves moves;
    lig_status status = ligi_moves_init(&moves, search->graph, search->goal, &scratch);
    if (status == LIG_OK) {
        ligi_moves_load(&moves, out->stage);
        status = ligi_anneal_load(&moves, random, 2 * steps_for(search), enough);
        out->found = ligi_moves_sound(&moves);
        out->nearest_ms = out->found ? ligi_moves_bottleneck(&moves) : INFINITY;
        memcpy(out->stage, moves.stage, search->graph->unit_count * sizeof *out->stage);
    }
    ligi_scratch_free(&scratch);
    return status;
}

lig_status ligi_settle(const ligi_search *search, ligi_random *random, ligi_found *out)
{
    double enough = search->goal->bound_ms;
    if (search->balance > 0) {
        ligi_cap_balance(search);
        enough = search->goal->cap_ms;
    }
    LIG_TRY(even_out(search, random, enough, out));
    if (!out->found)
        return LIG_OK;
    if (search->balance > 0)
        out->found = out->nearest_ms <= enough * (1 + 1e-12);
    else
        search->goal->cap_ms = out->nearest_ms;
    return out->found ? lower_cut(search, random, out->stage) : LIG_OK;
}

/* The most balanced intervals. If memory allows none, those without memory limits: moves that leave
 * the intervals may still fit. */
static lig_status start_even(const ligi_search *search, starts *s, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_goal relaxed = *search->goal;
    uint32_t *order = s->order[isinf(s->least_ms) ? 0 : s->least_at];
    lig_status status = LIG_OK;
    relaxed.cap_ms = s->least_ms;
    if (isinf(s->least_ms)) {
        relaxed.room = LIGI_TAKE(&scratch, double, relaxed.device_count);
        status = ligi_scratch_check(&scratch);
        for (uint32_t d = 0; status == LIG_OK && d < relaxed.device_count; d++)
            relaxed.room[d] = INFINITY;
        if (status == LIG_OK)
            status = ligi_interval_bottleneck(search->graph, &relaxed, order, &relaxed.cap_ms);
    }
    if (status == LIG_OK && isfinite(relaxed.cap_ms))
        status = ligi_interval_cut(search->graph, &relaxed, order, out->stage, &out->found);
    ligi_scratch_free(&scratch);
    return status;
}

static lig_status search_starts(const ligi_search *search, ligi_random *random, starts *s,
                                ligi_found *out)
{
    out->nearest_ms = s->least_ms;
    if (search->balance > 0) {
        ligi_cap_balance(search);
        LIG_TRY(best_intervals(search, s, out));
        if (out->found)
            return lower_cut(search, random, out->stage);
    }
    LIG_TRY(start_even(search, s, out));
    return out->found ? ligi_settle(search, random, out) : LIG_OK;
}

lig_status ligi_acyclic(const ligi_search *search, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_random random = {search->seed};
    starts s = {0};
    out->found = 0;
    lig_status status = make_starts(search, &random, &s, &scratch);
    if (status == LIG_OK)
        status = search_starts(search, &random, &s, out);
    ligi_scratch_free(&scratch);
    return status;
}
