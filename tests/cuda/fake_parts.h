/* What the files of the fake driver share. Guarded by fake_lock. */
#ifndef FAKE_PARTS_H
#define FAKE_PARTS_H

#include "fake_streams.h"

#define API __attribute__((visibility("default")))
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, RELAXED = 2, NOT_READY = 600 };

typedef struct range {
    char *data;
    size_t bytes;
    int device; /* -1: pinned */
    int fd;     /* allocated memory: another process opens it by this; else 0 */
} range;

extern int fake_pinned, fake_allocated, fake_imported, fake_modules;

void fake_blame(const char *name, const char *text);
/* Counts the call; what it is to return, or 0. */
int fake_begin(const char *name);
/* The same for a call that needs a device. */
int fake_begin_on_device(const char *name);
/* The device whose context is current. */
int fake_device(void);
range *fake_range_of(const void *data, size_t bytes);
range *fake_add_range(void *data, size_t bytes, int device);

#define DRIVER(name, parameters)                                                                   \
    API int name parameters;                                                                       \
    API int name parameters

#define LOCKED(result)                                                                             \
    pthread_mutex_lock(&fake_lock);                                                                \
    int error = (result);

#define DONE                                                                                       \
    pthread_mutex_unlock(&fake_lock);                                                              \
    return error

typedef struct fake_handle { /* 64 bytes, as the driver's */
    uint32_t pid;
    int32_t fd;
    uint64_t bytes;
    int32_t device;
    uint8_t rest[44];
} fake_handle;

/* Of fake_kernels.c, for the table of calls. */
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                       void **values);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void *handle, void **parameters, void **extra);
/* Of fake_memory.c. */
int cuMemAlloc(uint64_t *data, size_t bytes);
int cuMemFree(uint64_t data);
int cuMemHostRegister(void *data, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *data);
int cuMemHostGetDevicePointer(uint64_t *data, void *host, unsigned flags);
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *handle);
int cuStreamQuery(void *handle);
int cuStreamWriteValue64(void *handle, uint64_t word, uint64_t value, unsigned flags);
int cuStreamWriteValue32(void *handle, uint64_t word, uint32_t value, unsigned flags);
int cuStreamWaitValue64(void *handle, uint64_t word, uint64_t value, unsigned flags);
int cuDeviceGetUuid(void *uuid, int device);
int cuIpcGetMemHandle(fake_handle *handle, uint64_t data);
int cuIpcOpenMemHandle(uint64_t *data, fake_handle handle, unsigned flags);
int cuIpcCloseMemHandle(uint64_t data);

#endif
