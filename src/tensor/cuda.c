#include "tensor/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX 64

typedef struct CUctx_st *CUcontext;
typedef uint64_t CUdeviceptr;

/* The driver's ABI, as far as it is used. Names ending in _v2 are what its headers rename to. */
#define CALLS(CALL)                                                                                \
    CALL(cuInit, (unsigned flags))                                                                 \
    CALL(cuDeviceGet, (int *device, int ordinal))                                                  \
    CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, int device))                              \
    CALL(cuCtxPushCurrent_v2, (CUcontext context))                                                 \
    CALL(cuCtxPopCurrent_v2, (CUcontext * context))                                                \
    CALL(cuMemcpyDtoH_v2, (void *host, CUdeviceptr data, size_t bytes))                            \
    CALL(cuMemcpyHtoD_v2, (CUdeviceptr data, const void *host, size_t bytes))                      \
    CALL(cuStreamSynchronize, (void *stream))                                                      \
    CALL(cuGetErrorString, (int error, const char **text))

#define MEMBER(name, parameters) int(*name) parameters;
typedef struct driver {
    CALLS(MEMBER)
} driver;

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

#define SYMBOL(name, parameters) {#name, offsetof(driver, name)},
static const symbol symbols[] = {CALLS(SYMBOL)};

/* Looked up once per process, like a loaded plugin: contexts are the devices' primary ones, shared
 * by the whole process, and are kept because creating one takes a second. */
static struct {
    pthread_mutex_t lock;
    int tried;
    char missing[160]; /* "": available */
    driver calls;
    CUcontext contexts[DEVICES_MAX];
} found = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *error_text(int error)
{
    const char *text = NULL;
    found.calls.cuGetErrorString(error, &text);
    return text ? text : "unknown error";
}

static void look(void)
{
    found.tried = 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        snprintf(found.missing, sizeof found.missing, "libcuda.so.1 is not installed");
        return;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) {
            snprintf(found.missing, sizeof found.missing, "libcuda.so.1 has no %s",
                     symbols[i].name);
            return;
        }
        memcpy((char *)&found.calls + symbols[i].offset, &address, sizeof address);
    }
    int error = found.calls.cuInit(0);
    if (error != 0)
        snprintf(found.missing, sizeof found.missing, "the CUDA driver does not start: %s",
                 error_text(error));
}

static lig_status context_of(int32_t device, CUcontext *context)
{
    int number, error;
    if (!found.tried)
        look();
    if (found.missing[0] != '\0')
        return lig_fail(LIG_E_UNSUPPORTED, "cannot access memory of CUDA device %d: %s", device,
                        found.missing);
    if (device < 0 || device >= DEVICES_MAX)
        return lig_fail(LIG_E_INVALID, "CUDA device %d does not exist: devices are 0 to %d", device,
                        DEVICES_MAX - 1);
    if (found.contexts[device] == NULL) {
        if ((error = found.calls.cuDeviceGet(&number, device)) != 0 ||
            (error = found.calls.cuDevicePrimaryCtxRetain(&found.contexts[device], number)) != 0)
            return lig_fail(LIG_E_UNSUPPORTED, "CUDA device %d cannot be used: %s", device,
                            error_text(error));
    }
    *context = found.contexts[device];
    return LIG_OK;
}

static lig_status get_context(int32_t device, CUcontext *context)
{
    pthread_mutex_lock(&found.lock);
    lig_status status = context_of(device, context);
    pthread_mutex_unlock(&found.lock);
    return status;
}

lig_status ligi_cuda_usable(int32_t device)
{
    CUcontext context;
    return get_context(device, &context);
}

/* The driver stages pageable memory itself; this buffer is reused, so its pages are populated: page
 * faults dominate copies into fresh memory. */
static lig_status move(void *host, CUdeviceptr data, size_t bytes, int32_t device, int to_host)
{
    CUcontext context, popped;
    LIG_TRY(get_context(device, &context));
    int error = found.calls.cuCtxPushCurrent_v2(context);
    if (error == 0) {
        error = to_host ? found.calls.cuMemcpyDtoH_v2(host, data, bytes)
                        : found.calls.cuMemcpyHtoD_v2(data, host, bytes);
        if (error == 0 && !to_host) /* else it may still be on its way from the driver's staging */
            error = found.calls.cuStreamSynchronize(NULL);
        found.calls.cuCtxPopCurrent_v2(&popped);
    }
    if (error != 0)
        return lig_fail(LIG_E_IO, "cannot copy %zu bytes %s CUDA device %d: %s", bytes,
                        to_host ? "from" : "to", device, error_text(error));
    return LIG_OK;
}

lig_status ligi_cuda_to_host(void *host, const void *data, size_t bytes, int32_t device)
{
    return move(host, (CUdeviceptr)(uintptr_t)data, bytes, device, 1);
}

lig_status ligi_cuda_from_host(void *data, const void *host, size_t bytes, int32_t device)
{
    return move((void *)(uintptr_t)host, (CUdeviceptr)(uintptr_t)data, bytes, device, 0);
}
