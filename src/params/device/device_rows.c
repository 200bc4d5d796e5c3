#include <ligament/device_rows.h>

#include "base/clock.h"
#include "base/error.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/cuda/cuda_work.h"

#include <assert.h>

/* row_kernels.ptx, which the build converts to an array; NUL-terminated. */
extern const char ligi_row_kernels_ptx[];

#define LANES 32 /* threads for a row */
#define SPIN_NS INT64_C(50000)

enum { FIND, BAGS, SUM, STEP };

static ligi_cuda_module module = {
    .ptx = ligi_row_kernels_ptx,
    .what = "the kernels for cached rows",
    .names = {"ligament_rows_find", "ligament_rows_bags", "ligament_rows_sum",
              "ligament_rows_step"},
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

typedef struct rows_call { /* as the kernels read it */
    lig_device_rows rows;
    lig_device_batch batch;
} rows_call;

static_assert(sizeof(rows_call) == 31 * 8, "the kernels read the structs without gaps");

lig_status lig_device_rows_load(int32_t device)
{
    return ligi_cuda_module_load(&module, device);
}

/* The kernels note positions in 32 bits. */
static lig_status check(const lig_device_batch *batch)
{
    if (batch->count >= 0 && batch->count <= INT32_MAX && batch->bags >= 0)
        return LIG_OK;
    return lig_fail(LIG_E_LIMIT,
                    "%lld ids and %lld bags: cached rows are looked up for at most %d "
                    "ids at a time",
                    (long long)batch->count, (long long)batch->bags, INT32_MAX);
}

/* The second kernel reports what the first has found, so the host continues while the second one
 * runs. After a while it leaves the waiting to the driver. */
static lig_status await_report(const rows_call *call, int32_t device, void *stream, int *missing)
{
    int64_t done = 2 * call->batch.tick, found, begin = ligi_now_ns();
    do {
        found = __atomic_load_n(call->rows.report, __ATOMIC_ACQUIRE);
    } while (found < done && ligi_now_ns() - begin < SPIN_NS);
    if (found < done) {
        LIG_TRY(ligi_cuda_synchronize(device, stream));
        found = __atomic_load_n(call->rows.report, __ATOMIC_ACQUIRE);
    }
    *missing = found != done;
    return LIG_OK;
}

static uint64_t bag_threads(const lig_device_batch *batch)
{
    return batch->bags > 0 ? (uint64_t)batch->bags * LANES : 1; /* one reports */
}

lig_status lig_device_rows_find(const lig_device_rows *rows, int32_t device, void *stream,
                                const lig_device_batch *batch, int *missing)
{
    rows_call call = {*rows, *batch};
    const ligi_cuda_launch launches[] = {{FIND, (uint64_t)batch->count, &call},
                                         {BAGS, bag_threads(batch), &call}};
    int none = batch->count == 0;
    LIG_TRY(check(batch));
    LIG_TRY(ligi_cuda_launch_all(&module, device, stream, launches + none, 2 - (size_t)none));
    return await_report(&call, device, stream, missing);
}

lig_status lig_device_rows_sum(const lig_device_rows *rows, int32_t device, void *stream,
                               const lig_device_batch *batch)
{
    rows_call call = {*rows, *batch};
    const ligi_cuda_launch launch = {BAGS, bag_threads(batch), &call};
    LIG_TRY(check(batch));
    return ligi_cuda_launch_all(&module, device, stream, &launch, 1);
}

lig_status lig_device_rows_step(const lig_device_rows *rows, int32_t device, void *stream,
                                const lig_device_batch *batch)
{
    rows_call call = {*rows, *batch};
    uint64_t threads = (uint64_t)batch->count * LANES;
    const ligi_cuda_launch launches[] = {{SUM, threads, &call}, {STEP, threads, &call}};
    LIG_TRY(check(batch));
    return ligi_cuda_launch_all(&module, device, stream, launches, batch->count > 0 ? 2 : 0);
}
