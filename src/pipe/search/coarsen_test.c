#include "pipe/search/coarsen.h"

#include "pipe/graph/pipe_testing.h"
#include "pipe/methods/bins_to_stages.h"

static void make(const sample *s, ligi_graph *graph, ligi_scratch *scratch)
{
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    MUST(ligi_graph_make(&s->graph, &options, graph, scratch));
}

static double sum(const double *figure, uint32_t count)
{
    double total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += figure[i];
    return total;
}

/* Level by level: edges keep going forward, figures stay the same in sum, and an assignment of the
 * coarse graph cuts as much as the one it stands for. */
static void test_levels(void **state)
{
    (void)state;
    ligi_random random = {10};
    static sample s;
    for (int round = 0; round < 100; round++) {
        ligi_scratch scratch = LIGI_SCRATCH_INIT;
        ligi_graph level[12];
        uint32_t cluster[SAMPLE_NODES], stage[SAMPLE_NODES], fine_stage[SAMPLE_NODES], seen[3],
            count;
        sample_random(&s, &random, 20 + ligi_random_below(&random, 200), 1.4, 1);
        make(&s, &level[0], &scratch);
        for (int depth = 0; depth < 11 && level[depth].unit_count > 4; depth++) {
            ligi_graph *fine = &level[depth], *coarse = &level[depth + 1];
            MUST(ligi_coarsen(fine, fine->load_sum / 3, &random, cluster, &count));
            assert_true(count <= fine->unit_count);
            MUST(ligi_graph_contract(fine, cluster, count, coarse, &scratch));
            for (uint32_t net = 0; net < coarse->net_count; net++)
                for (uint32_t p = coarse->pin_begin[net]; p < coarse->pin_begin[net + 1]; p++) {
                    assert_true(coarse->source[net] < coarse->pin[p]);
                    for (uint32_t q = coarse->pin_begin[net]; q < p; q++)
                        assert_int_not_equal(coarse->pin[q], coarse->pin[p]);
                }
            assert_true(sum(fine->load, fine->unit_count) == sum(coarse->load, coarse->unit_count));
            assert_true(sum(fine->fixed, fine->unit_count) ==
                        sum(coarse->fixed, coarse->unit_count));
            assert_true(sum(fine->flight, fine->unit_count) ==
                        sum(coarse->flight, coarse->unit_count));
            for (uint32_t c = 0; c < count; c++)
                stage[c] = ligi_random_below(&random, 3);
            for (uint32_t u = 0; u < fine->unit_count; u++)
                fine_stage[u] = stage[cluster[u]];
            assert_true(ligi_graph_cut(coarse, stage, 3, seen) ==
                        ligi_graph_cut(fine, fine_stage, 3, seen));
        }
        ligi_scratch_free(&scratch);
    }
}

/* Where no unit has an only neighbour, neighbours in the order pair up. */
static void test_dense(void **state)
{
    (void)state;
    ligi_random random = {14};
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    static sample s;
    ligi_graph fine, coarse;
    uint32_t cluster[SAMPLE_NODES], count;
    sample_init(&s, 40);
    for (uint32_t i = 0; i < 40; i++)
        for (uint32_t j = i + 1; j < 40; j++)
            sample_edge(&s, i, j);
    make(&s, &fine, &scratch);
    MUST(ligi_coarsen(&fine, 1, &random, cluster, &count));
    assert_int_equal(count, 20);
    MUST(ligi_graph_contract(&fine, cluster, count, &coarse, &scratch));
    ligi_scratch_free(&scratch);
}

/* Whatever the bins are, the stages are acyclic, non-empty and not too many; without the need to
 * join any, every unit is on the device of its bin. */
static void test_bins(void **state)
{
    (void)state;
    ligi_random random = {11};
    static sample s;
    for (int round = 0; round < 300; round++) {
        ligi_scratch scratch = LIGI_SCRATCH_INIT;
        ligi_graph graph;
        uint32_t n = 1 + ligi_random_below(&random, 60), bins = 1 + ligi_random_below(&random, 4);
        uint32_t bin[SAMPLE_NODES], stage[SAMPLE_NODES], device[SAMPLE_NODES],
            units[SAMPLE_NODES] = {0};
        uint32_t most = round & 1 ? n : bins;
        sample_random(&s, &random, n, 1.4, 0);
        make(&s, &graph, &scratch);
        for (uint32_t u = 0; u < n; u++)
            bin[u] = ligi_random_below(&random, bins);
        ligi_assignment assignment = {stage, device, 0, bins};
        MUST(ligi_bins_to_stages(&graph, bin, most, &assignment));
        assert_true(assignment.stage_count >= 1 && assignment.stage_count <= most);
        for (uint32_t u = 0; u < n; u++) {
            assert_true(stage[u] < assignment.stage_count);
            units[stage[u]]++;
            if (most == n)
                assert_int_equal(device[stage[u]], bin[u]);
        }
        for (uint32_t t = 0; t < assignment.stage_count; t++)
            assert_true(units[t] > 0 && device[t] < bins);
        for (uint32_t net = 0; net < graph.net_count; net++)
            for (uint32_t p = graph.pin_begin[net]; p < graph.pin_begin[net + 1]; p++)
                assert_true(stage[graph.source[net]] <= stage[graph.pin[p]]);
        ligi_scratch_free(&scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_bins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
