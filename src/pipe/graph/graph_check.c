#include "pipe/graph/graph_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipe/graph/graph.h"

const char *ligi_graph_node_name(const lig_pipe_graph *input, uint32_t node, char *text)
{
    if (input->name && input->name[node])
        snprintf(text, LIGI_NODE_NAME_BYTES, "'%.80s'", input->name[node]);
    else
        snprintf(text, LIGI_NODE_NAME_BYTES, "node %u", node);
    return text;
}

static lig_status check_figures(const lig_pipe_graph *input, const double *figure, const char *what)
{
    char text[LIGI_NODE_NAME_BYTES];
    for (uint32_t i = 0; figure && i < input->node_count; i++)
        if (!(figure[i] >= 0) || isinf(figure[i]))
            return lig_fail(LIG_E_INVALID, "invalid %s of %s: %g (expected a number >= 0)", what,
                            ligi_graph_node_name(input, i, text), figure[i]);
    return LIG_OK;
}

static lig_status check_weights(const lig_pipe_graph *input)
{
    char text[LIGI_NODE_NAME_BYTES];
    LIG_TRY(check_figures(input, input->forward_ms, "forward_ms"));
    LIG_TRY(check_figures(input, input->backward_ms, "backward_ms"));
    LIG_TRY(check_figures(input, input->weight_ms, "weight_ms"));
    LIG_TRY(check_figures(input, input->parameter_bytes, "parameter_bytes"));
    LIG_TRY(check_figures(input, input->buffer_bytes, "buffer_bytes"));
    LIG_TRY(check_figures(input, input->activation_bytes, "activation_bytes"));
    LIG_TRY(check_figures(input, input->output_bytes, "output_bytes"));
    for (uint32_t i = 0; input->weight_ms && i < input->node_count; i++)
        if (input->weight_ms[i] > (input->backward_ms ? input->backward_ms[i] : 0))
            return lig_fail(LIG_E_INVALID, "weight_ms of %s is larger than its backward_ms",
                            ligi_graph_node_name(input, i, text));
    return LIG_OK;
}

static lig_status check_edges(const lig_pipe_graph *input)
{
    char text[LIGI_NODE_NAME_BYTES];
    if (input->edge_count && (!input->edge_from || !input->edge_to))
        return lig_fail(LIG_E_INVALID, "the graph has %u edges but edges is NULL",
                        input->edge_count);
    for (uint32_t e = 0; e < input->edge_count; e++) {
        uint32_t from = input->edge_from[e], to = input->edge_to[e];
        if (from >= input->node_count || to >= input->node_count)
            return lig_fail(LIG_E_INVALID, "edge %u goes from %u to %u, but there are %u nodes", e,
                            from, to, input->node_count);
        if (from == to)
            return lig_fail(LIG_E_INVALID, "the graph has a cycle: %s uses its own output",
                            ligi_graph_node_name(input, from, text));
        if (input->edge_bytes && (!(input->edge_bytes[e] >= 0) || isinf(input->edge_bytes[e])))
            return lig_fail(LIG_E_INVALID, "invalid bytes of edge %u: %g (expected a number >= 0)",
                            e, input->edge_bytes[e]);
    }
    return LIG_OK;
}

static lig_status check_apart(const lig_pipe_graph *input)
{
    char text[LIGI_NODE_NAME_BYTES];
    for (uint32_t i = 0; i < input->apart_count; i++) {
        uint32_t first = input->apart_first[i], second = input->apart_second[i];
        if (first >= input->node_count || second >= input->node_count)
            return lig_fail(LIG_E_INVALID,
                            "nodes %u and %u must be kept apart, but there are %u nodes", first,
                            second, input->node_count);
        if (first == second)
            return lig_fail(LIG_E_INVALID, "%s cannot be kept apart from itself",
                            ligi_graph_node_name(input, first, text));
    }
    return LIG_OK;
}

static lig_status check_ties(const lig_pipe_graph *input)
{
    for (uint32_t t = 0; t < input->tie_count; t++) {
        if (input->tie_begin[t] > input->tie_begin[t + 1])
            return lig_fail(LIG_E_INVALID, "tie_begin decreases at tied parameter %u", t);
        if (!(input->tie_bytes[t] >= 0) || isinf(input->tie_bytes[t]))
            return lig_fail(LIG_E_INVALID,
                            "invalid bytes of tied parameter %u: %g (expected a number >= 0)", t,
                            input->tie_bytes[t]);
        for (uint32_t i = input->tie_begin[t]; i < input->tie_begin[t + 1]; i++)
            if (input->tie_node[i] >= input->node_count)
                return lig_fail(LIG_E_INVALID,
                                "tied parameter %u is used by node %u, but there are %u nodes", t,
                                input->tie_node[i], input->node_count);
    }
    return LIG_OK;
}

lig_status ligi_graph_check(const lig_pipe_graph *input)
{
    if (input->node_count == 0)
        return lig_fail(LIG_E_INVALID, "the graph has no nodes");
    if (input->node_count > LIG_PIPE_NODES_MAX)
        return lig_fail(LIG_E_LIMIT, "the graph has %u nodes, the limit is %u", input->node_count,
                        LIG_PIPE_NODES_MAX);
    LIG_TRY(check_weights(input));
    LIG_TRY(check_edges(input));
    LIG_TRY(check_apart(input));
    return check_ties(input);
}

/* Follows edges among the nodes that never became free until a node repeats: the nodes between its
 * two visits form a cycle. `next` holds one successor among them for each. */
static lig_status name_cycle(const lig_pipe_graph *input, uint32_t start, const uint32_t *next,
                             uint32_t *visit)
{
    uint32_t node = start, step = 1;
    for (; !visit[node]; node = next[node])
        visit[node] = step++;
    char text[640] = "", name[LIGI_NODE_NAME_BYTES];
    size_t used = 0;
    uint32_t length = step - visit[node], shown = 0;
    for (uint32_t at = node; shown < 5 && shown < length; at = next[at], shown++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s -> ",
                                 ligi_graph_node_name(input, at, name));
    snprintf(text + used, sizeof text - used, "%s%s", shown < length ? "... -> " : "",
             ligi_graph_node_name(input, node, name));
    return lig_fail(LIG_E_INVALID, "the graph has a cycle of %u nodes: %s", length, text);
}

static lig_status refuse_cycle(const lig_pipe_graph *input, const uint32_t *waits,
                               ligi_scratch *scratch)
{
    uint32_t *next = LIGI_TAKE(scratch, uint32_t, input->node_count);
    uint32_t *visit = LIGI_TAKE(scratch, uint32_t, input->node_count);
    LIG_TRY(ligi_scratch_check(scratch));
    uint32_t start = 0;
    /* Every waiting node has a waiting predecessor, but not every one has a waiting successor. So
     * `next` is the predecessor, the walk goes against the edges, and the names come out in
     * reverse. */
    for (uint32_t e = 0; e < input->edge_count; e++)
        if (waits[input->edge_from[e]] && waits[input->edge_to[e]]) {
            next[input->edge_to[e]] = input->edge_from[e];
            start = input->edge_to[e];
        }
    /* One walk along the predecessors finds the cycle; reversing it makes the arrows follow the
     * data. */
    uint32_t at = start;
    while (!visit[at]) {
        visit[at] = 1;
        at = next[at];
    }
    /* Start at the smallest node, so that the message does not depend on the order of the edges. */
    uint32_t first = at, before;
    for (uint32_t i = next[at]; i != at; i = next[i])
        first = i < first ? i : first;
    before = first;
    for (at = next[first]; at != first;) {
        uint32_t further = next[at];
        next[at] = before;
        before = at;
        at = further;
    }
    next[first] = before;
    memset(visit, 0, input->node_count * sizeof *visit);
    return name_cycle(input, first, next, visit);
}

static void heap_push(uint32_t *heap, uint32_t *count, uint32_t node)
{
    uint32_t at = (*count)++;
    for (; at && heap[(at - 1) / 2] > node; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = node;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *count)
{
    uint32_t top = heap[0], node = heap[--*count], at = 0;
    for (uint32_t child = 1; child < *count; child = 2 * at + 1) {
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= node)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = node;
    return top;
}

static lig_status kahn(const lig_pipe_graph *input, uint32_t *topological, ligi_scratch *scratch)
{
    uint32_t n = input->node_count, m = input->edge_count;
    uint32_t *begin = LIGI_TAKE(scratch, uint32_t, (size_t)n + 2),
             *to = LIGI_TAKE(scratch, uint32_t, m);
    uint32_t *waits = LIGI_TAKE(scratch, uint32_t, n), *heap = LIGI_TAKE(scratch, uint32_t, n);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t e = 0; e < m; e++) {
        begin[input->edge_from[e] + 2]++;
        waits[input->edge_to[e]]++;
    }
    for (uint32_t i = 0; i < n; i++)
        begin[i + 2] += begin[i + 1];
    for (uint32_t e = 0; e < m; e++)
        to[begin[input->edge_from[e] + 1]++] = input->edge_to[e];
    uint32_t heap_count = 0, done = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!waits[i])
            heap_push(heap, &heap_count, i);
    while (heap_count) {
        uint32_t node = heap_pop(heap, &heap_count);
        topological[done++] = node;
        for (uint32_t e = begin[node]; e < begin[node + 1]; e++)
            if (--waits[to[e]] == 0)
                heap_push(heap, &heap_count, to[e]);
    }
    return done == n ? LIG_OK : refuse_cycle(input, waits, scratch);
}

lig_status ligi_graph_order(const lig_pipe_graph *input, uint32_t *topological,
                            ligi_scratch *scratch)
{
    uint32_t e = 0;
    while (e < input->edge_count && input->edge_from[e] < input->edge_to[e])
        e++;
    if (e < input->edge_count)
        return kahn(input, topological, scratch);
    for (uint32_t i = 0; i < input->node_count; i++)
        topological[i] = i;
    return LIG_OK;
}
