/* Memory, words and copies of the fake driver. */
#include "fake_parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Shared, so that another process can open it. */
DRIVER(cuMemAlloc, (uint64_t *data, size_t bytes))
{
    LOCKED(fake_begin_on_device("cuMemAlloc"))
    int fd = error == 0 ? memfd_create("fake cuda", MFD_CLOEXEC) : -1;
    if (error == 0 && (fd < 0 || ftruncate(fd, (off_t)bytes) != 0))
        error = OUT_OF_MEMORY;
    if (error == 0) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        *data = (uint64_t)(uintptr_t)memory;
        fake_add_range(memory, bytes, fake_device())->fd = fd;
        fake_allocated++;
    }
    DONE;
}

DRIVER(cuMemFree, (uint64_t data))
{
    LOCKED(fake_begin_on_device("cuMemFree"))
    range *of = fake_range_of((void *)(uintptr_t)data, 1);
    if (!of || of->fd == 0) {
        fake_blame("cuMemFree", "the memory was not allocated");
    } else if (error == 0) {
        munmap(of->data, of->bytes);
        close(of->fd);
        *of = (range){0};
        fake_allocated--;
    }
    DONE;
}

DRIVER(cuMemHostRegister, (void *data, size_t bytes, unsigned flags))
{
    LOCKED(fake_begin_on_device("cuMemHostRegister"))
    if (!(flags & 1))
        fake_blame("cuMemHostRegister", "the memory is pinned for one context");
    if (error == 0) {
        fake_add_range(data, bytes, -1);
        fake_pinned++;
    }
    DONE;
}

DRIVER(cuMemHostUnregister, (void *data))
{
    LOCKED(fake_begin_on_device("cuMemHostUnregister"))
    range *of = fake_range_of(data, 1);
    if (!of || of->device != -1) {
        fake_blame("cuMemHostUnregister", "the memory is not pinned");
    } else if (error == 0) {
        *of = (range){0};
        fake_pinned--;
    }
    DONE;
}

DRIVER(cuMemHostGetDevicePointer, (uint64_t *data, void *host, unsigned flags))
{
    (void)flags;
    LOCKED(fake_begin_on_device("cuMemHostGetDevicePointer"))
    const range *of = fake_range_of(host, 8);
    if (error == 0 && (!of || of->device != -1))
        error = INVALID_VALUE;
    *data = (uint64_t)(uintptr_t)host;
    DONE;
}

/* From memory that is not pinned at once, like the driver. */
DRIVER(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t bytes, void *handle))
{
    LOCKED(fake_begin_on_device("cuMemcpyAsync"))
    void *into = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    const range *there = fake_range_of(into, bytes), *here = fake_range_of(source, bytes);
    if (!there && !here)
        fake_blame("cuMemcpyAsync", "neither end is memory of a device or pinned");
    if (error == 0 && !here) {
        stream *on = fake_stream_of(handle);
        fake_finish(on, on->count);
        memcpy(into, source, bytes);
    } else if (error == 0) {
        fake_add(fake_stream_of(handle), (op){.to = into, .from = source, .bytes = bytes});
    }
    DONE;
}

DRIVER(cuStreamQuery, (void *handle))
{
    LOCKED(fake_begin_on_device("cuStreamQuery"))
    const stream *of = fake_stream_of(handle);
    if (error == 0 && of->done < of->count)
        error = NOT_READY;
    DONE;
}

static int queue_word(const char *name, void *handle, uint64_t word, op what)
{
    int error = fake_begin_on_device(name);
    if (error == 0 && !fake_range_of((const void *)(uintptr_t)word, 8))
        error = INVALID_VALUE;
    if (error == 0)
        fake_add(fake_stream_of(handle), what);
    return error;
}

DRIVER(cuStreamWriteValue64, (void *handle, uint64_t word, uint64_t value, unsigned flags))
{
    (void)flags;
    LOCKED(queue_word("cuStreamWriteValue64", handle, word,
                      (op){.written = (uint64_t *)(uintptr_t)word, .number = value}))
    DONE;
}

DRIVER(cuStreamWriteValue32, (void *handle, uint64_t word, uint32_t value, unsigned flags))
{
    (void)flags;
    LOCKED(queue_word("cuStreamWriteValue32", handle, word,
                      (op){.half = (uint32_t *)(uintptr_t)word, .number = value}))
    DONE;
}

DRIVER(cuStreamWaitValue64, (void *handle, uint64_t word, uint64_t value, unsigned flags))
{
    LOCKED(queue_word("cuStreamWaitValue64", handle, word,
                      (op){.least = (uint64_t *)(uintptr_t)word, .number = value}))
    if (flags != 0)
        fake_blame("cuStreamWaitValue64", "another comparison than 'at least'");
    DONE;
}

DRIVER(cuDeviceGetUuid, (void *uuid, int device))
{
    LOCKED(fake_begin("cuDeviceGetUuid"))
    memset(uuid, 0xC0 + device, 16);
    DONE;
}

DRIVER(cuIpcGetMemHandle, (fake_handle * handle, uint64_t data))
{
    LOCKED(fake_begin_on_device("cuIpcGetMemHandle"))
    const range *of = fake_range_of((const void *)(uintptr_t)data, 1);
    if (error == 0 && (!of || of->fd == 0))
        error = INVALID_VALUE;
    if (error == 0)
        *handle = (fake_handle){(uint32_t)getpid(), of->fd, of->bytes, of->device, {0}};
    DONE;
}

DRIVER(cuIpcOpenMemHandle, (uint64_t *data, fake_handle handle, unsigned flags))
{
    char path[64];
    (void)flags;
    LOCKED(fake_begin_on_device("cuIpcOpenMemHandle"))
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.pid, handle.fd);
    int fd = error == 0 && handle.pid != (uint32_t)getpid() ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory =
        fd < 0 ? MAP_FAILED : mmap(NULL, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (error == 0 && memory == MAP_FAILED)
        error = INVALID_VALUE;
    if (error == 0) {
        *data = (uint64_t)(uintptr_t)memory;
        fake_add_range(memory, handle.bytes, handle.device);
        fake_imported++;
    }
    if (fd >= 0)
        close(fd);
    DONE;
}

DRIVER(cuIpcCloseMemHandle, (uint64_t data))
{
    LOCKED(fake_begin_on_device("cuIpcCloseMemHandle"))
    range *of = fake_range_of((const void *)(uintptr_t)data, 1);
    if (!of) {
        fake_blame("cuIpcCloseMemHandle", "the memory was not opened");
    } else {
        munmap(of->data, of->bytes);
        *of = (range){0};
        fake_imported--;
    }
    DONE;
}
