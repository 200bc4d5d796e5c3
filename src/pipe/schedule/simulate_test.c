#include <stdio.h>

#include "pipe/graph/pipe_testing.h"
#include "pipe/schedule/schedule.h"

#define STAGES 12
#define MICROBATCHES 12

typedef struct pipeline {
    lig_pipe_stages stages;
    uint32_t device[STAGES];
    double forward[STAGES], backward[STAGES], weight[STAGES], forward_send[STAGES],
        backward_send[STAGES];
    double send_bytes[STAGES], fixed[STAGES], flight[STAGES], work[STAGES];
    lig_pipe_timeline timeline;
    lig_pipe_event events[3 * STAGES * MICROBATCHES];
    double busy[STAGES], peak[STAGES];
} pipeline;

static void pipeline_init(pipeline *p, uint32_t stages, uint32_t devices)
{
    memset(p, 0, sizeof *p);
    p->stages = (lig_pipe_stages){.stage_count = stages,
                                  .device_count = devices,
                                  .device = p->device,
                                  .forward_ms = p->forward,
                                  .backward_ms = p->backward,
                                  .weight_ms = p->weight,
                                  .forward_send_ms = p->forward_send,
                                  .backward_send_ms = p->backward_send,
                                  .send_bytes = p->send_bytes,
                                  .fixed_bytes = p->fixed,
                                  .flight_bytes = p->flight,
                                  .work_bytes = p->work};
    p->timeline.events = p->events;
    p->timeline.event_capacity = sizeof p->events / sizeof *p->events;
    p->timeline.device_busy_ms = p->busy;
    p->timeline.device_bytes = p->peak;
    for (uint32_t s = 0; s < stages; s++) {
        p->device[s] = s % devices;
        p->forward[s] = 1;
        p->backward[s] = 2;
        p->weight[s] = 1;
        p->flight[s] = 1;
    }
}

static void pipeline_random(pipeline *p, ligi_random *random)
{
    for (uint32_t s = 0; s < p->stages.stage_count; s++) {
        p->weight[s] = ligi_random_below(random, 4);
        p->forward[s] = ligi_random_below(random, 6);
        p->backward[s] = p->weight[s] + ligi_random_below(random, 6);
        p->forward_send[s] = ligi_random_below(random, 3);
        p->backward_send[s] = ligi_random_below(random, 3);
        p->fixed[s] = ligi_random_below(random, 9);
        p->flight[s] = ligi_random_below(random, 9);
        p->work[s] = ligi_random_below(random, 9);
    }
}

/* --- the slow one: what a work waits for, asked again and again until all have run --- */

typedef struct slow_step {
    double forward_end[STAGES][MICROBATCHES], backward_end[STAGES][MICROBATCHES];
    double forward_there[STAGES][MICROBATCHES], backward_there[STAGES][MICROBATCHES];
    double free_at[STAGES], forward_link[STAGES], backward_link[STAGES];
    double step, busy;
} slow_step;

static double slow_ready(const slow_step *q, const pipeline *p, ligi_work w)
{
    if (w.kind == LIG_PIPE_FORWARD)
        return w.stage ? q->forward_there[w.stage][w.microbatch] : 0;
    if (w.kind == LIG_PIPE_BACKWARD && w.stage + 1 < p->stages.stage_count)
        return q->backward_there[w.stage][w.microbatch];
    return w.kind == LIG_PIPE_BACKWARD ? q->forward_end[w.stage][w.microbatch]
                                       : q->backward_end[w.stage][w.microbatch];
}

static void slow_perform(slow_step *q, const pipeline *p, ligi_work w, int split)
{
    uint32_t s = w.stage, d = p->device[s];
    double begin = fmax(q->free_at[d], slow_ready(q, p, w));
    double length = w.kind == LIG_PIPE_FORWARD  ? p->forward[s]
                    : w.kind == LIG_PIPE_WEIGHT ? p->weight[s]
                                                : p->backward[s] - (split ? p->weight[s] : 0);
    double end = q->free_at[d] = begin + length;
    q->busy += length;
    q->step = fmax(q->step, end);
    if (w.kind == LIG_PIPE_FORWARD) {
        q->forward_end[s][w.microbatch] = end;
        q->forward_link[s] = fmax(q->forward_link[s], end) + p->forward_send[s];
        q->forward_there[s + 1 < STAGES ? s + 1 : 0][w.microbatch] = q->forward_link[s];
    } else if (w.kind == LIG_PIPE_BACKWARD) {
        q->backward_end[s][w.microbatch] = end;
        q->backward_link[s] = fmax(q->backward_link[s], end) + p->backward_send[s];
        if (s)
            q->backward_there[s - 1][w.microbatch] = q->backward_link[s];
    }
}

static void slow_run(slow_step *q, const pipeline *p, uint32_t kind, uint32_t m)
{
    static ligi_work list[STAGES][3 * STAGES * MICROBATCHES];
    ligi_schedule schedule = {kind, p->stages.stage_count, p->stages.device_count, m, p->device};
    size_t count[STAGES], at[STAGES] = {0};
    *q = (slow_step){.step = 0};
    for (uint32_t s = 0; s < STAGES; s++)
        for (uint32_t i = 0; i < MICROBATCHES; i++)
            q->forward_end[s][i] = q->backward_end[s][i] = q->forward_there[s][i] =
                q->backward_there[s][i] = NAN;
    for (uint32_t d = 0; d < p->stages.device_count; d++)
        count[d] = ligi_schedule_list(&schedule, d, list[d]);
    for (int moved = 1; moved;) {
        moved = 0;
        for (uint32_t d = 0; d < p->stages.device_count; d++)
            if (at[d] < count[d] && !isnan(slow_ready(q, p, list[d][at[d]]))) {
                slow_perform(q, p, list[d][at[d]++], ligi_schedule_split(&schedule));
                moved = 1;
            }
    }
    for (uint32_t d = 0; d < p->stages.device_count; d++)
        assert_int_equal(at[d], count[d]);
}

/* Memory again from the events: what is held at each moment, counted from the beginning each time.
 */
static void slow_peaks(const pipeline *p, int split)
{
    for (uint32_t d = 0; d < p->stages.device_count; d++) {
        double peak = 0, fixed = 0;
        size_t begin = 0;
        for (uint32_t s = 0; s < p->stages.stage_count; s++)
            fixed += p->device[s] == d ? p->fixed[s] : 0;
        peak = fixed;
        while (begin < p->timeline.event_count && p->events[begin].device != d)
            begin++;
        for (size_t i = begin; i < p->timeline.event_count && p->events[i].device == d; i++) {
            double held =
                fixed + (p->events[i].work == LIG_PIPE_FORWARD ? 0 : p->work[p->events[i].stage]);
            for (size_t j = begin; j <= i; j++) {
                held += p->events[j].work == LIG_PIPE_FORWARD ? p->flight[p->events[j].stage] : 0;
                uint32_t last = split ? LIG_PIPE_WEIGHT : LIG_PIPE_BACKWARD;
                held -= p->events[j].work == last && j < i ? p->flight[p->events[j].stage] : 0;
            }
            peak = fmax(peak, held);
        }
        assert_float_equal(peak, p->peak[d], 1e-9);
    }
}

static void place(pipeline *p, uint32_t kind)
{
    uint32_t devices = p->stages.device_count;
    for (uint32_t s = 0; s < p->stages.stage_count; s++)
        p->device[s] = kind == LIG_PIPE_ZBV && s >= devices ? 2 * devices - 1 - s : s % devices;
}

static void test_against_the_slow_one(void **state)
{
    (void)state;
    ligi_random random = {12};
    static pipeline p;
    static slow_step q;
    for (int round = 0; round < 1500; round++) {
        uint32_t kind = ligi_random_below(&random, LIG_PIPE_SCHEDULE_COUNT);
        uint32_t devices = 1 + ligi_random_below(&random, 4),
                 m = 1 + ligi_random_below(&random, MICROBATCHES);
        uint32_t stages = kind == LIG_PIPE_INTERLEAVED
                              ? devices * (1 + ligi_random_below(&random, 3))
                          : kind == LIG_PIPE_ZBV ? 2 * devices
                                                 : devices;
        pipeline_init(&p, stages, devices);
        pipeline_random(&p, &random);
        place(&p, kind);
        lig_status status = lig_pipe_simulate(&p.stages, kind, m, &p.timeline);
        if (status == LIG_E_UNSUPPORTED && kind == LIG_PIPE_INTERLEAVED)
            continue;
        MUST(status);
        slow_run(&q, &p, kind, m);
        assert_true(q.step == p.timeline.step_ms);
        if (q.step > 0)
            assert_float_equal(p.timeline.bubble, 1 - q.busy / (devices * q.step), 1e-9);
        slow_peaks(&p, kind >= LIG_PIPE_ZB_H1);
    }
}

/* --- schedules by rule, moment by moment --- */

typedef struct clock_step {
    const pipeline *p;
    uint32_t m, kind, forwards[STAGES], backwards[STAGES];
    double forward_there[STAGES][MICROBATCHES], backward_there[STAGES][MICROBATCHES];
    double busy_until[STAGES], forward_link[STAGES], backward_link[STAGES];
} clock_step;

static int tick_ready(const clock_step *c, uint32_t s, uint32_t kind, double now)
{
    uint32_t stages = c->p->stages.stage_count, left = 0;
    uint32_t i = kind == LIG_PIPE_FORWARD ? c->forwards[s] : c->backwards[s];
    for (uint32_t t = 0; t < stages; t++)
        left += c->p->device[t] == c->p->device[s] ? c->m - c->forwards[t] : 0;
    if (i >= c->m)
        return 0;
    if (kind == LIG_PIPE_FORWARD)
        return c->forward_there[s][i] <= now &&
               (c->kind == LIG_PIPE_GPIPE || c->forwards[s] - c->backwards[s] < stages - s);
    return c->backward_there[s][i] <= now && (c->kind != LIG_PIPE_GPIPE || !left);
}

static void tick_run(clock_step *c, uint32_t s, uint32_t kind, double now)
{
    const pipeline *p = c->p;
    double end = now + (kind == LIG_PIPE_FORWARD ? p->forward[s] : p->backward[s]);
    c->busy_until[p->device[s]] = end;
    if (kind == LIG_PIPE_FORWARD) {
        uint32_t i = c->forwards[s]++;
        c->forward_link[s] = fmax(c->forward_link[s], end) + p->forward_send[s];
        if (s + 1 < p->stages.stage_count)
            c->forward_there[s + 1][i] = c->forward_link[s];
        else
            c->backward_there[s][i] = end;
        return;
    }
    uint32_t i = c->backwards[s]++;
    c->backward_link[s] = fmax(c->backward_link[s], end) + p->backward_send[s];
    if (s)
        c->backward_there[s - 1][i] = c->backward_link[s];
}

/* Of all that could begin now on a free device: backward first, then the lower micro-batch, then
 * the later stage. */
static int tick(clock_step *c, double now)
{
    const pipeline *p = c->p;
    for (uint32_t kind = 2; kind-- > 0;)
        for (uint32_t i = 0; i < c->m; i++)
            for (uint32_t s = p->stages.stage_count; s-- > 0;) {
                uint32_t next = kind == LIG_PIPE_FORWARD ? c->forwards[s] : c->backwards[s];
                if (next == i && c->busy_until[p->device[s]] <= now &&
                    tick_ready(c, s, kind, now)) {
                    tick_run(c, s, kind, now);
                    return 1;
                }
            }
    return 0;
}

static double tick_all(const pipeline *p, uint32_t kind, uint32_t m)
{
    clock_step c = {.p = p, .m = m, .kind = kind};
    double end = 0;
    for (uint32_t s = 0; s < STAGES; s++)
        for (uint32_t i = 0; i < MICROBATCHES; i++)
            c.forward_there[s][i] = s ? INFINITY : 0, c.backward_there[s][i] = INFINITY;
    for (double now = 0; now < 5000; now++)
        while (tick(&c, now))
            ;
    for (uint32_t d = 0; d < p->stages.device_count; d++)
        end = fmax(end, c.busy_until[d]);
    return end;
}

static void test_by_rule(void **state)
{
    (void)state;
    ligi_random random = {13};
    static pipeline p;
    for (int round = 0; round < 60; round++) {
        uint32_t devices = 1 + ligi_random_below(&random, 3);
        uint32_t stages = devices + 1 + ligi_random_below(&random, 4),
                 m = 1 + ligi_random_below(&random, 6);
        uint32_t kind = round & 1 ? LIG_PIPE_GPIPE : LIG_PIPE_1F1B;
        pipeline_init(&p, stages, devices);
        pipeline_random(&p, &random);
        for (uint32_t s = 0; s < stages; s++) {
            p.device[s] = ligi_random_below(&random, devices);
            p.forward[s]++; /* works without length would make "now" ambiguous */
            p.backward[s]++;
        }
        MUST(lig_pipe_simulate(&p.stages, kind, m, &p.timeline));
        assert_true(p.timeline.step_ms == tick_all(&p, kind, m));
        assert_int_equal(p.timeline.event_count, 2 * stages * m);
        slow_peaks(&p, 0);
    }
}

/* Equal stages have closed forms. */
static void test_closed_forms(void **state)
{
    (void)state;
    static pipeline p;
    for (uint32_t k = 1; k <= 6; k++)
        for (uint32_t m = k; m <= MICROBATCHES; m++) {
            pipeline_init(&p, k, k);
            MUST(lig_pipe_simulate(&p.stages, LIG_PIPE_GPIPE, m, &p.timeline));
            assert_true(p.timeline.step_ms == 3.0 * (m + k - 1));
            assert_true(p.peak[0] == m);
            MUST(lig_pipe_simulate(&p.stages, LIG_PIPE_1F1B, m, &p.timeline));
            assert_true(p.timeline.step_ms == 3.0 * (m + k - 1));
            assert_float_equal(p.timeline.bubble, (k - 1.0) / (m + k - 1), 1e-12);
            for (uint32_t s = 0; s < k; s++)
                assert_true(p.peak[s] == k - s);
            MUST(lig_pipe_simulate(&p.stages, LIG_PIPE_ZB_H1, m, &p.timeline));
            /* The bubble of zb-h1 is (k - 1)(F + B - W), a third of 1F1B's when all are equal. */
            assert_true(p.timeline.step_ms == 3.0 * m + (k - 1));
            for (uint32_t s = 0; s < k; s++)
                assert_true(p.peak[s] <= k);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    static pipeline p;
    pipeline_init(&p, 6, 4);
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_INTERLEAVED, 4, &p.timeline), LIG_E_UNSUPPORTED,
              "interleaved");
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_ZB_H1, 4, &p.timeline), LIG_E_UNSUPPORTED,
              "one stage");
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_ZBV, 4, &p.timeline), LIG_E_UNSUPPORTED,
              "8 stages");
    pipeline_init(&p, 8, 4);
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_INTERLEAVED, 9, &p.timeline), LIG_E_UNSUPPORTED,
              "nearest possible number is 8");
    p.forward[2] = NAN;
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_1F1B, 4, &p.timeline), LIG_E_INVALID,
              "stage 2");
    p.forward[2] = 1;
    p.device[3] = 9;
    MUST_FAIL(lig_pipe_simulate(&p.stages, LIG_PIPE_1F1B, 4, &p.timeline), LIG_E_INVALID,
              "device 9");
    pipeline_init(&p, 2, 2);
    MUST_FAIL(lig_pipe_simulate(&p.stages, 77, 4, &p.timeline), LIG_E_INVALID, "schedule 77");
    MUST_FAIL(lig_pipe_simulate(&p.stages, 0, 0, &p.timeline), LIG_E_INVALID, "micro-batch");
}

/* A short event array is filled as far as it goes, and the count says what is missing. */
static void test_event_capacity(void **state)
{
    (void)state;
    static pipeline p;
    pipeline_init(&p, 2, 2);
    p.timeline.event_capacity = 3;
    p.events[3].stage = 77;
    MUST(lig_pipe_simulate(&p.stages, LIG_PIPE_1F1B, 4, &p.timeline));
    assert_int_equal(p.timeline.event_count, 16);
    assert_int_equal(p.events[3].stage, 77);
    assert_int_equal(p.events[0].device, 0);
}

/* Every forward, backward and (where split) weight exactly once, and in flight as many as is said.
 */
static void test_lists(void **state)
{
    (void)state;
    static ligi_work list[3 * STAGES * MICROBATCHES];
    for (uint32_t kind = 0; kind < LIG_PIPE_SCHEDULE_COUNT; kind++)
        for (uint32_t devices = 1; devices <= 4; devices++)
            for (uint32_t m = 1; m <= MICROBATCHES; m++) {
                static pipeline p;
                uint32_t stages =
                    kind == LIG_PIPE_ZBV || kind == LIG_PIPE_INTERLEAVED ? 2 * devices : devices;
                pipeline_init(&p, stages, devices);
                place(&p, kind);
                ligi_schedule schedule = {kind, stages, devices, m, p.device};
                double flight[STAGES];
                if (ligi_schedule_check(&schedule) != LIG_OK)
                    continue;
                MUST(ligi_schedule_flight(&schedule, flight));
                for (uint32_t d = 0; d < devices; d++) {
                    uint8_t seen[STAGES][MICROBATCHES][3] = {{{0}}};
                    int most[STAGES] = {0}, now[STAGES] = {0};
                    size_t count = ligi_schedule_list(&schedule, d, list);
                    int split = ligi_schedule_split(&schedule);
                    assert_int_equal(count, stages / devices * m * (split ? 3 : 2));
                    for (size_t i = 0; i < count; i++) {
                        ligi_work w = list[i];
                        assert_int_equal(p.device[w.stage], d);
                        assert_false(seen[w.stage][w.microbatch][w.kind]++);
                        now[w.stage] += w.kind == LIG_PIPE_FORWARD;
                        most[w.stage] = now[w.stage] > most[w.stage] ? now[w.stage] : most[w.stage];
                        now[w.stage] -= w.kind == (split ? LIG_PIPE_WEIGHT : LIG_PIPE_BACKWARD);
                    }
                    for (uint32_t s = 0; s < stages; s++)
                        assert_true(p.device[s] != d || flight[s] == most[s]);
                }
            }
}

/* The orders themselves: those of torch.distributed.pipelining for the same numbers. */
static void test_known_orders(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind, stages, devices, microbatches, device;
        const char *order;
    } table[] = {
        {LIG_PIPE_INTERLEAVED, 4, 2, 4, 0,
         "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"},
        {LIG_PIPE_INTERLEAVED, 4, 2, 4, 1,
         "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
        {LIG_PIPE_ZB_H1, 3, 3, 4, 0, "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"},
        {LIG_PIPE_ZB_H1, 3, 3, 4, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2W0 2F3 2B3 2W1 2W2 2W3"},
        {LIG_PIPE_ZBV, 4, 2, 3, 0,
         "0F0 0F1 0F2 3F0 3B0 3W0 3F1 3B1 3W1 0B0 0W0 3F2 3B2 3W2 0B1 0W1 0B2 0W2"},
        {LIG_PIPE_ZBV, 4, 2, 3, 1,
         "1F0 2F0 1F1 2F1 2B0 2W0 1F2 1B0 1W0 2F2 2B1 2W1 1B1 2B2 1B2 1W1 2W2 1W2"},
        {LIG_PIPE_1F1B, 2, 2, 3, 0, "0F0 0F1 0B0 0F2 0B1 0B2"},
        {LIG_PIPE_GPIPE, 2, 2, 2, 1, "1F0 1F1 1B0 1B1"},
    };
    static pipeline p;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ligi_work list[64];
        char text[512] = "";
        size_t used = 0;
        pipeline_init(&p, table[i].stages, table[i].devices);
        place(&p, table[i].kind);
        ligi_schedule schedule = {table[i].kind, table[i].stages, table[i].devices,
                                  table[i].microbatches, p.device};
        size_t count = ligi_schedule_list(&schedule, table[i].device, list);
        for (size_t w = 0; w < count; w++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%u%c%u", w ? " " : "",
                                     list[w].stage, "FBW"[list[w].kind], list[w].microbatch);
        assert_string_equal(text, table[i].order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_slow_one), cmocka_unit_test(test_by_rule),
        cmocka_unit_test(test_closed_forms),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_event_capacity),       cmocka_unit_test(test_lists),
        cmocka_unit_test(test_known_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
