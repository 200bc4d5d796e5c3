#include "pipe/graph/graph.h"

#include "pipe/graph/graph_check.h"
#include "pipe/graph/pipe_testing.h"

static lig_status make(const sample *s, ligi_graph *graph, ligi_scratch *scratch)
{
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    LIG_TRY(ligi_graph_check(&s->graph));
    return ligi_graph_make(&s->graph, &options, graph, scratch);
}

static void expect_refusal(sample *s, const char *part)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_graph graph;
    MUST_FAIL(make(s, &graph, &scratch), LIG_E_INVALID, part);
    ligi_scratch_free(&scratch);
}

static void test_bad_figures(void **state)
{
    (void)state;
    static const double bad[] = {-1, NAN, INFINITY};
    sample s;
    for (size_t i = 0; i < 3; i++) {
        sample_init(&s, 3);
        s.forward[1] = bad[i];
        expect_refusal(&s, "forward_ms of node 1");
        sample_init(&s, 3);
        s.outputs[2] = bad[i];
        expect_refusal(&s, "output_bytes of node 2");
        sample_init(&s, 3);
        s.parameters[0] = bad[i];
        expect_refusal(&s, "parameter_bytes of node 0");
    }
    static const char *const names[] = {"stem", NULL, "head"};
    sample_init(&s, 3);
    s.graph.name = names;
    s.backward[2] = NAN;
    expect_refusal(&s, "backward_ms of 'head'");
    sample_init(&s, 0);
    expect_refusal(&s, "no nodes");
}

static void test_bad_edges(void **state)
{
    (void)state;
    sample s;
    sample_init(&s, 3);
    sample_edge(&s, 0, 3);
    expect_refusal(&s, "edge 0 goes from 0 to 3");
    sample_init(&s, 3);
    sample_edge(&s, 1, 1);
    expect_refusal(&s, "uses its own output");
    sample_init(&s, 5);
    sample_edge(&s, 0, 1);
    sample_edge(&s, 1, 2);
    sample_edge(&s, 2, 3);
    sample_edge(&s, 3, 1);
    sample_edge(&s, 3, 4);
    expect_refusal(&s, "cycle of 3 nodes");
}

/* The sentence shows the cycle in the direction of the data. */
static void test_cycle_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    sample s;
    sample_init(&s, 4);
    s.graph.name = names;
    sample_edge(&s, 0, 1);
    sample_edge(&s, 1, 2);
    sample_edge(&s, 2, 1);
    sample_edge(&s, 2, 3);
    expect_refusal(&s, "'b' -> 'c' -> 'b'");
}

/* Unit numbers are a topological order whatever the nodes' numbers are, and the nets carry the cut.
 */
static void test_random_graphs(void **state)
{
    (void)state;
    ligi_random random = {1};
    static sample s;
    for (int round = 0; round < 300; round++) {
        ligi_scratch scratch = LIGI_SCRATCH_INIT;
        ligi_graph graph;
        uint32_t n = 1 + ligi_random_below(&random, 30), stage[SAMPLE_NODES], of_unit[SAMPLE_NODES],
                 seen[3];
        sample_random(&s, &random, n, 2, round & 1);
        MUST(make(&s, &graph, &scratch));
        assert_int_equal(graph.unit_count, n);
        for (uint32_t e = 0; e < s.graph.edge_count; e++)
            assert_true(graph.unit_of[s.from[e]] < graph.unit_of[s.to[e]]);
        for (uint32_t net = 0; net < graph.net_count; net++)
            for (uint32_t p = graph.pin_begin[net] + 1; p < graph.pin_begin[net + 1]; p++)
                assert_true(graph.pin[p - 1] < graph.pin[p]);
        for (uint32_t i = 0; i < n; i++)
            of_unit[graph.unit_of[i]] = stage[i] = ligi_random_below(&random, 3);
        assert_true(ligi_graph_cut(&graph, of_unit, 3, seen) == slow_cut(&s, stage, 3));
        ligi_scratch_free(&scratch);
    }
}

/* A group takes in what lies on a path between its nodes, and nothing else. */
static void test_groups_close(void **state)
{
    (void)state;
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_graph graph;
    sample s;
    sample_init(&s, 6);
    for (uint32_t i = 0; i < 4; i++)
        sample_edge(&s, i, i + 1);
    sample_edge(&s, 0, 5);
    for (uint32_t i = 0; i < 6; i++) {
        s.group[i] = -1;
        s.forward[i] = 1;
    }
    s.group[1] = s.group[3] = 7;
    s.graph.group = s.group;
    MUST(make(&s, &graph, &scratch));
    assert_int_equal(graph.unit_count, 4);
    assert_int_equal(graph.unit_of[1], graph.unit_of[2]);
    assert_int_equal(graph.unit_of[1], graph.unit_of[3]);
    assert_int_not_equal(graph.unit_of[0], graph.unit_of[5]);
    assert_true(graph.load[graph.unit_of[2]] == 3);
    ligi_scratch_free(&scratch);
}

static void test_apart_in_a_group(void **state)
{
    (void)state;
    static const uint32_t first[] = {0}, second[] = {2};
    sample s;
    sample_init(&s, 3);
    sample_edge(&s, 0, 1);
    sample_edge(&s, 1, 2);
    s.group[1] = -1;
    s.graph.group = s.group;
    s.graph.apart_count = 1;
    s.graph.apart_first = first;
    s.graph.apart_second = second;
    expect_refusal(&s, "kept apart");
}

/* Several values of one producer count apart, one value to several users of a stage once. */
static void test_values(void **state)
{
    (void)state;
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_graph graph;
    sample s;
    double bytes[] = {10, 10, 5};
    uint32_t value[] = {0, 0, 1}, stage[] = {0, 1, 1}, seen[2];
    sample_init(&s, 3);
    sample_edge(&s, 0, 1);
    sample_edge(&s, 0, 2);
    sample_edge(&s, 0, 2);
    s.graph.edge_bytes = bytes;
    s.graph.edge_value = value;
    MUST(make(&s, &graph, &scratch));
    assert_true(ligi_graph_cut(&graph, stage, 2, seen) == 15);
    s.graph.edge_value = NULL;
    MUST(make(&s, &graph, &scratch));
    assert_true(ligi_graph_cut(&graph, stage, 2, seen) == 25);
    bytes[1] = 11;
    s.graph.edge_value = value;
    MUST_FAIL(make(&s, &graph, &scratch), LIG_E_INVALID, "on one edge");
    ligi_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_figures),    cmocka_unit_test(test_bad_edges),
        cmocka_unit_test(test_cycle_is_named), cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_groups_close),   cmocka_unit_test(test_apart_in_a_group),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
