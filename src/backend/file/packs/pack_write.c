#include "backend/file/packs/pack_write.h"

#include "backend/file/file.h"
#include "backend/file/folder.h"
#include "backend/file/names.h"
#include "backend/file/packs/held_packs.h"
#include "backend/file/packs/pack_folder.h"
#include "backend/range.h"
#include "base/error.h"
#include "tensor/staging.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct writer { /* what pack_create and pack_claim return */
    ligi_file *volume;
    ligi_engine *engine;
    const void *secret;
    char temporary[LIGI_PACK_NAME_BYTES];
    uint64_t temporary_id;
    int fd, direct_fd; /* fd holds the lock; direct_fd is -1 when bytes go through the page cache */
    int sealed;
    uint64_t id;
    uint64_t bytes; /* put so far, gaps included */
    int slot;       /* being filled, or -1 */
    uint64_t start; /* where the slot's first byte goes; aligned under O_DIRECT */
    uint64_t filled;
    int keeps;            /* the piece that is being put is LIG_PIECE_KEPT */
    unsigned turn;        /* of the pieces: 0 and 1 alternate */
    unsigned in_place[2]; /* transfers from the memory of kept pieces, by turn */
    ligi_failure failure; /* the first one: nothing works after it */
} writer;

/* An errno value. If files cannot be locked, no process removes packs either: claims fail. */
static int lock(const writer *self)
{
    while (flock(self->fd, LOCK_EX) != 0) {
        if (errno == EINTR)
            continue;
        return self->volume->network ? 0 : errno;
    }
    return 0;
}

static lig_status create_temporary(writer *self)
{
    const ligi_file *volume = self->volume;
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;

    ligi_file_pack_hold(volume->catalog, self->temporary_id, 0);
    self->temporary_id = ligi_folder_random_id();
    LIG_TRY(ligi_file_pack_hold(volume->catalog, self->temporary_id, 1));
    snprintf(self->temporary, sizeof self->temporary, LIGI_NAME_TEMPORARY "%016" PRIx64,
             self->temporary_id);
    self->fd = openat(volume->packs_fd, self->temporary, flags, 0666);
    if (self->fd < 0)
        return ligi_fail_errno(errno, "cannot write to %s/packs", volume->place);
    ligi_entry_own(volume->folder_fd, self->fd);
    return LIG_OK;
}

/* A cleaner may take a temporary between its creation and its lock: it has no name then. */
static lig_status create_locked(writer *self)
{
    const char *place = self->volume->place;
    struct stat info;

    for (int attempt = 0; attempt < 100; attempt++) {
        LIG_TRY(create_temporary(self));
        int number = lock(self);
        if (number != 0)
            return ligi_fail_errno(number, "%s: this file system does not support file locks",
                                   place);
        if (fstat(self->fd, &info) == 0 && info.st_nlink > 0)
            return LIG_OK;
        close(self->fd);
        self->fd = -1;
    }
    return lig_fail(LIG_E_BUSY, "%s: temporary packs are removed as fast as they are created",
                    place);
}

/* The temporary once more, for O_DIRECT; -1 when it is refused or the name is another file's. */
static int open_direct(const writer *self)
{
    const ligi_file *volume = self->volume;
    struct stat first, second;
    int fd;

    if (ligi_entry_open(volume->folder_fd, volume->packs_fd, volume->packs_place, self->temporary,
                        O_RDWR | O_DIRECT, &fd) != LIG_OK)
        return -1;
    if (fstat(self->fd, &first) == 0 && fstat(fd, &second) == 0 && first.st_dev == second.st_dev &&
        first.st_ino == second.st_ino)
        return fd;
    close(fd);
    return -1;
}

static void choose_path(writer *self, uint64_t bytes)
{
    const ligi_file *volume = self->volume;

    if (!volume->direct || bytes <= volume->options.cache)
        return;
    self->direct_fd = open_direct(self);
    if (self->direct_fd < 0)
        return;
    if (strcmp(volume->options.uring, "0") != 0)
        ligi_engine_ring(self->engine);
    /* Writes into a file that has its length run side by side; those that extend it queue up. Where
     * this is refused nothing is lost, and a full disk shows in the writes. */
    if (bytes <= LIGI_PACK_BYTES_MAX)
        (void)!fallocate(self->fd, 0, 0, (off_t)bytes);
}

static void writer_destroy(writer *self)
{
    int forked = self->volume->pid != getpid();

    if (forked) {
        ligi_engine_destroy(self->engine, 1);
    } else {
        ligi_file_engine_return(self->volume, self->engine);
        if (!self->sealed && self->fd >= 0)
            unlinkat(self->volume->packs_fd, self->temporary, 0);
        ligi_file_pack_hold(self->volume->catalog, self->sealed ? self->id : 0, 0);
        ligi_file_pack_hold(self->volume->catalog, self->temporary_id, 0);
        /* A child forked in the meantime shares the lock: closing here would not release it. */
        if (self->fd >= 0)
            flock(self->fd, LOCK_UN);
    }
    if (self->fd >= 0)
        close(self->fd);
    if (self->direct_fd >= 0)
        close(self->direct_fd);
    free(self);
}

static lig_status writer_create(ligi_file *volume, const void *secret, writer **out)
{
    writer *made;

    LIG_TRY(ligi_file_writable(volume));
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the writer of a pack"));
    made->volume = volume;
    made->secret = secret;
    made->fd = made->direct_fd = made->slot = -1;
    *out = made;
    return LIG_OK;
}

lig_status ligi_file_pack_create(void *opaque, uint64_t bytes, const void *secret, void **pack)
{
    writer *self;

    LIG_TRY(writer_create(opaque, secret, &self));
    lig_status status = ligi_file_engine(self->volume, &self->engine);
    if (status == LIG_OK)
        status = create_locked(self);
    if (status != LIG_OK) {
        writer_destroy(self);
        return status;
    }
    choose_path(self, bytes);
    *pack = self;
    return LIG_OK;
}

static lig_status finish_one(writer *self)
{
    ligi_io done;

    LIG_TRY(ligi_engine_finish(self->engine, &done));
    if (done.slot >= 0)
        ligi_engine_free(self->engine, done.slot);
    else
        self->in_place[done.token]--;
    return LIG_OK;
}

static lig_status start(writer *self, const ligi_io *io)
{
    while (ligi_engine_flying(self->engine) == LIGI_ENGINE_DEPTH)
        LIG_TRY(finish_one(self));
    return ligi_engine_start(self->engine, io);
}

/* A slot to fill, waiting for the oldest transfers when all are under way. */
static lig_status next_slot(writer *self)
{
    while ((self->slot = ligi_engine_take(self->engine)) < 0)
        LIG_TRY(finish_one(self));
    self->filled = 0;
    return LIG_OK;
}

/* Sends the slot off. Under O_DIRECT whole units go, and what is left over begins the next slot. */
static lig_status flush_direct(writer *self)
{
    uint64_t whole = self->filled & ~(LIGI_ALIGN_BYTES - 1), rest = self->filled - whole;
    int slot = self->slot;
    uint8_t *data = ligi_engine_slot(self->engine, slot);
    const ligi_io io = {
        .fd = self->direct_fd,
        .plain_fd = self->fd,
        .write = 1,
        .slot = slot,
        .data = data,
        .bytes = whole,
        .offset = self->start,
    };

    if (whole == 0)
        return LIG_OK;
    LIG_TRY(start(self, &io));
    LIG_TRY(next_slot(self));
    memcpy(ligi_engine_slot(self->engine, self->slot), data + whole, rest);
    self->start += whole;
    self->filled = rest;
    return LIG_OK;
}

static lig_status flush(writer *self)
{
    if (self->direct_fd >= 0)
        return flush_direct(self);
    LIG_TRY(ligi_write_all(self->fd, ligi_engine_slot(self->engine, self->slot), self->filled,
                           self->start));
    self->start += self->filled;
    self->filled = 0;
    return LIG_OK;
}

/* Contiguous space for `bytes` (at most a block), so that a block can be hashed in place. */
static lig_status make_room(writer *self, uint64_t bytes, uint8_t **at)
{
    if (self->slot < 0) {
        LIG_TRY(next_slot(self));
        self->start = self->bytes;
    }
    if (self->filled + bytes > LIGI_SLOT_BYTES)
        LIG_TRY(flush(self));
    *at = ligi_engine_slot(self->engine, self->slot) + self->filled;
    return LIG_OK;
}

static lig_status advance(writer *self, uint64_t bytes)
{
    self->filled += bytes;
    self->bytes += bytes;
    return self->filled >= LIG_BLOCK_BYTES ? flush(self) : LIG_OK;
}

static lig_status put_zeros(writer *self, uint64_t until)
{
    uint8_t *at;

    while (self->bytes < until) {
        uint64_t left = until - self->bytes;
        uint64_t part = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
        LIG_TRY(make_room(self, part, &at));
        memset(at, 0, part);
        LIG_TRY(advance(self, part));
    }
    return LIG_OK;
}

static int goes_in_place(const writer *self, const uint8_t *from, uint64_t bytes)
{
    uint64_t borders = (uint64_t)(uintptr_t)from | bytes | self->bytes;

    return self->keeps && borders % LIGI_ALIGN_BYTES == 0;
}

/* Copying costs more time than hashing, and half as much as the transfer to a fast disk. */
static lig_status put_in_place(writer *self, const uint8_t *from, uint64_t bytes, uint64_t *hash)
{
    const ligi_io io = {
        .fd = self->direct_fd,
        .plain_fd = self->fd,
        .write = 1,
        .slot = -1,
        .data = (void *)(uintptr_t)from,
        .bytes = bytes,
        .offset = self->bytes,
        .token = self->turn,
    };

    if (self->slot >= 0)
        LIG_TRY(flush_direct(self));
    LIG_TRY(start(self, &io));
    self->in_place[self->turn]++;
    self->bytes += bytes;
    self->start = self->bytes;
    if (hash != NULL)
        *hash = lig_hash_block(self->secret, from, bytes);
    return LIG_OK;
}

/* The hashed bytes are those that are written, even if the caller's memory changes meanwhile. */
static lig_status put_block(writer *self, const uint8_t *from, uint64_t bytes, uint64_t *hash)
{
    uint8_t *at;

    if (goes_in_place(self, from, bytes))
        return put_in_place(self, from, bytes, hash);
    LIG_TRY(make_room(self, bytes, &at));
    memcpy(at, from, bytes);
    if (hash != NULL)
        *hash = lig_hash_block(self->secret, at, bytes);
    return advance(self, bytes);
}

/* The bytes come in whole blocks, but for the last ones. */
static lig_status put_drained(writer *self, ligi_drain *drain, uint64_t *hashes)
{
    const uint8_t *from;
    uint64_t bytes, block = 0;

    static_assert(LIGI_STAGING_BYTES % LIG_BLOCK_BYTES == 0, "a buffer holds whole blocks");
    for (;;) {
        LIG_TRY(ligi_drain_next(drain, LIGI_STAGING_BYTES, &from, &bytes));
        if (bytes == 0)
            return LIG_OK;
        for (uint64_t done = 0; done < bytes; block++) {
            uint64_t left = bytes - done;
            uint64_t part = left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES;
            LIG_TRY(put_block(self, from + done, part, hashes == NULL ? NULL : &hashes[block]));
            done += part;
        }
    }
}

static lig_status put_blocks(writer *self, const lig_piece *piece)
{
    ligi_drain drain;

    ligi_drain_begin(&drain, piece->data, piece->bytes, piece->memory, piece->device);
    lig_status status = put_drained(self, &drain, piece->hashes);
    ligi_drain_end(&drain);
    return status;
}

/* Keeps the first failure, and names the place in it. */
static lig_status keep(writer *self, lig_status status)
{
    if (status == LIG_OK)
        return LIG_OK;
    ligi_failure_take(&self->failure, status);
    char text[LIGI_ERROR_TEXT_BYTES];
    int cut = snprintf(text, sizeof text, "%s: cannot write a pack: %s", self->volume->place,
                       self->failure.text);
    if (cut > 0)
        memcpy(self->failure.text, text, sizeof text);
    return ligi_failure_publish(&self->failure);
}

static lig_status check_usable(const writer *self)
{
    LIG_TRY(ligi_file_usable(self->volume));
    if (self->failure.status != LIG_OK)
        return ligi_failure_publish(&self->failure);
    if (self->sealed)
        return lig_fail(LIG_E_INVALID, "%s: cannot add bytes to a sealed pack",
                        self->volume->place);
    return LIG_OK;
}

lig_status ligi_file_pack_put(void *pack, const lig_piece *piece)
{
    writer *self = pack;

    LIG_TRY(check_usable(self));
    LIG_TRY(ligi_piece_check(piece, self->bytes));
    self->turn ^= 1;
    self->keeps = self->direct_fd >= 0 && piece->memory == LIG_MEMORY_HOST &&
                  (piece->flags & LIG_PIECE_KEPT) != 0;
    lig_status status = put_zeros(self, piece->offset);
    if (status == LIG_OK)
        status = put_blocks(self, piece);
    while (status == LIG_OK && self->in_place[self->turn ^ 1] > 0)
        status = finish_one(self);
    return keep(self, status);
}

static lig_status finish_writes(writer *self)
{
    if (self->slot >= 0 && self->direct_fd >= 0 && self->filled > 0) {
        uint64_t whole = (self->filled + LIGI_ALIGN_BYTES - 1) & ~(LIGI_ALIGN_BYTES - 1);
        memset(ligi_engine_slot(self->engine, self->slot) + self->filled, 0, whole - self->filled);
        self->filled = whole;
    }
    if (self->slot >= 0 && self->filled > 0)
        LIG_TRY(flush(self));
    while (ligi_engine_flying(self->engine) > 0)
        LIG_TRY(finish_one(self));
    /* Cuts off what alignment and the preallocation added. */
    if (self->direct_fd >= 0 && ftruncate(self->fd, (off_t)self->bytes) != 0)
        return ligi_fail_errno(errno, "ftruncate failed");
    if (self->volume->options.fsync && fdatasync(self->fd) != 0)
        return ligi_fail_errno(errno, "fdatasync failed");
    return LIG_OK;
}

/* Gives the temporary its name, never over another pack. */
static int rename_to(const writer *self, const char *name)
{
    int packs = self->volume->packs_fd;

    if (renameat2(packs, self->temporary, packs, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
        return -1;
    if (linkat(packs, self->temporary, packs, name, 0) != 0) {
        if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
            return -1;
        /* An existing name cannot be detected; it is one of 2^63. */
        return renameat(packs, self->temporary, packs, name);
    }
    unlinkat(packs, self->temporary, 0);
    return 0;
}

static lig_status publish(writer *self)
{
    char name[LIGI_PACK_NAME_BYTES];

    for (int attempt = 0;; attempt++) {
        self->id = ligi_folder_random_id();
        ligi_file_pack_name(name, self->id);
        LIG_TRY(ligi_file_pack_hold(self->volume->catalog, self->id, 1));
        if (rename_to(self, name) == 0)
            break;
        int number = errno;
        ligi_file_pack_hold(self->volume->catalog, self->id, 0);
        if (number != EEXIST || attempt == 10)
            return ligi_fail_errno(number, "rename to %s failed", name);
    }
    ligi_file_pack_forget_list(self->volume);
    lig_status status = LIG_OK;
    if (self->volume->options.fsync)
        status = ligi_folder_sync(self->volume->packs_fd, "packs");
    if (status != LIG_OK) {
        unlinkat(self->volume->packs_fd, name, 0);
        ligi_file_pack_hold(self->volume->catalog, self->id, 0);
        return status;
    }
    self->sealed = 1;
    return LIG_OK;
}

lig_status ligi_file_pack_seal(void *pack, uint64_t *id)
{
    writer *self = pack;

    LIG_TRY(check_usable(self));
    lig_status status = finish_writes(self);
    if (status == LIG_OK)
        status = publish(self);
    /* Buffers are of use to others; the lock stays until close. */
    ligi_file_engine_return(self->volume, self->engine);
    self->engine = NULL;
    LIG_TRY(keep(self, status));
    *id = self->id;
    return LIG_OK;
}

void ligi_file_pack_close(void *pack)
{
    if (pack != NULL)
        writer_destroy(pack);
}

lig_status ligi_file_pack_claim(void *opaque, uint64_t id, void **pack)
{
    ligi_file *volume = opaque;
    writer *self;
    struct stat info;

    LIG_TRY(writer_create(volume, NULL, &self));
    lig_status status = ligi_file_pack_hold(volume->catalog, id, 1);
    if (status != LIG_OK) {
        free(self);
        return status;
    }
    self->sealed = 1;
    self->id = id;
    status = ligi_file_pack_open(volume, id, O_RDWR, &self->fd);
    if (status == LIG_OK && flock(self->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            status = lig_fail(LIG_E_BUSY, "%s: pack %016" PRIx64 " is held by its writer",
                              volume->place, id);
        else
            status = ligi_fail_errno(errno, "%s: cannot lock pack %016" PRIx64, volume->place, id);
    }
    if (status == LIG_OK && (fstat(self->fd, &info) != 0 || info.st_nlink == 0))
        status = lig_fail(LIG_E_NOTFOUND, "%s has no pack %016" PRIx64, volume->place, id);
    if (status == LIG_OK)
        *pack = self;
    else
        writer_destroy(self);
    return status;
}
