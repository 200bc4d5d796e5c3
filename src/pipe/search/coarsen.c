#include "pipe/search/coarsen.h"

#include <stdlib.h>
#include <string.h>

#include "pipe/search/moves.h"

/* The only unit that follows, LIGI_NONE if there is none, or LIGI_NONE - 1 for several. */
#define SEVERAL (LIGI_NONE - 1)

static uint32_t only_user(const ligi_graph *graph, uint32_t unit)
{
    uint32_t only = LIGI_NONE;
    for (uint32_t net = graph->out_begin[unit]; net < graph->out_begin[unit + 1]; net++)
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
            if (only == LIGI_NONE)
                only = graph->pin[p];
            else if (only != graph->pin[p])
                return SEVERAL;
    return only;
}

static uint32_t only_source(const ligi_graph *graph, uint32_t unit)
{
    uint32_t only = LIGI_NONE;
    for (uint32_t i = graph->in_begin[unit]; i < graph->in_begin[unit + 1]; i++) {
        uint32_t source = graph->source[graph->in_net[i]];
        if (only == LIGI_NONE)
            only = source;
        else if (only != source)
            return SEVERAL;
    }
    return only;
}

typedef struct pairing {
    const ligi_graph *graph;
    double load_most;
    uint32_t *partner; /* LIGI_NONE while alone */
    uint32_t pairs;
} pairing;

static int may_pair(const pairing *p, uint32_t a, uint32_t b)
{
    if (p->partner[a] != LIGI_NONE || p->partner[b] != LIGI_NONE)
        return 0;
    for (uint32_t i = 0;
         p->graph->apart_begin && i < p->graph->apart_begin[a + 1] - p->graph->apart_begin[a]; i++)
        if (p->graph->apart[p->graph->apart_begin[a] + i] == b)
            return 0;
    return p->graph->load[a] + p->graph->load[b] <= p->load_most;
}

static void pair(pairing *p, uint32_t a, uint32_t b)
{
    p->partner[a] = b;
    p->partner[b] = a;
    p->pairs++;
}

/* A unit is merged with its only user or its only source. A path that enters such a pair leaves it
 * only past its end (or entered at its beginning), so every path among pairs is a path among units,
 * and a cycle would be one too. */
static void pair_only(pairing *p, ligi_random *random)
{
    uint32_t n = p->graph->unit_count, start = ligi_random_below(random, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t unit = (start + i) % n, user = only_user(p->graph, unit),
                 source = only_source(p->graph, unit);
        if (user < SEVERAL && may_pair(p, unit, user))
            pair(p, unit, user);
        else if (source < SEVERAL && may_pair(p, source, unit))
            pair(p, source, unit);
    }
}

/* Neighbours in a topological order: its intervals are always acyclic. */
static void pair_intervals(pairing *p)
{
    for (uint32_t u = 0; u + 1 < p->graph->unit_count; u++)
        if (may_pair(p, u, u + 1))
            pair(p, u, u + 1);
}

lig_status ligi_coarsen(const ligi_graph *graph, double load_most, ligi_random *random,
                        uint32_t *cluster, uint32_t *cluster_count)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    pairing p = {.graph = graph, .load_most = load_most};
    uint32_t n = graph->unit_count, count = 0;
    p.partner = LIGI_TAKE(&scratch, uint32_t, n);
    lig_status status = ligi_scratch_check(&scratch);
    if (status == LIG_OK) {
        memset(p.partner, 0xff, n * sizeof *p.partner);
        pair_only(&p, random);
        if (p.pairs < n / 10) {
            memset(p.partner, 0xff, n * sizeof *p.partner);
            p.pairs = 0;
            pair_intervals(&p);
        }
        for (uint32_t u = 0; u < n; u++)
            cluster[u] = p.partner[u] < u ? cluster[p.partner[u]] : count++;
        *cluster_count = count;
    }
    ligi_scratch_free(&scratch);
    return status;
}

/* --- the clusters' graph --- */

static lig_status take_graph(ligi_graph *coarse, const ligi_graph *fine, uint32_t count,
                             ligi_scratch *scratch)
{
    uint32_t pins = fine->pin_begin[fine->net_count];
    *coarse = (ligi_graph){.unit_count = count, .load_sum = fine->load_sum};
    coarse->member = LIGI_TAKE(scratch, uint32_t, count);
    coarse->load = LIGI_TAKE(scratch, double, count);
    coarse->fixed = LIGI_TAKE(scratch, double, count);
    coarse->flight = LIGI_TAKE(scratch, double, count);
    coarse->out_begin = LIGI_TAKE(scratch, uint32_t, (size_t)count + 1);
    coarse->in_begin = LIGI_TAKE(scratch, uint32_t, (size_t)count + 1);
    coarse->source = LIGI_TAKE(scratch, uint32_t, fine->net_count);
    coarse->bytes = LIGI_TAKE(scratch, double, fine->net_count);
    coarse->pin_begin = LIGI_TAKE(scratch, uint32_t, (size_t)fine->net_count + 1);
    coarse->pin = LIGI_TAKE(scratch, uint32_t, pins);
    coarse->in_net = LIGI_TAKE(scratch, uint32_t, pins);
    return ligi_scratch_check(scratch);
}

/* The fine units cluster by cluster: first[c] .. first[c + 1]. */
typedef struct members {
    uint32_t *first;
    uint32_t *unit;
} members;

static lig_status list_members(const ligi_graph *fine, const uint32_t *cluster, uint32_t count,
                               members *m, ligi_scratch *scratch)
{
    m->first = LIGI_TAKE(scratch, uint32_t, (size_t)count + 2);
    m->unit = LIGI_TAKE(scratch, uint32_t, fine->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t u = 0; u < fine->unit_count; u++)
        m->first[cluster[u] + 2]++;
    for (uint32_t c = 0; c < count; c++)
        m->first[c + 2] += m->first[c + 1];
    for (uint32_t u = 0; u < fine->unit_count; u++)
        m->unit[m->first[cluster[u] + 1]++] = u;
    return LIG_OK;
}

/* Kahn's order of the clusters; number[c] is the new number. */
static lig_status number_clusters(const ligi_graph *fine, const uint32_t *cluster, uint32_t count,
                                  const members *m, uint32_t *number, ligi_scratch *scratch)
{
    uint32_t *waits = LIGI_TAKE(scratch, uint32_t, count),
             *queue = LIGI_TAKE(scratch, uint32_t, count);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t head = 0, tail = 0;
    for (uint32_t net = 0; net < fine->net_count; net++)
        for (uint32_t p = fine->pin_begin[net]; p < fine->pin_begin[net + 1]; p++)
            waits[cluster[fine->pin[p]]] += cluster[fine->pin[p]] != cluster[fine->source[net]];
    for (uint32_t c = 0; c < count; c++)
        if (!waits[c])
            queue[tail++] = c;
    while (head < tail) {
        uint32_t c = queue[head];
        number[c] = head++;
        for (uint32_t i = m->first[c]; i < m->first[c + 1]; i++)
            for (uint32_t net = fine->out_begin[m->unit[i]]; net < fine->out_begin[m->unit[i] + 1];
                 net++)
                for (uint32_t p = fine->pin_begin[net]; p < fine->pin_begin[net + 1]; p++) {
                    uint32_t other = cluster[fine->pin[p]];
                    if (other != c && --waits[other] == 0)
                        queue[tail++] = other;
                }
    }
    if (tail < count)
        return lig_fail(LIG_E_INTERNAL, "internal error: coarsening created a cycle");
    return LIG_OK;
}

static void copy_nets(const ligi_graph *fine, const uint32_t *cluster, uint32_t unit,
                      ligi_graph *coarse, uint32_t *seen)
{
    for (uint32_t net = fine->out_begin[unit]; net < fine->out_begin[unit + 1]; net++) {
        uint32_t own = cluster[unit], at = coarse->pin_begin[coarse->net_count], before = at;
        for (uint32_t p = fine->pin_begin[net]; p < fine->pin_begin[net + 1]; p++) {
            uint32_t other = cluster[fine->pin[p]];
            if (other == own || seen[other] == net + 1)
                continue;
            seen[other] = net + 1;
            coarse->pin[at++] = other;
            coarse->in_begin[other + 1]++;
        }
        if (at == before)
            continue;
        coarse->source[coarse->net_count] = own;
        coarse->bytes[coarse->net_count++] = fine->bytes[net];
        coarse->pin_begin[coarse->net_count] = at;
    }
}

static void fill_in_nets(ligi_graph *coarse, uint32_t *filled)
{
    for (uint32_t c = 0; c < coarse->unit_count; c++)
        coarse->in_begin[c + 1] += coarse->in_begin[c];
    for (uint32_t net = 0; net < coarse->net_count; net++)
        for (uint32_t p = coarse->pin_begin[net]; p < coarse->pin_begin[net + 1]; p++) {
            uint32_t user = coarse->pin[p];
            coarse->in_net[coarse->in_begin[user] + filled[user]++] = net;
        }
}

static lig_status copy_apart(const ligi_graph *fine, const uint32_t *cluster, const members *m,
                             const uint32_t *by_number, ligi_graph *coarse, ligi_scratch *scratch)
{
    if (!fine->apart_begin)
        return LIG_OK;
    coarse->apart_begin = LIGI_TAKE(scratch, uint32_t, (size_t)coarse->unit_count + 1);
    coarse->apart = LIGI_TAKE(scratch, uint32_t, fine->apart_begin[fine->unit_count]);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t count = 0;
    for (uint32_t c = 0; c < coarse->unit_count; c++) {
        for (uint32_t i = m->first[by_number[c]]; i < m->first[by_number[c] + 1]; i++)
            for (uint32_t a = fine->apart_begin[m->unit[i]]; a < fine->apart_begin[m->unit[i] + 1];
                 a++)
                coarse->apart[count++] = cluster[fine->apart[a]];
        coarse->apart_begin[c + 1] = count;
    }
    return LIG_OK;
}

lig_status ligi_graph_contract(const ligi_graph *fine, uint32_t *cluster, uint32_t cluster_count,
                               ligi_graph *coarse, ligi_scratch *scratch)
{
    members m;
    uint32_t *number = LIGI_TAKE(scratch, uint32_t, cluster_count);
    uint32_t *by_number = LIGI_TAKE(scratch, uint32_t, cluster_count);
    uint32_t *seen = LIGI_TAKE(scratch, uint32_t, cluster_count);
    uint32_t *filled = LIGI_TAKE(scratch, uint32_t, cluster_count);
    LIG_TRY(take_graph(coarse, fine, cluster_count, scratch));
    LIG_TRY(list_members(fine, cluster, cluster_count, &m, scratch));
    LIG_TRY(number_clusters(fine, cluster, cluster_count, &m, number, scratch));
    for (uint32_t c = 0; c < cluster_count; c++)
        by_number[number[c]] = c;
    for (uint32_t u = 0; u < fine->unit_count; u++)
        cluster[u] = number[cluster[u]];
    for (uint32_t c = 0; c < cluster_count; c++) {
        for (uint32_t i = m.first[by_number[c]]; i < m.first[by_number[c] + 1]; i++) {
            uint32_t unit = m.unit[i];
            coarse->member[c] = fine->member[unit];
            coarse->load[c] += fine->load[unit];
            coarse->fixed[c] += fine->fixed[unit];
            coarse->flight[c] += fine->flight[unit];
            copy_nets(fine, cluster, unit, coarse, seen);
        }
        coarse->out_begin[c + 1] = coarse->net_count;
        if (coarse->load[c] > coarse->load_max)
            coarse->load_max = coarse->load[c];
    }
    fill_in_nets(coarse, filled);
    return copy_apart(fine, cluster, &m, by_number, coarse, scratch);
}
