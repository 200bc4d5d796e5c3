/* The library's kernels on the host. */
#include "fake_cuda.h"
#include "fake_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- row_kernels.cu, one thread after another --- */

typedef struct dimensions {
    unsigned x;
} dimensions;
static _Thread_local dimensions blockIdx, threadIdx;
static const dimensions blockDim = {1};

static void atomicAdd(float *to, float value)
{
    *to += value;
}

#define __device__
#include "../../src/params/device/row_kernels.cu"

static int each(void (*kernel)(rows_call), const void *parameter, uint64_t threads)
{
    const rows_call *call = parameter;
    for (uint64_t i = 0; i < threads; i++) {
        blockIdx.x = (unsigned)i;
        kernel(*call);
    }
    return 1;
}

static int rows_find(const void *parameter, uint64_t threads)
{
    return each(ligament_rows_find, parameter, threads);
}

static int rows_bags(const void *parameter, uint64_t threads)
{
    return each(ligament_rows_bags, parameter, threads);
}

static int rows_sum(const void *parameter, uint64_t threads)
{
    return each(ligament_rows_sum, parameter, threads);
}

static int rows_step(const void *parameter, uint64_t threads)
{
    return each(ligament_rows_step, parameter, threads);
}

/* --- flag_kernels.cu --- */

#undef __device__
#include "../../src/mesh/device/flag_kernels.cu"

static int64_t grace_ns = 10000000;
static loss_seen seen; /* by all waits */

API void fake_cuda_grace(int64_t ns)
{
    pthread_mutex_lock(&fake_lock);
    grace_ns = ns;
    seen = (loss_seen){0, 0};
    pthread_mutex_unlock(&fake_lock);
}

API int fake_cuda_loss_seen(void)
{
    pthread_mutex_lock(&fake_lock);
    int is_seen = seen.number != 0;
    pthread_mutex_unlock(&fake_lock);
    return is_seen;
}

static int flag_write(const void *parameter, uint64_t threads)
{
    const flag_call *call = parameter;
    (void)threads;
    __atomic_store_n(call->flag, *call->sequence, __ATOMIC_RELEASE);
    return 1;
}

static int flag_wait(const void *parameter, uint64_t threads)
{
    const flag_call *call = parameter;
    struct timespec now;
    (void)threads;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return __atomic_load_n(call->flag, __ATOMIC_ACQUIRE) >= *call->sequence ||
           is_over(call, &seen, now.tv_sec * 1000000000LL + now.tv_nsec, grace_ns);
}

static int flag_add(const void *parameter, uint64_t threads)
{
    const flag_call *call = parameter;
    (void)threads;
    ++*call->sequence;
    return 1;
}

/* --- block_hashes.cu --- */

typedef struct hash_call {
    const void *secret;
    const uint64_t *blocks;
    uint64_t *hashes;
    uint64_t count;
} hash_call;

static int hash_blocks(const void *parameter, uint64_t threads)
{
    const hash_call *call = parameter;
    (void)threads;
    for (uint64_t i = 0; i < call->count; i++)
        call->hashes[i] = XXH3_64bits_withSecret((const void *)(uintptr_t)call->blocks[2 * i],
                                                 call->blocks[2 * i + 1], call->secret, 192);
    return 1;
}

/* --- the driver --- */

int fake_modules;
static int module; /* its address is every module */

static const struct {
    const char *name;
    int (*run)(const void *parameter, uint64_t threads);
    size_t bytes;
    int signals; /* to the host */
} kernels[] = {
    {"ligament_hash_blocks", hash_blocks, 0, 0}, /* several parameters */
    {"ligament_rows_find", rows_find, sizeof(rows_call), 0},
    {"ligament_rows_bags", rows_bags, sizeof(rows_call), 0},
    {"ligament_rows_sum", rows_sum, sizeof(rows_call), 0},
    {"ligament_rows_step", rows_step, sizeof(rows_call), 0},
    {"ligament_flag_write", flag_write, sizeof(flag_call), 1},
    {"ligament_flag_wait", flag_wait, sizeof(flag_call), 0},
    {"ligament_flag_add", flag_add, sizeof(flag_call), 0},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

DRIVER(cuModuleLoadDataEx,
       (void **loaded, const void *image, unsigned count, int *options, void **values))
{
    (void)count;
    (void)options;
    (void)values;
    LOCKED(fake_begin_on_device("cuModuleLoadDataEx"))
    if (error == 0 && !strstr(image, ".entry ligament_"))
        error = 218;
    *loaded = &module;
    fake_modules += error == 0;
    DONE;
}

DRIVER(cuModuleUnload, (void *loaded))
{
    (void)loaded;
    LOCKED(fake_begin_on_device("cuModuleUnload"))
    fake_modules--;
    DONE;
}

DRIVER(cuModuleGetFunction, (void **function, void *loaded, const char *name))
{
    LOCKED(fake_begin_on_device("cuModuleGetFunction"))
    size_t i = 0;
    while (i < KERNELS && strcmp(kernels[i].name, name) != 0)
        i++;
    if (error == 0 && (i == KERNELS || loaded != &module))
        error = NOT_FOUND;
    *function = error ? NULL : (void *)(uintptr_t)&kernels[i];
    DONE;
}

/* Parameters stay: graphs launch them again. */
static void *kept(const void *data, size_t bytes)
{
    static struct copy {
        struct copy *next;
        uint64_t data[];
    } *all;
    struct copy *made = malloc(sizeof *made + bytes);
    made->next = all;
    all = made;
    return memcpy(made->data, data, bytes);
}

enum { FULL_ROUNDS = 200000 }; /* of 100 us */
static int full, full_waits;

API void fake_cuda_full(int on)
{
    pthread_mutex_lock(&fake_lock);
    full = on;
    pthread_mutex_unlock(&fake_lock);
}

API int fake_cuda_is_full(void)
{
    pthread_mutex_lock(&fake_lock);
    int waits = full_waits > 0;
    pthread_mutex_unlock(&fake_lock);
    return waits;
}

static void await_room(void)
{
    const struct timespec pause = {0, 100000};
    int rounds = 0;
    full_waits++;
    while (full && rounds++ < FULL_ROUNDS) {
        pthread_mutex_unlock(&fake_lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&fake_lock);
    }
    full_waits--;
    if (full)
        fake_blame("cuLaunchKernel", "nobody continues while the queue is full");
}

DRIVER(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        void *handle, void **parameters, void **extra))
{
    (void)extra;
    LOCKED(fake_begin_on_device("cuLaunchKernel"))
    size_t i = 0;
    await_room();
    while (i < KERNELS && function != &kernels[i])
        i++;
    op launch = {.threads = (uint64_t)grid_x * block_x};
    if (i == KERNELS || shared != 0 || grid_y * grid_z * block_y * block_z != 1 ||
        launch.threads == 0 || block_x > 1024) {
        fake_blame("cuLaunchKernel", "not a kernel, or not a grid");
        error = INVALID_VALUE;
    }
    if (error == 0) {
        launch.kernel = kernels[i].run;
        launch.signals = kernels[i].signals;
        launch.parameter = kept(parameters[0], kernels[i].bytes);
    }
    if (error == 0 && kernels[i].bytes == 0) {
        hash_call call = {*(void **)parameters[0], *(uint64_t **)parameters[1],
                          *(uint64_t **)parameters[2], *(unsigned *)parameters[3]};
        launch.parameter = kept(&call, sizeof call);
        if (launch.threads / 32 < call.count)
            fake_blame("cuLaunchKernel", "the grid does not fit the blocks");
    }
    if (error == 0)
        fake_add(fake_stream_of(handle), launch);
    DONE;
}
