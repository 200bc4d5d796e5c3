/* Partitions one graph with every contender and prints a line of JSON for each.
 *
 *     pipeline GRAPH [k=8] [repeat=3] [balance=1.03,1.074] [bandwidth=BYTES] [microbatches=8]
 * [methods=a,b]
 *
 * GRAPH is what bench/pipe.py writes: uint32 nodes, uint32 edges, then doubles [nodes] of
 * forward_ms, backward_ms, parameter_bytes, activation_bytes and output_bytes, then uint32 [edges]
 * of edge_from and edge_to. METIS and Scotch are found at run time. Their bins are judged as they
 * are: cut and bottleneck by the same definitions, and whether their quotient is acyclic. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipe/graph/graph_check.h"
#include "pipe/methods/metis.h"
#include "pipe/search/plan_figures.h"

typedef struct bench {
    lig_pipe_graph input;
    lig_pipe_options options;
    ligi_graph graph;
    ligi_goal goal;
    ligi_scratch scratch;
    int repeat;
    const char *balance, *methods;
    uint32_t *bin, *stage, *stage_device;
} bench;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void *must(void *memory)
{
    if (!memory) {
        fputs("pipeline: no memory\n", stderr);
        exit(1);
    }
    return memory;
}

static void check(lig_status status)
{
    if (status != LIG_OK) {
        fprintf(stderr, "pipeline: %s\n", lig_error_text());
        exit(1);
    }
}

static void *read_array(FILE *file, size_t count, size_t size)
{
    void *array = must(malloc(count * size + 1));
    if (fread(array, size, count, file) != count) {
        fputs("pipeline: the graph's file is too short\n", stderr);
        exit(1);
    }
    return array;
}

static void read_graph(bench *b, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    uint32_t *counts = read_array(file, 2, sizeof *counts);
    uint32_t n = b->input.node_count = counts[0], m = b->input.edge_count = counts[1];
    b->input.forward_ms = read_array(file, n, sizeof(double));
    b->input.backward_ms = read_array(file, n, sizeof(double));
    b->input.parameter_bytes = read_array(file, n, sizeof(double));
    b->input.activation_bytes = read_array(file, n, sizeof(double));
    b->input.output_bytes = read_array(file, n, sizeof(double));
    b->input.edge_from = read_array(file, m, sizeof(uint32_t));
    b->input.edge_to = read_array(file, m, sizeof(uint32_t));
    free(counts);
    fclose(file);
}

/* --- bins of others ------------------------------------------------------------------------------
 */

/* Kahn on the bins. */
static int acyclic_bins(const bench *b, const uint32_t *bin, uint32_t k)
{
    uint8_t *edge = must(calloc((size_t)k * k, 1)), *done = must(calloc(k, 1));
    for (uint32_t net = 0; net < b->graph.net_count; net++)
        for (uint32_t p = b->graph.pin_begin[net]; p < b->graph.pin_begin[net + 1]; p++)
            edge[bin[b->graph.source[net]] * k + bin[b->graph.pin[p]]] = 1;
    uint32_t left = k;
    for (int moved = 1; moved;) {
        moved = 0;
        for (uint32_t to = 0; to < k; to++) {
            int waits = done[to];
            for (uint32_t from = 0; from < k; from++)
                waits |= from != to && !done[from] && edge[from * k + to];
            if (!waits) {
                done[to] = 1;
                left--;
                moved = 1;
            }
        }
    }
    free(edge);
    free(done);
    return left == 0;
}

static void report_bins(bench *b, const char *name, double ms)
{
    uint32_t k = b->options.stages, *seen = must(calloc(k, sizeof *seen));
    double *load = must(calloc(k, sizeof *load)), most = 0;
    for (uint32_t u = 0; u < b->graph.unit_count; u++)
        load[b->bin[u]] += b->graph.load[u];
    for (uint32_t i = 0; i < k; i++)
        most = fmax(most, load[i]);
    printf("{\"contender\": \"%s\", \"k\": %u, \"ms\": %.3f, \"ratio\": %.6f, \"cut\": %.0f, "
           "\"acyclic\": %s, "
           "\"stages\": %u, \"step_ms\": null}\n",
           name, k, ms, most / b->goal.bound_ms, ligi_graph_cut(&b->graph, b->bin, k, seen),
           acyclic_bins(b, b->bin, k) ? "true" : "false", k);
    free(seen);
    free(load);
}

static void run_metis(bench *b)
{
    double best = INFINITY;
    for (int i = 0; i < b->repeat; i++) {
        double begin = now_ms();
        if (ligi_metis(&b->graph, &b->goal, 1.03, b->options.seed, b->bin) != LIG_OK) {
            fprintf(stderr, "pipeline: %s\n", lig_error_text());
            return;
        }
        best = fmin(best, now_ms() - begin);
    }
    report_bins(b, "metis, as it is", best);
}

/* libscotch 7, 32-bit SCOTCH_Num; it allocates its own objects. */
typedef struct scotch {
    void *(*graph_alloc)(void);
    void *(*strat_alloc)(void);
    int (*graph_init)(void *);
    int (*strat_init)(void *);
    int (*map_build)(void *, int32_t, int32_t, double);
    int (*graph_build)(void *, int32_t, int32_t, const int32_t *, const int32_t *, const int32_t *,
                       const int32_t *, int32_t, const int32_t *, const int32_t *);
    int (*graph_part)(void *, int32_t, void *, int32_t *);
} scotch;

static int load_scotch(scotch *s)
{
    static const char *const names[] = {
        "SCOTCH_graphAlloc",         "SCOTCH_stratAlloc", "SCOTCH_graphInit", "SCOTCH_stratInit",
        "SCOTCH_stratGraphMapBuild", "SCOTCH_graphBuild", "SCOTCH_graphPart"};
    void *place[] = {&s->graph_alloc, &s->strat_alloc, &s->graph_init, &s->strat_init,
                     &s->map_build,   &s->graph_build, &s->graph_part};
    dlopen("libscotcherr-7.0.so", RTLD_NOW | RTLD_GLOBAL);
    void *library = dlopen("libscotch-7.0.so", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = library ? dlsym(library, names[i]) : NULL;
        if (!symbol)
            return 0;
        memcpy(place[i], &symbol, sizeof symbol);
    }
    return 1;
}

typedef struct undirected {
    int32_t *begin, *to, *weight, *load;
} undirected;

static void add_edge(undirected *g, int32_t first, int32_t *count, uint32_t to, double bytes)
{
    int32_t weight = (int32_t)bytes + 1;
    for (int32_t i = first; i < *count; i++)
        if (g->to[i] == (int32_t)to) {
            g->weight[i] += weight;
            return;
        }
    g->to[*count] = (int32_t)to;
    g->weight[(*count)++] = weight;
}

static void make_undirected(const bench *b, undirected *g)
{
    const ligi_graph *graph = &b->graph;
    size_t edges = (size_t)graph->pin_begin[graph->net_count] * 2 + 1;
    g->begin = must(calloc((size_t)graph->unit_count + 1, sizeof(int32_t)));
    g->load = must(calloc(graph->unit_count, sizeof(int32_t)));
    g->to = must(calloc(edges, sizeof(int32_t)));
    g->weight = must(calloc(edges, sizeof(int32_t)));
    double scale = 1e8 / graph->load_sum, byte_scale = 1e4 / 1e7;
    int32_t count = 0;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        int32_t first = g->begin[u] = count;
        g->load[u] = (int32_t)(graph->load[u] * scale) + 1;
        for (uint32_t i = graph->in_begin[u]; i < graph->in_begin[u + 1]; i++) {
            uint32_t net = graph->in_net[i];
            add_edge(g, first, &count, graph->source[net], graph->bytes[net] * byte_scale);
        }
        for (uint32_t net = graph->out_begin[u]; net < graph->out_begin[u + 1]; net++)
            for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
                add_edge(g, first, &count, graph->pin[p], graph->bytes[net] * byte_scale);
    }
    g->begin[graph->unit_count] = count;
}

static void run_scotch(bench *b)
{
    scotch s;
    undirected g;
    double best = INFINITY;
    int32_t n = (int32_t)b->graph.unit_count, k = (int32_t)b->options.stages;
    if (!load_scotch(&s)) {
        fputs("pipeline: libscotch-7.0.so is not on this machine\n", stderr);
        return;
    }
    for (int i = 0; i < b->repeat; i++) {
        double begin = now_ms();
        void *graph = s.graph_alloc(), *strategy = s.strat_alloc();
        make_undirected(b, &g);
        s.graph_init(graph);
        s.strat_init(strategy);
        s.map_build(strategy, 0, k, 0.01);
        if (s.graph_build(graph, 0, n, g.begin, NULL, g.load, NULL, g.begin[n], g.to, g.weight) ||
            s.graph_part(graph, k, strategy, (int32_t *)b->bin)) {
            fputs("pipeline: Scotch failed\n", stderr);
            return;
        }
        best = fmin(best, now_ms() - begin);
        free(g.begin), free(g.load), free(g.to), free(g.weight);
    }
    report_bins(b, "scotch, as it is", best);
}

/* --- ours, and the two splits that people make by hand
 * -------------------------------------------- */

static lig_pipe_plan plan_room(bench *b)
{
    lig_pipe_plan plan = LIG_PIPE_PLAN_INIT;
    plan.stage = b->stage;
    plan.stage_device = b->stage_device;
    return plan;
}

static void report_plan(const bench *b, const char *name, double ms, const lig_pipe_plan *plan)
{
    double bound = plan->lower_bound_ms > 0 ? plan->lower_bound_ms : 1;
    printf("{\"contender\": \"%s\", \"k\": %u, \"ms\": %.3f, \"ratio\": %.6f, \"cut\": %.0f, "
           "\"acyclic\": true, "
           "\"stages\": %u, \"step_ms\": %.6f, \"step_bound_ms\": %.6f, \"method\": \"%s\"}\n",
           name, b->options.stages, ms, plan->bottleneck_ms / bound, plan->cut_bytes,
           plan->stage_count, plan->step_ms, plan->step_bound_ms,
           plan->method ? lig_pipe_method_name(plan->method) : "");
}

static void run_method(bench *b, uint32_t method, double balance)
{
    lig_pipe_options options = b->options;
    lig_pipe_plan plan = plan_room(b);
    double best = INFINITY;
    char name[64];
    options.method = method;
    options.balance = balance;
    for (int i = 0; i < b->repeat; i++) {
        double begin = now_ms();
        if (lig_pipe_partition(&b->input, &options, &plan) != LIG_OK) {
            fprintf(stderr, "pipeline: %s: %s\n", lig_pipe_method_name(method), lig_error_text());
            return;
        }
        best = fmin(best, now_ms() - begin);
    }
    if (balance > 0)
        snprintf(name, sizeof name, "%s, balance %g", lig_pipe_method_name(method), balance);
    else
        snprintf(name, sizeof name, "%s", lig_pipe_method_name(method));
    report_plan(b, name, best, &plan);
}

/* Intervals with equal parts of `figure` (NULL: of nodes) each; nothing when a stage would be
 * empty. */
static void run_equal(bench *b, const char *name, const double *figure)
{
    uint32_t n = b->input.node_count, k = b->options.stages, topological = 1;
    double sum = 0, before = 0;
    lig_pipe_plan plan = plan_room(b);
    for (uint32_t e = 0; e < b->input.edge_count; e++)
        topological &= b->input.edge_from[e] < b->input.edge_to[e];
    for (uint32_t i = 0; i < n; i++)
        sum += figure ? figure[i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        double own = figure ? figure[i] : 1;
        uint32_t stage = sum > 0 ? (uint32_t)((before + own / 2) / sum * k) : 0;
        b->stage[i] = stage < k ? stage : k - 1;
        before += own;
    }
    plan.stage_count = k;
    for (uint32_t s = 0; s < k; s++)
        b->stage_device[s] = s;
    if (topological && lig_pipe_measure(&b->input, &b->options, &plan) == LIG_OK)
        report_plan(b, name, 0, &plan);
}

static int wanted(const bench *b, const char *name)
{
    const char *at = b->methods ? strstr(b->methods, name) : name;
    return at != NULL;
}

static void run_all(bench *b)
{
    if (wanted(b, "peers")) {
        run_metis(b);
        run_scotch(b);
    }
    if (wanted(b, "equal")) {
        run_equal(b, "equal parameters", b->input.parameter_bytes);
        run_equal(b, "equal nodes", NULL);
    }
    for (uint32_t method = 1; method < LIG_PIPE_METHOD_COUNT; method++)
        if (method != LIG_PIPE_EXACT && wanted(b, lig_pipe_method_name(method)))
            run_method(b, method, 0);
    for (const char *at = b->balance; at && *at;
         at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        run_method(b, LIG_PIPE_AUTO, strtod(at, NULL));
    if (wanted(b, "auto"))
        run_method(b, LIG_PIPE_AUTO, 0);
}

static void read_argument(bench *b, const char *argument)
{
    const char *value = strchr(argument, '=');
    size_t bytes = value ? (size_t)(value - argument) : 0;
    if (value && !strncmp(argument, "k", bytes))
        b->options.stages = (uint32_t)strtoul(value + 1, NULL, 10);
    else if (value && !strncmp(argument, "repeat", bytes))
        b->repeat = (int)strtol(value + 1, NULL, 10);
    else if (value && !strncmp(argument, "balance", bytes))
        b->balance = value + 1;
    else if (value && !strncmp(argument, "methods", bytes))
        b->methods = value + 1;
    else if (value && !strncmp(argument, "bandwidth", bytes))
        b->options.bandwidth = strtod(value + 1, NULL);
    else if (value && !strncmp(argument, "microbatches", bytes))
        b->options.microbatches = (uint32_t)strtoul(value + 1, NULL, 10);
    else {
        fprintf(stderr, "pipeline: '%s' is not known\n", argument);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    bench b = {.options = LIG_PIPE_OPTIONS_INIT, .repeat = 3};
    if (argc < 2) {
        fputs("usage: pipeline GRAPH [k=N] [repeat=N] [balance=X,...] [methods=...]\n", stderr);
        return 2;
    }
    b.options.stages = 8;
    for (int i = 2; i < argc; i++)
        read_argument(&b, argv[i]);
    read_graph(&b, argv[1]);
    check(ligi_graph_check(&b.input));
    check(ligi_graph_make(&b.input, &b.options, &b.graph, &b.scratch));
    check(ligi_goal_make(&b.options, &b.graph, b.options.stages, NULL, &b.goal, &b.scratch));
    b.bin = must(calloc(b.graph.unit_count, sizeof *b.bin));
    b.stage = must(calloc(b.input.node_count, sizeof *b.stage));
    b.stage_device = must(calloc(b.input.node_count, sizeof *b.stage_device));
    run_all(&b);
    ligi_scratch_free(&b.scratch);
    return 0;
}
