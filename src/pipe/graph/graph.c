/* From the caller's arrays to units and nets. */
#include "pipe/graph/graph.h"

#include "pipe/graph/graph_check.h"

#include <stdlib.h>
#include <string.h>

#include "pipe/graph/colocation.h"

static double at(const double *figure, uint32_t i)
{
    return figure ? figure[i] : 0;
}

/* Parameters shared by several nodes are attributed to the first of them here; the exact count,
 * once per device, is made when a plan is measured. A search that charged every user would reject
 * plans that fit. */
static void sum_figures(const lig_pipe_graph *input, const lig_pipe_options *options,
                        ligi_graph *graph)
{
    double factor = 1 + options->optimizer_factor;
    for (uint32_t i = 0; i < input->node_count; i++) {
        uint32_t unit = graph->unit_of[i];
        double forward = at(input->forward_ms, i);
        graph->load[unit] +=
            forward + at(input->backward_ms, i) + (options->recompute ? forward : 0);
        graph->fixed[unit] += at(input->parameter_bytes, i) * factor + at(input->buffer_bytes, i);
        if (!options->recompute)
            graph->flight[unit] += at(input->activation_bytes, i);
        graph->member[unit] = i;
    }
    for (uint32_t t = 0; t < input->tie_count; t++)
        if (input->tie_begin[t] < input->tie_begin[t + 1])
            graph->fixed[graph->unit_of[input->tie_node[input->tie_begin[t]]]] +=
                input->tie_bytes[t] * factor;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        graph->load_sum += graph->load[u];
        if (graph->load[u] > graph->load_max)
            graph->load_max = graph->load[u];
    }
}

/* One use of a value: sorted by (source unit, node, value, user), equal values are adjacent. */
typedef struct use {
    uint32_t source;
    uint32_t node;
    uint32_t value;
    uint32_t user;
    double bytes;
} use;

static int compare_uses(const void *left, const void *right)
{
    const use *a = left, *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->user < b->user ? -1 : a->user > b->user;
}

/* Counting by source first leaves qsort runs of a few elements: edges are usually either nearly
 * sorted or in random order. */
static lig_status gather_uses(const lig_pipe_graph *input, const ligi_graph *graph, use *uses,
                              uint32_t *count, ligi_scratch *scratch)
{
    uint32_t *begin = LIGI_TAKE(scratch, uint32_t, (size_t)graph->unit_count + 2);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t used = 0;
    for (uint32_t e = 0; e < input->edge_count; e++)
        if (graph->unit_of[input->edge_from[e]] != graph->unit_of[input->edge_to[e]]) {
            begin[graph->unit_of[input->edge_from[e]] + 2]++;
            used++;
        }
    for (uint32_t u = 0; u < graph->unit_count; u++)
        begin[u + 2] += begin[u + 1];
    for (uint32_t e = 0; e < input->edge_count; e++) {
        uint32_t node = input->edge_from[e];
        uint32_t source = graph->unit_of[node], user = graph->unit_of[input->edge_to[e]];
        uint32_t value = !input->edge_bytes ? 0 : input->edge_value ? input->edge_value[e] : e;
        double bytes = input->edge_bytes ? input->edge_bytes[e] : at(input->output_bytes, node);
        if (source != user)
            uses[begin[source + 1]++] = (use){source, node, value, user, bytes};
    }
    for (uint32_t u = 0; u < graph->unit_count; u++)
        if (begin[u + 1] - begin[u] > 1)
            qsort(uses + begin[u], begin[u + 1] - begin[u], sizeof *uses, compare_uses);
    *count = used;
    return LIG_OK;
}

static lig_status cut_nets(const lig_pipe_graph *input, ligi_graph *graph, const use *uses,
                           uint32_t count)
{
    char text[LIGI_NODE_NAME_BYTES];
    uint32_t net = 0, pins = 0;
    for (uint32_t i = 0; i < count; i++) {
        const use *it = uses + i, *last = i ? it - 1 : NULL;
        int same_value = last && last->node == it->node && last->value == it->value;
        if (same_value && last->bytes != it->bytes)
            return lig_fail(LIG_E_INVALID,
                            "value %u of %s has %g bytes on one edge and %g on another", it->value,
                            ligi_graph_node_name(input, it->node, text), last->bytes, it->bytes);
        if (same_value && last->user == it->user)
            continue;
        if (!same_value) {
            graph->pin_begin[net] = pins;
            graph->source[net] = it->source;
            graph->bytes[net++] = it->bytes;
            graph->out_begin[it->source + 1] = net;
        }
        graph->pin[pins++] = it->user;
        graph->in_begin[it->user + 1]++;
    }
    graph->net_count = net;
    graph->pin_begin[net] = pins;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        if (graph->out_begin[u + 1] < graph->out_begin[u])
            graph->out_begin[u + 1] = graph->out_begin[u];
        graph->in_begin[u + 1] += graph->in_begin[u];
    }
    return LIG_OK;
}

static lig_status make_nets(const lig_pipe_graph *input, ligi_graph *graph, ligi_scratch *scratch)
{
    uint32_t n = graph->unit_count, m = input->edge_count;
    graph->out_begin = LIGI_TAKE(scratch, uint32_t, (size_t)n + 1);
    graph->in_begin = LIGI_TAKE(scratch, uint32_t, (size_t)n + 1);
    graph->source = LIGI_TAKE(scratch, uint32_t, m);
    graph->bytes = LIGI_TAKE(scratch, double, m);
    graph->pin_begin = LIGI_TAKE(scratch, uint32_t, (size_t)m + 1);
    graph->pin = LIGI_TAKE(scratch, uint32_t, m);
    graph->in_net = LIGI_TAKE(scratch, uint32_t, m);
    use *uses = LIGI_TAKE(scratch, use, m);
    uint32_t *filled = LIGI_TAKE(scratch, uint32_t, n);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t count = 0;
    LIG_TRY(gather_uses(input, graph, uses, &count, scratch));
    LIG_TRY(cut_nets(input, graph, uses, count));
    for (uint32_t net = 0; net < graph->net_count; net++)
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
            uint32_t user = graph->pin[p];
            graph->in_net[graph->in_begin[user] + filled[user]++] = net;
        }
    return LIG_OK;
}

static lig_status make_apart(const lig_pipe_graph *input, ligi_graph *graph, ligi_scratch *scratch)
{
    if (!input->apart_count)
        return LIG_OK;
    uint32_t n = graph->unit_count;
    uint32_t *begin = LIGI_TAKE(scratch, uint32_t, (size_t)n + 2);
    graph->apart = LIGI_TAKE(scratch, uint32_t, (size_t)input->apart_count * 2);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t i = 0; i < input->apart_count; i++) {
        uint32_t a = graph->unit_of[input->apart_first[i]],
                 b = graph->unit_of[input->apart_second[i]];
        char first[LIGI_NODE_NAME_BYTES], second[LIGI_NODE_NAME_BYTES];
        if (a == b)
            return lig_fail(LIG_E_INVALID,
                            "%s and %s cannot be kept apart: they are in one group (or on a path "
                            "between its nodes)",
                            ligi_graph_node_name(input, input->apart_first[i], first),
                            ligi_graph_node_name(input, input->apart_second[i], second));
        begin[a + 2]++;
        begin[b + 2]++;
    }
    for (uint32_t u = 0; u < n; u++)
        begin[u + 2] += begin[u + 1];
    for (uint32_t i = 0; i < input->apart_count; i++) {
        uint32_t a = graph->unit_of[input->apart_first[i]],
                 b = graph->unit_of[input->apart_second[i]];
        graph->apart[begin[a + 1]++] = b;
        graph->apart[begin[b + 1]++] = a;
    }
    graph->apart_begin = begin;
    return LIG_OK;
}

lig_status ligi_graph_make(const lig_pipe_graph *input, const lig_pipe_options *options,
                           ligi_graph *graph, ligi_scratch *scratch)
{
    *graph = (ligi_graph){0};
    graph->unit_of = LIGI_TAKE(scratch, uint32_t, input->node_count);
    LIG_TRY(ligi_scratch_check(scratch));
    LIG_TRY(ligi_contract(input, options, graph->unit_of, &graph->unit_count, scratch));
    graph->member = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    graph->load = LIGI_TAKE(scratch, double, graph->unit_count);
    graph->fixed = LIGI_TAKE(scratch, double, graph->unit_count);
    graph->flight = LIGI_TAKE(scratch, double, graph->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    sum_figures(input, options, graph);
    LIG_TRY(make_nets(input, graph, scratch));
    return make_apart(input, graph, scratch);
}

double ligi_graph_cut(const ligi_graph *graph, const uint32_t *stage, uint32_t stage_count,
                      uint32_t *seen)
{
    double cut = 0;
    memset(seen, 0, stage_count * sizeof *seen);
    for (uint32_t net = 0; net < graph->net_count; net++) {
        uint32_t own = stage[graph->source[net]];
        for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
            uint32_t other = stage[graph->pin[p]];
            if (other != own && seen[other] != net + 1) {
                seen[other] = net + 1;
                cut += graph->bytes[net];
            }
        }
    }
    return cut;
}
