#include "fake_cuda.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define API __attribute__((visibility("default")))
#define NAMES_MAX 64
#define RANGES_MAX 4096
#define STACK_MAX 16
enum { INVALID_VALUE = 1, NOT_FOUND = 500, RELAXED = 2 };

typedef struct stream stream;
typedef struct op {
    void *to;
    const void *from; /* NULL: a fill, or a wait */
    size_t bytes;
    int value;
    stream *awaited; /* a wait for its first `until` operations */
    size_t until;
    int is_kernel;
    uint64_t secret, blocks, hashes; /* its parameters */
    unsigned count;
} op;

struct stream {
    op *ops;
    size_t count, done, capacity;
    int is_default, capturing;
};

typedef struct event {
    stream *where;
    size_t until;
} event;

typedef struct range {
    char *data;
    size_t bytes;
    int device; /* -1: pinned */
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all below */
static struct {
    const char *name;
    unsigned calls, fail_at;
    int error;
} counts[NAMES_MAX];
static range ranges[RANGES_MAX];
static int contexts, streams, events, pinned, modules, lost;
static int context_of[FAKE_CUDA_DEVICES] = {1, 2}; /* their addresses are the contexts */
static stream legacy = {.is_default = 1}, per_thread = {.is_default = 1};
static char breach[200], hidden[64];
static __thread void *stack[STACK_MAX];
static __thread int depth, mode;

static void blame(const char *name, const char *text)
{
    if (breach[0] == '\0')
        snprintf(breach, sizeof breach, "%s: %s", name, text);
}

static int find_name(const char *name)
{
    int i = 0;
    while (i < NAMES_MAX - 1 && counts[i].name && strcmp(counts[i].name, name) != 0)
        i++;
    if (counts[i].name == NULL)
        counts[i].name = strdup(name);
    return i;
}

/* Counts the call; what it is to return, or 0. The lock is held. */
static int begin(const char *name)
{
    int i = find_name(name);
    counts[i].calls++;
    return counts[i].fail_at && counts[i].calls == counts[i].fail_at ? counts[i].error : 0;
}

/* The same for a call that needs a device. */
static int begin_on_device(const char *name)
{
    if (depth == 0)
        blame(name, "no context is current");
    if (mode != RELAXED)
        blame(name, "would invalidate a capture of another thread");
    int error = begin(name);
    return error ? error : lost;
}

static stream *stream_of(void *handle)
{
    if ((uintptr_t)handle <= 1)
        return &legacy;
    return (uintptr_t)handle == 2 ? &per_thread : handle;
}

/* What block_hashes.cu computes. */
static void run_kernel(const op *launch)
{
    const uint64_t *blocks = (const uint64_t *)(uintptr_t)launch->blocks;
    uint64_t *hashes = (uint64_t *)(uintptr_t)launch->hashes;
    for (unsigned i = 0; i < launch->count; i++)
        hashes[i] =
            XXH3_64bits_withSecret((const void *)(uintptr_t)blocks[2 * i], blocks[2 * i + 1],
                                   (const void *)(uintptr_t)launch->secret, 192);
}

static void run(stream *of, size_t until)
{
    while (of->done < until) {
        op *next = &of->ops[of->done++];
        if (next->is_kernel)
            run_kernel(next);
        else if (next->awaited)
            run(next->awaited, next->until);
        else if (next->from)
            memcpy(next->to, next->from, next->bytes);
        else
            memset(next->to, next->value, next->bytes);
    }
}

static void add(stream *to, op what)
{
    if (to->count == to->capacity) {
        to->capacity = 2 * to->capacity + 16;
        to->ops = realloc(to->ops, to->capacity * sizeof *to->ops);
    }
    to->ops[to->count++] = what;
}

static range *range_of(const void *data, size_t bytes)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].data && (const char *)data >= ranges[i].data &&
            (const char *)data + bytes <= ranges[i].data + ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

static void add_range(void *data, size_t bytes, int device)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].data == NULL) {
            ranges[i] = (range){data, bytes, device};
            return;
        }
}

/* --- the driver --- */

#define DRIVER(name, parameters)                                                                   \
    API int name parameters;                                                                       \
    API int name parameters

#define LOCKED(result)                                                                             \
    pthread_mutex_lock(&lock);                                                                     \
    int error = (result);

#define DONE                                                                                       \
    pthread_mutex_unlock(&lock);                                                                   \
    return error

DRIVER(cuInit, (unsigned flags))
{
    (void)flags;
    LOCKED(begin("cuInit"))
    DONE;
}

DRIVER(cuDeviceGet, (int *device, int ordinal))
{
    LOCKED(begin("cuDeviceGet"))
    if (error == 0 && (ordinal < 0 || ordinal >= FAKE_CUDA_DEVICES))
        error = 101;
    *device = ordinal;
    DONE;
}

DRIVER(cuDeviceGetCount, (int *count))
{
    LOCKED(begin("cuDeviceGetCount"))
    *count = FAKE_CUDA_DEVICES;
    DONE;
}

DRIVER(cuDevicePrimaryCtxRetain, (void **context, int device))
{
    LOCKED(begin("cuDevicePrimaryCtxRetain"))
    contexts += error == 0;
    *context = &context_of[device];
    DONE;
}

DRIVER(cuDevicePrimaryCtxRelease, (int device))
{
    (void)device;
    LOCKED(begin("cuDevicePrimaryCtxRelease"))
    contexts--;
    DONE;
}

DRIVER(cuCtxPushCurrent, (void *context))
{
    LOCKED(begin("cuCtxPushCurrent"))
    if (depth == STACK_MAX - 1)
        blame("cuCtxPushCurrent", "contexts are pushed and not popped");
    else if (error == 0)
        stack[depth++] = context;
    DONE;
}

DRIVER(cuCtxPopCurrent, (void **context))
{
    LOCKED(begin("cuCtxPopCurrent"))
    if (depth == 0)
        blame("cuCtxPopCurrent", "nothing is pushed");
    else
        *context = stack[--depth];
    DONE;
}

DRIVER(cuThreadExchangeStreamCaptureMode, (int *other))
{
    LOCKED(begin("cuThreadExchangeStreamCaptureMode"))
    if (error == 0) {
        int before = mode;
        mode = *other;
        *other = before;
    }
    DONE;
}

DRIVER(cuStreamCreate, (void **made, unsigned flags))
{
    LOCKED(begin_on_device("cuStreamCreate"))
    if (flags != 1)
        blame("cuStreamCreate", "the stream is blocking");
    if (error == 0) {
        *made = calloc(1, sizeof(stream));
        streams++;
    }
    DONE;
}

DRIVER(cuStreamDestroy, (void *handle))
{
    LOCKED(begin_on_device("cuStreamDestroy"))
    streams--;
    free(((stream *)handle)->ops);
    free(handle);
    DONE;
}

DRIVER(cuStreamSynchronize, (void *handle))
{
    LOCKED(begin_on_device("cuStreamSynchronize"))
    stream *of = stream_of(handle);
    run(of, of->count); /* on a device that has failed nothing is under way either */
    DONE;
}

DRIVER(cuStreamWaitEvent, (void *handle, void *awaited, unsigned flags))
{
    (void)flags;
    LOCKED(begin_on_device("cuStreamWaitEvent"))
    const event *of = awaited;
    if (error == 0 && of->where)
        add(stream_of(handle), (op){.awaited = of->where, .until = of->until});
    DONE;
}

DRIVER(cuStreamIsCapturing, (void *handle, int *status))
{
    LOCKED(begin_on_device("cuStreamIsCapturing"))
    *status = stream_of(handle)->capturing;
    DONE;
}

DRIVER(cuEventCreate, (void **made, unsigned flags))
{
    (void)flags;
    LOCKED(begin_on_device("cuEventCreate"))
    if (error == 0) {
        *made = calloc(1, sizeof(event));
        events++;
    }
    DONE;
}

DRIVER(cuEventDestroy, (void *handle))
{
    LOCKED(begin_on_device("cuEventDestroy"))
    events--;
    free(handle);
    DONE;
}

DRIVER(cuEventRecord, (void *handle, void *where))
{
    LOCKED(begin_on_device("cuEventRecord"))
    stream *of = stream_of(where);
    if (of->capturing)
        blame("cuEventRecord", "the stream is being captured");
    if (error == 0)
        *(event *)handle = (event){of, of->count};
    DONE;
}

DRIVER(cuEventSynchronize, (void *handle))
{
    LOCKED(begin_on_device("cuEventSynchronize"))
    const event *of = handle;
    if (of->where)
        run(of->where, of->until);
    DONE;
}

DRIVER(cuMemHostRegister, (void *data, size_t bytes, unsigned flags))
{
    LOCKED(begin_on_device("cuMemHostRegister"))
    if (flags != 1)
        blame("cuMemHostRegister", "the memory is pinned for one context");
    if (error == 0) {
        add_range(data, bytes, -1);
        pinned++;
    }
    DONE;
}

/* `device` is where the copy goes to or comes from. */
static int queue_copy(const char *name, void *handle, op copy, const void *device, const void *host)
{
    int error = begin_on_device(name);
    stream *on = stream_of(handle);
    const range *there = range_of(device, copy.bytes), *here = range_of(host, copy.bytes);
    if (on->is_default)
        blame(name, "a copy on the legacy stream");
    if (!here || here->device != -1)
        blame(name, "the host memory is not pinned");
    if (error == 0 && (!there || there->device < 0))
        error = INVALID_VALUE;
    if (there && there->device >= 0 && depth && stack[depth - 1] != &context_of[there->device])
        blame(name, "the context of another device is current");
    if (error == 0)
        add(on, copy);
    return error;
}

DRIVER(cuMemcpyHtoDAsync, (uint64_t to, const void *from, size_t bytes, void *handle))
{
    void *device = (void *)(uintptr_t)to;
    LOCKED(queue_copy("cuMemcpyHtoDAsync", handle, (op){.to = device, .from = from, .bytes = bytes},
                      device, from))
    DONE;
}

DRIVER(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t bytes, void *handle))
{
    const void *device = (const void *)(uintptr_t)from;
    LOCKED(queue_copy("cuMemcpyDtoHAsync", handle, (op){.to = to, .from = device, .bytes = bytes},
                      device, to))
    DONE;
}

DRIVER(cuMemAlloc, (uint64_t *data, size_t bytes))
{
    LOCKED(begin_on_device("cuMemAlloc"))
    if (error == 0) {
        void *memory = calloc(1, bytes);
        *data = (uint64_t)(uintptr_t)memory;
        add_range(memory, bytes, stack[depth - 1] == &context_of[1]);
    }
    DONE;
}

DRIVER(cuModuleLoadDataEx,
       (void **module, const void *image, unsigned count, int *options, void **values))
{
    (void)count;
    (void)options;
    (void)values;
    LOCKED(begin_on_device("cuModuleLoadDataEx"))
    if (error == 0 && !strstr(image, ".entry ligament_hash_blocks"))
        error = 218;
    *module = &legacy;
    modules += error == 0;
    DONE;
}

DRIVER(cuModuleUnload, (void *module))
{
    (void)module;
    LOCKED(begin_on_device("cuModuleUnload"))
    modules--;
    DONE;
}

DRIVER(cuModuleGetFunction, (void **function, void *module, const char *name))
{
    (void)name;
    LOCKED(begin_on_device("cuModuleGetFunction"))
    *function = module;
    DONE;
}

DRIVER(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        void *handle, void **parameters, void **extra))
{
    (void)extra;
    LOCKED(begin_on_device("cuLaunchKernel"))
    op launch = {.is_kernel = 1,
                 .secret = *(uint64_t *)parameters[0],
                 .blocks = *(uint64_t *)parameters[1],
                 .hashes = *(uint64_t *)parameters[2],
                 .count = *(unsigned *)parameters[3]};
    if (function != &legacy || shared != 0 || grid_y * grid_z * block_y * block_z != 1 ||
        grid_x * (block_x / 32) < launch.count)
        blame("cuLaunchKernel", "the grid does not fit the blocks");
    if (error == 0)
        add(stream_of(handle), launch);
    DONE;
}

DRIVER(cuPointerGetAttribute, (void *value, int attribute, uint64_t data))
{
    LOCKED(begin("cuPointerGetAttribute"))
    const range *of = range_of((const void *)(uintptr_t)data, 1);
    if (error == 0 && (attribute != 9 || !of || of->device < 0))
        error = INVALID_VALUE;
    if (error == 0)
        *(int *)value = of->device;
    DONE;
}

DRIVER(cuGetErrorString, (int number, const char **text))
{
    static __thread char words[40];
    snprintf(words, sizeof words, "fake error %d", number);
    *text = words;
    return 0;
}

#define ENTRY(name) {#name, (void (*)(void))name}
static const struct {
    const char *name;
    void (*address)(void);
} entries[] = {
    ENTRY(cuInit),
    ENTRY(cuDeviceGet),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease),
    ENTRY(cuCtxPushCurrent),
    ENTRY(cuCtxPopCurrent),
    ENTRY(cuThreadExchangeStreamCaptureMode),
    ENTRY(cuStreamCreate),
    ENTRY(cuStreamDestroy),
    ENTRY(cuStreamSynchronize),
    ENTRY(cuStreamWaitEvent),
    ENTRY(cuStreamIsCapturing),
    ENTRY(cuEventCreate),
    ENTRY(cuEventDestroy),
    ENTRY(cuEventRecord),
    ENTRY(cuEventSynchronize),
    ENTRY(cuMemHostRegister),
    ENTRY(cuMemcpyHtoDAsync),
    ENTRY(cuMemcpyDtoHAsync),
    ENTRY(cuMemAlloc),
    ENTRY(cuModuleLoadDataEx),
    ENTRY(cuModuleUnload),
    ENTRY(cuModuleGetFunction),
    ENTRY(cuLaunchKernel),
    ENTRY(cuPointerGetAttribute),
    ENTRY(cuGetErrorString),
};

DRIVER(cuGetProcAddress, (const char *name, void **address, int version, uint64_t flags))
{
    (void)version;
    (void)flags;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0 && strcmp(hidden, name) != 0) {
            memcpy(address, &entries[i].address, sizeof *address);
            return 0;
        }
    return NOT_FOUND;
}

/* --- for the tests --- */

API void *fake_cuda_alloc(size_t bytes, int device)
{
    void *data = malloc(bytes + 1);
    pthread_mutex_lock(&lock);
    add_range(data, bytes, device);
    pthread_mutex_unlock(&lock);
    return data;
}

API void fake_cuda_free(void *data)
{
    pthread_mutex_lock(&lock);
    range *of = range_of(data, 1);
    if (of)
        of->data = NULL;
    pthread_mutex_unlock(&lock);
    free(data);
}

API void fake_cuda_fail(const char *name, unsigned n, int error)
{
    pthread_mutex_lock(&lock);
    int i = find_name(name);
    counts[i].fail_at = n ? counts[i].calls + n : 0;
    counts[i].error = error;
    pthread_mutex_unlock(&lock);
}

API void fake_cuda_lose(int error)
{
    pthread_mutex_lock(&lock);
    lost = error;
    pthread_mutex_unlock(&lock);
}

API void fake_cuda_hide(const char *name)
{
    snprintf(hidden, sizeof hidden, "%s", name);
}

API unsigned fake_cuda_calls(const char *name)
{
    pthread_mutex_lock(&lock);
    unsigned calls = counts[find_name(name)].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

API const char *fake_cuda_breach(void)
{
    return breach;
}

API int fake_cuda_live(const char *kind)
{
    pthread_mutex_lock(&lock);
    int live = strcmp(kind, "contexts") == 0  ? contexts
               : strcmp(kind, "streams") == 0 ? streams
               : strcmp(kind, "events") == 0  ? events
               : strcmp(kind, "modules") == 0 ? modules
                                              : pinned;
    pthread_mutex_unlock(&lock);
    return live;
}

API void *fake_cuda_stream(void)
{
    return calloc(1, sizeof(stream));
}

API void fake_cuda_fill(void *handle, void *data, int value, size_t bytes)
{
    pthread_mutex_lock(&lock);
    add(stream_of(handle), (op){.to = data, .value = value, .bytes = bytes});
    pthread_mutex_unlock(&lock);
}

API void fake_cuda_capture(void *handle, int on)
{
    pthread_mutex_lock(&lock);
    stream_of(handle)->capturing = on;
    pthread_mutex_unlock(&lock);
}
