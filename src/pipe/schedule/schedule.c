/* The orders are those of torch.distributed.pipelining, so that a plan runs as simulated. */
#include "pipe/schedule/schedule.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int one_each(const ligi_schedule *s)
{
    if (s->stage_count != s->device_count)
        return 0;
    for (uint32_t i = 0; i < s->stage_count; i++)
        for (uint32_t j = 0; s->stage_device[i] != i && j < s->stage_count; j++)
            if (j != i && s->stage_device[j] == s->stage_device[i])
                return 0;
    return 1;
}

static int looped(const ligi_schedule *s)
{
    for (uint32_t i = 0; i < s->stage_count; i++)
        if (s->stage_device[i] != i % s->device_count)
            return 0;
    return s->stage_count % s->device_count == 0;
}

static int folded(const ligi_schedule *s)
{
    for (uint32_t i = 0; i < s->stage_count; i++)
        if (s->stage_device[i] != (i < s->device_count ? i : 2 * s->device_count - 1 - i))
            return 0;
    return s->stage_count == 2 * s->device_count;
}

/* Micro-batches pass through a device's stages in rounds. */
static uint32_t round_size(const ligi_schedule *s)
{
    uint32_t rounds = s->microbatches / s->device_count;
    return s->microbatches / (rounds ? rounds : 1);
}

static lig_status check_interleaved(const ligi_schedule *s)
{
    if (!looped(s))
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the interleaved schedule requires stage s on device s %% %u and the same "
                        "number of stages on each device; these %u stages are placed differently",
                        s->device_count, s->stage_count);
    uint32_t rounds = s->microbatches / s->device_count;
    if (rounds && s->microbatches % rounds)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "the interleaved schedule cannot run %u micro-batches on %u devices: the "
                        "nearest possible number is %u",
                        s->microbatches, s->device_count, rounds * s->device_count);
    return LIG_OK;
}

lig_status ligi_schedule_check(const ligi_schedule *s)
{
    switch (s->kind) {
    case LIG_PIPE_INTERLEAVED: return check_interleaved(s);
    case LIG_PIPE_ZB_H1:
        if (!one_each(s))
            return lig_fail(LIG_E_UNSUPPORTED,
                            "the zb-h1 schedule requires one stage per device, but there are %u "
                            "stages on %u devices",
                            s->stage_count, s->device_count);
        return LIG_OK;
    case LIG_PIPE_ZBV:
        if (!folded(s))
            return lig_fail(LIG_E_UNSUPPORTED,
                            "the zbv schedule requires stages s and %u - s on one device, so %u "
                            "stages for %u devices; there are %u, or they are placed differently",
                            2 * s->device_count - 1, 2 * s->device_count, s->device_count,
                            s->stage_count);
        return LIG_OK;
    default: return LIG_OK;
    }
}

int ligi_schedule_fixed(const ligi_schedule *s)
{
    return (s->kind != LIG_PIPE_1F1B && s->kind != LIG_PIPE_GPIPE) || one_each(s);
}

int ligi_schedule_split(const ligi_schedule *s)
{
    return s->kind == LIG_PIPE_ZB_H1 || s->kind == LIG_PIPE_ZBV;
}

static uint32_t stage_on(const ligi_schedule *s, uint32_t device)
{
    uint32_t stage = 0;
    while (s->stage_device[stage] != device)
        stage++;
    return stage;
}

static size_t list_gpipe(const ligi_schedule *s, uint32_t device, ligi_work *list)
{
    uint32_t stage = stage_on(s, device);
    size_t count = 0;
    for (uint32_t i = 0; i < s->microbatches; i++)
        list[count++] = (ligi_work){stage, i, LIG_PIPE_FORWARD};
    for (uint32_t i = 0; i < s->microbatches; i++)
        list[count++] = (ligi_work){stage, i, LIG_PIPE_BACKWARD};
    return count;
}

/* One stage per device: forwards until the first backward can return, then one of each. With
 * `late`, backwards are split, and the second part lags that many micro-batches behind: the deeper
 * the stage, the more it has to fill the drain with. */
static size_t list_1f1b(const ligi_schedule *s, uint32_t device, int split, ligi_work *list)
{
    uint32_t stage = stage_on(s, device), m = s->microbatches, late = split ? stage : 0;
    uint32_t forward = 0, backward = 0, weight = 0;
    size_t count = 0;
    while (forward < least(m, s->stage_count - 1 - stage))
        list[count++] = (ligi_work){stage, forward++, LIG_PIPE_FORWARD};
    while (backward < m) {
        if (forward < m)
            list[count++] = (ligi_work){stage, forward++, LIG_PIPE_FORWARD};
        list[count++] = (ligi_work){stage, backward++, LIG_PIPE_BACKWARD};
        if (split && backward > late)
            list[count++] = (ligi_work){stage, weight++, LIG_PIPE_WEIGHT};
    }
    while (split && weight < m)
        list[count++] = (ligi_work){stage, weight++, LIG_PIPE_WEIGHT};
    return count;
}

/* The n-th forward or backward of a device that processes its stages one round of micro-batches at
 * a time. */
static ligi_work interleaved_work(const ligi_schedule *s, uint32_t device, uint32_t n,
                                  uint32_t kind)
{
    uint32_t local = s->stage_count / s->device_count, size = round_size(s);
    uint32_t turn = n / size, chunk = turn % local;
    if (kind == LIG_PIPE_BACKWARD)
        chunk = local - 1 - chunk;
    return (ligi_work){chunk * s->device_count + device, turn / local * size + n % size, kind};
}

static size_t list_interleaved(const ligi_schedule *s, uint32_t device, ligi_work *list)
{
    uint32_t local = s->stage_count / s->device_count, total = local * s->microbatches;
    uint32_t warm = least(total, (local - 1) * round_size(s) + 2 * (s->device_count - 1 - device));
    uint32_t forward = 0, backward = 0;
    size_t count = 0;
    while (forward < warm)
        list[count++] = interleaved_work(s, device, forward++, LIG_PIPE_FORWARD);
    while (backward < total) {
        if (forward < total)
            list[count++] = interleaved_work(s, device, forward++, LIG_PIPE_FORWARD);
        list[count++] = interleaved_work(s, device, backward++, LIG_PIPE_BACKWARD);
    }
    return count;
}

/* A list without the micro-batches beyond the last: the V schedule is defined for enough of them to
 * fill the pipeline, and a shorter step is the same schedule with gaps. */
typedef struct v_list {
    ligi_work *work;
    size_t count;
    uint32_t microbatches;
    uint32_t stage[2];
    uint32_t done[2][3];
} v_list;

static void v_add(v_list *v, uint32_t chunk, uint32_t kind)
{
    uint32_t microbatch = v->done[chunk][kind]++;
    if (microbatch < v->microbatches)
        v->work[v->count++] = (ligi_work){v->stage[chunk], microbatch, kind};
}

static void v_warm(v_list *v, uint32_t device, uint32_t devices)
{
    for (uint32_t i = 0; i < 2 * (devices - device) - 1; i++)
        v_add(v, 0, LIG_PIPE_FORWARD);
    for (uint32_t i = 0; i < device; i++) {
        v_add(v, 1, LIG_PIPE_FORWARD);
        v_add(v, 0, LIG_PIPE_FORWARD);
    }
    for (uint32_t i = 0; i < devices - device; i++) {
        v_add(v, 1, LIG_PIPE_FORWARD);
        v_add(v, 1, LIG_PIPE_BACKWARD);
        v_add(v, 1, LIG_PIPE_WEIGHT);
    }
}

static void v_drain(v_list *v, uint32_t device, uint32_t devices)
{
    for (uint32_t i = 0; i < device; i++) {
        v_add(v, 0, LIG_PIPE_BACKWARD);
        v_add(v, 1, LIG_PIPE_BACKWARD);
    }
    for (uint32_t i = 0; i < devices - device; i++) {
        v_add(v, 0, LIG_PIPE_BACKWARD);
        v_add(v, 0, LIG_PIPE_WEIGHT);
    }
    for (uint32_t chunk = 2; chunk-- > 0;)
        while (v->done[chunk][LIG_PIPE_WEIGHT] < v->done[chunk][LIG_PIPE_BACKWARD])
            v_add(v, chunk, LIG_PIPE_WEIGHT);
}

static size_t list_zbv(const ligi_schedule *s, uint32_t device, ligi_work *list)
{
    v_list v = {.work = list,
                .microbatches = s->microbatches,
                .stage = {device, s->stage_count - 1 - device}};
    uint32_t full = 2 * s->device_count - 1;
    full = s->microbatches > full ? s->microbatches : full;
    v_warm(&v, device, s->device_count);
    while (v.done[1][LIG_PIPE_FORWARD] < v.done[0][LIG_PIPE_FORWARD] ||
           v.done[0][LIG_PIPE_FORWARD] < full) {
        if (v.done[0][LIG_PIPE_FORWARD] < full)
            v_add(&v, 0, LIG_PIPE_FORWARD);
        v_add(&v, 0, LIG_PIPE_BACKWARD);
        v_add(&v, 0, LIG_PIPE_WEIGHT);
        v_add(&v, 1, LIG_PIPE_FORWARD);
        v_add(&v, 1, LIG_PIPE_BACKWARD);
        v_add(&v, 1, LIG_PIPE_WEIGHT);
    }
    v_drain(&v, device, s->device_count);
    return v.count;
}

size_t ligi_schedule_list(const ligi_schedule *s, uint32_t device, ligi_work *list)
{
    switch (s->kind) {
    case LIG_PIPE_GPIPE: return list_gpipe(s, device, list);
    case LIG_PIPE_INTERLEAVED: return list_interleaved(s, device, list);
    case LIG_PIPE_ZBV: return list_zbv(s, device, list);
    default: return list_1f1b(s, device, s->kind == LIG_PIPE_ZB_H1, list);
    }
}

static void count_flight(const ligi_work *list, size_t count, int split, double *now,
                         double *flight)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t stage = list[i].stage;
        if (list[i].kind == LIG_PIPE_FORWARD && ++now[stage] > flight[stage])
            flight[stage] = now[stage];
        else if (list[i].kind == (split ? LIG_PIPE_WEIGHT : LIG_PIPE_BACKWARD))
            now[stage]--;
    }
}

lig_status ligi_schedule_flight(const ligi_schedule *s, double *flight)
{
    for (uint32_t i = 0; i < s->stage_count; i++)
        flight[i] = s->kind == LIG_PIPE_GPIPE ? s->microbatches
                                              : least(s->microbatches, s->stage_count - i);
    if (s->kind == LIG_PIPE_1F1B || s->kind == LIG_PIPE_GPIPE)
        return LIG_OK;
    LIG_TRY(ligi_schedule_check(s));
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    size_t local = (s->stage_count + s->device_count - 1) / s->device_count;
    ligi_work *list = LIGI_TAKE(&scratch, ligi_work, 3 * local * s->microbatches);
    double *now = LIGI_TAKE(&scratch, double, s->stage_count);
    lig_status status = ligi_scratch_check(&scratch);
    for (uint32_t d = 0; status == LIG_OK && d < s->device_count; d++) {
        size_t count = ligi_schedule_list(s, d, list);
        for (size_t i = 0; i < count; i++)
            flight[list[i].stage] = 0;
        count_flight(list, count, ligi_schedule_split(s), now, flight);
    }
    ligi_scratch_free(&scratch);
    return status;
}
