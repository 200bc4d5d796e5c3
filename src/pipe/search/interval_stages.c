#include "pipe/search/interval_stages.h"

#include <math.h>
#include <stdlib.h>

/* Work below which the cut of every pair of borders is computed exactly. */
#define EXACT_WORK 1e7

#define NOWHERE UINT32_MAX

/* Sums over the first i positions of the order, and the limits of each stage. */
typedef struct line {
    const ligi_graph *graph;
    const ligi_goal *goal;
    const uint32_t *order;
    uint32_t n;
    uint32_t *position; /* of each unit */
    double *load;       /* [n + 1] each */
    double *fixed;
    double *flight;
    uint32_t
        *earliest; /* an interval that ends before position j may begin here: separated pairs */
    double *share; /* [stage_count]: load */
    double *room;  /* [stage_count]: bytes */
    double room_factor;
    uint32_t *low, *high; /* [stage_count + 1]: where stage s can begin */
    uint32_t *last;       /* [(stage_count + 1) * (n + 1)], or NULL until needed: see reach_all */
    ligi_scratch *scratch;
} line;

static lig_status line_init(line *l, const ligi_graph *graph, const ligi_goal *goal,
                            const uint32_t *order, ligi_scratch *scratch)
{
    uint32_t n = graph->unit_count, stages = goal->stage_count;
    *l = (line){.graph = graph, .goal = goal, .order = order, .n = n, .room_factor = 1};
    l->scratch = scratch;
    l->position = LIGI_TAKE(scratch, uint32_t, n);
    l->load = LIGI_TAKE(scratch, double, (size_t)n + 1);
    l->fixed = LIGI_TAKE(scratch, double, (size_t)n + 1);
    l->flight = LIGI_TAKE(scratch, double, (size_t)n + 1);
    l->earliest = LIGI_TAKE(scratch, uint32_t, (size_t)n + 1);
    l->share = LIGI_TAKE(scratch, double, stages);
    l->room = LIGI_TAKE(scratch, double, stages);
    l->low = LIGI_TAKE(scratch, uint32_t, (size_t)stages + 1);
    l->high = LIGI_TAKE(scratch, uint32_t, (size_t)stages + 1);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t i = 0; i < n; i++)
        l->position[order[i]] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t unit = order[i];
        l->load[i + 1] = l->load[i] + graph->load[unit];
        l->fixed[i + 1] = l->fixed[i] + graph->fixed[unit];
        l->flight[i + 1] = l->flight[i] + graph->flight[unit];
        l->earliest[i + 1] = l->earliest[i];
        for (uint32_t a = 0;
             graph->apart_begin && a < graph->apart_begin[unit + 1] - graph->apart_begin[unit];
             a++) {
            uint32_t other = l->position[graph->apart[graph->apart_begin[unit] + a]];
            if (other < i && other + 1 > l->earliest[i + 1])
                l->earliest[i + 1] = other + 1;
        }
    }
    return LIG_OK;
}

static void set_limits(line *l, double cap_ms, double room_factor)
{
    ligi_goal goal = *l->goal;
    goal.cap_ms = cap_ms;
    for (uint32_t s = 0; s < goal.stage_count; s++) {
        uint32_t device = goal.stage_device[s];
        l->share[s] = ligi_goal_share(&goal, s);
        l->room[s] = goal.room[device] / goal.device_stages[device] * room_factor * (1 + 1e-12);
    }
}

static int fits(const line *l, uint32_t s, uint32_t i, uint32_t j)
{
    return l->load[j] - l->load[i] <= l->share[s] && i >= l->earliest[j] &&
           l->fixed[j] - l->fixed[i] + (l->flight[j] - l->flight[i]) * l->goal->flight[s] <=
               l->room[s];
}

/* The furthest end of stage s that begins at i; i if not even one unit fits. */
static uint32_t reach(const line *l, uint32_t s, uint32_t i, uint32_t last)
{
    uint32_t low = i, high = last;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (fits(l, s, i, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static uint32_t reach_back(const line *l, uint32_t s, uint32_t j, uint32_t first)
{
    uint32_t low = first, high = j;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fits(l, s, middle, j))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Greedy, stage by stage: the latest beginning of each. Returns the stage that could not take a
 * single unit there, or NOWHERE. */
static uint32_t go_forward(line *l)
{
    uint32_t stages = l->goal->stage_count, at = 0;
    for (uint32_t s = 0; s < stages; s++) {
        l->high[s] = at;
        uint32_t end = reach(l, s, at, l->n - (stages - 1 - s));
        if (end == at)
            return s;
        at = end;
    }
    l->high[stages] = at;
    return NOWHERE;
}

/* If a stage gets stuck, an earlier border may help: its device is slow or small, and the preceding
 * unit would fit. So every position is considered: last[s][j] is the last position up to j at which
 * s stages can end. The last beginning is always the best, as before. Fills `high` with borders
 * that reach the end; 0 if there are none. */
static int reach_all(line *l)
{
    uint32_t stages = l->goal->stage_count;
    size_t width = (size_t)l->n + 1;
    if (!l->last)
        l->last = LIGI_TAKE(l->scratch, uint32_t, (stages + 1) * width);
    if (!l->last)
        return 0;
    for (uint32_t j = 0; j <= l->n; j++)
        l->last[j] = 0;
    for (uint32_t s = 0; s < stages; s++) {
        const uint32_t *before = l->last + s * width;
        uint32_t *now = l->last + (s + 1) * width;
        now[0] = NOWHERE;
        for (uint32_t j = 1; j <= l->n; j++)
            now[j] = before[j - 1] != NOWHERE && fits(l, s, before[j - 1], j) ? j : now[j - 1];
    }
    l->high[stages] = l->n;
    if (l->last[stages * width + l->n] != l->n)
        return 0;
    for (uint32_t s = stages; s-- > 0;)
        l->high[s] = l->last[s * width + l->high[s + 1] - 1];
    return 1;
}

/* With equal devices, a stage that cannot take one unit means that the unit fits nowhere. */
static int all_alike(const line *l)
{
    for (uint32_t s = 1; s < l->goal->stage_count; s++)
        if (l->share[s] != l->share[0] || l->room[s] != l->room[0] ||
            (isfinite(l->room[0]) && l->goal->flight[s] != l->goal->flight[0]))
            return 0;
    return 1;
}

/* Fills `high` with borders within the limits; 0 if there are none. */
static int find_borders(line *l)
{
    if (go_forward(l) == NOWHERE)
        return l->high[l->goal->stage_count] == l->n;
    return !all_alike(l) && reach_all(l);
}

/* Fills `low` with the earliest beginnings; if the backward pass gets stuck, with all that leave a
 * unit for each stage. */
static void go_backward(line *l)
{
    uint32_t stages = l->goal->stage_count, at = l->n;
    l->low[stages] = at;
    for (uint32_t s = stages; s-- > 0;) {
        uint32_t begin = reach_back(l, s, at, s);
        if (begin == at)
            break;
        l->low[s] = at = begin;
    }
    for (uint32_t s = 0; at && s < stages; s++)
        l->low[s] = s;
    l->low[0] = 0;
}

/* The range of the borders of any solution. */
static int find_windows(line *l)
{
    uint32_t stages = l->goal->stage_count;
    if (!find_borders(l))
        return 0;
    if (go_forward(l) != NOWHERE) {
        for (uint32_t s = 1; s <= stages; s++)
            l->high[s] = l->n - (stages - s);
    }
    l->high[0] = 0;
    go_backward(l);
    return 1;
}

/* The largest load on a stage, as the cap of its device that would just allow it. */
static double borders_cap(const line *l)
{
    double cap = 0;
    for (uint32_t s = 0; s < l->goal->stage_count; s++) {
        uint32_t device = l->goal->stage_device[s];
        double load = l->load[l->high[s + 1]] - l->load[l->high[s]];
        cap = fmax(cap, load * l->goal->device_stages[device] / l->goal->speed[device]);
    }
    return cap;
}

static void bisect_cap(line *l, double *cap_ms)
{
    set_limits(l, INFINITY, l->room_factor);
    *cap_ms = INFINITY;
    if (!find_borders(l))
        return;
    double high = borders_cap(l), low = 0;
    for (int i = 0; i < 100 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            break;
        set_limits(l, middle, l->room_factor);
        if (find_borders(l))
            high = fmin(middle, borders_cap(l));
        else
            low = middle;
        if (high - low <= 1e-13 * high)
            break;
    }
    *cap_ms = high;
}

lig_status ligi_interval_bottleneck(const ligi_graph *graph, const ligi_goal *goal,
                                    const uint32_t *order, double *cap_ms)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    line l;
    lig_status status = line_init(&l, graph, goal, order, &scratch);
    if (status == LIG_OK)
        bisect_cap(&l, cap_ms);
    if (status == LIG_OK)
        status = ligi_scratch_check(&scratch);
    ligi_scratch_free(&scratch);
    return status;
}

lig_status ligi_interval_memory(const ligi_graph *graph, const ligi_goal *goal,
                                const uint32_t *order, double *factor)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    line l;
    lig_status status = line_init(&l, graph, goal, order, &scratch);
    double low = 0, high = 1;
    *factor = INFINITY;
    for (int i = 0; status == LIG_OK && i < 200; i++) {
        double middle = isinf(*factor) ? high : low + (high - low) / 2;
        set_limits(&l, INFINITY, middle);
        if (find_borders(&l))
            *factor = high = middle;
        else if (isinf(*factor))
            high = 2 * (low = middle);
        else
            low = middle;
        if (high > 1e18 || high - low <= 1e-9 * high)
            break;
    }
    ligi_scratch_free(&scratch);
    return status;
}

/* --- the smallest cut --- */

/* Row s holds, for every position where stage s can begin, the smallest cut of the stages before
 * it. */
typedef struct table {
    double **cost;     /* [stage_count + 1] -> [high - low + 1] */
    uint32_t **origin; /* where the previous stage began */
    double *live;      /* [n + 1]: bytes of values that cross position i */
} table;

static lig_status table_init(table *t, const line *l, ligi_scratch *scratch)
{
    uint32_t stages = l->goal->stage_count;
    t->cost = LIGI_TAKE(scratch, double *, (size_t)stages + 1);
    t->origin = LIGI_TAKE(scratch, uint32_t *, (size_t)stages + 1);
    t->live = LIGI_TAKE(scratch, double, (size_t)l->n + 2);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t s = 0; s <= stages; s++) {
        size_t width = (size_t)l->high[s] - l->low[s] + 1;
        t->cost[s] = LIGI_TAKE(scratch, double, width);
        t->origin[s] = LIGI_TAKE(scratch, uint32_t, width);
        for (size_t i = 0; t->cost[s] && i < width; i++)
            t->cost[s][i] = s ? INFINITY : 0;
    }
    return ligi_scratch_check(scratch);
}

static void count_live(table *t, const line *l)
{
    const ligi_graph *graph = l->graph;
    for (uint32_t net = 0; net < graph->net_count; net++) {
        uint32_t first = l->position[graph->source[net]], last = first;
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
            if (l->position[graph->pin[p]] > last)
                last = l->position[graph->pin[p]];
        t->live[first + 1] += graph->bytes[net];
        t->live[last + 1] -= graph->bytes[net];
    }
    for (uint32_t i = 1; i <= l->n; i++)
        t->live[i] += t->live[i - 1];
}

/* A window that slides over the previous row: both ends only move forward, so a row costs its
 * length. */
static void fill_row_live(table *t, const line *l, uint32_t s, uint32_t *queue)
{
    uint32_t head = 0, tail = 0, next = l->low[s];
    for (uint32_t j = l->low[s + 1]; j <= l->high[s + 1]; j++) {
        for (; next < j && next <= l->high[s]; next++) {
            double cost = t->cost[s][next - l->low[s]];
            while (tail > head && t->cost[s][queue[tail - 1] - l->low[s]] >= cost)
                tail--;
            queue[tail++] = next;
        }
        while (head < tail && !fits(l, s, queue[head], j))
            head++;
        if (head < tail) {
            t->cost[s + 1][j - l->low[s + 1]] =
                t->cost[s][queue[head] - l->low[s]] + (j < l->n ? t->live[j] : 0);
            t->origin[s + 1][j - l->low[s + 1]] = queue[head];
        }
    }
}

/* Uses of values by position; `before` is where the value was produced or last used. A stage that
 * begins at i receives the value for a use at q >= i if before < i: once. */
typedef struct uses {
    uint32_t *begin; /* [n + 1] */
    uint32_t *before;
    double *bytes;
} uses;

static int compare_positions(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Most values have one or two users, already sorted in the given order. */
static void sort_positions(uint32_t *list, uint32_t count)
{
    if (count > 32) {
        qsort(list, count, sizeof *list, compare_positions);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        uint32_t value = list[i], at = i;
        for (; at && list[at - 1] > value; at--)
            list[at] = list[at - 1];
        list[at] = value;
    }
}

static lig_status uses_init(uses *u, const line *l, ligi_scratch *scratch)
{
    const ligi_graph *graph = l->graph;
    uint32_t pins = graph->pin_begin[graph->net_count];
    u->begin = LIGI_TAKE(scratch, uint32_t, (size_t)l->n + 2);
    u->before = LIGI_TAKE(scratch, uint32_t, pins);
    u->bytes = LIGI_TAKE(scratch, double, pins);
    uint32_t *list = LIGI_TAKE(scratch, uint32_t, pins);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t p = 0; p < pins; p++)
        u->begin[l->position[graph->pin[p]] + 2]++;
    for (uint32_t i = 0; i < l->n; i++)
        u->begin[i + 2] += u->begin[i + 1];
    for (uint32_t net = 0; net < graph->net_count; net++) {
        uint32_t count = graph->pin_begin[net + 1] - graph->pin_begin[net];
        uint32_t before = l->position[graph->source[net]];
        for (uint32_t p = 0; p < count; p++)
            list[p] = l->position[graph->pin[graph->pin_begin[net] + p]];
        sort_positions(list, count);
        for (uint32_t p = 0; p < count; before = list[p++]) {
            uint32_t at = u->begin[list[p] + 1]++;
            u->before[at] = before;
            u->bytes[at] = graph->bytes[net];
        }
    }
    return LIG_OK;
}

static void fill_row_exact(table *t, const line *l, uint32_t s, const uses *u)
{
    for (uint32_t i = l->low[s]; i <= l->high[s]; i++) {
        double cost = t->cost[s][i - l->low[s]];
        if (isinf(cost))
            continue;
        for (uint32_t j = i + 1; j <= l->high[s + 1] && fits(l, s, i, j); j++) {
            for (uint32_t p = u->begin[j - 1]; p < u->begin[j]; p++)
                if (u->before[p] < i)
                    cost += u->bytes[p];
            if (j >= l->low[s + 1] && cost < t->cost[s + 1][j - l->low[s + 1]]) {
                t->cost[s + 1][j - l->low[s + 1]] = cost;
                t->origin[s + 1][j - l->low[s + 1]] = i;
            }
        }
    }
}

static double exact_work(const line *l)
{
    double work = 0, degree = 1 + (double)l->graph->pin_begin[l->graph->net_count] / l->n;
    for (uint32_t s = 0; s < l->goal->stage_count; s++) {
        double begins = (double)l->high[s] - l->low[s] + 1;
        work += begins * (l->high[s + 1] - l->low[s]) * degree;
    }
    return work;
}

static void read_back(const table *t, const line *l, uint32_t *stage)
{
    uint32_t end = l->n;
    for (uint32_t s = l->goal->stage_count; s-- > 0;) {
        uint32_t begin = t->origin[s + 1][end - l->low[s + 1]];
        for (uint32_t i = begin; i < end; i++)
            stage[l->order[i]] = s;
        end = begin;
    }
}

static lig_status solve_cut(const line *l, uint32_t *stage, int *found, ligi_scratch *scratch)
{
    table t = {0};
    uses u = {0};
    int exact = exact_work(l) <= EXACT_WORK;
    uint32_t stages = l->goal->stage_count, *queue = LIGI_TAKE(scratch, uint32_t, (size_t)l->n + 1);
    LIG_TRY(table_init(&t, l, scratch));
    if (exact)
        LIG_TRY(uses_init(&u, l, scratch));
    else
        count_live(&t, l);
    for (uint32_t s = 0; s < stages; s++) {
        if (exact)
            fill_row_exact(&t, l, s, &u);
        else
            fill_row_live(&t, l, s, queue);
    }
    *found = isfinite(t.cost[stages][0]);
    if (*found)
        read_back(&t, l, stage);
    return LIG_OK;
}

lig_status ligi_interval_cut(const ligi_graph *graph, const ligi_goal *goal, const uint32_t *order,
                             uint32_t *stage, int *found)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    line l;
    *found = 0;
    lig_status status = line_init(&l, graph, goal, order, &scratch);
    if (status == LIG_OK)
        set_limits(&l, goal->cap_ms, 1);
    if (status == LIG_OK && find_windows(&l))
        status = solve_cut(&l, stage, found, &scratch);
    ligi_scratch_free(&scratch);
    return status;
}
