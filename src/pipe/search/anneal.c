#include "pipe/search/anneal.h"

#include <math.h>

#include "pipe/search/move_cost.h"

/* Cooling by this factor over a run ends where hardly any worsening move is accepted. */
#define COOLING 0.1
#define COOLING_SQUARED 1e-3 /* squared energies fall faster */
#define STEPS_PER_TEMPERATURE 256

static double mean_bytes(const ligi_graph *graph)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t net = 0; net < graph->net_count; net++)
        if (graph->bytes[net] > 0) {
            sum += graph->bytes[net];
            count++;
        }
    return count ? sum / count : 0;
}

/* A unit of the open list and another stage in its range. */
static uint32_t propose(const ligi_moves *moves, ligi_random *random, uint32_t *to)
{
    uint32_t unit = moves->open[ligi_random_below(random, moves->open_count)];
    uint32_t low, high;
    ligi_moves_range(moves, unit, &low, &high);
    uint32_t stage = low + ligi_random_below(random, high - low);
    *to = stage + (stage >= moves->stage[unit]);
    return unit;
}

static int accepted(ligi_random *random, double delta, double temperature)
{
    return delta <= 0 || (temperature > 0 && ligi_random_unit(random) < exp(-delta / temperature));
}

static double overload(const ligi_moves *moves, uint32_t device, double more)
{
    double over = moves->device_load[device] + more - moves->limit[device];
    return over > 0 ? over : 0;
}

/* Change of the load beyond the limits. */
static double overload_delta(const ligi_moves *moves, uint32_t unit, uint32_t to)
{
    uint32_t a = moves->goal->stage_device[moves->stage[unit]], b = moves->goal->stage_device[to];
    double load = moves->graph->load[unit];
    if (a == b)
        return 0;
    return overload(moves, a, -load) + overload(moves, b, load) - overload(moves, a, 0) -
           overload(moves, b, 0);
}

typedef struct cooling {
    ligi_moves *moves;
    ligi_best *best;
    ligi_random *random;
    double mean;  /* bytes of a value */
    double price; /* bytes per millisecond beyond the limits; 0 if these are hard */
} cooling;

static int room_for(const cooling *c, uint32_t unit, uint32_t to)
{
    const ligi_moves *moves = c->moves;
    if (c->price == 0)
        return ligi_moves_fit(moves, unit, to, 0);
    return ligi_moves_fit(moves, unit, to, 1) && ligi_moves_room(moves, unit, to);
}

static void cool_cut(cooling *c, ligi_heat heat)
{
    ligi_moves *moves = c->moves;
    double start = heat.start * c->mean, least = moves->cut, temperature = start,
           slack = start * 1e-9;
    for (uint64_t i = 0; i < heat.steps && moves->open_count; i++) {
        if (i % STEPS_PER_TEMPERATURE == 0)
            temperature = start * pow(COOLING, (double)i / (double)heat.steps);
        uint32_t to, unit = propose(moves, c->random, &to);
        if (!room_for(c, unit, to))
            continue;
        double delta = ligi_moves_delta(moves, unit, to);
        double fine = c->price > 0 ? c->price * overload_delta(moves, unit, to) : 0;
        if (!accepted(c->random, delta + fine, temperature))
            continue;
        ligi_moves_apply(moves, unit, to, delta);
        ligi_best_note(c->best, unit);
        if (moves->cut < least - slack && (c->price == 0 || ligi_moves_overload(moves) == 0)) {
            least = moves->cut;
            ligi_best_keep(c->best, moves);
        }
    }
}

lig_status ligi_anneal_cut(ligi_moves *moves, ligi_random *random, ligi_heat heat)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_best best;
    lig_status status = ligi_best_init(&best, moves, &scratch);
    if (status == LIG_OK) {
        cooling c = {
            .moves = moves, .best = &best, .random = random, .mean = mean_bytes(moves->graph)};
        double mean_load = moves->graph->load_sum / moves->graph->unit_count;
        if (heat.soft && mean_load > 0)
            c.price = c.mean / mean_load;
        cool_cut(&c, heat);
        ligi_best_restore(&best, moves);
    }
    ligi_scratch_free(&scratch);
    return status;
}

/* An excess byte counts as if the whole device were slower in that proportion, and more. */
#define MEMORY_WEIGHT 4.0

/* The energy is the sum of squares of the devices' load beyond `enough` and memory beyond their
 * capacity: it acts on all of them, while the maximum alone would ignore the rest. */
static double excess(const ligi_moves *moves, uint32_t device, double load, double bytes,
                     double enough)
{
    double over = load / moves->goal->speed[device] - enough, room = moves->goal->room[device];
    double energy = over > 0 ? over * over : 0;
    if (bytes > room) {
        double beyond = (bytes - room) / room * MEMORY_WEIGHT * moves->goal->bound_ms;
        energy += beyond * beyond;
    }
    return energy;
}

static double load_delta(const ligi_moves *moves, uint32_t unit, uint32_t to, double enough)
{
    const ligi_graph *graph = moves->graph;
    const ligi_goal *goal = moves->goal;
    uint32_t from = moves->stage[unit], a = goal->stage_device[from], b = goal->stage_device[to];
    const double *load = moves->device_load, *bytes = moves->device_bytes;
    double less = graph->fixed[unit] + graph->flight[unit] * goal->flight[from];
    double more = graph->fixed[unit] + graph->flight[unit] * goal->flight[to];
    if (a == b)
        return excess(moves, a, load[a], bytes[a] + more - less, enough) -
               excess(moves, a, load[a], bytes[a], enough);
    return excess(moves, a, load[a] - graph->load[unit], bytes[a] - less, enough) +
           excess(moves, b, load[b] + graph->load[unit], bytes[b] + more, enough) -
           excess(moves, a, load[a], bytes[a], enough) -
           excess(moves, b, load[b], bytes[b], enough);
}

/* Assignments are compared by bottleneck once memory suffices. */
static double strain(const ligi_moves *moves)
{
    double beyond = 0;
    for (uint32_t d = 0; d < moves->goal->device_count; d++)
        if (moves->device_bytes[d] > moves->goal->room[d])
            beyond += moves->device_bytes[d] / moves->goal->room[d];
    return ligi_moves_bottleneck(moves) + beyond * moves->graph->load_sum * 1e3;
}

static void cool_load(ligi_moves *moves, ligi_best *best, ligi_random *random, uint64_t steps,
                      double enough)
{
    double least = strain(moves), mean = moves->graph->load_sum / moves->graph->unit_count;
    double start = mean * mean, temperature = start;
    for (uint64_t i = 0; i < steps && moves->open_count && least > enough; i++) {
        if (i % STEPS_PER_TEMPERATURE == 0)
            temperature = start * pow(COOLING_SQUARED, (double)i / (double)steps);
        uint32_t to, unit = propose(moves, random, &to);
        if (!ligi_moves_fit(moves, unit, to, 1) ||
            !accepted(random, load_delta(moves, unit, to, enough), temperature))
            continue;
        ligi_moves_apply(moves, unit, to, ligi_moves_delta(moves, unit, to));
        ligi_best_note(best, unit);
        double now = strain(moves);
        if (now < least) {
            least = now;
            ligi_best_keep(best, moves);
        }
    }
}

lig_status ligi_anneal_load(ligi_moves *moves, ligi_random *random, uint64_t steps,
                            double enough_ms)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_best best;
    lig_status status = ligi_best_init(&best, moves, &scratch);
    if (status == LIG_OK) {
        cool_load(moves, &best, random, steps, enough_ms);
        ligi_best_restore(&best, moves);
    }
    ligi_scratch_free(&scratch);
    return status;
}
