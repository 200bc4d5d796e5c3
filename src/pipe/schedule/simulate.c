/* Simulates one step: when each forward and backward runs, and the memory each device holds. */
#include "pipe/schedule/simulate.h"

#include <math.h>
#include <string.h>

#include "pipe/schedule/schedule.h"

#define EVENTS_MAX (UINT64_C(1) << 28)

struct ligi_step {
    const lig_pipe_stages *stages;
    ligi_schedule schedule;
    int split;
    int fixed;              /* the order is fixed in advance */
    double *forward_ready;  /* [stage * microbatches + i]: when its input arrives; NAN until
                             * known */
    double *backward_ready; /* the same for the gradient */
    double *forward_link;   /* [stage]: when the border after it is free again */
    double *backward_link;
    double *free_at; /* [device] */
    double *busy;
    double *bytes;
    double *peak;
    size_t *event_begin; /* [device + 1] */
    size_t *event_done;
    uint32_t *done[3]; /* [stage]: micro-batches, by lig_pipe_work */
    lig_pipe_timeline *timeline;
    ligi_work *list;         /* of a fixed order, device by device */
    uint32_t *queue;         /* [device]: ring of devices that may continue */
    uint8_t *queued;         /* [device] */
    uint32_t *forwards_left; /* [device], rule-based orders */
};

typedef ligi_step step;

static size_t cell(const step *p, uint32_t stage, uint32_t microbatch)
{
    return (size_t)stage * p->schedule.microbatches + microbatch;
}

static void take_arrays(step *p, ligi_scratch *scratch)
{
    uint32_t stages = p->schedule.stage_count, devices = p->schedule.device_count;
    size_t cells = (size_t)stages * p->schedule.microbatches;
    p->forward_ready = LIGI_TAKE(scratch, double, cells);
    p->backward_ready = LIGI_TAKE(scratch, double, cells);
    p->forward_link = LIGI_TAKE(scratch, double, stages);
    p->backward_link = LIGI_TAKE(scratch, double, stages);
    p->free_at = LIGI_TAKE(scratch, double, devices);
    p->busy = LIGI_TAKE(scratch, double, devices);
    p->bytes = LIGI_TAKE(scratch, double, devices);
    p->peak = LIGI_TAKE(scratch, double, devices);
    p->event_begin = LIGI_TAKE(scratch, size_t, (size_t)devices + 1);
    p->event_done = LIGI_TAKE(scratch, size_t, devices);
    p->queue = LIGI_TAKE(scratch, uint32_t, devices);
    p->queued = LIGI_TAKE(scratch, uint8_t, devices);
    p->forwards_left = LIGI_TAKE(scratch, uint32_t, devices);
    for (int kind = 0; kind < 3; kind++)
        p->done[kind] = LIGI_TAKE(scratch, uint32_t, stages);
}

lig_status ligi_step_init(ligi_step **out, const lig_pipe_stages *stages, uint32_t schedule,
                          uint32_t microbatches, ligi_scratch *scratch)
{
    step *p = LIGI_TAKE(scratch, step, 1);
    LIG_TRY(ligi_scratch_check(scratch));
    p->stages = stages;
    p->schedule = (ligi_schedule){schedule, stages->stage_count, stages->device_count, microbatches,
                                  stages->device};
    LIG_TRY(ligi_schedule_check(&p->schedule));
    p->split = ligi_schedule_split(&p->schedule);
    p->fixed = ligi_schedule_fixed(&p->schedule);
    take_arrays(p, scratch);
    LIG_TRY(ligi_scratch_check(scratch));
    for (uint32_t s = 0; s < stages->stage_count; s++)
        p->event_begin[stages->device[s] + 1] += (size_t)microbatches * (p->split ? 3 : 2);
    for (uint32_t d = 0; d < stages->device_count; d++)
        p->event_begin[d + 1] += p->event_begin[d];
    if (p->fixed) {
        p->list = LIGI_TAKE(scratch, ligi_work, p->event_begin[stages->device_count]);
        LIG_TRY(ligi_scratch_check(scratch));
        for (uint32_t d = 0; d < stages->device_count; d++)
            if (p->event_begin[d] < p->event_begin[d + 1])
                ligi_schedule_list(&p->schedule, d, p->list + p->event_begin[d]);
    }
    *out = p;
    return LIG_OK;
}

static void reset(step *p)
{
    uint32_t stages = p->schedule.stage_count, devices = p->schedule.device_count;
    size_t cells = (size_t)stages * p->schedule.microbatches;
    for (size_t i = 0; i < cells; i++)
        p->forward_ready[i] = p->backward_ready[i] = NAN;
    for (uint32_t i = 0; i < p->schedule.microbatches; i++)
        p->forward_ready[i] = 0;
    for (uint32_t d = 0; d < devices; d++) {
        p->free_at[d] = p->busy[d] = p->bytes[d] = p->peak[d] = 0;
        p->event_done[d] = 0;
        p->queued[d] = 0;
        p->forwards_left[d] = 0;
    }
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t device = p->stages->device[s];
        p->forward_link[s] = p->backward_link[s] = 0;
        p->done[0][s] = p->done[1][s] = p->done[2][s] = 0;
        p->forwards_left[device] += p->schedule.microbatches;
        p->bytes[device] += p->stages->fixed_bytes[s];
        p->peak[device] = p->bytes[device];
    }
}

/* When everything that `work` needs has arrived; NAN if not known yet. */
static double ready_at(const step *p, ligi_work work)
{
    size_t at = cell(p, work.stage, work.microbatch);
    if (work.kind == LIG_PIPE_FORWARD)
        return p->forward_ready[at];
    return work.kind == LIG_PIPE_BACKWARD ? p->backward_ready[at] : 0;
}

static double duration(const step *p, ligi_work work)
{
    const lig_pipe_stages *stages = p->stages;
    if (work.kind == LIG_PIPE_FORWARD)
        return stages->forward_ms[work.stage];
    if (work.kind == LIG_PIPE_WEIGHT)
        return stages->weight_ms[work.stage];
    return stages->backward_ms[work.stage] - (p->split ? stages->weight_ms[work.stage] : 0);
}

static void hold(step *p, uint32_t device, ligi_work work)
{
    const lig_pipe_stages *stages = p->stages;
    double more = work.kind == LIG_PIPE_FORWARD ? stages->flight_bytes[work.stage] : 0;
    double once = work.kind == LIG_PIPE_FORWARD ? 0 : stages->work_bytes[work.stage];
    p->bytes[device] += more;
    p->peak[device] = fmax(p->peak[device], p->bytes[device] + once);
    if (work.kind == (p->split ? LIG_PIPE_WEIGHT : LIG_PIPE_BACKWARD))
        p->bytes[device] -= stages->flight_bytes[work.stage];
}

/* Notifies the neighbours: the next stage after a forward, the previous one after a backward, the
 * stage itself at the end of the chain. */
static void deliver(step *p, ligi_work work, double end)
{
    const lig_pipe_stages *stages = p->stages;
    uint32_t s = work.stage, i = work.microbatch;
    if (work.kind == LIG_PIPE_FORWARD && s + 1 == p->schedule.stage_count) {
        p->backward_ready[cell(p, s, i)] = end;
    } else if (work.kind == LIG_PIPE_FORWARD) {
        p->forward_link[s] = fmax(end, p->forward_link[s]) + stages->forward_send_ms[s];
        p->forward_ready[cell(p, s + 1, i)] = p->forward_link[s];
    } else if (work.kind == LIG_PIPE_BACKWARD && s > 0) {
        p->backward_link[s] = fmax(end, p->backward_link[s]) + stages->backward_send_ms[s];
        p->backward_ready[cell(p, s - 1, i)] = p->backward_link[s];
    }
}

static void perform(step *p, ligi_work work)
{
    uint32_t device = p->stages->device[work.stage];
    double begin = fmax(p->free_at[device], ready_at(p, work)), end = begin + duration(p, work);
    size_t at = p->event_begin[device] + p->event_done[device]++;
    if (p->timeline->events && at < p->timeline->event_capacity)
        p->timeline->events[at] =
            (lig_pipe_event){device, work.stage, work.microbatch, work.kind, begin, end};
    p->free_at[device] = end;
    p->busy[device] += end - begin;
    p->done[work.kind][work.stage]++;
    hold(p, device, work);
    deliver(p, work, end);
}

/* --- fixed orders --- */

typedef struct devices_queue {
    step *p;
    size_t head, tail;
} devices_queue;

static void wake(devices_queue *queue, uint32_t device)
{
    step *p = queue->p;
    if (p->queued[device])
        return;
    p->queued[device] = 1;
    p->queue[queue->tail++ % p->schedule.device_count] = device;
}

/* Continues until the next work waits for another device, which wakes this one when it has run
 * that. */
static void run_device(devices_queue *queue, uint32_t d)
{
    step *p = queue->p;
    for (size_t at; (at = p->event_begin[d] + p->event_done[d]) < p->event_begin[d + 1];) {
        ligi_work work = p->list[at];
        if (isnan(ready_at(p, work)))
            return;
        perform(p, work);
        if (work.kind == LIG_PIPE_FORWARD && work.stage + 1 < p->schedule.stage_count)
            wake(queue, p->stages->device[work.stage + 1]);
        if (work.kind == LIG_PIPE_BACKWARD && work.stage > 0)
            wake(queue, p->stages->device[work.stage - 1]);
    }
}

static lig_status run_fixed(step *p)
{
    devices_queue queue = {.p = p};
    for (uint32_t d = 0; d < p->schedule.device_count; d++)
        wake(&queue, d);
    while (queue.head < queue.tail) {
        uint32_t d = p->queue[queue.head++ % p->schedule.device_count];
        p->queued[d] = 0;
        run_device(&queue, d);
    }
    for (uint32_t d = 0; d < p->schedule.device_count; d++)
        if (p->event_begin[d] + p->event_done[d] < p->event_begin[d + 1])
            return lig_fail(LIG_E_INTERNAL, "the schedule's order on device %u deadlocks", d);
    return LIG_OK;
}

/* --- rule-based orders --- */

typedef struct choice {
    ligi_work work;
    double begin;
    int some;
} choice;

/* Causes precede effects because the earliest start is always taken first. */
static int preferred(const choice *a, const choice *b)
{
    if (!b->some || a->begin != b->begin)
        return !b->some || a->begin < b->begin;
    if (a->work.kind != b->work.kind)
        return a->work.kind == LIG_PIPE_BACKWARD;
    if (a->work.microbatch != b->work.microbatch)
        return a->work.microbatch < b->work.microbatch;
    return a->work.stage > b->work.stage;
}

static void consider(const step *p, uint32_t stage, uint32_t kind, choice *best)
{
    choice it = {{stage, p->done[kind][stage], kind}, 0, 1};
    if (it.work.microbatch >= p->schedule.microbatches)
        return;
    double ready = ready_at(p, it.work);
    if (isnan(ready))
        return;
    it.begin = fmax(ready, p->free_at[p->stages->device[stage]]);
    if (preferred(&it, best))
        *best = it;
}

/* Some work is always possible: the oldest micro-batch in flight of the last stage that has any can
 * continue. */
static lig_status run_by_rule(step *p)
{
    uint32_t stages = p->schedule.stage_count;
    for (size_t left = p->event_begin[p->schedule.device_count]; left; left--) {
        choice best = {.some = 0};
        for (uint32_t s = 0; s < stages; s++) {
            uint32_t flying = p->done[LIG_PIPE_FORWARD][s] - p->done[LIG_PIPE_BACKWARD][s];
            int all_forward = p->schedule.kind == LIG_PIPE_GPIPE;
            if (all_forward || flying < stages - s)
                consider(p, s, LIG_PIPE_FORWARD, &best);
            if (!all_forward || !p->forwards_left[p->stages->device[s]])
                consider(p, s, LIG_PIPE_BACKWARD, &best);
        }
        if (!best.some)
            return lig_fail(LIG_E_INTERNAL, "the pipeline deadlocked");
        p->forwards_left[p->stages->device[best.work.stage]] -= best.work.kind == LIG_PIPE_FORWARD;
        perform(p, best.work);
    }
    return LIG_OK;
}

static lig_status check_stages(const lig_pipe_stages *stages, uint32_t schedule,
                               uint32_t microbatches)
{
    if (!stages->stage_count || !stages->device_count || !microbatches)
        return lig_fail(LIG_E_INVALID,
                        "a pipeline needs at least one stage, one device and one micro-batch");
    if (schedule >= LIG_PIPE_SCHEDULE_COUNT)
        return lig_fail(LIG_E_INVALID, "unknown schedule %u", schedule);
    if ((uint64_t)stages->stage_count * microbatches > EVENTS_MAX / 3)
        return lig_fail(LIG_E_LIMIT, "%u stages times %u micro-batches are too many to simulate",
                        stages->stage_count, microbatches);
    for (uint32_t s = 0; s < stages->stage_count; s++) {
        if (stages->device[s] >= stages->device_count)
            return lig_fail(LIG_E_INVALID, "stage %u is on device %u, but there are %u devices", s,
                            stages->device[s], stages->device_count);
        double figures[] = {stages->forward_ms[s], stages->backward_ms[s], stages->weight_ms[s],
                            stages->forward_send_ms[s], stages->backward_send_ms[s]};
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            if (!(figures[i] >= 0) || isinf(figures[i]))
                return lig_fail(LIG_E_INVALID,
                                "invalid time of stage %u: %g (expected a number >= 0)", s,
                                figures[i]);
        if (stages->weight_ms[s] > stages->backward_ms[s])
            return lig_fail(LIG_E_INVALID, "weight_ms of stage %u is larger than its backward_ms",
                            s);
    }
    return LIG_OK;
}

static void publish(const step *p, lig_pipe_timeline *timeline)
{
    uint32_t devices = p->schedule.device_count;
    double end = 0, busy = 0;
    for (uint32_t d = 0; d < devices; d++) {
        end = fmax(end, p->free_at[d]);
        busy += p->busy[d];
        if (timeline->device_busy_ms)
            timeline->device_busy_ms[d] = p->busy[d];
        if (timeline->device_bytes)
            timeline->device_bytes[d] = p->peak[d];
    }
    timeline->event_count = p->event_begin[devices];
    timeline->step_ms = end + p->stages->tie_ms;
    timeline->bubble =
        timeline->step_ms > 0 ? fmax(0, 1 - busy / (devices * timeline->step_ms)) : 0;
}

lig_status ligi_step_run(ligi_step *p, lig_pipe_timeline *timeline)
{
    p->timeline = timeline;
    reset(p);
    LIG_TRY(p->fixed ? run_fixed(p) : run_by_rule(p));
    publish(p, timeline);
    return LIG_OK;
}

lig_status lig_pipe_simulate(const lig_pipe_stages *stages, uint32_t schedule,
                             uint32_t microbatches, lig_pipe_timeline *timeline)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    step *p;
    LIG_TRY(check_stages(stages, schedule, microbatches));
    lig_status status = ligi_step_init(&p, stages, schedule, microbatches, &scratch);
    if (status == LIG_OK)
        status = ligi_step_run(p, timeline);
    ligi_scratch_free(&scratch);
    return status;
}
