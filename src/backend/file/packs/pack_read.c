#include "backend/file/packs/pack_read.h"

#include "backend/file/file.h"
#include "backend/file/packs/device_verify.h"
#include "backend/file/packs/pack_folder.h"
#include "backend/file/packs/pack_warm.h"
#include "backend/file/packs/page_cache.h"
#include "backend/file/packs/range_chunks.h"
#include "base/error.h"
#include "base/hash.h"
#include "tensor/staging.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SMALL_BYTES                                                                                \
    (UINT64_C(256) << 10) /* reads up to this size in all go through the page cache */
#define SHARED_BYTES (UINT64_C(16) << 20) /* plain reads from this size on take several threads */
#define TEAM_MAX 16                       /* into memory of a device */
#define TEAM_HOST 8 /* into host memory, where threads contend for page faults */
#define TEAM_COLD 4
#define STREAM_BYTES (UINT64_C(64) << 10) /* parts from this size on are copied past the caches */
#define MISSES_MAX 8
#define STAGED_MAX 24 /* transfers into staging buffers: other threads need some, too */

typedef struct reader {
    ligi_file *volume;
    uint64_t id;
    const void *secret;
    ligi_chunks chunks;
    int fd, direct_fd;
    ligi_engine *engine;
    ligi_chunk flying[LIGI_ENGINE_DEPTH]; /* those under way; a transfer's token is an index */
    ligi_staging_buffer buffers[LIGI_ENGINE_DEPTH]; /* where those to device memory are read into */
    uint32_t busy;
    uint8_t *junk; /* takes the bytes of gaps */
    uint64_t file_bytes;
    uint64_t from, to;        /* what the ranges span */
    int sociable;             /* reads along with others where there are some */
    int cached;               /* -1: nothing of it is in the page cache, 1: all of it, 0: ask */
    int misses;               /* how often the answer was wrong */
    ligi_device_verify later; /* what is verified after it has landed */
    size_t bad;
} reader;

static lig_status does_not_fit(const reader *self, uint64_t offset)
{
    return lig_fail(LIG_E_CORRUPT,
                    "%s: pack %016" PRIx64 ": checksum mismatch in the block at %" PRIu64,
                    self->volume->place, self->id, offset);
}

static lig_status compare_hash(reader *self, const ligi_range_part *landed, uint64_t hash)
{
    if (hash == *landed->hash)
        return LIG_OK;
    self->bad = (size_t)(landed->range - self->chunks.ranges);
    return does_not_fit(self, landed->offset);
}

static lig_status verify_part(reader *self, const ligi_range_part *landed, const uint8_t *bytes)
{
    if (landed->hash == NULL ||
        ligi_device_verify_later(&self->later, landed->range, landed->bytes))
        return LIG_OK;
    return compare_hash(self, landed, ligi_hash64(self->secret, bytes, landed->bytes));
}

/* Copies a part from `from` (NULL: it is already in place) and verifies it. */
static lig_status land_part(reader *self, const ligi_range_part *landed, const uint8_t *from)
{
    const lig_range *range = landed->range;

    if (from != NULL && landed->hash != NULL && range->memory == LIG_MEMORY_HOST &&
        landed->bytes >= STREAM_BYTES)
        return compare_hash(self, landed,
                            ligi_hash64_copy(self->secret, landed->data, from, landed->bytes));
    if (from != NULL)
        LIG_TRY(ligi_staging_push(landed->data, from, landed->bytes, range->memory, range->device));
    return verify_part(self, landed, range->memory == LIG_MEMORY_HOST ? landed->data : from);
}

/* Distributes the bytes of a chunk at `from`, or already in place. */
static lig_status land(reader *self, const ligi_chunk *landed, const uint8_t *from)
{
    ligi_chunk_cursor where = landed->first;
    ligi_range_part each;

    for (size_t i = 0; i < landed->count && ligi_chunks_part(&self->chunks, &where, &each); i++)
        LIG_TRY(land_part(self, &each, from == NULL ? NULL : from + (each.offset - landed->from)));
    return LIG_OK;
}

static int is_cached(reader *self, const ligi_chunk *asked)
{
    if (self->cached != 0)
        return self->cached > 0;
    uint64_t from = LIGI_ALIGN_DOWN(asked->from);
    uint64_t to = LIGI_ALIGN_UP(asked->to);
    return ligi_page_cache_bytes(self->fd, from, to) >= (int64_t)(to - from);
}

/* One answer for all ranges where that is possible. */
static void ask_cache(reader *self)
{
    uint64_t from = LIGI_ALIGN_DOWN(self->from), to = LIGI_ALIGN_UP(self->to);
    int64_t cached = ligi_page_cache_bytes(self->fd, from, to);

    if (cached == 0)
        self->cached = -1;
    else if (cached >= (int64_t)(to - from))
        self->cached = 1;
}

static int fill_vectors(reader *self, const ligi_chunk *wanted, struct iovec *vectors)
{
    ligi_chunk_cursor where = wanted->first;
    uint64_t at = wanted->from;
    int used = 0;
    ligi_range_part each;

    for (size_t i = 0; i < wanted->count && ligi_chunks_part(&self->chunks, &where, &each); i++) {
        if (each.offset > at)
            vectors[used++] = (struct iovec){self->junk, each.offset - at};
        vectors[used++] = (struct iovec){each.data, each.bytes};
        at = each.offset + each.bytes;
    }
    return used;
}

/* EAGAIN: not all of it is in the page cache (`flags` is RWF_NOWAIT). Otherwise an errno value, or
 * 0. */
static int read_vectors(reader *self, const ligi_chunk *wanted, struct iovec *vectors, int used,
                        int flags)
{
    uint64_t at = wanted->from;

    while (at < wanted->to) {
        ssize_t done = preadv2(self->fd, vectors, used, (off_t)at, flags);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno == EOPNOTSUPP ? EAGAIN : errno;
        if (done == 0)
            return ENODATA;
        at += (uint64_t)done;
        while (used > 0 && (size_t)done >= vectors->iov_len) {
            done -= (ssize_t)vectors->iov_len;
            vectors++;
            used--;
        }
        if (used > 0) {
            vectors->iov_base = (uint8_t *)vectors->iov_base + done;
            vectors->iov_len -= (size_t)done;
        }
    }
    return 0;
}

/* The status of a read through the page cache, which ended with an errno value or 0; *later as in
 * read_plain. */
static lig_status read_status(const reader *self, int number, int *later)
{
    if (number == EAGAIN && later != NULL) {
        *later = 1;
        return LIG_OK;
    }
    if (number == ENODATA)
        return lig_fail(LIG_E_CORRUPT, "%s: pack %016" PRIx64 " ends too early",
                        self->volume->place, self->id);
    if (number != 0)
        return ligi_fail_errno(number, "%s: pack %016" PRIx64 " cannot be read",
                               self->volume->place, self->id);
    return LIG_OK;
}

/* The buffer begins with the file's byte at `begin`. It is sent, or dropped after a failure. */
static lig_status land_staged(reader *self, const ligi_chunk *landed, uint64_t begin,
                              ligi_staging_buffer *buffer)
{
    ligi_chunk_cursor where = landed->first;
    lig_status status = LIG_OK;
    ligi_range_part each;

    for (size_t i = 0;
         i < landed->count && status == LIG_OK && ligi_chunks_part(&self->chunks, &where, &each);
         i++) {
        const uint8_t *from = buffer->data + (each.offset - begin);
        status = verify_part(self, &each, from);
        if (status == LIG_OK)
            status = ligi_staging_put(buffer, each.data, from, each.bytes);
    }
    if (status == LIG_OK)
        status = ligi_staging_send(buffer);
    ligi_staging_drop(buffer);
    return status;
}

/* Waits for one transfer and hands out its bytes. */
static lig_status collect(reader *self)
{
    ligi_io done;

    LIG_TRY(ligi_engine_finish(self->engine, &done));
    const ligi_chunk *landed = &self->flying[done.token];
    self->busy &= ~(1u << done.token);
    if (landed->staged)
        return land_staged(self, landed, done.offset, &self->buffers[done.token]);
    if (done.slot < 0)
        return land(self, landed, NULL);
    const uint8_t *bytes = ligi_engine_slot(self->engine, done.slot);
    lig_status status = land(self, landed, bytes + (landed->from - done.offset));
    ligi_engine_free(self->engine, done.slot);
    return status;
}

/* A reader that has buffers does not wait for more (cuda_ring.h): it empties one of its own. */
static lig_status take_buffer(reader *self, const ligi_chunk *wanted, ligi_staging_buffer *buffer)
{
    static_assert(LIGI_SLOT_BYTES <= LIGI_STAGING_BYTES, "a chunk fits into a buffer");
    for (;;) {
        while (ligi_engine_flying(self->engine) >= STAGED_MAX)
            LIG_TRY(collect(self));
        int wait = ligi_engine_flying(self->engine) == 0;
        LIG_TRY(ligi_staging_take(buffer, wanted->staged->memory, wanted->staged->device, wait));
        if (buffer->data != NULL)
            return LIG_OK;
        LIG_TRY(collect(self));
    }
}

/* read_plain for memory of a device, straight into a buffer that the device reads. */
static lig_status read_staged(reader *self, const ligi_chunk *wanted, int *later)
{
    ligi_staging_buffer buffer;

    LIG_TRY(take_buffer(self, wanted, &buffer));
    struct iovec vector = {buffer.data, wanted->to - wanted->from};
    int number = read_vectors(self, wanted, &vector, 1, later != NULL ? RWF_NOWAIT : 0);
    if (number == 0)
        return land_staged(self, wanted, wanted->from, &buffer);
    ligi_staging_drop(&buffer);
    return read_status(self, number, later);
}

/* Reads a chunk through the page cache, here and now; *later (may be NULL: wait for the disk) tells
 * that it is not there. */
static lig_status read_plain(reader *self, const ligi_chunk *wanted, int *later)
{
    struct iovec vectors[LIGI_CHUNK_VECTORS];
    int slot = -1, used = 1;

    if (wanted->staged)
        return read_staged(self, wanted, later);
    if (wanted->in_place || wanted->scattered) {
        used = fill_vectors(self, wanted, vectors);
    } else {
        slot = ligi_engine_take(self->engine);
        if (slot < 0) { /* all are under way: the chunk queues up behind them */
            *later = 1;
            return LIG_OK;
        }
        vectors[0] =
            (struct iovec){ligi_engine_slot(self->engine, slot), wanted->to - wanted->from};
    }
    int number = read_vectors(self, wanted, vectors, used, later != NULL ? RWF_NOWAIT : 0);
    lig_status status = read_status(self, number, later);
    if (number == 0)
        status = land(self, wanted, slot < 0 ? NULL : ligi_engine_slot(self->engine, slot));
    if (slot >= 0)
        ligi_engine_free(self->engine, slot);
    return status;
}

/* Where the bytes of a direct transfer go, which are then cut or copied to their places. */
static lig_status take_room(reader *self, const ligi_chunk *wanted, ligi_staging_buffer *buffer,
                            ligi_io *io)
{
    if (wanted->staged) {
        LIG_TRY(take_buffer(self, wanted, buffer));
        io->data = buffer->data;
    } else {
        while ((io->slot = ligi_engine_take(self->engine)) < 0)
            LIG_TRY(collect(self));
        io->data = ligi_engine_slot(self->engine, io->slot);
    }
    io->offset = LIGI_ALIGN_DOWN(wanted->from);
    io->bytes = LIGI_ALIGN_UP(wanted->to) - io->offset;
    io->need = wanted->to - io->offset;
    return LIG_OK;
}

static lig_status start_direct(reader *self, const ligi_chunk *wanted)
{
    ligi_io io = {.fd = self->direct_fd, .plain_fd = self->fd, .slot = -1};
    ligi_staging_buffer buffer = {.data = NULL};

    while (ligi_engine_flying(self->engine) == LIGI_ENGINE_DEPTH)
        LIG_TRY(collect(self));
    if (wanted->in_place) {
        ligi_chunk_cursor where = wanted->first;
        ligi_range_part only;
        ligi_chunks_part(&self->chunks, &where, &only);
        io.data = only.data;
        io.bytes = io.need = only.bytes;
        io.offset = only.offset;
    } else {
        LIG_TRY(take_room(self, wanted, &buffer, &io));
    }
    unsigned token = (unsigned)__builtin_ctz(~self->busy);
    self->busy |= 1u << token;
    self->flying[token] = *wanted;
    self->buffers[token] = buffer;
    io.token = token;
    return ligi_engine_start(self->engine, &io);
}

static lig_status read_chunk(reader *self, const ligi_chunk *wanted)
{
    int later = 0;

    if (self->direct_fd < 0)
        return read_plain(self, wanted, NULL);
    if (is_cached(self, wanted)) {
        LIG_TRY(read_plain(self, wanted, &later));
        if (!later)
            return LIG_OK;
        /* The kernel does not tell strangers what is cached and says yes: do not try for ever. */
        if (++self->misses == MISSES_MAX)
            self->cached = -1;
    }
    return start_direct(self, wanted);
}

/* Reads through the page cache copy, hash and wait in the calling thread, so several threads share
 * the ranges. Direct reads overlap without more threads, which would only compete for the disk. */
typedef struct walk {
    pthread_mutex_t lock;
    ligi_chunk_cursor where;
    int failed;
} walk;

typedef struct member { /* of the team; the caller is not one */
    reader self;
    walk *shared;
    pthread_t thread;
    int started;
    ligi_failure failure;
} member;

static int take_chunk(walk *shared, const reader *self, ligi_chunk *out)
{
    pthread_mutex_lock(&shared->lock);
    int taken = !shared->failed && ligi_chunks_next(&self->chunks, &shared->where, out);
    pthread_mutex_unlock(&shared->lock);
    return taken;
}

static lig_status read_cached(reader *self, walk *shared)
{
    lig_status status = LIG_OK;
    ligi_chunk next;

    while (status == LIG_OK && take_chunk(shared, self, &next))
        status = read_plain(self, &next, NULL);
    if (status != LIG_OK) {
        pthread_mutex_lock(&shared->lock);
        shared->failed = 1;
        pthread_mutex_unlock(&shared->lock);
    }
    return status;
}

static void *member_main(void *context)
{
    member *self = context;

    ligi_failure_take(&self->failure, read_cached(&self->self, self->shared));
    return NULL;
}

/* Failing to start one only costs time. */
static void member_start(member *self, const reader *leader, walk *shared)
{
    sigset_t all, before;

    self->self = *leader;
    self->shared = shared;
    self->self.engine = NULL;
    if (ligi_file_engine(leader->volume, &self->self.engine) != LIG_OK)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->started = pthread_create(&self->thread, NULL, member_main, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The first failure counts; *status is the leader's. */
static void member_end(member *self, reader *leader, lig_status *status)
{
    if (self->started)
        pthread_join(self->thread, NULL);
    ligi_file_engine_return(leader->volume, self->self.engine);
    if (!self->started || *status != LIG_OK || self->failure.status == LIG_OK)
        return;
    leader->bad = self->self.bad;
    *status = ligi_failure_publish(&self->failure);
}

/* Cached data only needs processors; otherwise threads wait for the disk. */
static size_t team_size(const reader *self)
{
    long processors = self->cached == 1 ? sysconf(_SC_NPROCESSORS_ONLN) : TEAM_COLD;
    long most = self->chunks.ranges[0].memory == LIG_MEMORY_HOST ? TEAM_HOST : TEAM_MAX;

    return processors < 2 ? 2 : processors > most ? (size_t)most : (size_t)processors;
}

static lig_status read_by_team(reader *self, ligi_chunk_cursor where)
{
    walk shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .where = where};
    member others[TEAM_MAX - 1] = {{.started = 0}};
    size_t count = team_size(self) - 1;

    for (size_t i = 0; i < count; i++)
        member_start(&others[i], self, &shared);
    lig_status status = read_cached(self, &shared);
    for (size_t i = 0; i < count; i++)
        member_end(&others[i], self, &status);
    pthread_mutex_destroy(&shared.lock);
    return status;
}

/* Checks that the pack has all ranges, and sorts them by offset unless they come that way. */
static lig_status prepare(reader *self, uint64_t *total)
{
    *total = 0;
    self->from = UINT64_MAX;
    for (size_t i = 0; i < self->chunks.count; i++) {
        const lig_range *range = &self->chunks.ranges[i];
        if (range->offset > self->file_bytes || range->bytes > self->file_bytes - range->offset) {
            self->bad = i;
            return lig_fail(LIG_E_CORRUPT,
                            "%s: pack %016" PRIx64 " has %" PRIu64 " bytes, but %" PRIu64
                            " bytes at %" PRIu64 " are requested",
                            self->volume->place, self->id, self->file_bytes, range->bytes,
                            range->offset);
        }
        *total += range->bytes;
        self->from = range->offset < self->from ? range->offset : self->from;
        self->to =
            range->offset + range->bytes > self->to ? range->offset + range->bytes : self->to;
    }
    return ligi_chunks_sort(&self->chunks);
}

static void open_direct(reader *self, uint64_t total)
{
    ligi_file *volume = self->volume;

    if (!volume->direct || total <= SMALL_BYTES)
        return;
    ask_cache(self);
    if (self->cached == 1 ||
        ligi_file_pack_open(volume, self->id, O_RDONLY | O_DIRECT, &self->direct_fd) != LIG_OK)
        return;
    if (strcmp(volume->options.uring, "0") != 0)
        ligi_engine_ring(self->engine);
    self->sociable = !volume->network && ligi_file_may_cache(volume, total);
    if (self->sociable)
        ligi_page_cache_announce(self->fd);
}

/* Past the page cache, until others read the same pack: then the disk is read once for all. */
static lig_status read_direct(reader *self)
{
    ligi_chunk_cursor where = {0, 0};
    int alone = 1;
    ligi_chunk next;

    while ((alone = !self->sociable || !ligi_page_cache_shared(self->fd)) &&
           ligi_chunks_next(&self->chunks, &where, &next))
        LIG_TRY(read_chunk(self, &next));
    while (ligi_engine_flying(self->engine) > 0)
        LIG_TRY(collect(self));
    return alone ? LIG_OK : read_by_team(self, where);
}

static lig_status read_ranges(reader *self)
{
    struct stat info;
    uint64_t total;

    if (fstat(self->fd, &info) != 0)
        return ligi_fail_errno(errno, "%s: fstat of pack %016" PRIx64 " failed",
                               self->volume->place, self->id);
    self->file_bytes = (uint64_t)info.st_size;
    LIG_TRY(prepare(self, &total));
    LIG_TRY(ligi_alloc(&self->junk, LIGI_CHUNK_GAP_BYTES, "the bytes between ranges"));
    LIG_TRY(ligi_file_engine(self->volume, &self->engine));
    open_direct(self, total);
    if (self->direct_fd < 0 && total >= SHARED_BYTES)
        return read_by_team(self, (ligi_chunk_cursor){0, 0});
    return read_direct(self);
}

/* Waits for the copies to devices, also after a failure: none may continue after the call. */
static lig_status finish_devices(const reader *self, lig_status status)
{
    const lig_range *last = NULL;
    ligi_failure failure;

    ligi_failure_take(&failure, status);
    for (size_t i = 0; i < self->chunks.count; i++) {
        const lig_range *range = &self->chunks.ranges[i];
        if (range->memory == LIG_MEMORY_HOST || (last != NULL && last->device == range->device))
            continue;
        last = range;
        status = ligi_staging_finish(range->memory, range->device);
        if (failure.status == LIG_OK)
            ligi_failure_take(&failure, status);
    }
    return ligi_failure_publish(&failure);
}

static lig_status verify_devices(reader *self)
{
    uint64_t offset = 0;
    lig_status status = ligi_device_verify_run(self->secret, self->chunks.ranges,
                                               self->chunks.count, &self->bad, &offset);
    return status == LIG_E_CORRUPT ? does_not_fit(self, offset) : status;
}

lig_status ligi_file_pack_read(void *opaque, uint64_t id, const void *secret,
                               const lig_range *ranges, size_t count, size_t *bad)
{
    ligi_file *volume = opaque;
    reader self = {.volume = volume,
                   .id = id,
                   .secret = secret,
                   .chunks = {.ranges = ranges,
                              .count = count,
                              .memory_align = volume->memory_align,
                              .offset_align = volume->offset_align}};

    self.fd = self.direct_fd = -1;
    self.bad = SIZE_MAX;
    LIG_TRY(ligi_file_pack_open(self.volume, id, O_RDONLY, &self.fd));
    lig_status status = finish_devices(&self, read_ranges(&self));
    if (status == LIG_OK)
        status = verify_devices(&self);
    /* Transfers into the caller's memory and into buffers must have ended before this returns. */
    ligi_file_engine_return(self.volume, self.engine);
    for (size_t i = 0; i < LIGI_ENGINE_DEPTH; i++)
        ligi_staging_drop(&self.buffers[i]);
    if (self.direct_fd >= 0)
        close(self.direct_fd);
    close(self.fd);
    free(self.junk);
    free(self.chunks.order);
    if (status == LIG_E_CORRUPT && bad != NULL)
        *bad = self.bad == SIZE_MAX ? 0 : self.bad;
    return status;
}
