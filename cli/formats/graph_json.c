#include "formats/graph_json.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define GRAPH_BYTES_MAX (UINT64_C(1) << 31)

/* An array that lives as long as the graph. */
static lig_status take(cli_graph *g, size_t count, size_t size, void *out)
{
    LIG_TRY(cli_alloc(out, count, size));
    memcpy(&g->block[g->block_count++], out, sizeof *g->block);
    return LIG_OK;
}

static lig_status want_array(const cli_json_value *value, const char *what)
{
    if (value == NULL || value->kind != CLI_JSON_ARRAY)
        return lig_fail(LIG_E_INVALID, "\"%s\" must be an array", what);
    return LIG_OK;
}

static lig_status read_index(const cli_json_value *value, const char *what, uint32_t nodes,
                             uint32_t *index)
{
    uint64_t number = 0;
    LIG_TRY(cli_json_to_u64(value, what, &number));
    if (number >= nodes)
        return lig_fail(LIG_E_INVALID, "%s refers to node %llu, but there are %u nodes", what,
                        (unsigned long long)number, nodes);
    *index = (uint32_t)number;
    return LIG_OK;
}

/* --- nodes --------------------------------------------------------------------------------------
 */

enum { FIGURES = 7 };
static const char *const figure_names[FIGURES] = {
    "forward_ms",   "backward_ms",      "weight_ms",   "parameter_bytes",
    "buffer_bytes", "activation_bytes", "output_bytes"};

static lig_status read_node(const cli_json_value *node, uint32_t index, double **figure, int *given,
                            const char **name)
{
    if (node->kind != CLI_JSON_OBJECT)
        return lig_fail(LIG_E_INVALID, "node %u must be an object", index);
    const cli_json_value *text = cli_json_member(node, "name");
    if (text != NULL)
        LIG_TRY(cli_json_to_text(text, "a node's name", name));
    for (int f = 0; f < FIGURES; f++) {
        const cli_json_value *value = cli_json_member(node, figure_names[f]);
        if (value == NULL)
            continue;
        char what[64];
        snprintf(what, sizeof what, "%s of node %u", figure_names[f], index);
        LIG_TRY(cli_json_to_double(value, what, &figure[f][index]));
        given[f] = 1;
    }
    return LIG_OK;
}

static lig_status read_nodes(cli_graph *g, const cli_json_value *nodes, double **figure)
{
    const char **name;
    int given[FIGURES] = {0};
    uint32_t index = 0;
    LIG_TRY(want_array(nodes, "nodes"));
    g->graph.node_count = nodes->count;
    LIG_TRY(take(g, nodes->count, sizeof *name, &name));
    for (int f = 0; f < FIGURES; f++)
        LIG_TRY(take(g, nodes->count, sizeof **figure, &figure[f]));
    for (const cli_json_value *node = cli_json_first(nodes); node != NULL;
         node = cli_json_next(nodes, node), index++)
        LIG_TRY(read_node(node, index, figure, given, &name[index]));
    g->graph.name = name;
    g->graph.forward_ms = figure[0];
    g->graph.backward_ms = figure[1];
    g->graph.weight_ms = given[2] ? figure[2] : NULL; /* unknown: half of the backward time */
    g->graph.parameter_bytes = figure[3];
    g->graph.buffer_bytes = figure[4];
    g->graph.activation_bytes = figure[5];
    g->graph.output_bytes = figure[6];
    return LIG_OK;
}

/* --- edges and their values ----------------------------------------------------------------------
 */

/* A pair of nodes: [from, to]. */
static lig_status read_pair(const cli_json_value *pair, const char *what, uint32_t nodes,
                            uint32_t *first, uint32_t *second)
{
    if (pair->kind != CLI_JSON_ARRAY || pair->count != 2)
        return lig_fail(LIG_E_INVALID, "%s must be a pair of nodes", what);
    const cli_json_value *value = cli_json_first(pair);
    LIG_TRY(read_index(value, what, nodes, first));
    return read_index(cli_json_next(pair, value), what, nodes, second);
}

static lig_status read_pairs(cli_graph *g, const cli_json_value *pairs, const char *what,
                             const uint32_t **first, const uint32_t **second)
{
    uint32_t *a, *b, i = 0;
    LIG_TRY(take(g, pairs->count, sizeof *a, &a));
    LIG_TRY(take(g, pairs->count, sizeof *b, &b));
    for (const cli_json_value *pair = cli_json_first(pairs); pair != NULL;
         pair = cli_json_next(pairs, pair), i++) {
        char text[48];
        snprintf(text, sizeof text, "%s %u", what, i);
        LIG_TRY(read_pair(pair, text, g->graph.node_count, &a[i], &b[i]));
    }
    *first = a;
    *second = b;
    return LIG_OK;
}

/* Values have names; equal names of one producer map to equal numbers. */
typedef struct named_value {
    uint32_t from;
    uint32_t edge;
    uint32_t bytes;
    const char *text; /* of a number: its digits, not NUL-terminated */
} named_value;

static int compare_texts(const named_value *a, const named_value *b)
{
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order != 0 ? order : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int compare_values(const void *left, const void *right)
{
    const named_value *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    int order = compare_texts(a, b);
    return order != 0 ? order : a->edge < b->edge ? -1 : a->edge > b->edge;
}

static lig_status read_values(cli_graph *g, const cli_json_value *values)
{
    named_value *list;
    uint32_t *number, count = g->graph.edge_count, i = 0;
    LIG_TRY(want_array(values, "edge_values"));
    if (values->count != count)
        return lig_fail(LIG_E_INVALID, "\"edge_values\" has %u elements for %u edges",
                        values->count, count);
    LIG_TRY(take(g, count, sizeof *list, &list));
    LIG_TRY(take(g, count, sizeof *number, &number));
    for (const cli_json_value *value = cli_json_first(values); value != NULL;
         value = cli_json_next(values, value), i++) {
        if (value->kind != CLI_JSON_STRING && value->kind != CLI_JSON_NUMBER)
            return lig_fail(LIG_E_INVALID, "the value of edge %u must be a string or a number", i);
        list[i] = (named_value){g->graph.edge_from[i], i, value->bytes, value->text};
    }
    qsort(list, count, sizeof *list, compare_values);
    for (uint32_t at = 0, next = 0; at < count; at++) {
        const named_value *it = &list[at];
        next += at > 0 && (it->from != it[-1].from || compare_texts(it, it - 1) != 0);
        number[it->edge] = next;
    }
    g->graph.edge_value = number;
    return LIG_OK;
}

static lig_status read_edge_bytes(cli_graph *g, const cli_json_value *bytes)
{
    double *figure;
    uint32_t i = 0;
    LIG_TRY(want_array(bytes, "edge_bytes"));
    if (bytes->count != g->graph.edge_count)
        return lig_fail(LIG_E_INVALID, "\"edge_bytes\" has %u elements for %u edges", bytes->count,
                        g->graph.edge_count);
    LIG_TRY(take(g, bytes->count, sizeof *figure, &figure));
    for (const cli_json_value *value = cli_json_first(bytes); value != NULL;
         value = cli_json_next(bytes, value), i++)
        LIG_TRY(cli_json_to_double(value, "edge_bytes", &figure[i]));
    g->graph.edge_bytes = figure;
    return LIG_OK;
}

static lig_status read_edges(cli_graph *g, const cli_json_value *root)
{
    const cli_json_value *edges = cli_json_member(root, "edges");
    const cli_json_value *bytes = cli_json_member(root, "edge_bytes");
    const cli_json_value *values = cli_json_member(root, "edge_values");
    if (edges == NULL)
        return LIG_OK;
    LIG_TRY(want_array(edges, "edges"));
    g->graph.edge_count = edges->count;
    LIG_TRY(read_pairs(g, edges, "edge", &g->graph.edge_from, &g->graph.edge_to));
    if (bytes != NULL)
        LIG_TRY(read_edge_bytes(g, bytes));
    return values != NULL ? read_values(g, values) : LIG_OK;
}

/* --- groups and ties ------------------------------------------------------------------------- */

static lig_status read_groups(cli_graph *g, const cli_json_value *groups)
{
    int32_t *group, number = 0;
    LIG_TRY(want_array(groups, "groups"));
    LIG_TRY(take(g, g->graph.node_count, sizeof *group, &group));
    for (uint32_t i = 0; i < g->graph.node_count; i++)
        group[i] = -1;
    for (const cli_json_value *members = cli_json_first(groups); members != NULL;
         members = cli_json_next(groups, members), number++) {
        LIG_TRY(want_array(members, "groups"));
        for (const cli_json_value *value = cli_json_first(members); value != NULL;
             value = cli_json_next(members, value)) {
            uint32_t index = 0;
            LIG_TRY(read_index(value, "a group", g->graph.node_count, &index));
            if (group[index] >= 0 && group[index] != number)
                return lig_fail(LIG_E_INVALID, "node %u is in two groups", index);
            group[index] = number;
        }
    }
    g->graph.group = group;
    return LIG_OK;
}

static uint32_t count_users(const cli_json_value *ties)
{
    uint32_t users = 0;
    for (const cli_json_value *tie = cli_json_first(ties); tie != NULL;
         tie = cli_json_next(ties, tie)) {
        const cli_json_value *nodes = cli_json_member(tie, "nodes");
        users += nodes != NULL ? nodes->count : 0;
    }
    return users;
}

/* In the file a node's parameters include shared ones; the library counts those separately. */
static lig_status read_tie(cli_graph *g, const cli_json_value *tie, double *parameters,
                           double *bytes, uint32_t **user)
{
    const cli_json_value *nodes = cli_json_member(tie, "nodes");
    LIG_TRY(want_array(nodes, "nodes of a tie"));
    LIG_TRY(cli_json_to_double(cli_json_member(tie, "bytes"), "bytes of a tie", bytes));
    for (const cli_json_value *value = cli_json_first(nodes); value != NULL;
         value = cli_json_next(nodes, value)) {
        LIG_TRY(read_index(value, "a tie", g->graph.node_count, *user));
        double own = parameters[**user] - *bytes;
        parameters[**user] = own > 0 ? own : 0;
        ++*user;
    }
    return LIG_OK;
}

static lig_status read_ties(cli_graph *g, const cli_json_value *ties, double *parameters)
{
    double *bytes;
    uint32_t *begin, *user, *first, i = 0;
    LIG_TRY(want_array(ties, "ties"));
    LIG_TRY(take(g, ties->count, sizeof *bytes, &bytes));
    LIG_TRY(take(g, (size_t)ties->count + 1, sizeof *begin, &begin));
    LIG_TRY(take(g, count_users(ties), sizeof *user, &user));
    first = user;
    for (const cli_json_value *tie = cli_json_first(ties); tie != NULL;
         tie = cli_json_next(ties, tie), i++) {
        LIG_TRY(read_tie(g, tie, parameters, &bytes[i], &user));
        begin[i + 1] = (uint32_t)(user - first);
    }
    g->graph.tie_count = ties->count;
    g->graph.tie_bytes = bytes;
    g->graph.tie_begin = begin;
    g->graph.tie_node = first;
    return LIG_OK;
}

static lig_status read_graph(cli_graph *g)
{
    const cli_json_value *root = cli_json_root(g->json);
    const cli_json_value *groups = cli_json_member(root, "groups"),
                         *apart = cli_json_member(root, "apart");
    const cli_json_value *ties = cli_json_member(root, "ties");
    double *figure[FIGURES];
    if (root->kind != CLI_JSON_OBJECT || cli_json_member(root, "nodes") == NULL)
        return lig_fail(
            LIG_E_INVALID,
            "expected a graph: an object {\"nodes\": [...], \"edges\": [[from, to], ...]}");
    LIG_TRY(read_nodes(g, cli_json_member(root, "nodes"), figure));
    LIG_TRY(read_edges(g, root));
    if (groups != NULL)
        LIG_TRY(read_groups(g, groups));
    if (ties != NULL)
        LIG_TRY(read_ties(g, ties, figure[3]));
    if (apart == NULL)
        return LIG_OK;
    LIG_TRY(want_array(apart, "apart"));
    g->graph.apart_count = apart->count;
    return read_pairs(g, apart, "pair", &g->graph.apart_first, &g->graph.apart_second);
}

lig_status cli_graph_read(const char *path, cli_graph *out)
{
    *out = (cli_graph){.graph = LIG_PIPE_GRAPH_INIT};
    LIG_TRY(cli_json_read(path, GRAPH_BYTES_MAX, &out->json));
    lig_status status = read_graph(out);
    if (status != LIG_OK)
        cli_graph_fini(out);
    return status;
}

void cli_graph_fini(cli_graph *graph)
{
    while (graph->block_count > 0)
        free(graph->block[--graph->block_count]);
    cli_json_destroy(graph->json);
    graph->json = NULL;
}
