// Rows cached in device memory: lookup of ids, sums of bags, sums of gradients, and the optimizer's
// steps. `device_rows.c` launches these kernels; all take the same parameters.
//
// 32 consecutive threads work on one id or bag, so that a row is read and written in whole lines.
//
// row_kernels.ptx is made of this file by tools/ptx.py. Where it is not compiled for a device, the
// fake driver of the tests includes it as C: there is nothing here that needs threads to meet.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define UNROLL_IDS _Pragma("unroll 4")
#else
#define KERNEL static void
#define UNROLL
#define UNROLL_IDS
#endif

typedef unsigned char u8;
typedef int i32;
typedef long long i64;

#define LANES 32
#define EACH 4 // elements of a thread at a time
#define PART (LANES * EACH)
// A thread's elements of a part: number k of them is element `at` of the row.
#define FOR_EACH(k, at, part)                                                                      \
    UNROLL for (int k = 0; k < EACH; k++)                                                          \
        for (i64 at = part + LANES * k, once = at < call.length; once; once = 0)

enum { ADD, SGD, ADAGRAD };

typedef struct rows_call { // lig_device_rows and lig_device_batch, one after the other
    const i32 *slot_of;
    i64 *used;
    const i64 *read;
    i32 *leaders; // the position of one of the slot's ids in the last lookup
    float *values, *state, *pending;
    u8 *dirty;
    i64 *missed; // the tick of the last lookup that found too little
    volatile i64 *report;
    i64 length, state_length, kind;
    double eps, decay;
    const i64 *ids;
    i64 *slots;
    i64 count, bound, tick, epoch;
    const i64 *starts;
    i64 bags, size, mean, padding;
    float *bag;
    const float *gradients;
    const i64 *places;
    float *sums; // in the rows of leaders
    double rate;
} rows_call;

__device__ static i64 thread_number(void)
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// The slots of ids.
KERNEL ligament_rows_find(const rows_call call)
{
    const i64 i = thread_number();
    if (i >= call.count)
        return;
    const i64 id = call.ids[i];
    const i64 slot = id >= 0 && id < call.bound ? call.slot_of[id] : -1;
    call.slots[i] = slot;
    if (slot >= 0) {
        call.used[slot] = call.tick;
        call.leaders[slot] = (i32)i;
    }
    if (slot < 0 || (call.read && call.read[slot] != call.epoch))
        *call.missed = call.tick;
}

// The sum or mean of each bag, and whether the lookup has found all rows: the host waits for the
// report, and makes this again if some were missing.
KERNEL ligament_rows_bags(const rows_call call)
{
    const i64 number = thread_number(), bag = number / LANES;
    if (number == 0)
        *call.report = 2 * call.tick + (*call.missed == call.tick);
    if (bag >= call.bags)
        return;
    i64 first = bag * call.size, next = first + call.size;
    if (call.starts) {
        first = call.starts[bag] < 0 ? 0 : call.starts[bag];
        next = bag + 1 < call.bags ? call.starts[bag + 1] : call.count;
    }
    next = next < call.count ? next : call.count;
    for (i64 part = number % LANES; part < call.length; part += PART) {
        float sum[EACH] = {0};
        i64 summed = 0;
        UNROLL_IDS
        for (i64 i = first; i < next; i++) { // reads that do not count are harmless, and overlap
            const i64 found = call.slots[i], slot = found < 0 ? 0 : found;
            const int counts = (found >= 0) & (call.ids[i] != call.padding);
            summed += counts;
            UNROLL
            for (int k = 0; k < EACH; k++) {
                const i64 at = part + LANES * k < call.length ? part + LANES * k : part;
                const float value = call.values[slot * call.length + at];
                sum[k] += counts ? value : 0;
            }
        }
        FOR_EACH(k, at, part)
            call.bag[bag * call.length + at] =
                call.mean && summed > 1 ? sum[k] / (float)summed : sum[k];
    }
}

// Adds each id's gradient to the sum of its row.
KERNEL ligament_rows_sum(const rows_call call)
{
    const i64 number = thread_number(), i = number / LANES;
    if (i >= call.count || call.ids[i] == call.padding)
        return;
    const i64 place = call.places ? call.places[i] : i / call.size;
    const i64 leader = call.leaders[call.slots[i]];
    if (place < 0) // ids before the first bag
        return;
    for (i64 part = number % LANES; part < call.length; part += PART) {
        float given[EACH];
        FOR_EACH(k, at, part)
            given[k] = call.gradients[place * call.length + at];
        FOR_EACH(k, at, part)
            atomicAdd(&call.sums[leader * call.length + at], given[k]);
    }
}

// The formulas, and the order of their operations, are those of row_optimizers.h.
__device__ static float stepped(const rows_call *call, float value, float slope, float *squares)
{
    const float rate = (float)-call->rate;
    if (call->kind == ADD)
        return value + slope;
    if (call->decay != 0)
        slope = slope + value * (float)call->decay;
    if (call->kind == SGD)
        return value + slope * rate;
    *squares = *squares + slope * slope;
    return value + slope * rate / (sqrtf(*squares) + (float)call->eps);
}

// One step for each row with the sum of its gradients. All is read before anything is written, so
// that the reads are under way together.
KERNEL ligament_rows_step(const rows_call call)
{
    const i64 number = thread_number(), i = number / LANES;
    if (i >= call.count || call.ids[i] == call.padding)
        return;
    const i64 slot = call.slots[i];
    if (call.leaders[slot] != i)
        return;
    for (i64 part = number % LANES; part < call.length; part += PART) {
        float slope[EACH], value[EACH], squares[EACH], pending[EACH];
        FOR_EACH(k, at, part) {
            slope[k] = call.sums[i * call.length + at];
            value[k] = call.values[slot * call.length + at];
            squares[k] = call.kind == ADAGRAD ? call.state[slot * call.state_length + at] : 0;
            pending[k] = call.pending ? call.pending[slot * call.length + at] : 0;
        }
        FOR_EACH(k, at, part) {
            call.sums[i * call.length + at] = 0;
            call.values[slot * call.length + at] = stepped(&call, value[k], slope[k], &squares[k]);
            if (call.kind == ADAGRAD)
                call.state[slot * call.state_length + at] = squares[k];
            if (call.pending)
                call.pending[slot * call.length + at] = pending[k] + slope[k];
        }
    }
    if (number % LANES == 0)
        call.dirty[slot] = 1;
}
