#include "pipe/methods/exact.h"

#include "pipe/graph/pipe_testing.h"

typedef struct setting {
    lig_pipe_options options;
    ligi_graph graph;
    ligi_goal goal;
    ligi_scratch scratch;
    uint32_t stage[SAMPLE_NODES]; /* of units */
    uint32_t node_stage[SAMPLE_NODES];
} setting;

static void setting_init(setting *t, const sample *s, uint32_t stages)
{
    *t = (setting){.options = LIG_PIPE_OPTIONS_INIT};
    t->options.stages = stages;
    MUST(ligi_graph_make(&s->graph, &t->options, &t->graph, &t->scratch));
    MUST(ligi_goal_make(&t->options, &t->graph, stages, NULL, &t->goal, &t->scratch));
}

static void to_nodes(setting *t, const sample *s)
{
    for (uint32_t i = 0; i < s->graph.node_count; i++)
        t->node_stage[i] = t->stage[t->graph.unit_of[i]];
}

/* (bottleneck, cut) and the cut within a balance, against every assignment there is. */
static void check_one(ligi_random *random, const sample *s, uint32_t stages, int with_start)
{
    static setting t;
    setting_init(&t, s, stages);
    double balance = 1 + ligi_random_below(random, 4) * 0.25;
    slow_best best = slow_search(s, stages, balance * t.goal.bound_ms);
    ligi_found out = {t.stage, 0, 0};
    int proven = 0;
    ligi_search search = {&t.graph, &t.goal, 0, 1, 0};
    if (with_start)
        MUST(ligi_acyclic(&search, &out));
    MUST(ligi_exact(&search, 10000000, &out, &proven));
    assert_true(proven && out.found);
    to_nodes(&t, s);
    assert_true(slow_valid(s, t.node_stage, stages));
    assert_true(slow_bottleneck(s, t.node_stage, stages) == best.bottleneck);
    assert_true(slow_cut(s, t.node_stage, stages) == best.cut);
    search.balance = balance;
    out.found = 0;
    if (with_start)
        MUST(ligi_acyclic(&search, &out));
    MUST(ligi_exact(&search, 10000000, &out, &proven));
    assert_true(proven);
    assert_int_equal(out.found, isfinite(best.cut_within));
    to_nodes(&t, s);
    if (out.found)
        assert_true(slow_cut(s, t.node_stage, stages) == best.cut_within);
    ligi_scratch_free(&t.scratch);
}

static void test_against_all_assignments(void **state)
{
    (void)state;
    ligi_random random = {7};
    static sample s;
    for (int round = 0; round < 150; round++) {
        uint32_t stages = 1 + ligi_random_below(&random, 3),
                 n = stages + ligi_random_below(&random, 5);
        sample_random(&s, &random, n, 1.2, round & 1);
        check_one(&random, &s, stages, round & 2);
    }
}

/* The search finds what branch and bound proves, nearly always: that is what makes it worth having.
 */
static void test_acyclic_is_near(void **state)
{
    (void)state;
    ligi_random random = {8};
    static sample s;
    static setting t;
    uint32_t misses = 0, rounds = 100;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t stage[SAMPLE_NODES], stages = 2 + ligi_random_below(&random, 2), seen[4];
        sample_random(&s, &random, 9, 1.5, 0);
        setting_init(&t, &s, stages);
        ligi_search search = {&t.graph, &t.goal, 0, 1, round};
        ligi_found rough = {t.stage, 0, 0}, best = {stage, 0, 0};
        int proven;
        MUST(ligi_acyclic(&search, &rough));
        to_nodes(&t, &s);
        assert_true(rough.found && slow_valid(&s, t.node_stage, stages));
        double load = slow_bottleneck(&s, t.node_stage, stages);
        double cut = ligi_graph_cut(&t.graph, t.stage, stages, seen);
        MUST(ligi_exact(&search, 10000000, &best, &proven));
        memcpy(t.stage, stage, sizeof stage);
        to_nodes(&t, &s);
        double least = slow_bottleneck(&s, t.node_stage, stages);
        assert_true(load >= least);
        misses += load > least || cut > ligi_graph_cut(&t.graph, stage, stages, seen);
        ligi_scratch_free(&t.scratch);
    }
    assert_true(misses <= rounds / 10);
}

static void test_steps_run_out(void **state)
{
    (void)state;
    static sample s;
    static setting t;
    ligi_random random = {9};
    int proven = 1;
    sample_random(&s, &random, 60, 1, 0);
    setting_init(&t, &s, 4);
    ligi_search search = {&t.graph, &t.goal, 0, 1, 0};
    ligi_found out = {t.stage, 0, 0};
    MUST(ligi_exact(&search, 1000, &out, &proven));
    assert_false(proven);
    ligi_scratch_free(&t.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_assignments),
        cmocka_unit_test(test_acyclic_is_near),
        cmocka_unit_test(test_steps_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
