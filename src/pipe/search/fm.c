#include "pipe/search/fm.h"

#include <math.h>

#include "pipe/search/move_cost.h"

/* Moves after the best prefix before a pass is abandoned. */
#define PATIENCE 200

typedef struct offer {
    double delta;
    uint32_t unit;
    uint32_t to;
} offer;

typedef struct fm_pass {
    ligi_moves *moves;
    offer *heap; /* smallest delta first; stale entries are repriced when they reach the top */
    size_t count;
    size_t capacity;
    uint32_t *locked; /* number of the pass in which the unit moved */
    uint32_t number;
} fm_pass;

static int better(offer a, offer b)
{
    return a.delta < b.delta || (a.delta == b.delta && a.unit < b.unit);
}

static void push(fm_pass *p, offer item)
{
    if (p->count == p->capacity)
        return;
    size_t at = p->count++;
    for (; at && better(item, p->heap[(at - 1) / 2]); at = (at - 1) / 2)
        p->heap[at] = p->heap[(at - 1) / 2];
    p->heap[at] = item;
}

static offer pop(fm_pass *p)
{
    offer top = p->heap[0], item = p->heap[--p->count];
    size_t at = 0;
    for (size_t child = 1; child < p->count; child = 2 * at + 1) {
        if (child + 1 < p->count && better(p->heap[child + 1], p->heap[child]))
            child++;
        if (!better(p->heap[child], item))
            break;
        p->heap[at] = p->heap[child];
        at = child;
    }
    p->heap[at] = item;
    return top;
}

/* The cheapest feasible stage. Distant stages are seldom the best and cost as much to price, so
 * only the nearest few on each side are considered. */
static int price(const fm_pass *p, uint32_t unit, offer *out)
{
    uint32_t low, high, own = p->moves->stage[unit];
    ligi_moves_range(p->moves, unit, &low, &high);
    low = own > low + 4 ? own - 4 : low;
    high = high > own + 4 ? own + 4 : high;
    *out = (offer){INFINITY, unit, own};
    for (uint32_t to = low; to <= high; to++) {
        if (to == own || !ligi_moves_fit(p->moves, unit, to, 0))
            continue;
        double delta = ligi_moves_delta(p->moves, unit, to);
        if (delta < out->delta)
            *out = (offer){delta, unit, to};
    }
    return out->to != own;
}

static void offer_unit(fm_pass *p, uint32_t unit)
{
    offer item;
    if (p->locked[unit] != p->number && p->moves->open_at[unit] != LIGI_NONE &&
        price(p, unit, &item))
        push(p, item);
}

static void offer_neighbours(fm_pass *p, uint32_t unit)
{
    const ligi_graph *graph = p->moves->graph;
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++)
        offer_unit(p, graph->source[graph->in_net[i]]);
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        for (uint32_t q = graph->pin_begin[net]; q < graph->pin_begin[net + 1]; q++)
            offer_unit(p, graph->pin[q]);
}

/* Returns the improvement of the pass. */
static double run_pass(fm_pass *p, ligi_best *best)
{
    ligi_moves *moves = p->moves;
    double before = moves->cut, least = moves->cut;
    uint32_t idle = 0;
    p->number++;
    p->count = 0;
    for (uint32_t i = 0; i < moves->open_count; i++)
        offer_unit(p, moves->open[i]);
    while (p->count && idle < PATIENCE) {
        offer item = pop(p), fresh;
        if (p->locked[item.unit] == p->number || !price(p, item.unit, &fresh))
            continue;
        if (fresh.delta > item.delta) {
            push(p, fresh);
            continue;
        }
        p->locked[item.unit] = p->number;
        ligi_moves_apply(moves, fresh.unit, fresh.to, fresh.delta);
        ligi_best_note(best, fresh.unit);
        idle++;
        if (moves->cut < least - 1e-9 * before) {
            least = moves->cut;
            ligi_best_keep(best, moves);
            idle = 0;
        }
        offer_neighbours(p, fresh.unit);
    }
    ligi_best_restore(best, moves);
    return before - least;
}

lig_status ligi_fm(ligi_moves *moves, uint32_t passes)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_best best;
    fm_pass pass = {.moves = moves, .capacity = (size_t)moves->graph->unit_count * 4 + 4096};
    pass.heap = LIGI_TAKE(&scratch, offer, pass.capacity);
    pass.locked = LIGI_TAKE(&scratch, uint32_t, moves->graph->unit_count);
    lig_status status = ligi_best_init(&best, moves, &scratch);
    for (uint32_t i = 0; status == LIG_OK && i < passes; i++)
        if (run_pass(&pass, &best) <= 0)
            break;
    ligi_scratch_free(&scratch);
    return status;
}
