/* The public calls, over every method. */
#include <stdio.h>

#include "pipe/graph/pipe_testing.h"

static uint32_t stage[SAMPLE_NODES], device[SAMPLE_NODES], stage_device[SAMPLE_NODES];
static double device_ms[SAMPLE_NODES], device_bytes[SAMPLE_NODES];

static lig_pipe_plan plan_room(void)
{
    lig_pipe_plan plan = LIG_PIPE_PLAN_INIT;
    plan.stage = stage;
    plan.device = device;
    plan.stage_device = stage_device;
    plan.device_ms = device_ms;
    plan.device_bytes = device_bytes;
    return plan;
}

static lig_pipe_options wish(uint32_t method, uint32_t stages)
{
    lig_pipe_options options = LIG_PIPE_OPTIONS_INIT;
    options.method = method;
    options.stages = stages;
    return options;
}

static int has_metis(void)
{
    static sample s;
    lig_pipe_options options = wish(LIG_PIPE_METIS, 2);
    lig_pipe_plan plan = plan_room();
    sample_init(&s, 2);
    return lig_pipe_partition(&s.graph, &options, &plan) != LIG_E_UNSUPPORTED;
}

/* Figures against their definitions. */
static void check_plan(const sample *s, const lig_pipe_options *options, const lig_pipe_plan *plan)
{
    double load[SAMPLE_NODES] = {0}, most = 0, sum = 0, heaviest = 0;
    assert_true(slow_valid(s, plan->stage, plan->stage_count));
    assert_true(plan->cut_bytes == slow_cut(s, plan->stage, plan->stage_count));
    assert_true(plan->relay_bytes >= plan->cut_bytes - 1e-9);
    for (uint32_t i = 0; i < s->graph.node_count; i++) {
        assert_int_equal(plan->device[i], plan->stage_device[plan->stage[i]]);
        load[plan->device[i]] += sample_load(s, i);
        sum += sample_load(s, i);
        heaviest = fmax(heaviest, sample_load(s, i));
    }
    for (uint32_t d = 0; d < plan->device_count; d++) {
        assert_float_equal(plan->device_ms[d], load[d], 1e-9);
        most = fmax(most, load[d]);
    }
    assert_float_equal(plan->bottleneck_ms, most, 1e-9);
    assert_float_equal(plan->lower_bound_ms, fmax(sum / plan->device_count, heaviest), 1e-9);
    assert_true(plan->bottleneck_ms >= plan->lower_bound_ms - 1e-9);
    assert_true(plan->step_ms >= plan->step_bound_ms - 1e-9);
    assert_true(plan->step_ms >= plan->bottleneck_ms * options->microbatches - 1e-9);
    assert_true(plan->seed == options->seed);
}

/* Every method gives a valid plan with right figures, twice the same, which measuring confirms. */
static void test_every_method(void **state)
{
    (void)state;
    ligi_random random = {20};
    static sample s;
    int metis = has_metis();
    for (int round = 0; round < 40; round++) {
        uint32_t n = 6 + ligi_random_below(&random, 40), stages = 1 + ligi_random_below(&random, 5);
        sample_random(&s, &random, n, 1.5, round & 1);
        for (uint32_t method = 0; method < LIG_PIPE_METHOD_COUNT; method++) {
            uint32_t first[SAMPLE_NODES];
            lig_pipe_options options = wish(method, stages);
            lig_pipe_plan plan = plan_room(), again = plan_room();
            options.seed = (uint64_t)round;
            if ((method == LIG_PIPE_METIS && !metis) || (method == LIG_PIPE_EXACT && n > 10))
                continue;
            MUST(lig_pipe_partition(&s.graph, &options, &plan));
            check_plan(&s, &options, &plan);
            if (method != LIG_PIPE_METIS && method != LIG_PIPE_MIXED)
                assert_int_equal(plan.stage_count, stages);
            memcpy(first, stage, sizeof first);
            MUST(lig_pipe_partition(&s.graph, &options, &again));
            assert_memory_equal(first, stage, n * sizeof *first);
            again.stage_count = plan.stage_count;
            options.stages = plan.device_count;
            MUST(lig_pipe_measure(&s.graph, &options, &again));
            assert_true(again.cut_bytes == plan.cut_bytes && again.step_ms == plan.step_ms);
        }
    }
}

/* auto is never worse than contiguous, by the measure it promises. */
static void test_auto(void **state)
{
    (void)state;
    ligi_random random = {21};
    static sample s;
    for (int round = 0; round < 40; round++) {
        lig_pipe_options options = wish(LIG_PIPE_CONTIGUOUS, 2 + ligi_random_below(&random, 4));
        lig_pipe_plan plan = plan_room(), best = plan_room();
        sample_random(&s, &random, 30, 1.5, 0);
        options.bandwidth = round & 1 ? 3000 : 0;
        MUST(lig_pipe_partition(&s.graph, &options, &plan));
        options.method = LIG_PIPE_AUTO;
        MUST(lig_pipe_partition(&s.graph, &options, &best));
        assert_true(best.step_ms <= plan.step_ms * (1 + 1e-9));
        assert_int_not_equal(best.method, LIG_PIPE_AUTO);
    }
}

/* A chain with skips and branches, like a large model's graph. */
static void sample_layered(sample *s, ligi_random *random, uint32_t n)
{
    sample_init(s, n);
    for (uint32_t i = 0; i < n; i++) {
        s->forward[i] = 1 + ligi_random_below(random, 50);
        s->outputs[i] = 1 + ligi_random_below(random, 3000);
        if (i && i % 64 != 16)
            sample_edge(s, i - 1, i);
        if (i % 2 && i + 2 < n) {
            uint32_t to = i + 2 + ligi_random_below(random, 20);
            sample_edge(s, i, to < n ? to : n - 1);
        }
    }
    for (uint32_t i = 0; i + 64 < n; i += 64) {
        sample_edge(s, i, i + 16);
        sample_edge(s, i + 15, i + 32);
    }
}

/* The searches are at least as good as intervals of the given order, by what each call asks for. */
static void test_searches_pay(void **state)
{
    (void)state;
    ligi_random random = {25};
    static sample s;
    for (int round = 0; round < 6; round++) {
        double balance = round & 1 ? 1.05 : 0;
        lig_pipe_options options = wish(LIG_PIPE_CONTIGUOUS, 4);
        lig_pipe_plan flat = plan_room(), plan = plan_room();
        sample_layered(&s, &random, SAMPLE_NODES);
        options.balance = balance;
        MUST(lig_pipe_partition(&s.graph, &options, &flat));
        for (options.method = LIG_PIPE_ACYCLIC; options.method <= LIG_PIPE_MULTILEVEL;
             options.method++) {
            MUST(lig_pipe_partition(&s.graph, &options, &plan));
            check_plan(&s, &options, &plan);
            if (balance > 0)
                assert_true(plan.cut_bytes <= flat.cut_bytes);
            else
                assert_true(plan.bottleneck_ms <= flat.bottleneck_ms);
        }
    }
}

static void test_balance(void **state)
{
    (void)state;
    ligi_random random = {22};
    static sample s;
    uint32_t met = 0;
    for (int round = 0; round < 60; round++) {
        lig_pipe_options options = wish(round & 1 ? LIG_PIPE_AUTO : LIG_PIPE_MULTILEVEL, 3);
        lig_pipe_plan plan = plan_room();
        options.balance = 1 + 0.1 * ligi_random_below(&random, 5);
        sample_random(&s, &random, 25, 1.5, 0);
        lig_status status = lig_pipe_partition(&s.graph, &options, &plan);
        if (status == LIG_E_LIMIT) {
            assert_non_null(strstr(lig_error_text(), "the closest is"));
            continue;
        }
        MUST(status);
        met++;
        assert_true(plan.bottleneck_ms <= options.balance * plan.lower_bound_ms * (1 + 1e-9));
    }
    assert_true(met > 30);
}

/* Devices of different speed and memory: both are kept to, and what a refusal names as enough is
 * enough. */
static void test_devices(void **state)
{
    (void)state;
    ligi_random random = {23};
    static sample s;
    uint32_t met = 0, refused = 0;
    for (int round = 0; round < 120; round++) {
        double speed[3], memory[3], factor = 0;
        lig_pipe_options options = wish((uint32_t)round % 4, 3);
        lig_pipe_plan plan = plan_room();
        sample_random(&s, &random, 20, 1.5, 0);
        options.microbatches = 4;
        options.recompute = round % 5 == 0;
        for (int d = 0; d < 3; d++) {
            speed[d] = 1 + ligi_random_below(&random, 3);
            memory[d] = 40 + ligi_random_below(&random, 90);
        }
        options.speed = speed;
        options.memory = memory;
        lig_status status = lig_pipe_partition(&s.graph, &options, &plan);
        if (status == LIG_E_LIMIT) {
            const char *text = strstr(lig_error_text(), "they need ");
            assert_non_null(text);
            assert_int_equal(sscanf(text, "they need %lf times as much", &factor), 1);
            for (int d = 0; d < 3; d++)
                memory[d] *= factor * 1.001;
            status = lig_pipe_partition(&s.graph, &options, &plan);
            refused++;
        } else {
            met++;
        }
        MUST(status);
        for (int d = 0; d < 3; d++)
            assert_true(device_bytes[d] <= memory[d] * (1 + 1e-9));
    }
    assert_true(met > 20 && refused > 10);
}

/* A chain of equal blocks on devices of which one is three times as fast. */
static void test_speed_is_used(void **state)
{
    (void)state;
    static sample s;
    double speed[] = {1, 3};
    lig_pipe_options options = wish(LIG_PIPE_CONTIGUOUS, 2);
    lig_pipe_plan plan = plan_room();
    sample_init(&s, 8);
    for (uint32_t i = 0; i < 8; i++) {
        s.forward[i] = 1;
        if (i)
            sample_edge(&s, i - 1, i);
    }
    options.speed = speed;
    MUST(lig_pipe_partition(&s.graph, &options, &plan));
    assert_true(plan.bottleneck_ms == 2 && plan.lower_bound_ms == 2);
    assert_int_equal(stage[1], 0);
    assert_int_equal(stage[2], 1);
}

static void test_together_and_apart(void **state)
{
    (void)state;
    ligi_random random = {24};
    static sample s;
    for (int round = 0; round < 80; round++) {
        static const uint32_t methods[] = {LIG_PIPE_AUTO, LIG_PIPE_ACYCLIC, LIG_PIPE_MULTILEVEL};
        uint32_t first[] = {0}, second[] = {12};
        lig_pipe_options options = wish(methods[round % 3], 3);
        lig_pipe_plan plan = plan_room();
        sample_random(&s, &random, 13, 0.5, 0);
        for (uint32_t i = 0; i < 13; i++)
            s.group[i] = -1;
        s.group[3] = s.group[7] = 1;
        s.graph.group = s.group;
        s.graph.apart_count = 1;
        s.graph.apart_first = first;
        s.graph.apart_second = second;
        lig_status status = lig_pipe_partition(&s.graph, &options, &plan);
        if (status == LIG_E_INVALID || status == LIG_E_LIMIT)
            continue;
        MUST(status);
        assert_int_equal(stage[3], stage[7]);
        assert_int_not_equal(stage[0], stage[12]);
    }
}

/* A tied parameter costs memory once a device, its gradients' sum takes time, and together means
 * one stage. */
static void test_ties(void **state)
{
    (void)state;
    static sample s;
    double bytes[] = {100};
    uint32_t begin[] = {0, 2}, node[] = {0, 3};
    lig_pipe_options options = wish(LIG_PIPE_CONTIGUOUS, 2);
    lig_pipe_plan plan = plan_room();
    sample_init(&s, 4);
    for (uint32_t i = 0; i < 4; i++) {
        s.forward[i] = 1;
        if (i)
            sample_edge(&s, i - 1, i);
    }
    s.graph.tie_count = 1;
    s.graph.tie_bytes = bytes;
    s.graph.tie_begin = begin;
    s.graph.tie_node = node;
    options.bandwidth = 1e5;
    MUST(lig_pipe_partition(&s.graph, &options, &plan));
    assert_true(device_bytes[0] == 400 && device_bytes[1] == 400);
    /* Two copies of 100 bytes at 100 bytes a millisecond. */
    double untied = plan.step_ms;
    s.graph.tie_count = 0;
    MUST(lig_pipe_partition(&s.graph, &options, &plan));
    assert_float_equal(untied - plan.step_ms, 1, 1e-9);
    s.graph.tie_count = 1;
    options.ties = LIG_PIPE_TIES_TOGETHER;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "leave only 1 units");
}

static void test_bad_options(void **state)
{
    (void)state;
    static sample s;
    double speed[] = {1, 0}, memory[] = {1, NAN};
    lig_pipe_plan plan = plan_room();
    lig_pipe_options options = wish(LIG_PIPE_AUTO, 5);
    sample_init(&s, 4);
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "only 4 nodes");
    options = wish(LIG_PIPE_AUTO, 0);
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "stages: 0");
    options = wish(99, 2);
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "method 99");
    options = wish(LIG_PIPE_AUTO, 2);
    options.balance = 0.5;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "balance: 0.5");
    options = wish(LIG_PIPE_AUTO, 2);
    options.balance = NAN;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "balance");
    options = wish(LIG_PIPE_AUTO, 2);
    options.speed = speed;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "speed of device 1");
    options = wish(LIG_PIPE_AUTO, 2);
    options.memory = memory;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "memory of device 1");
    options = wish(LIG_PIPE_AUTO, 2);
    options.device_count = 3;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID,
              "3 devices for 2 stages");
    options = wish(LIG_PIPE_AUTO, 3);
    options.schedule = LIG_PIPE_ZBV;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_UNSUPPORTED, "zbv");
    options = wish(LIG_PIPE_AUTO, 2);
    options.microbatches = 0;
    MUST_FAIL(lig_pipe_partition(&s.graph, &options, &plan), LIG_E_INVALID, "micro-batches");
}

/* What is small or strange but fine: one stage, one node, no edges, no weights. */
static void test_small(void **state)
{
    (void)state;
    static sample s;
    for (uint32_t n = 1; n <= 4; n++)
        for (uint32_t k = 1; k <= n; k++)
            for (uint32_t method = 0; method < LIG_PIPE_METHOD_COUNT; method++) {
                lig_pipe_options options = wish(method, k);
                lig_pipe_plan plan = plan_room();
                sample_init(&s, n);
                lig_status status = lig_pipe_partition(&s.graph, &options, &plan);
                if (status == LIG_E_UNSUPPORTED && method == LIG_PIPE_METIS)
                    continue;
                MUST(status);
                check_plan(&s, &options, &plan);
                options.balance = 1;
                MUST(lig_pipe_partition(&s.graph, &options, &plan));
            }
}

static void test_measure_refuses(void **state)
{
    (void)state;
    static sample s;
    lig_pipe_options options = wish(LIG_PIPE_AUTO, 2);
    lig_pipe_plan plan = plan_room();
    double memory[] = {10, 10};
    sample_init(&s, 3);
    sample_edge(&s, 0, 1);
    sample_edge(&s, 1, 2);
    plan.stage_count = 2;
    plan.stage_device = NULL;
    stage[0] = 1, stage[1] = 0, stage[2] = 1;
    MUST_FAIL(lig_pipe_measure(&s.graph, &options, &plan), LIG_E_INVALID, "flows back from node 0");
    stage[0] = stage[1] = stage[2] = 0;
    MUST_FAIL(lig_pipe_measure(&s.graph, &options, &plan), LIG_E_INVALID,
              "stage 1 of the plan is empty");
    stage[2] = 7;
    MUST_FAIL(lig_pipe_measure(&s.graph, &options, &plan), LIG_E_INVALID, "stage 7");
    stage[2] = 1;
    MUST(lig_pipe_measure(&s.graph, &options, &plan));
    s.parameters[2] = 5;
    options.memory = memory;
    MUST_FAIL(lig_pipe_measure(&s.graph, &options, &plan), LIG_E_LIMIT, "device 1 needs");
}

/* A value that jumps a stage is cut once, relayed twice, and held on its way. */
static void test_fold(void **state)
{
    (void)state;
    static sample s;
    lig_pipe_options options = wish(LIG_PIPE_AUTO, 3);
    lig_pipe_plan plan = plan_room();
    uint32_t place[3];
    double figure[9][3];
    lig_pipe_stages stages = {.device = place,
                              .forward_ms = figure[0],
                              .backward_ms = figure[1],
                              .weight_ms = figure[2],
                              .forward_send_ms = figure[3],
                              .backward_send_ms = figure[4],
                              .send_bytes = figure[5],
                              .fixed_bytes = figure[6],
                              .flight_bytes = figure[7],
                              .work_bytes = figure[8]};
    sample_init(&s, 3);
    for (uint32_t i = 0; i < 3; i++) {
        stage[i] = i;
        s.forward[i] = i + 1;
        s.backward[i] = 4;
        s.outputs[i] = 1000;
        s.activations[i] = 10;
        s.parameters[i] = 1;
    }
    sample_edge(&s, 0, 1);
    sample_edge(&s, 0, 2);
    sample_edge(&s, 1, 2);
    s.outputs[0] = 500;
    plan.stage_count = 3;
    plan.stage_device = NULL;
    options.bandwidth = 1e6;
    options.latency_ms = 0.25;
    MUST(lig_pipe_measure(&s.graph, &options, &plan));
    assert_true(plan.cut_bytes == 500 + 500 + 1000);
    assert_true(plan.relay_bytes == 500 + 500 + 1000);
    MUST(lig_pipe_fold(&s.graph, &options, &plan, &stages));
    assert_true(stages.send_bytes[0] == 500 && stages.send_bytes[1] == 1500 &&
                stages.send_bytes[2] == 0);
    assert_float_equal(stages.forward_send_ms[1], 1.75, 1e-12);
    assert_float_equal(stages.backward_send_ms[2], 1.75, 1e-12);
    assert_true(stages.backward_send_ms[0] == 0 && stages.weight_ms[1] == 2);
    assert_true(stages.fixed_bytes[0] == 4 && stages.flight_bytes[1] == 10);
    s.graph.edge_count = 0;
    sample_edge(&s, 0, 2);
    MUST(lig_pipe_measure(&s.graph, &options, &plan));
    assert_true(plan.cut_bytes == 500 && plan.relay_bytes == 1000);
    MUST(lig_pipe_fold(&s.graph, &options, &plan, &stages));
    assert_true(stages.flight_bytes[1] == 510 && stages.flight_bytes[2] == 10);
    options.recompute = 1;
    MUST(lig_pipe_fold(&s.graph, &options, &plan, &stages));
    assert_true(stages.flight_bytes[2] == 500 && stages.work_bytes[2] == 10 &&
                stages.backward_ms[2] == 7);
}

static void test_names(void **state)
{
    (void)state;
    uint32_t number;
    for (uint32_t i = 0; i < LIG_PIPE_METHOD_COUNT; i++) {
        MUST(lig_pipe_method_parse(lig_pipe_method_name(i), &number));
        assert_int_equal(number, i);
    }
    for (uint32_t i = 0; i < LIG_PIPE_SCHEDULE_COUNT; i++) {
        MUST(lig_pipe_schedule_parse(lig_pipe_schedule_name(i), &number));
        assert_int_equal(number, i);
    }
    assert_null(lig_pipe_method_name(99));
    MUST_FAIL(lig_pipe_method_parse("best", &number), LIG_E_INVALID, "multilevel");
    MUST_FAIL(lig_pipe_schedule_parse("best", &number), LIG_E_INVALID, "zb-h1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_method),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_searches_pay),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_speed_is_used),
        cmocka_unit_test(test_together_and_apart),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_measure_refuses),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
