#include "fake_cuda.h"
#include "fake_parts.h"
#include "fake_streams.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64
#define RANGES_MAX 4096
#define STACK_MAX 16

static struct {
    const char *name;
    unsigned calls, fail_at;
    int error;
} counts[NAMES_MAX];
static range ranges[RANGES_MAX];
int fake_pinned, fake_allocated, fake_imported;
static int contexts, streams, events, lost;
static int context_of[FAKE_CUDA_DEVICES] = {1, 2}; /* their addresses are the contexts */
static char breach[200], hidden[64];
static __thread void *stack[STACK_MAX];
static __thread int depth, mode;

void fake_blame(const char *name, const char *text)
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
int fake_begin(const char *name)
{
    int i = find_name(name);
    counts[i].calls++;
    return counts[i].fail_at && counts[i].calls == counts[i].fail_at ? counts[i].error : 0;
}

/* The same for a call that needs a device. */
int fake_begin_on_device(const char *name)
{
    if (depth == 0)
        fake_blame(name, "no context is current");
    if (mode != RELAXED)
        fake_blame(name, "would invalidate a capture of another thread");
    int error = fake_begin(name);
    return error ? error : lost;
}

int fake_device(void)
{
    return depth > 0 && stack[depth - 1] == &context_of[1];
}

range *fake_range_of(const void *data, size_t bytes)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].data && (const char *)data >= ranges[i].data &&
            (const char *)data + bytes <= ranges[i].data + ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

range *fake_add_range(void *data, size_t bytes, int device)
{
    int i = 0;
    while (i < RANGES_MAX - 1 && ranges[i].data)
        i++;
    ranges[i] = (range){data, bytes, device, 0};
    return &ranges[i];
}

/* --- the driver --- */

DRIVER(cuInit, (unsigned flags))
{
    (void)flags;
    LOCKED(fake_begin("cuInit"))
    DONE;
}

DRIVER(cuDeviceGet, (int *device, int ordinal))
{
    LOCKED(fake_begin("cuDeviceGet"))
    if (error == 0 && (ordinal < 0 || ordinal >= FAKE_CUDA_DEVICES))
        error = 101;
    *device = ordinal;
    DONE;
}

DRIVER(cuDeviceGetCount, (int *count))
{
    LOCKED(fake_begin("cuDeviceGetCount"))
    *count = FAKE_CUDA_DEVICES;
    DONE;
}

DRIVER(cuDevicePrimaryCtxRetain, (void **context, int device))
{
    LOCKED(fake_begin("cuDevicePrimaryCtxRetain"))
    contexts += error == 0;
    *context = &context_of[device];
    DONE;
}

DRIVER(cuDevicePrimaryCtxRelease, (int device))
{
    (void)device;
    LOCKED(fake_begin("cuDevicePrimaryCtxRelease"))
    contexts--;
    DONE;
}

DRIVER(cuCtxPushCurrent, (void *context))
{
    LOCKED(fake_begin("cuCtxPushCurrent"))
    if (depth == STACK_MAX - 1)
        fake_blame("cuCtxPushCurrent", "contexts are pushed and not popped");
    else if (error == 0)
        stack[depth++] = context;
    DONE;
}

DRIVER(cuCtxPopCurrent, (void **context))
{
    LOCKED(fake_begin("cuCtxPopCurrent"))
    if (depth == 0)
        fake_blame("cuCtxPopCurrent", "nothing is pushed");
    else
        *context = stack[--depth];
    DONE;
}

DRIVER(cuThreadExchangeStreamCaptureMode, (int *other))
{
    LOCKED(fake_begin("cuThreadExchangeStreamCaptureMode"))
    if (error == 0) {
        int before = mode;
        mode = *other;
        *other = before;
    }
    DONE;
}

DRIVER(cuStreamCreate, (void **made, unsigned flags))
{
    LOCKED(fake_begin_on_device("cuStreamCreate"))
    if (flags != 1)
        fake_blame("cuStreamCreate", "the stream is blocking");
    if (error == 0) {
        *made = fake_stream_create();
        streams++;
    }
    DONE;
}

DRIVER(cuStreamDestroy, (void *handle))
{
    LOCKED(fake_begin_on_device("cuStreamDestroy"))
    streams--;
    fake_stream_destroy(handle);
    DONE;
}

DRIVER(cuStreamSynchronize, (void *handle))
{
    LOCKED(fake_begin_on_device("cuStreamSynchronize"))
    stream *of = fake_stream_of(handle);
    fake_finish(of, of->count); /* on a device that has failed nothing is under way either */
    DONE;
}

DRIVER(cuStreamWaitEvent, (void *handle, void *awaited, unsigned flags))
{
    (void)flags;
    LOCKED(fake_begin_on_device("cuStreamWaitEvent"))
    const event *of = awaited;
    if (error == 0 && of->where)
        fake_add(fake_stream_of(handle), (op){.awaited = of->where, .until = of->until});
    DONE;
}

DRIVER(cuStreamIsCapturing, (void *handle, int *status))
{
    LOCKED(fake_begin_on_device("cuStreamIsCapturing"))
    *status = fake_stream_of(handle)->capturing;
    DONE;
}

DRIVER(cuEventCreate, (void **made, unsigned flags))
{
    (void)flags;
    LOCKED(fake_begin_on_device("cuEventCreate"))
    if (error == 0) {
        *made = calloc(1, sizeof(event));
        events++;
    }
    DONE;
}

DRIVER(cuEventDestroy, (void *handle))
{
    LOCKED(fake_begin_on_device("cuEventDestroy"))
    events--;
    free(handle);
    DONE;
}

DRIVER(cuEventRecord, (void *handle, void *where))
{
    LOCKED(fake_begin_on_device("cuEventRecord"))
    stream *of = fake_stream_of(where);
    if (of->capturing)
        fake_blame("cuEventRecord", "the stream is being captured");
    if (error == 0)
        *(event *)handle = (event){of, of->count};
    DONE;
}

DRIVER(cuEventSynchronize, (void *handle))
{
    LOCKED(fake_begin_on_device("cuEventSynchronize"))
    const event *of = handle;
    if (of->where)
        fake_finish(of->where, of->until);
    DONE;
}

/* `device` is where the copy goes to or comes from. */
static int queue_copy(const char *name, void *handle, op copy, const void *device, const void *host)
{
    int error = fake_begin_on_device(name);
    stream *on = fake_stream_of(handle);
    const range *there = fake_range_of(device, copy.bytes), *here = fake_range_of(host, copy.bytes);
    if (on->is_default)
        fake_blame(name, "a copy on the legacy stream");
    if (!here || here->device != -1)
        fake_blame(name, "the host memory is not pinned");
    if (error == 0 && (!there || there->device < 0))
        error = INVALID_VALUE;
    if (there && there->device >= 0 && depth && stack[depth - 1] != &context_of[there->device])
        fake_blame(name, "the context of another device is current");
    if (error == 0)
        fake_add(on, copy);
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

DRIVER(cuPointerGetAttribute, (void *value, int attribute, uint64_t data))
{
    LOCKED(fake_begin("cuPointerGetAttribute"))
    const range *of = fake_range_of((const void *)(uintptr_t)data, 1);
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
    ENTRY(cuMemFree),
    ENTRY(cuMemHostUnregister),
    ENTRY(cuMemHostGetDevicePointer),
    ENTRY(cuMemcpyAsync),
    ENTRY(cuStreamQuery),
    ENTRY(cuStreamWriteValue64),
    ENTRY(cuStreamWriteValue32),
    ENTRY(cuStreamWaitValue64),
    ENTRY(cuDeviceGetUuid),
    ENTRY(cuIpcGetMemHandle),
    ENTRY(cuIpcOpenMemHandle),
    ENTRY(cuIpcCloseMemHandle),
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
    pthread_mutex_lock(&fake_lock);
    fake_add_range(data, bytes, device);
    pthread_mutex_unlock(&fake_lock);
    return data;
}

API void fake_cuda_free(void *data)
{
    pthread_mutex_lock(&fake_lock);
    range *of = fake_range_of(data, 1);
    if (of)
        of->data = NULL;
    pthread_mutex_unlock(&fake_lock);
    free(data);
}

API void fake_cuda_fail(const char *name, unsigned n, int error)
{
    pthread_mutex_lock(&fake_lock);
    int i = find_name(name);
    counts[i].fail_at = n ? counts[i].calls + n : 0;
    counts[i].error = error;
    pthread_mutex_unlock(&fake_lock);
}

API void fake_cuda_lose(int error)
{
    pthread_mutex_lock(&fake_lock);
    lost = error;
    pthread_mutex_unlock(&fake_lock);
}

API void fake_cuda_hide(const char *name)
{
    snprintf(hidden, sizeof hidden, "%s", name);
}

API unsigned fake_cuda_calls(const char *name)
{
    pthread_mutex_lock(&fake_lock);
    unsigned calls = counts[find_name(name)].calls;
    pthread_mutex_unlock(&fake_lock);
    return calls;
}

API const char *fake_cuda_breach(void)
{
    return breach;
}

API int fake_cuda_live(const char *kind)
{
    pthread_mutex_lock(&fake_lock);
    int live = strcmp(kind, "contexts") == 0    ? contexts
               : strcmp(kind, "streams") == 0   ? streams
               : strcmp(kind, "events") == 0    ? events
               : strcmp(kind, "modules") == 0   ? fake_modules
               : strcmp(kind, "pinned") == 0    ? fake_pinned
               : strcmp(kind, "allocated") == 0 ? fake_allocated
                                                : fake_imported;
    pthread_mutex_unlock(&fake_lock);
    return live;
}

API void *fake_cuda_stream(void)
{
    pthread_mutex_lock(&fake_lock);
    void *made = fake_stream_create();
    pthread_mutex_unlock(&fake_lock);
    return made;
}

API void fake_cuda_fill(void *handle, void *data, int value, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    fake_add(fake_stream_of(handle), (op){.to = data, .value = value, .bytes = bytes});
    pthread_mutex_unlock(&fake_lock);
}

API void fake_cuda_capture(void *handle, int on)
{
    pthread_mutex_lock(&fake_lock);
    fake_stream_of(handle)->capturing = on;
    pthread_mutex_unlock(&fake_lock);
}

API void fake_cuda_replay(void *handle)
{
    pthread_mutex_lock(&fake_lock);
    fake_launch(fake_stream_of(handle));
    pthread_mutex_unlock(&fake_lock);
}

API void fake_cuda_finish(void *handle)
{
    pthread_mutex_lock(&fake_lock);
    stream *of = fake_stream_of(handle);
    fake_finish(of, of->count);
    pthread_mutex_unlock(&fake_lock);
}
