#include "backend/mem/mem_pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/mem/mem_pins.h"
#include "backend/range.h"
#include "base/error.h"
#include "base/map.h"
#include "tensor/memory.h"

#define PAGE_BYTES UINT64_C(4096)

typedef struct writer { /* what pack_create and pack_claim return */
    ligi_mem_volume *volume;
    ligi_mem_pack *pack;
    const void *secret;
    int sealed;
} writer;

void ligi_mem_pack_release(ligi_mem_pack *pack)
{
    if (atomic_fetch_sub(&pack->refs, 1) != 1)
        return;
    if (pack->capacity != 0)
        munmap(pack->base, pack->capacity);
    free(pack);
}

/* The pages move and nothing is copied. TSan does not track moved pages and would report a race
 * with a thread that used the new address before, so its builds copy. */
static void *move(void *from, uint64_t from_bytes, uint64_t bytes)
{
#if defined(__SANITIZE_THREAD__)
    void *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return to;
    memcpy(to, from, from_bytes);
    munmap(from, from_bytes);
    return to;
#else
    return mremap(from, from_bytes, bytes, MREMAP_MAYMOVE);
#endif
}

static lig_status reserve(ligi_mem_pack *pack, uint64_t need)
{
    if (need <= pack->capacity)
        return LIG_OK;
    if (need > LIGI_PACK_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "pack in memory too large: %" PRIu64 " bytes", need);
    uint64_t capacity = need > 2 * pack->capacity ? need : 2 * pack->capacity;
    capacity = (capacity + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    void *base;
    if (pack->capacity == 0)
        base = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        base = move(pack->base, pack->capacity, capacity);
    if (base == MAP_FAILED)
        return ligi_fail_errno(errno, "out of memory for a pack of %" PRIu64 " bytes", capacity);
    pack->base = base;
    pack->capacity = capacity;
    return LIG_OK;
}

static lig_status writer_create(ligi_mem_volume *volume, ligi_mem_pack *pack, const void *secret,
                                void **out)
{
    writer *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the writer of a pack"));
    made->volume = volume;
    made->pack = pack;
    made->secret = secret;
    *out = made;
    return LIG_OK;
}

lig_status ligi_mem_pack_create(void *self, uint64_t bytes, const void *secret, void **out)
{
    ligi_mem *mem = self;
    ligi_mem_pack *pack;

    LIG_TRY(ligi_mem_writable(mem));
    LIG_TRY(ligi_calloc(&pack, 1, sizeof *pack, "a pack"));
    atomic_init(&pack->refs, 1);
    pack->held = 1;
    lig_status status = reserve(pack, bytes == 0 ? 1 : bytes);
    if (status == LIG_OK)
        status = writer_create(mem->volume, pack, secret, out);
    if (status != LIG_OK)
        ligi_mem_pack_release(pack);
    return status;
}

lig_status ligi_mem_pack_put(void *opaque, const lig_piece *piece)
{
    writer *self = opaque;
    ligi_mem_pack *pack = self->pack;

    if (self->sealed)
        return lig_fail(LIG_E_INVALID, "the pack is already sealed");
    LIG_TRY(ligi_piece_check(piece, pack->bytes));
    LIG_TRY(reserve(pack, piece->offset + piece->bytes));
    uint8_t *to = pack->base + piece->offset;
    LIG_TRY(ligi_memory_to_host(to, piece->data, piece->bytes, piece->memory, piece->device));
    for (uint64_t at = 0, i = 0; piece->hashes != NULL && at < piece->bytes;
         at += LIG_BLOCK_BYTES, i++) {
        uint64_t left = piece->bytes - at;
        piece->hashes[i] =
            lig_hash_block(self->secret, to + at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES);
    }
    pack->bytes = piece->offset + piece->bytes;
    return LIG_OK;
}

lig_status ligi_mem_pack_seal(void *opaque, uint64_t *id)
{
    writer *self = opaque;
    ligi_mem_volume *volume = self->volume;

    if (self->sealed)
        return lig_fail(LIG_E_INVALID, "the pack is already sealed");
    pthread_mutex_lock(&volume->lock);
    lig_status status = ligi_grow(&volume->packs, &volume->pack_capacity, volume->pack_count + 1,
                                  sizeof *volume->packs, "the packs");
    if (status == LIG_OK) {
        self->pack->id = ++volume->last_id;
        volume->packs[volume->pack_count++] = self->pack;
        atomic_fetch_add(&self->pack->refs, 1);
        self->sealed = 1;
        *id = self->pack->id;
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}

void ligi_mem_pack_close(void *opaque)
{
    writer *self = opaque;

    if (self == NULL)
        return;
    pthread_mutex_lock(&self->volume->lock);
    self->pack->held = 0;
    pthread_mutex_unlock(&self->volume->lock);
    ligi_mem_pack_release(self->pack);
    free(self);
}

/* The first place whose id is >= id; the lock is held. */
static size_t lower_bound(const ligi_mem_volume *volume, uint64_t id)
{
    size_t at;

    LIGI_LOWER_BOUND(at, volume->pack_count, volume->packs[at]->id < id);
    return at;
}

/* The pack, with one more reference. */
static lig_status acquire(void *self, uint64_t id, ligi_mem_pack **pack)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;

    LIG_TRY(ligi_mem_usable(mem));
    pthread_mutex_lock(&volume->lock);
    size_t at = lower_bound(volume, id);
    int found = at < volume->pack_count && volume->packs[at]->id == id;
    if (found) {
        *pack = volume->packs[at];
        atomic_fetch_add(&(*pack)->refs, 1);
    }
    pthread_mutex_unlock(&volume->lock);
    if (!found)
        return lig_fail(LIG_E_NOTFOUND, "there is no pack %" PRIx64, id);
    return LIG_OK;
}

lig_status ligi_mem_pack_size(void *self, uint64_t id, uint64_t *bytes)
{
    ligi_mem_pack *pack;

    LIG_TRY(acquire(self, id, &pack));
    *bytes = pack->bytes;
    ligi_mem_pack_release(pack);
    return LIG_OK;
}

lig_status ligi_mem_pack_read(void *self, uint64_t id, const void *secret, const lig_range *ranges,
                              size_t count, size_t *bad)
{
    ligi_mem_pack *pack;
    lig_status status = LIG_OK;

    LIG_TRY(acquire(self, id, &pack));
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        status = ligi_range_copy(pack->base, pack->bytes, pack->id, secret, &ranges[i]);
        if (status == LIG_E_CORRUPT)
            *bad = i;
    }
    ligi_mem_pack_release(pack);
    return status;
}

static lig_status map_copy(const ligi_mem_pack *pack, lig_mapping *mapping)
{
    void *base = mmap(NULL, pack->bytes == 0 ? 1 : pack->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return ligi_fail_errno(errno, "out of memory for a private map of pack %" PRIx64, pack->id);
    if (pack->bytes != 0)
        memcpy(base, pack->base, pack->bytes);
    mapping->base = base;
    mapping->bytes = pack->bytes;
    mapping->handle = NULL;
    return LIG_OK;
}

lig_status ligi_mem_pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping)
{
    ligi_mem_pack *pack;

    LIG_TRY(acquire(self, id, &pack));
    if (flags & LIG_MAP_PRIVATE) {
        lig_status status = map_copy(pack, mapping);
        ligi_mem_pack_release(pack);
        return status;
    }
    mapping->base = pack->base;
    mapping->bytes = pack->bytes;
    mapping->handle = pack;
    return LIG_OK;
}

void ligi_mem_pack_unmap(void *self, lig_mapping *mapping)
{
    (void)self;
    if (mapping->handle != NULL)
        ligi_mem_pack_release(mapping->handle);
    else if (mapping->base != NULL)
        munmap(mapping->base, mapping->bytes == 0 ? 1 : mapping->bytes);
    memset(mapping, 0, sizeof *mapping);
}

lig_status ligi_mem_pack_claim(void *self, uint64_t id, void **out)
{
    ligi_mem *mem = self;
    ligi_mem_pack *pack;

    LIG_TRY(ligi_mem_writable(mem));
    LIG_TRY(acquire(self, id, &pack));
    pthread_mutex_lock(&mem->volume->lock);
    int held = pack->held;
    pack->held = 1;
    pthread_mutex_unlock(&mem->volume->lock);
    lig_status status = held ? lig_fail(LIG_E_BUSY, "pack %" PRIx64 " is held by its writer", id)
                             : writer_create(mem->volume, pack, NULL, out);
    if (status == LIG_OK) {
        ((writer *)*out)->sealed = 1;
        return LIG_OK;
    }
    pthread_mutex_lock(&mem->volume->lock);
    pack->held = held;
    pthread_mutex_unlock(&mem->volume->lock);
    ligi_mem_pack_release(pack);
    return status;
}

lig_status ligi_mem_pack_remove(void *self, uint64_t id)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;
    ligi_mem_pack *removed = NULL;

    LIG_TRY(ligi_mem_writable(mem));
    pthread_mutex_lock(&volume->lock);
    size_t at = lower_bound(volume, id);
    int pinned = ligi_mem_pinned(volume, id);
    if (!pinned && at < volume->pack_count && volume->packs[at]->id == id) {
        removed = volume->packs[at];
        volume->pack_count--;
        memmove(&volume->packs[at], &volume->packs[at + 1],
                (volume->pack_count - at) * sizeof *volume->packs);
    }
    pthread_mutex_unlock(&volume->lock);
    if (pinned)
        return lig_fail(LIG_E_BUSY, "pack %" PRIx64 " is pinned by a match in use", id);
    if (removed == NULL)
        return lig_fail(LIG_E_NOTFOUND, "there is no pack %" PRIx64, id);
    ligi_mem_pack_release(removed);
    return LIG_OK;
}

lig_status ligi_mem_pack_next(void *self, uint64_t after, uint64_t *id)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;
    lig_status status = LIG_E_NOTFOUND;

    LIG_TRY(ligi_mem_usable(mem));
    pthread_mutex_lock(&volume->lock);
    size_t at = after == UINT64_MAX ? volume->pack_count : lower_bound(volume, after + 1);
    if (at < volume->pack_count) {
        *id = volume->packs[at]->id;
        status = LIG_OK;
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}
