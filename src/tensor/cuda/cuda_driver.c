#include "tensor/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"
#define VERSION 11030      /* the first one with cuGetProcAddress; all calls in use are older */
#define LATE_VERSION 11070 /* values that streams write and wait for, on every device */
#define OUT_OF_MEMORY 2

typedef int (*find_call)(const char *name, void **address, int version, uint64_t flags);

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

#define SYMBOL(name, parameters) {#name, offsetof(ligi_cuda_driver, name)},
static const symbol symbols[] = {LIGI_CUDA_CALLS(SYMBOL)};
static const symbol late_symbols[] = {LIGI_CUDA_LATE_CALLS(SYMBOL)};

/* Looked up once per process, like a loaded plugin. */
static struct {
    pthread_mutex_t lock;
    atomic_int pid;    /* of the process that has loaded it; 0: none yet */
    int ready;         /* the calls can be used */
    char missing[200]; /* why they cannot; "": not tried */
    uint8_t process[LIGI_CUDA_PROCESS_BYTES];
    ligi_cuda_driver calls;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *error_text(const ligi_cuda_driver *driver, int error)
{
    const char *text = NULL;
    driver->cuGetErrorString(error, &text);
    return text ? text : "unknown error";
}

static int find_calls(void *handle)
{
    find_call find;
    void *address = dlsym(handle, "cuGetProcAddress");
    if (address == NULL) {
        snprintf(library.missing, sizeof library.missing,
                 "the driver is older than CUDA 11.3: update it");
        return 0;
    }
    memcpy(&find, &address, sizeof find);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        address = NULL;
        if (find(symbols[i].name, &address, VERSION, 0) != 0 || address == NULL) {
            snprintf(library.missing, sizeof library.missing,
                     "the driver has no %s: it is too old, update it", symbols[i].name);
            return 0;
        }
        memcpy((char *)&library.calls + symbols[i].offset, &address, sizeof address);
    }
    for (size_t i = 0; i < sizeof late_symbols / sizeof *late_symbols; i++) {
        address = NULL;
        if (find(late_symbols[i].name, &address, LATE_VERSION, 0) == 0)
            memcpy((char *)&library.calls + late_symbols[i].offset, &address, sizeof address);
    }
    return 1;
}

/* The library is never unloaded: the driver has threads. */
static void load(void)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        snprintf(library.missing, sizeof library.missing, "%s is not installed", LIBRARY);
        return;
    }
    if (!find_calls(handle))
        return;
    if (getrandom(library.process, sizeof library.process, 0) != (ssize_t)sizeof library.process) {
        snprintf(library.missing, sizeof library.missing, "getrandom failed");
        return;
    }
    int error = library.calls.cuInit(0);
    if (error == 0)
        library.ready = 1;
    else
        snprintf(library.missing, sizeof library.missing, "the driver cannot be initialised: %s",
                 error_text(&library.calls, error));
}

lig_status ligi_cuda_driver_get(const ligi_cuda_driver **driver)
{
    /* Checked before taking the lock, which another thread of the parent may have held. */
    int pid = atomic_load(&library.pid);
    if (pid != 0 && pid != (int)getpid())
        return lig_fail(LIG_E_CLOSED,
                        "CUDA cannot be used here: process %d used it and then forked this one "
                        "(start processes with spawn)",
                        pid);
    pthread_mutex_lock(&library.lock);
    if (!library.ready && library.missing[0] == '\0') {
        atomic_store(&library.pid, (int)getpid());
        load();
    }
    int ready = library.ready;
    pthread_mutex_unlock(&library.lock);
    if (!ready)
        return lig_fail(LIG_E_UNSUPPORTED, "CUDA is not available: %s", library.missing);
    *driver = &library.calls;
    return LIG_OK;
}

lig_status ligi_cuda_process(uint8_t process[LIGI_CUDA_PROCESS_BYTES])
{
    const ligi_cuda_driver *driver;
    LIG_TRY(ligi_cuda_driver_get(&driver));
    memcpy(process, library.process, sizeof library.process);
    return LIG_OK;
}

lig_status ligi_cuda_fail(const ligi_cuda_driver *driver, int error, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return lig_fail(error == OUT_OF_MEMORY ? LIG_E_NOMEM : LIG_E_IO, "%s: %s (CUDA error %d)", text,
                    error_text(driver, error), error);
}
