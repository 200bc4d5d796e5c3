#include "backend/remote/remote_write.h"

#include "backend/range.h"
#include "backend/remote/remote_leases.h"
#include "base/boot.h"
#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_TRIES = 16 };

typedef struct remote_writer { /* what pack_create and pack_claim return */
    ligi_remote_volume *volume;
    pid_t pid;
    void *object; /* the engine's; NULL: claimed only */
    ligi_remote_lease lease;
    ligi_remote_claim claim;
    const void *secret;
    uint64_t bytes; /* so far */
    uint8_t *room;  /* NULL: not asked for yet */
    uint64_t room_bytes, used;
    uint8_t *block; /* of LIG_BLOCK_BYTES, for blocks that two rooms share */
    int sealed;
} remote_writer;

lig_status ligi_remote_writer_create(ligi_remote_volume *volume, void **pack,
                                     ligi_remote_claim **claim)
{
    remote_writer *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the writer of a pack"));
    made->volume = volume;
    made->pid = getpid();
    made->sealed = 1;
    *pack = made;
    *claim = &made->claim;
    return LIG_OK;
}

/* Ids are random: no two writers agree on one, and none is used again. */
static lig_status create_object(remote_writer *self, uint64_t bytes, uint64_t *id)
{
    ligi_remote_volume *volume = self->volume;
    lig_status status = LIG_E_EXISTS;

    for (int i = 0; i < ID_TRIES && status == LIG_E_EXISTS; i++) {
        LIG_TRY(ligi_random(id, sizeof *id));
        *id >>= 1;
        if (*id == 0)
            continue;
        ligi_object object = {LIGI_OBJECT_PACK, *id};
        self->lease.renewed_ns = ligi_remote_boot_ns();
        status = volume->ops->object_create(volume->engine, object, bytes, volume->windows.ttl_ns,
                                            &self->object);
    }
    if (status == LIG_E_EXISTS)
        return lig_fail(LIG_E_INTERNAL, "%s: no unused pack id was found", volume->name);
    return status;
}

static lig_status begin(remote_writer *self, uint64_t bytes)
{
    ligi_remote_volume *volume = self->volume;
    uint64_t id;

    LIG_TRY(create_object(self, bytes, &id));
    self->lease.renew = volume->ops->object_renew;
    self->lease.thing = self->object;
    LIG_TRY(ligi_remote_lease_begin(volume, &self->lease, INT64_MAX));
    self->claim.lease = &self->lease;
    return ligi_remote_claim_begin(volume, &self->claim, id);
}

lig_status ligi_remote_pack_create(void *opaque, uint64_t bytes, const void *secret, void **pack)
{
    ligi_remote *self = opaque;
    ligi_remote_claim *claim;
    void *made;

    LIG_TRY(ligi_remote_writable(self));
    LIG_TRY(ligi_remote_writer_create(self->volume, &made, &claim));
    remote_writer *writer = made;
    writer->sealed = 0;
    writer->secret = secret;
    lig_status status = begin(writer, bytes);
    if (status != LIG_OK) {
        ligi_remote_pack_close(writer);
        return status;
    }
    *pack = writer;
    return LIG_OK;
}

/* --- bytes --- */

static lig_status need_room(remote_writer *self)
{
    const ligi_engine_ops *ops = self->volume->ops;
    void *memory;

    if (self->room != NULL && self->used < self->room_bytes)
        return LIG_OK;
    if (self->room != NULL)
        LIG_TRY(ops->object_push(self->object, self->used));
    self->room = NULL;
    LIG_TRY(ops->object_room(self->object, &memory, &self->room_bytes));
    self->room = memory;
    self->used = 0;
    return LIG_OK;
}

/* Copies host memory (NULL: zeros). */
static lig_status add_bytes(remote_writer *self, const uint8_t *from, uint64_t bytes)
{
    while (bytes > 0) {
        LIG_TRY(need_room(self));
        uint64_t left = self->room_bytes - self->used, step = left < bytes ? left : bytes;
        if (from != NULL)
            memcpy(self->room + self->used, from, step);
        else
            memset(self->room + self->used, 0, step);
        self->used += step;
        self->bytes += step;
        from = from != NULL ? from + step : NULL;
        bytes -= step;
    }
    return LIG_OK;
}

static lig_status add_block(remote_writer *self, const lig_piece *piece, uint64_t at,
                            uint64_t bytes)
{
    const uint8_t *from = (const uint8_t *)piece->data + at;
    uint64_t *hash = piece->hashes == NULL ? NULL : &piece->hashes[at / LIG_BLOCK_BYTES];

    LIG_TRY(need_room(self));
    int fits = self->room_bytes - self->used >= bytes;
    if (!fits && self->block == NULL)
        LIG_TRY(ligi_alloc(&self->block, LIG_BLOCK_BYTES, "a block of a pack"));
    uint8_t *to = fits ? self->room + self->used : self->block;
    LIG_TRY(ligi_memory_to_host(to, from, bytes, piece->memory, piece->device));
    /* The hashed bytes are those that are sent, even if the caller changes its memory meanwhile. */
    if (hash != NULL)
        *hash = lig_hash_block(self->secret, to, bytes);
    if (!fits)
        return add_bytes(self, to, bytes);
    self->used += bytes;
    self->bytes += bytes;
    return LIG_OK;
}

lig_status ligi_remote_pack_put(void *opaque, const lig_piece *piece)
{
    remote_writer *self = opaque;

    if (self->sealed)
        return lig_fail(LIG_E_INVALID, "the pack is already sealed");
    LIG_TRY(ligi_piece_check(piece, self->bytes));
    LIG_TRY(add_bytes(self, NULL, piece->offset - self->bytes));
    for (uint64_t at = 0; at < piece->bytes; at += LIG_BLOCK_BYTES) {
        uint64_t left = piece->bytes - at;
        LIG_TRY(add_block(self, piece, at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES));
    }
    return LIG_OK;
}

lig_status ligi_remote_pack_seal(void *opaque, uint64_t *id)
{
    remote_writer *self = opaque;
    const ligi_engine_ops *ops = self->volume->ops;

    if (self->sealed)
        return lig_fail(LIG_E_INVALID, "the pack is already sealed");
    if (self->room != NULL && self->used > 0)
        LIG_TRY(ops->object_push(self->object, self->used));
    self->room = NULL;
    LIG_TRY(ops->object_seal(self->object));
    self->sealed = 1;
    *id = self->claim.id;
    return LIG_OK;
}

void ligi_remote_pack_close(void *opaque)
{
    remote_writer *self = opaque;

    if (self == NULL)
        return;
    int forked = self->pid != getpid();
    if (!forked) { /* a thread that finds the lease by its claim may renew it: that is waited for */
        ligi_remote_claim_end(self->volume, &self->claim);
        ligi_remote_lease_end(self->volume, &self->lease);
    }
    if (self->object != NULL)
        self->volume->ops->object_close(self->object, forked);
    free(self->block);
    free(self);
}
