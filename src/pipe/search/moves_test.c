#include "pipe/search/move_cost.h"

#include "pipe/graph/pipe_testing.h"
#include "pipe/search/anneal.h"
#include "pipe/search/fm.h"

typedef struct setting {
    lig_pipe_options options;
    ligi_graph graph;
    ligi_goal goal;
    ligi_moves moves;
    ligi_scratch scratch;
} setting;

/* Intervals of the numbering: always acyclic. */
static void setting_init(setting *t, sample *s, uint32_t stages, uint32_t devices)
{
    uint32_t stage[SAMPLE_NODES], n = s->graph.node_count;
    *t = (setting){.options = LIG_PIPE_OPTIONS_INIT};
    t->options.stages = stages;
    t->options.device_count = devices;
    MUST(ligi_graph_make(&s->graph, &t->options, &t->graph, &t->scratch));
    MUST(ligi_goal_make(&t->options, &t->graph, stages, NULL, &t->goal, &t->scratch));
    MUST(ligi_moves_init(&t->moves, &t->graph, &t->goal, &t->scratch));
    for (uint32_t u = 0; u < n; u++)
        stage[u] = (uint32_t)((uint64_t)u * stages / n);
    ligi_moves_load(&t->moves, stage);
}

/* Everything the moves keep up to date, counted again. */
static void check_figures(const setting *t)
{
    const ligi_graph *graph = &t->graph;
    const ligi_moves *moves = &t->moves;
    uint32_t seen[16], open = 0, units[16] = {0};
    double load[16] = {0}, bytes[16] = {0};
    assert_float_equal(moves->cut, ligi_graph_cut(graph, moves->stage, t->options.stages, seen),
                       1e-6);
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        uint32_t s = moves->stage[u], d = t->goal.stage_device[s], low = 0,
                 high = t->options.stages - 1;
        units[s]++;
        load[d] += graph->load[u];
        bytes[d] += graph->fixed[u] + graph->flight[u] * t->goal.flight[s];
        for (uint32_t net = 0; net < graph->net_count; net++)
            for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++) {
                uint32_t a = graph->source[net], b = graph->pin[p];
                assert_true(moves->stage[a] <= moves->stage[b]);
                if (b == u && moves->stage[a] > low)
                    low = moves->stage[a];
                if (a == u && moves->stage[b] < high)
                    high = moves->stage[b];
            }
        assert_int_equal(moves->open_at[u] != LIGI_NONE, low < high);
        open += low < high;
    }
    assert_int_equal(open, moves->open_count);
    for (uint32_t s = 0; s < t->options.stages; s++) {
        assert_int_equal(units[s], moves->stage_units[s]);
        assert_true(units[s] > 0);
    }
    for (uint32_t d = 0; d < t->goal.device_count; d++) {
        assert_float_equal(load[d], moves->device_load[d], 1e-6);
        assert_float_equal(bytes[d], moves->device_bytes[d], 1e-6);
    }
}

static void test_random_moves(void **state)
{
    (void)state;
    ligi_random random = {4};
    static sample s;
    static setting t;
    for (int round = 0; round < 60; round++) {
        uint32_t n = 8 + ligi_random_below(&random, 50), stages = 2 + ligi_random_below(&random, 5);
        sample_random(&s, &random, n, 2, 0);
        /* A value with many users and a unit with many sources, so that these are counted by stage.
         */
        for (uint32_t i = 0; i + 1 < n && round % 3 == 1; i++)
            sample_edge(&s, i, n - 1);
        for (uint32_t i = 1; i < n && round & 1; i++)
            sample_edge(&s, 0, i);
        setting_init(&t, &s, stages, round % 3 == 0 ? (stages + 1) / 2 : 0);
        for (int step = 0; step < 60 && t.moves.open_count; step++) {
            uint32_t unit = t.moves.open[ligi_random_below(&random, t.moves.open_count)], low, high;
            ligi_moves_range(&t.moves, unit, &low, &high);
            uint32_t to = low + ligi_random_below(&random, high - low + 1);
            if (to != t.moves.stage[unit] && ligi_moves_fit(&t.moves, unit, to, 0))
                ligi_moves_apply(&t.moves, unit, to, ligi_moves_delta(&t.moves, unit, to));
            check_figures(&t);
        }
        ligi_scratch_free(&t.scratch);
    }
}

/* Both searches end no worse than they began, within the limits, with right figures. */
static void test_searches(void **state)
{
    (void)state;
    ligi_random random = {5};
    static sample s;
    static setting t;
    for (int round = 0; round < 60; round++) {
        sample_random(&s, &random, 40, 1.6, 0);
        setting_init(&t, &s, 4, 0);
        t.goal.cap_ms = ligi_moves_bottleneck(&t.moves) * 1.1;
        ligi_moves_set_limits(&t.moves);
        double before = t.moves.cut;
        if (round & 1)
            MUST(ligi_fm(&t.moves, 5));
        else
            MUST(ligi_anneal_cut(&t.moves, &random, (ligi_heat){3000, 0.8, round & 2}));
        assert_true(t.moves.cut <= before + 1e-9);
        assert_true(ligi_moves_overload(&t.moves) == 0);
        check_figures(&t);
        before = ligi_moves_bottleneck(&t.moves);
        MUST(ligi_anneal_load(&t.moves, &random, 3000, 0));
        assert_true(ligi_moves_bottleneck(&t.moves) <= before);
        check_figures(&t);
        ligi_scratch_free(&t.scratch);
    }
}

/* Memory that does not suffice is sought before balance. */
static void test_anneal_finds_room(void **state)
{
    (void)state;
    ligi_random random = {6};
    static sample s;
    setting t;
    sample_init(&s, 8);
    for (uint32_t i = 0; i < 8; i++) {
        s.parameters[i] = i < 4 ? 10 : 1;
        s.forward[i] = i < 4 ? 1 : 3;
        if (i)
            sample_edge(&s, i - 1, i);
    }
    setting_init(&t, &s, 2, 0);
    t.goal.room[0] = t.goal.room[1] = 30 * 4;
    assert_false(ligi_moves_sound(&t.moves));
    MUST(ligi_anneal_load(&t.moves, &random, 2000, 0));
    assert_true(ligi_moves_sound(&t.moves));
    ligi_scratch_free(&t.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_moves),
        cmocka_unit_test(test_searches),
        cmocka_unit_test(test_anneal_finds_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
