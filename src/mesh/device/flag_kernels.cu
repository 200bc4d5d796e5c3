// Flags by which a stream and the host wait for each other: numbers in pinned host memory, compared
// with a sequence number in device memory, so that a captured graph advances at each replay.
//
// flag_kernels.ptx is made of this file by tools/ptx.py. The fake driver of the tests includes what
// is not a kernel as C.

#ifdef __CUDACC__
#define LOAD(word) (*(word))
#else
#define __device__
#define LOAD(word) __atomic_load_n(word, __ATOMIC_ACQUIRE)
#endif

typedef long long i64;

typedef struct flag_call { // as in device_flags.c
    volatile i64 *flag;
    volatile i64 *sequence;
    const volatile i64 *ended; // 0: the peers are there; CLOSED; otherwise the number of their loss
    volatile i64 *passed;      // the latest loss after which a wait has ended
} flag_call;

#define CLOSED (-1)

typedef struct loss_seen {
    i64 number, since;
} loss_seen;

// Whether a wait ends without its flag. A peer that leaves may have answered before: the thread has
// `grace` to say so, once for each loss.
__device__ static int is_over(const flag_call *call, loss_seen *seen, i64 now, i64 grace)
{
    const i64 ended = LOAD(call->ended);
    if (ended == 0 || ended == CLOSED)
        return ended == CLOSED;
    if (*call->passed == ended)
        return 1;
    if (seen->number != ended) {
        seen->number = ended;
        seen->since = now;
    }
    if (now - seen->since < grace)
        return 0;
    *call->passed = ended;
    return 1;
}

#ifdef __CUDACC__

#define ROUNDS 32 // between two looks at `ended`
#define GRACE_NS 1000000000LL

__device__ static i64 now_ns()
{
    i64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// What earlier kernels wrote is visible to everybody who sees the flag.
extern "C" __global__ void ligament_flag_write(const flag_call call)
{
    __threadfence_system();
    *call.flag = *call.sequence;
}

// What was written before the flag is visible to later kernels.
extern "C" __global__ void ligament_flag_wait(const flag_call call)
{
    const i64 least = *call.sequence;
    loss_seen seen = {0, 0};
    for (unsigned round = 1; *call.flag < least; round++) {
        if (round % ROUNDS == 0 && is_over(&call, &seen, now_ns(), GRACE_NS))
            break;
        __nanosleep(100);
    }
    __threadfence_system();
}

extern "C" __global__ void ligament_flag_add(const flag_call call)
{
    *call.sequence = *call.sequence + 1;
}

#endif
