/* For the tests of this folder: random graphs, and slow, simple reference implementations. */
#ifndef LIGI_PIPE_TESTING_H
#define LIGI_PIPE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include <ligament/pipe.h>

#include "pipe/graph/random.h"

#define SAMPLE_NODES 400
#define SAMPLE_EDGES 4000

/* A graph with its memory. */
typedef struct sample {
    lig_pipe_graph graph;
    double forward[SAMPLE_NODES], backward[SAMPLE_NODES], parameters[SAMPLE_NODES];
    double activations[SAMPLE_NODES], outputs[SAMPLE_NODES];
    uint32_t from[SAMPLE_EDGES], to[SAMPLE_EDGES];
    int32_t group[SAMPLE_NODES];
} sample;

static inline void sample_edge(sample *s, uint32_t from, uint32_t to)
{
    assert_true(s->graph.edge_count < SAMPLE_EDGES);
    s->from[s->graph.edge_count] = from;
    s->to[s->graph.edge_count++] = to;
}

static inline void sample_init(sample *s, uint32_t nodes)
{
    memset(s, 0, sizeof *s);
    s->graph.node_count = nodes;
    s->graph.forward_ms = s->forward;
    s->graph.backward_ms = s->backward;
    s->graph.parameter_bytes = s->parameters;
    s->graph.activation_bytes = s->activations;
    s->graph.output_bytes = s->outputs;
    s->graph.edge_from = s->from;
    s->graph.edge_to = s->to;
}

/* Small integers including zeros: sums are exact and ties occur. */
static inline void sample_figures(sample *s, ligi_random *random)
{
    for (uint32_t i = 0; i < s->graph.node_count; i++) {
        s->forward[i] = ligi_random_below(random, 6);
        s->backward[i] = ligi_random_below(random, 9);
        s->parameters[i] = ligi_random_below(random, 5);
        s->activations[i] = ligi_random_below(random, 5);
        s->outputs[i] = ligi_random_below(random, 8);
    }
}

/* A random DAG whose node numbers are a topological order, or are shuffled. */
static inline void sample_random(sample *s, ligi_random *random, uint32_t nodes, double degree,
                                 int shuffled)
{
    uint32_t name[SAMPLE_NODES];
    sample_init(s, nodes);
    sample_figures(s, random);
    for (uint32_t i = 0; i < nodes; i++)
        name[i] = i;
    for (uint32_t i = nodes; shuffled && i > 1; i--) {
        uint32_t j = ligi_random_below(random, i), kept = name[i - 1];
        name[i - 1] = name[j];
        name[j] = kept;
    }
    uint32_t edges = nodes > 1 ? (uint32_t)(degree * nodes) : 0;
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t a = ligi_random_below(random, nodes), b = ligi_random_below(random, nodes);
        if (a != b)
            sample_edge(s, name[a < b ? a : b], name[a < b ? b : a]);
    }
}

static inline double sample_load(const sample *s, uint32_t node)
{
    return s->forward[node] + s->backward[node];
}

/* The cut, directly from its definition: pairs of producer and other stage. */
static inline double slow_cut(const sample *s, const uint32_t *stage, uint32_t stages)
{
    double cut = 0;
    for (uint32_t u = 0; u < s->graph.node_count; u++)
        for (uint32_t other = 0; other < stages; other++) {
            int used = 0;
            for (uint32_t e = 0; e < s->graph.edge_count; e++)
                used |= s->from[e] == u && stage[s->to[e]] == other && other != stage[u];
            cut += used ? s->outputs[u] : 0;
        }
    return cut;
}

static inline double slow_bottleneck(const sample *s, const uint32_t *stage, uint32_t stages)
{
    double most = 0;
    for (uint32_t t = 0; t < stages; t++) {
        double load = 0;
        for (uint32_t u = 0; u < s->graph.node_count; u++)
            load += stage[u] == t ? sample_load(s, u) : 0;
        most = fmax(most, load);
    }
    return most;
}

/* Returns 1 if no value flows back and no stage is empty. */
static inline int slow_valid(const sample *s, const uint32_t *stage, uint32_t stages)
{
    for (uint32_t e = 0; e < s->graph.edge_count; e++)
        if (stage[s->to[e]] < stage[s->from[e]])
            return 0;
    for (uint32_t t = 0; t < stages; t++) {
        int some = 0;
        for (uint32_t u = 0; u < s->graph.node_count; u++) {
            some |= stage[u] == t;
            if (stage[u] >= stages)
                return 0;
        }
        if (!some)
            return 0;
    }
    return 1;
}

typedef struct slow_best {
    double bottleneck, cut; /* of the best (bottleneck, cut) */
    double cut_within;      /* smallest cut with a bottleneck of at most `cap`; INFINITY if there is
                             * none */
} slow_best;

/* Tries every assignment. */
static inline slow_best slow_search(const sample *s, uint32_t stages, double cap)
{
    uint32_t stage[SAMPLE_NODES] = {0}, n = s->graph.node_count;
    slow_best best = {INFINITY, INFINITY, INFINITY};
    for (;;) {
        if (slow_valid(s, stage, stages)) {
            double load = slow_bottleneck(s, stage, stages), cut = slow_cut(s, stage, stages);
            if (load < best.bottleneck || (load == best.bottleneck && cut < best.cut)) {
                best.bottleneck = load;
                best.cut = cut;
            }
            if (load <= cap && cut < best.cut_within)
                best.cut_within = cut;
        }
        uint32_t at = 0;
        while (at < n && ++stage[at] == stages)
            stage[at++] = 0;
        if (at == n)
            return best;
    }
}

/* Fails the test with the error message if a call fails. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != LIG_OK)                                                                      \
            fail_msg("%s: %s", #call, lig_error_text());                                           \
    } while (0)

/* The call must fail with this status and a message that contains `part`. */
#define MUST_FAIL(call, expected, part)                                                            \
    do {                                                                                           \
        assert_int_equal((call), (expected));                                                      \
        if (!strstr(lig_error_text(), (part)))                                                     \
            fail_msg("'%s' is not in: %s", (part), lig_error_text());                              \
    } while (0)

#endif
