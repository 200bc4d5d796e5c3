#include "pipe/search/interval_stages.h"

#include "pipe/graph/pipe_testing.h"
#include "pipe/graph/topological_order.h"

typedef struct setting {
    sample *s;
    lig_pipe_options options;
    ligi_graph graph;
    ligi_goal goal;
    uint32_t order[SAMPLE_NODES];
    uint32_t first[4], second[4]; /* kept apart */
    double memory[4], speed[4];
    ligi_scratch scratch;
} setting;

static void setting_init(setting *t, sample *s, ligi_random *random, uint32_t stages)
{
    *t = (setting){.s = s, .options = LIG_PIPE_OPTIONS_INIT};
    t->options.stages = stages;
    t->options.microbatches = 3;
    if (ligi_random_below(random, 2)) {
        for (uint32_t d = 0; d < stages; d++) {
            t->memory[d] = 20 + ligi_random_below(random, 100);
            t->speed[d] = 1 + ligi_random_below(random, 3);
        }
        t->options.memory = t->memory;
        t->options.speed = t->speed;
    }
    if (s->graph.node_count > 2 && ligi_random_below(random, 3) == 0) {
        t->first[0] = 0;
        t->second[0] = 1 + ligi_random_below(random, s->graph.node_count - 1);
        s->graph.apart_count = 1;
        s->graph.apart_first = t->first;
        s->graph.apart_second = t->second;
    }
    MUST(ligi_graph_make(&s->graph, &t->options, &t->graph, &t->scratch));
    MUST(ligi_goal_make(&t->options, &t->graph, stages, NULL, &t->goal, &t->scratch));
    MUST(ligi_order_make(&t->graph, (ligi_order_kind)ligi_random_below(random, 3), random,
                         t->order));
}

/* What intervals with these ends cost; INFINITY where they break a rule. */
static double slow_cap(const setting *t, const uint32_t *stage)
{
    double most = 0;
    for (uint32_t s = 0; s < t->options.stages; s++) {
        double load = 0, bytes = 0;
        for (uint32_t u = 0; u < t->graph.unit_count; u++)
            if (stage[u] == s) {
                load += t->graph.load[u];
                bytes += t->graph.fixed[u] + t->graph.flight[u] * t->goal.flight[s];
            }
        if (bytes > t->goal.room[s])
            return INFINITY;
        most = fmax(most, load / t->goal.speed[s]);
    }
    for (uint32_t u = 0; t->graph.apart_begin && u < t->graph.unit_count; u++)
        for (uint32_t i = t->graph.apart_begin[u]; i < t->graph.apart_begin[u + 1]; i++)
            if (stage[t->graph.apart[i]] == stage[u])
                return INFINITY;
    return most;
}

typedef struct slow_intervals {
    double cap, cut; /* smallest cap; smallest cut within `within` */
    double within;
} slow_intervals;

static void try_ends(const setting *t, uint32_t *ends, uint32_t s, uint32_t from,
                     slow_intervals *best)
{
    uint32_t stages = t->options.stages, n = t->graph.unit_count, stage[SAMPLE_NODES], seen[8];
    if (s + 1 < stages) {
        for (ends[s] = from + 1; ends[s] + (stages - 1 - s) <= n; ends[s]++)
            try_ends(t, ends, s + 1, ends[s], best);
        return;
    }
    ends[s] = n;
    for (uint32_t i = 0, at = 0; i < n; i++) {
        at += i == ends[at];
        stage[t->order[i]] = at;
    }
    double cap = slow_cap(t, stage), cut = ligi_graph_cut(&t->graph, stage, stages, seen);
    best->cap = fmin(best->cap, cap);
    if (cap <= best->within * (1 + 1e-12))
        best->cut = fmin(best->cut, cut);
}

static void check_one(ligi_random *random, sample *s, int round)
{
    static setting t;
    uint32_t n = 1 + ligi_random_below(random, 9),
             stages = 1 + ligi_random_below(random, n < 4 ? n : 4);
    uint32_t ends[4], stage[SAMPLE_NODES], seen[4];
    sample_random(s, random, n, 1.5, round & 1);
    setting_init(&t, s, random, stages);
    double cap;
    int found;
    slow_intervals best = {INFINITY, INFINITY, -1};
    try_ends(&t, ends, 0, 0, &best);
    MUST(ligi_interval_bottleneck(&t.graph, &t.goal, t.order, &cap));
    if (isinf(best.cap))
        assert_true(isinf(cap));
    else
        assert_float_equal(cap, best.cap, 1e-9);
    t.goal.cap_ms = isinf(best.cap) ? 1e9 : best.cap * (1 + ligi_random_below(random, 3) * 0.2);
    best.within = t.goal.cap_ms;
    try_ends(&t, ends, 0, 0, &best);
    MUST(ligi_interval_cut(&t.graph, &t.goal, t.order, stage, &found));
    assert_int_equal(found, isfinite(best.cut));
    if (found) {
        assert_true(slow_cap(&t, stage) <= best.within * (1 + 1e-9));
        assert_float_equal(ligi_graph_cut(&t.graph, stage, stages, seen), best.cut, 1e-9);
    }
    ligi_scratch_free(&t.scratch);
}

static void test_against_all_intervals(void **state)
{
    (void)state;
    ligi_random random = {2};
    static sample s;
    for (int round = 0; round < 1500; round++)
        check_one(&random, &s, round);
}

/* Beyond some thousand units borders are priced by what is live there; where no value jumps a stage
 * that is the cut. */
static void test_large_chain(void **state)
{
    (void)state;
    enum { n = 20000, k = 3 };
    static double ms[n], bytes[n];
    static uint32_t from[n], to[n], order[n], stage[n];
    ligi_random random = {3};
    for (uint32_t i = 0; i < n; i++) {
        ms[i] = 1;
        bytes[i] = 10 + ligi_random_below(&random, 1000000);
        from[i] = i;
        to[i] = i + 1;
        order[i] = i;
    }
    bytes[n / 3 + 50] = bytes[2 * n / 3 - 70] = 1;
    lig_pipe_graph input = {.node_count = n,
                            .edge_count = n - 1,
                            .forward_ms = ms,
                            .output_bytes = bytes,
                            .edge_from = from,
                            .edge_to = to};
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    options.stages = k;
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_graph graph;
    ligi_goal goal;
    MUST(ligi_graph_make(&input, &options, &graph, &scratch));
    MUST(ligi_goal_make(&options, &graph, k, NULL, &goal, &scratch));
    goal.cap_ms = 1.2 * goal.bound_ms;
    int found;
    uint32_t seen[k];
    MUST(ligi_interval_cut(&graph, &goal, order, stage, &found));
    assert_true(found);
    assert_true(ligi_graph_cut(&graph, stage, k, seen) == 2);
    ligi_scratch_free(&scratch);
}

static void test_memory_factor(void **state)
{
    (void)state;
    static sample s;
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    double memory[] = {10, 10}, factor;
    uint32_t order[] = {0, 1, 2, 3};
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_graph graph;
    ligi_goal goal;
    sample_init(&s, 4);
    for (uint32_t i = 0; i < 4; i++)
        s.parameters[i] = 3;
    options.stages = 2;
    options.memory = memory;
    MUST(ligi_graph_make(&s.graph, &options, &graph, &scratch));
    MUST(ligi_goal_make(&options, &graph, 2, NULL, &goal, &scratch));
    MUST(ligi_interval_memory(&graph, &goal, order, &factor));
    assert_float_equal(factor, 2.4, 1e-6);
    ligi_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_intervals),
        cmocka_unit_test(test_large_chain),
        cmocka_unit_test(test_memory_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
