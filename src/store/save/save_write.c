#include "store/save/save_write.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/catalog/change.h"
#include "store/catalog/model_ids.h"
#include "store/quota.h"
#include "store/save/dedup.h"
#include "store/save/inline_or_pack.h"
#include "store/save/save_source.h"
#include "tensor/memory.h"
#include "tensor/stride.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (UINT64_C(4) << 20)      /* for tensors that cannot be passed directly */
#define QUOTA_EARLY_BYTES (UINT64_C(1) << 20) /* less is checked by the commit alone */

static lig_status wait_for(const ligi_save_write *self, size_t index)
{
    return self->source->wait ? self->source->wait(self->source->context, index) : LIG_OK;
}

static void notify_done(const ligi_save_write *self, size_t index)
{
    if (self->source->done)
        self->source->done(self->source->context, index);
}

/* --- a pack --- */

static lig_status put_flat(ligi_save_write *self, const void *data, uint64_t bytes, uint64_t offset)
{
    lig_piece piece = {.data = data, .bytes = bytes, .offset = offset};
    return self->store->volume->ops->pack_put(self->pack, &piece);
}

static lig_status put_header(ligi_save_write *self)
{
    uint8_t bytes[LIGI_PACK_HEADER_BYTES];
    ligi_pack_header header = {.created_ns = ligi_date_ns()};
    memcpy(header.uuid, self->store->uuid, sizeof header.uuid);
    memcpy(header.secret, self->store->secret, sizeof header.secret);
    ligi_pack_header_make(&header, bytes);
    return put_flat(self, bytes, sizeof bytes, 0);
}

/* Upper bound of the bytes left to write, a hint for the volume. */
static uint64_t size_guess(const ligi_plan *plan)
{
    uint64_t bytes = LIGI_PACK_HEADER_BYTES + plan->count * 64;
    for (size_t i = 0; i < plan->count; i++)
        if (plan->slots[i].tied == SIZE_MAX && plan->slots[i].pack == 0)
            bytes += plan->tensors[i].bytes;
    return bytes;
}

/* The gathered bytes are written first, in their layout. */
static lig_status begin_pack(ligi_save_write *self, size_t index)
{
    ligi_plan *plan = self->plan;
    LIG_TRY(self->store->volume->ops->pack_create(self->store->volume->self, size_guess(plan),
                                                  self->store->secret, &self->pack));
    LIG_TRY(put_header(self));
    if (self->data.bytes)
        LIG_TRY(put_flat(self, self->data.data, self->data.bytes, LIGI_PACK_HEADER_BYTES));
    for (size_t i = 0; i < index; i++)
        if (plan->slots[i].tied == SIZE_MAX && plan->slots[i].pack == 0)
            plan->slots[i].offset += LIGI_PACK_HEADER_BYTES;
    self->at += LIGI_PACK_HEADER_BYTES;
    ligi_writer_fini(&self->data);
    return LIG_OK;
}

/* Valid until the next one; of a source that lends, until the next but one. */
static lig_status get_part(ligi_save_write *self, size_t index, uint64_t at, uint64_t bytes,
                           const void **data)
{
    if (self->source->view)
        return self->source->view(self->source->context, index, at, bytes, data);
    if (self->buffer == NULL)
        LIG_TRY(ligi_alloc(&self->buffer, BUFFER_BYTES, "a buffer"));
    *data = self->buffer;
    return ligi_source_fill(self->source, self->plan, index,
                            &(ligi_stretch){at, bytes, self->buffer});
}

static lig_status put_parts(ligi_save_write *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    for (uint64_t at = 0; at < tensor->bytes; at += BUFFER_BYTES) {
        uint64_t bytes = tensor->bytes - at < BUFFER_BYTES ? tensor->bytes - at : BUFFER_BYTES;
        const void *data;
        LIG_TRY(get_part(self, index, at, bytes, &data));
        lig_piece piece = {.data = data,
                           .bytes = bytes,
                           .offset = slot->offset + at,
                           .hashes = self->plan->hashes + slot->first_hash + at / LIG_BLOCK_BYTES,
                           .flags = self->source->view ? LIG_PIECE_KEPT : 0};
        LIG_TRY(self->store->volume->ops->pack_put(self->pack, &piece));
    }
    return LIG_OK;
}

/* 1 if the volume can read the tensor's bytes in place. Device tensors have no gaps.
 */
static int can_hand_over(const ligi_save_write *self, const lig_tensor *tensor)
{
    return ligi_source_flat(self->source, tensor) ||
           (self->source->fill == NULL && tensor->memory != LIG_MEMORY_HOST &&
            (self->store->volume->backend->flags & LIG_BACKEND_DEVICE));
}

static lig_status put_packed(ligi_save_write *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    if (!can_hand_over(self, tensor))
        return put_parts(self, index);
    lig_piece piece = {.data = tensor->data,
                       .bytes = tensor->bytes,
                       .offset = slot->offset,
                       .hashes = self->plan->hashes + slot->first_hash,
                       .memory = tensor->memory,
                       .device = tensor->device};
    return self->store->volume->ops->pack_put(self->pack, &piece);
}

lig_status ligi_save_write_manifest(ligi_save_write *self)
{
    const ligi_plan *plan = self->plan;
    ligi_body body = {.structure = plan->structure,
                      .tensors = plan->tensors,
                      .slots = plan->slots,
                      .places = plan->places,
                      .part = plan->part != NULL,
                      .hashes = plan->hashes,
                      .count = plan->count,
                      .graphs = plan->graphs.data,
                      .graph_bytes = plan->graphs.bytes};
    self->manifest.bytes = 0;
    ligi_manifest_put(&self->manifest, &plan->about, &body);
    return self->manifest.status;
}

static lig_status put_footer(ligi_save_write *self)
{
    if (self->plan->about.id == 0 && self->plan->part == NULL)
        LIG_TRY(ligi_model_ids_take(self->store, self->interrupt, &self->plan->about.id));
    LIG_TRY(ligi_save_write_manifest(self));
    self->trailer.footer_offset =
        (self->at + LIGI_ALIGN_SMALL - 1) / LIGI_ALIGN_SMALL * LIGI_ALIGN_SMALL;
    self->trailer.footer_bytes = self->manifest.bytes;
    self->trailer.footer_hash = ligi_hash64_plain(self->manifest.data, self->manifest.bytes);
    LIG_TRY(put_flat(self, self->manifest.data, self->manifest.bytes, self->trailer.footer_offset));
    uint8_t bytes[LIGI_PACK_TRAILER_BYTES];
    ligi_pack_trailer_make(&self->trailer, bytes);
    uint64_t end = self->trailer.footer_offset + self->trailer.footer_bytes;
    self->pack_bytes = end + sizeof bytes;
    return put_flat(self, bytes, sizeof bytes, end);
}

/* --- inline --- */

static lig_status put_inline(ligi_save_write *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    ligi_put_zeros(&self->data, slot->offset + tensor->bytes - self->data.bytes);
    LIG_TRY(self->data.status);
    uint8_t *at = self->data.data + slot->offset;
    if (ligi_source_flat(self->source, tensor))
        memcpy(at, tensor->data, tensor->bytes);
    else
        LIG_TRY(ligi_source_fill(self->source, self->plan, index,
                                 &(ligi_stretch){0, tensor->bytes, at}));
    self->plan->hashes[slot->first_hash] = ligi_hash64(self->store->secret, at, tensor->bytes);
    return LIG_OK;
}

/* --- both --- */

static lig_status put_tensor(ligi_save_write *self, size_t index)
{
    ligi_plan *plan = self->plan;
    const lig_tensor *tensor = &plan->tensors[index];
    if (plan->slots[index].tied != SIZE_MAX || plan->slots[index].pack)
        return LIG_OK;
    self->new_bytes += tensor->bytes;
    if (self->pack == NULL && (!self->inline_allowed || !ligi_inline_fits(self->new_bytes)))
        LIG_TRY(begin_pack(self, index));
    self->at = ligi_plan_place(plan, index, self->at, self->pack != NULL);
    if (tensor->bytes == 0)
        return LIG_OK;
    return self->pack ? put_packed(self, index) : put_inline(self, index);
}

/* Called when it is known what is already stored, and before the rest is transferred. */
static lig_status check_quota(const ligi_save_write *self, size_t known)
{
    const ligi_plan *plan = self->plan;
    ligi_catalog_view view;
    uint64_t bytes = 0;
    if (self->store->quota_count == 0 || known < plan->count)
        return LIG_OK;
    for (size_t i = 0; i < plan->count; i++)
        if (plan->slots[i].tied == SIZE_MAX && plan->slots[i].owner == 0)
            bytes += plan->tensors[i].bytes;
    if (bytes < QUOTA_EARLY_BYTES)
        return LIG_OK;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status =
        ligi_quota_check(&view, &(ligi_record){.about = plan->about, .own_bytes = bytes}, NULL);
    ligi_catalog_view_end(&view);
    return status;
}

lig_status ligi_save_write_run(ligi_save_write *self)
{
    ligi_plan *plan = self->plan;
    ligi_stamps *stamps = &self->store->stamps;
    size_t deduplicated = 0;
    int64_t begin = ligi_now_ns();
    self->inline_allowed =
        !self->packed &&
        ligi_inline_allowed(plan, self->store->volume->ops->flags(self->store->volume->self));
    for (size_t i = 0; i < plan->count; i++) {
        LIG_TRY(wait_for(self, i));
        if (i == deduplicated) {
            deduplicated = self->source->in_parts ? i + 1 : plan->count;
            LIG_TRY(ligi_dedup(self->store, plan, self->source, i, deduplicated));
            begin = i ? begin : ligi_now_ns(); /* looking up is a separate phase */
            LIG_TRY(check_quota(self, deduplicated));
        }
        LIG_TRY(put_tensor(self, i));
        notify_done(self, i);
    }
    if (self->pack == NULL && !self->inline_allowed)
        LIG_TRY(begin_pack(self, plan->count));
    if (self->pack)
        LIG_TRY(put_footer(self));
    LIG_TRY(wait_for(self, plan->count));
    ligi_stamps_note(stamps, LIGI_STAMP_WRITE, begin);
    if (self->pack == NULL)
        return LIG_OK;
    begin = ligi_now_ns();
    LIG_TRY(self->store->volume->ops->pack_seal(self->pack, &self->pack_id));
    ligi_stamps_note(stamps, LIGI_STAMP_SYNC, begin);
    return LIG_OK;
}

lig_status ligi_save_write_inline(ligi_save_write *self, ligi_change *change, ligi_record *record)
{
    uint64_t id = self->plan->about.id;
    LIG_TRY(ligi_save_write_manifest(self));
    ligi_inline inlined = {.manifest = self->manifest.data,
                           .manifest_bytes = self->manifest.bytes,
                           .data = self->data.data,
                           .data_bytes = self->data.bytes};
    record->manifest_bytes = self->manifest.bytes;
    record->manifest_hash = ligi_hash64_plain(self->manifest.data, self->manifest.bytes);
    ligi_inline_put(&change->value, id, &inlined, self->store->secret);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, id);
    return ligi_change_put(change, &key);
}

void ligi_save_write_fini(ligi_save_write *self)
{
    self->store->volume->ops->pack_close(self->pack);
    ligi_writer_fini(&self->manifest);
    ligi_writer_fini(&self->data);
    free(self->buffer);
}
