// Flags by which a stream and the host wait for each other: numbers in pinned host memory, compared
// with a sequence number in device memory, so that a captured graph advances at each replay.
//
// flag_kernels.ptx is made of this file by tools/ptx.py.

typedef long long i64;

struct flag_call { // as in device_flags.c
    volatile i64 *flag;
    volatile i64 *sequence;
    const volatile i64 *ended; // not 0: the peers are lost, or the mesh is closed
};

#define ROUNDS 32 // between two looks at `ended`

extern "C" __global__ void ligament_flag_write(const flag_call call)
{
    *call.flag = *call.sequence;
    __threadfence_system();
}

extern "C" __global__ void ligament_flag_wait(const flag_call call)
{
    const i64 least = *call.sequence;
    for (unsigned round = 1; *call.flag < least; round++) {
        if (round % ROUNDS == 0 && *call.ended != 0)
            break;
        __nanosleep(100);
    }
    __threadfence_system();
}

extern "C" __global__ void ligament_flag_add(const flag_call call)
{
    *call.sequence = *call.sequence + 1;
    __threadfence_system();
}
