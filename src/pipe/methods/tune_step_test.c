#include "pipe/methods/tune_step.h"

#include "pipe/graph/pipe_testing.h"
#include "pipe/search/constraints.h"

/* Tuning ends on a step that is no longer, measured from the beginning, and often shorter. */
static void test_no_longer(void **state)
{
    (void)state;
    ligi_random random = {30};
    static sample s;
    uint32_t shorter = 0;
    for (int round = 0; round < 60; round++) {
        ligi_scratch scratch = LIGI_SCRATCH_INIT;
        lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
        ligi_graph graph;
        uint32_t stages = 2 + ligi_random_below(&random, 3), stage[SAMPLE_NODES],
                 device[SAMPLE_NODES];
        uint32_t before_stage[SAMPLE_NODES], n = 30;
        sample_random(&s, &random, n, 1.5, 0);
        options.stages = stages;
        options.schedule = round % 3 == 0 ? LIG_PIPE_ZB_H1 : LIG_PIPE_1F1B;
        options.bandwidth = round & 1 ? 2000 : 0;
        options.recompute = round % 4 == 0;
        MUST(ligi_graph_make(&s.graph, &options, &graph, &scratch));
        for (uint32_t u = 0; u < n; u++)
            before_stage[u] = stage[u] = u * stages / n;
        for (uint32_t t = 0; t < stages; t++)
            device[t] = t;
        ligi_measure_job job = {&s.graph, &options, &graph};
        ligi_assignment assignment = {stage, device, stages, stages};
        ligi_figures before = {0}, after = {0};
        MUST(ligi_measure(&job, &assignment, &before));
        MUST(ligi_tune(&job, (uint64_t)round, 1, &assignment));
        MUST(ligi_measure(&job, &assignment, &after));
        assert_true(after.step_ms <= before.step_ms * (1 + 1e-9));
        assert_true(slow_valid(&s, stage, stages));
        shorter +=
            after.step_ms < before.step_ms && memcmp(stage, before_stage, n * sizeof *stage) != 0;
        ligi_scratch_free(&scratch);
    }
    assert_true(shorter >= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_longer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
