#include "backend/file/packs/engine.h"

#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if LIGI_HAVE_URING
#include <liburing.h>
#endif

#define HUGE_BYTES (UINT64_C(2) << 20)
#define BUFFER_BYTES (8 * HUGE_BYTES)         /* all slots */
#define MAP_BYTES (BUFFER_BYTES + HUGE_BYTES) /* address space from which they are cut */
#define NOT_STARTED INT_MIN                   /* the result of what the ring did not take */
#define NOTHING UINT64_MAX                    /* the token of an entry that was taken back */

struct ligi_engine {
    void *map;
    uint8_t *base;          /* in the map, at a huge page's border */
    uint32_t taken;         /* one bit a slot */
    uint32_t flying, ready; /* one bit an entry of ios; `ready` is done but not collected */
    ligi_io ios[LIGI_ENGINE_DEPTH];
    int results[LIGI_ENGINE_DEPTH];
    int has_ring, fixed, refusal;
#if LIGI_HAVE_URING
    struct io_uring ring;
#endif
};

lig_status ligi_engine_create(ligi_engine **engine)
{
    ligi_engine *made;

    static_assert(LIGI_SLOT_COUNT * LIGI_SLOT_BYTES <= BUFFER_BYTES, "the slots fit");
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "an I/O engine"));
    made->map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made->map == MAP_FAILED) {
        lig_status status =
            ligi_fail_errno(errno, "out of memory for the buffers of an I/O engine");
        free(made);
        return status;
    }
    uint64_t start = (uint64_t)(uintptr_t)made->map;
    made->base = (uint8_t *)made->map + (HUGE_BYTES - start % HUGE_BYTES) % HUGE_BYTES;
    /* A transfer then has a few long segments instead of hundreds of pages. */
    madvise(made->base, BUFFER_BYTES, MADV_HUGEPAGE);
    /* The kernel may write into these pages at any time: a child must not share them. */
    madvise(made->map, MAP_BYTES, MADV_DONTFORK);
    *engine = made;
    return LIG_OK;
}

static void ring_stop(ligi_engine *engine)
{
#if LIGI_HAVE_URING
    if (engine->has_ring)
        io_uring_queue_exit(&engine->ring);
#endif
    engine->has_ring = 0;
}

void ligi_engine_destroy(ligi_engine *engine, int forked)
{
    if (engine == NULL)
        return;
    if (!forked) {
        ring_stop(engine);
        munmap(engine->map, MAP_BYTES);
    }
    free(engine);
}

#if LIGI_HAVE_URING
static int make_ring(ligi_engine *engine)
{
    struct iovec slots[LIGI_SLOT_COUNT];

    int failed = io_uring_queue_init(LIGI_ENGINE_DEPTH, &engine->ring, IORING_SETUP_COOP_TASKRUN);
    if (failed == -EINVAL) /* a kernel before 5.19 */
        failed = io_uring_queue_init(LIGI_ENGINE_DEPTH, &engine->ring, 0);
    if (failed < 0) {
        engine->refusal = -failed;
        return 0;
    }
    io_uring_ring_dontfork(&engine->ring);
    for (int i = 0; i < LIGI_SLOT_COUNT; i++) {
        slots[i].iov_base = ligi_engine_slot(engine, i);
        slots[i].iov_len = LIGI_SLOT_BYTES;
    }
    /* Refused where little memory may be locked; it only saves the look-up of pages. */
    engine->fixed = io_uring_register_buffers(&engine->ring, slots, LIGI_SLOT_COUNT) == 0;
    engine->has_ring = 1;
    return 1;
}
#else
static int make_ring(ligi_engine *engine)
{
    engine->refusal = ENOSYS;
    return 0;
}
#endif

int ligi_engine_ring(ligi_engine *engine)
{
    if (!engine->has_ring && engine->refusal == 0)
        return make_ring(engine);
    return engine->has_ring;
}

int ligi_engine_refusal(const ligi_engine *engine)
{
    return engine->refusal;
}

int ligi_engine_take(ligi_engine *engine)
{
    for (int i = 0; i < LIGI_SLOT_COUNT; i++) {
        if ((engine->taken & (1u << i)) == 0) {
            engine->taken |= 1u << i;
            return i;
        }
    }
    return -1;
}

void ligi_engine_free(ligi_engine *engine, int slot)
{
    assert(engine->taken & (1u << slot));
    engine->taken &= ~(1u << slot);
}

uint8_t *ligi_engine_slot(ligi_engine *engine, int slot)
{
    return engine->base + (uint64_t)slot * LIGI_SLOT_BYTES;
}

unsigned ligi_engine_flying(const ligi_engine *engine)
{
    return (unsigned)__builtin_popcount(engine->flying);
}

lig_status ligi_write_all(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const uint8_t *from = data;

    while (bytes > 0) {
        ssize_t done = pwrite(fd, from, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return ligi_fail_errno(done < 0 ? errno : ENOSPC,
                                   "cannot write %" PRIu64 " bytes at %" PRIu64, bytes, offset);
        from += done;
        bytes -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return LIG_OK;
}

static lig_status read_all(int fd, void *data, uint64_t bytes, uint64_t offset)
{
    uint8_t *to = data;

    while (bytes > 0) {
        ssize_t done = pread(fd, to, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return ligi_fail_errno(errno, "cannot read %" PRIu64 " bytes at %" PRIu64, bytes,
                                   offset);
        if (done == 0)
            return lig_fail(LIG_E_CORRUPT,
                            "the file ends at %" PRIu64 ", %" PRIu64 " bytes too early", offset,
                            bytes);
        to += done;
        bytes -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return LIG_OK;
}

/* The rest of a transfer of which `done` bytes were moved. */
static lig_status finish_plain(const ligi_io *io, uint64_t done)
{
    uint8_t *data = (uint8_t *)io->data + done;

    if (io->write)
        return ligi_write_all(io->plain_fd, data, io->bytes - done, io->offset + done);
    return done >= io->need ? LIG_OK
                            : read_all(io->plain_fd, data, io->need - done, io->offset + done);
}

/* Does the work of the ring. */
static int64_t transfer_once(const ligi_io *io)
{
    ssize_t done = io->write ? pwrite(io->fd, io->data, io->bytes, (off_t)io->offset)
                             : pread(io->fd, io->data, io->bytes, (off_t)io->offset);
    return done < 0 ? -errno : done;
}

#if LIGI_HAVE_URING
static int ring_start(ligi_engine *engine, int at)
{
    const ligi_io *io = &engine->ios[at];
    struct io_uring_sqe *entry = io_uring_get_sqe(&engine->ring);
    int fixed = engine->fixed && io->slot >= 0;

    if (entry == NULL)
        return -EBUSY;
    if (io->write && fixed)
        io_uring_prep_write_fixed(entry, io->fd, io->data, (unsigned)io->bytes, io->offset,
                                  io->slot);
    else if (io->write)
        io_uring_prep_write(entry, io->fd, io->data, (unsigned)io->bytes, io->offset);
    else if (fixed)
        io_uring_prep_read_fixed(entry, io->fd, io->data, (unsigned)io->bytes, io->offset,
                                 io->slot);
    else
        io_uring_prep_read(entry, io->fd, io->data, (unsigned)io->bytes, io->offset);
    io_uring_sqe_set_data64(entry, (uint64_t)at);
    int submitted;
    do
        submitted = io_uring_submit(&engine->ring);
    while (submitted == -EINTR || (submitted > 0 && io_uring_sq_ready(&engine->ring) > 0));
    if (submitted > 0) /* all went out, also what an earlier refusal left behind */
        return 0;
    /* The entry stays in the queue and goes out with the next one: by then it must do nothing. */
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, NOTHING);
    return submitted < 0 ? submitted : -EBUSY;
}

/* Waits for a completion and marks its entry as ready. */
static lig_status ring_wait(ligi_engine *engine)
{
    struct io_uring_cqe *done;

    int failed;
    do
        failed = io_uring_wait_cqe(&engine->ring, &done);
    while (failed == -EINTR || failed == -EAGAIN);
    if (failed < 0)
        return ligi_fail_errno(-failed, "io_uring_wait_cqe failed");
    uint64_t at = io_uring_cqe_get_data64(done);
    if (at != NOTHING) {
        engine->results[at] = done->res;
        engine->ready |= 1u << at;
    }
    io_uring_cqe_seen(&engine->ring, done);
    return LIG_OK;
}
#else
static int ring_start(ligi_engine *engine, int at)
{
    (void)engine, (void)at;
    return -ENOSYS;
}

static lig_status ring_wait(ligi_engine *engine)
{
    (void)engine;
    return lig_fail(LIG_E_INTERNAL, "internal error: waiting for a transfer that was not started");
}
#endif

lig_status ligi_engine_start(ligi_engine *engine, const ligi_io *io)
{
    int at = __builtin_ctz(~engine->flying);

    assert(at < LIGI_ENGINE_DEPTH);
    engine->ios[at] = *io;
    engine->flying |= 1u << at;
    /* Requests that the ring does not accept are done synchronously when they are collected. */
    if (!engine->has_ring || ring_start(engine, at) < 0) {
        engine->results[at] = NOT_STARTED;
        engine->ready |= 1u << at;
    }
    return LIG_OK;
}

/* O_DIRECT and the ring refuse some files and some moments; these numbers say nothing about the
 * bytes. */
static int is_refusal(int64_t result)
{
    return result == -EAGAIN || result == -EINVAL || result == -EOPNOTSUPP || result == -EINTR ||
           result == -ENOSYS || result == -ECANCELED;
}

lig_status ligi_engine_finish(ligi_engine *engine, ligi_io *io)
{
    assert(engine->flying != 0);
    while (engine->ready == 0)
        LIG_TRY(ring_wait(engine));
    int at = __builtin_ctz(engine->ready);
    *io = engine->ios[at];
    int64_t result = engine->results[at] == NOT_STARTED ? transfer_once(io) : engine->results[at];
    engine->ready &= ~(1u << at);
    engine->flying &= ~(1u << at);
    if (result < 0 && !is_refusal(result))
        return ligi_fail_errno((int)-result, "%" PRIu64 " bytes at %" PRIu64 " cannot be %s",
                               io->bytes, io->offset, io->write ? "written" : "read");
    return finish_plain(io, result < 0 ? 0 : (uint64_t)result);
}

void ligi_engine_drain(ligi_engine *engine)
{
    while (engine->flying & ~engine->ready)
        if (ring_wait(engine) != LIG_OK) {
            ring_stop(engine); /* the kernel releases the memory before the ring is freed */
            break;
        }
    engine->flying = 0;
    engine->ready = 0;
    engine->taken = 0;
}
