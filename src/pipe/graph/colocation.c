#include "pipe/graph/colocation.h"

#include "pipe/graph/graph_check.h"

#include <stdlib.h>

static uint32_t find(uint32_t *parent, uint32_t node)
{
    while (parent[node] != node) {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    return node;
}

/* The smaller root stays, so the result does not depend on the order of the joins. */
static void join(uint32_t *parent, uint32_t a, uint32_t b)
{
    a = find(parent, a);
    b = find(parent, b);
    if (a < b)
        parent[b] = a;
    else
        parent[a] = b;
}

typedef struct belonging {
    int32_t group;
    uint32_t node;
} belonging;

static int compare_belongings(const void *left, const void *right)
{
    const belonging *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static lig_status join_groups(const lig_pipe_graph *input, uint32_t *parent, ligi_scratch *scratch)
{
    belonging *list = LIGI_TAKE(scratch, belonging, input->node_count);
    LIG_TRY(ligi_scratch_check(scratch));
    size_t count = 0;
    for (uint32_t i = 0; i < input->node_count; i++)
        if (input->group[i] >= 0)
            list[count++] = (belonging){input->group[i], i};
    qsort(list, count, sizeof *list, compare_belongings);
    for (size_t i = 1; i < count; i++)
        if (list[i].group == list[i - 1].group)
            join(parent, list[i].node, list[i - 1].node);
    return LIG_OK;
}

/* The graph of joined nodes and the state of Tarjan's algorithm for each. */
typedef struct walk {
    uint32_t *begin, *to;
    uint32_t *index, *low; /* 0: not visited */
    uint32_t *next;        /* next edge to visit when the node is on top again */
    uint32_t *stack, *path;
    uint8_t *on_stack;
    uint32_t stack_count, path_count, clock;
    uint32_t *component;
    uint32_t component_count;
} walk;

static void close_component(walk *w, uint32_t node)
{
    uint32_t member;
    do {
        member = w->stack[--w->stack_count];
        w->on_stack[member] = 0;
        w->component[member] = w->component_count;
    } while (member != node);
    w->component_count++;
}

static void enter(walk *w, uint32_t node)
{
    w->index[node] = w->low[node] = ++w->clock;
    w->next[node] = w->begin[node];
    w->stack[w->stack_count++] = node;
    w->on_stack[node] = 1;
    w->path[w->path_count++] = node;
}

/* Iterative: a chain of a million blocks must not need a million stack frames. */
static void visit(walk *w, uint32_t root)
{
    enter(w, root);
    while (w->path_count) {
        uint32_t node = w->path[w->path_count - 1];
        if (w->next[node] < w->begin[node + 1]) {
            uint32_t other = w->to[w->next[node]++];
            if (!w->index[other])
                enter(w, other);
            else if (w->on_stack[other] && w->index[other] < w->low[node])
                w->low[node] = w->index[other];
            continue;
        }
        w->path_count--;
        if (w->low[node] == w->index[node])
            close_component(w, node);
        if (w->path_count) {
            uint32_t parent = w->path[w->path_count - 1];
            if (w->low[node] < w->low[parent])
                w->low[parent] = w->low[node];
        }
    }
}

static lig_status start_walk(walk *w, const lig_pipe_graph *input, uint32_t *parent,
                             ligi_scratch *scratch)
{
    uint32_t n = input->node_count, m = input->edge_count;
    w->begin = LIGI_TAKE(scratch, uint32_t, (size_t)n + 2);
    w->to = LIGI_TAKE(scratch, uint32_t, m);
    w->index = LIGI_TAKE(scratch, uint32_t, n);
    w->low = LIGI_TAKE(scratch, uint32_t, n);
    w->next = LIGI_TAKE(scratch, uint32_t, n);
    w->stack = LIGI_TAKE(scratch, uint32_t, n);
    w->path = LIGI_TAKE(scratch, uint32_t, n);
    w->on_stack = LIGI_TAKE(scratch, uint8_t, n);
    w->component = LIGI_TAKE(scratch, uint32_t, n);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t e = 0; e < m; e++)
        w->begin[find(parent, input->edge_from[e]) + 2]++;
    for (uint32_t i = 0; i < n; i++)
        w->begin[i + 2] += w->begin[i + 1];
    for (uint32_t e = 0; e < m; e++)
        w->to[w->begin[find(parent, input->edge_from[e]) + 1]++] = find(parent, input->edge_to[e]);
    return LIG_OK;
}

/* Tarjan closes components against the edges. The roots are visited from the last node on, so that
 * the reversed numbers follow the given order where possible. */
static lig_status condense(const lig_pipe_graph *input, uint32_t *parent,
                           const uint32_t *topological, uint32_t *unit_of, uint32_t *unit_count,
                           ligi_scratch *scratch)
{
    walk w = {0};
    LIG_TRY(start_walk(&w, input, parent, scratch));
    for (uint32_t i = input->node_count; i-- > 0;) {
        uint32_t node = find(parent, topological[i]);
        if (!w.index[node])
            visit(&w, node);
    }
    for (uint32_t i = 0; i < input->node_count; i++)
        unit_of[i] = w.component_count - 1 - w.component[find(parent, i)];
    *unit_count = w.component_count;
    return LIG_OK;
}

lig_status ligi_contract(const lig_pipe_graph *input, const lig_pipe_options *options,
                         uint32_t *unit_of, uint32_t *unit_count, ligi_scratch *scratch)
{
    uint32_t n = input->node_count;
    uint32_t *topological = LIGI_TAKE(scratch, uint32_t, n),
             *parent = LIGI_TAKE(scratch, uint32_t, n);
    LIG_TRY(ligi_scratch_check(scratch));
    LIG_TRY(ligi_graph_order(input, topological, scratch));
    int tied = options->ties == LIG_PIPE_TIES_TOGETHER && input->tie_count;
    if (!input->group && !tied) {
        for (uint32_t i = 0; i < n; i++)
            unit_of[topological[i]] = i;
        *unit_count = n;
        return LIG_OK;
    }
    for (uint32_t i = 0; i < n; i++)
        parent[i] = i;
    if (input->group)
        LIG_TRY(join_groups(input, parent, scratch));
    for (uint32_t t = 0; tied && t < input->tie_count; t++)
        for (uint32_t i = input->tie_begin[t] + 1; i < input->tie_begin[t + 1]; i++)
            join(parent, input->tie_node[i], input->tie_node[i - 1]);
    return condense(input, parent, topological, unit_of, unit_count, scratch);
}
