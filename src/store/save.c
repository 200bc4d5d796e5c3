#include "store/save.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/ledger.h"
#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>

#define INLINE_BYTES (UINT64_C(64) << 10)
#define INLINE_MANIFEST_BYTES (UINT64_C(1) << 20)
#define BUFFER_BYTES (UINT64_C(4) << 20) /* for tensors that cannot be handed over as they lie */
#define ALIGN_BIG UINT64_C(4096)

typedef struct saving {
    lig_store *store;
    ligi_plan *plan;
    const ligi_source *source;
    void *pack;
    uint64_t pack_id, pack_bytes;
    ligi_pack_trailer trailer;
    ligi_writer manifest; /* of a pack; an inline one is made when its id is known */
    uint8_t *data;        /* of an inline model */
    uint8_t *buffer;
} saving;

/* --- what can be refused at once --- */

static lig_status check_free(const ligi_ledger *ledger, const ligi_plan *plan, uint64_t *taken)
{
    uint64_t alias;
    LIG_TRY(ligi_ledger_alias(ledger, plan->about.name, &alias));
    if (alias)
        return lig_fail(LIG_E_EXISTS,
                        "'%s' is an alias in %s; remove it first, or save under another name",
                        plan->about.name, ledger->store->uri);
    LIG_TRY(ligi_ledger_name(ledger, plan->about.name, taken));
    if (*taken && !(plan->flags & LIG_SAVE_REPLACE))
        return lig_fail(LIG_E_EXISTS,
                        "there is a model '%s' in %s already; replace it, or save under another "
                        "name",
                        plan->about.name, ledger->store->uri);
    return LIG_OK;
}

/* The parent may be given by an alias, which will name another model one day: its own name is kept.
 */
static lig_status find_parent(const ligi_ledger *ledger, ligi_plan *plan)
{
    if (plan->about.parent_name[0] == '\0')
        return LIG_OK;
    ligi_record parent = {0};
    lig_status status = ligi_ledger_find(ledger, plan->about.parent_name, &parent);
    if (status == LIG_E_NOTFOUND)
        status = lig_fail(status, "there is no model '%s', the parent of '%s', in %s",
                          plan->about.parent_name, plan->about.name, ledger->store->uri);
    if (status == LIG_OK)
        status = ligi_strdup(&plan->parent_name, parent.about.name);
    if (status == LIG_OK) {
        plan->about.parent = parent.about.id;
        plan->about.parent_name = plan->parent_name;
    }
    ligi_record_fini(&parent);
    return status;
}

static lig_status check_catalog(lig_store *store, ligi_plan *plan)
{
    ligi_ledger ledger;
    LIG_TRY(ligi_ledger_begin(store, &ledger));
    uint64_t taken;
    lig_status status = check_free(&ledger, plan, &taken);
    if (status == LIG_OK)
        status = find_parent(&ledger, plan);
    ligi_ledger_end(&ledger);
    return status;
}

lig_status ligi_save_prepare(lig_store *store, const ligi_plan_input *input, int with_data,
                             ligi_plan *plan)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_name_check("model", input->name));
    LIG_TRY(ligi_tensors_check(input->tensors, input->count, with_data));
    LIG_TRY(ligi_plan_make(plan, input));
    plan->about.created_ns = ligi_date_ns();
    return check_catalog(store, plan);
}

/* --- tensors --- */

static lig_status wait_for(const saving *self, size_t index)
{
    return self->source->wait ? self->source->wait(self->source->context, index) : LIG_OK;
}

static void tell_done(const saving *self, size_t index)
{
    if (self->source->done)
        self->source->done(self->source->context, index);
}

/* Bytes of a tensor that does not lie in host memory without gaps. */
static lig_status fill_part(const saving *self, size_t index, uint64_t offset, uint64_t bytes,
                            void *out)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    if (self->source->fill)
        return self->source->fill(self->source->context, index, offset, bytes, out);
    if (lig_tensor_contiguous(tensor))
        return ligi_memory_to_host(out, (const char *)tensor->data + offset, bytes, tensor->memory,
                                   tensor->device);
    ligi_tensor_pack_range(tensor, offset, bytes, out);
    return LIG_OK;
}

static int lies_flat(const saving *self, const lig_tensor *tensor)
{
    return self->source->fill == NULL && tensor->memory == LIG_MEMORY_HOST &&
           lig_tensor_contiguous(tensor);
}

static lig_status put_parts(saving *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    if (self->buffer == NULL)
        LIG_TRY(ligi_alloc(&self->buffer, BUFFER_BYTES, "a buffer"));
    for (uint64_t at = 0; at < tensor->bytes; at += BUFFER_BYTES) {
        uint64_t bytes = tensor->bytes - at < BUFFER_BYTES ? tensor->bytes - at : BUFFER_BYTES;
        LIG_TRY(fill_part(self, index, at, bytes, self->buffer));
        lig_piece piece = {.data = self->buffer,
                           .bytes = bytes,
                           .offset = slot->offset + at,
                           .hashes = self->plan->hashes + slot->first_hash + at / LIG_BLOCK_BYTES};
        LIG_TRY(self->store->place->ops->pack_put(self->pack, &piece));
    }
    return LIG_OK;
}

static lig_status put_tensor(saving *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    LIG_TRY(wait_for(self, index));
    if (slot->tied != SIZE_MAX || tensor->bytes == 0)
        return LIG_OK;
    if (!lies_flat(self, tensor))
        return put_parts(self, index);
    lig_piece piece = {.data = tensor->data,
                       .bytes = tensor->bytes,
                       .offset = slot->offset,
                       .hashes = self->plan->hashes + slot->first_hash};
    return self->store->place->ops->pack_put(self->pack, &piece);
}

/* --- a pack --- */

static lig_status put_flat(saving *self, const void *data, uint64_t bytes, uint64_t offset)
{
    lig_piece piece = {.data = data, .bytes = bytes, .offset = offset};
    return self->store->place->ops->pack_put(self->pack, &piece);
}

static lig_status put_header(saving *self)
{
    uint8_t bytes[LIGI_PACK_HEADER_BYTES];
    ligi_pack_header header = {.created_ns = self->plan->about.created_ns};
    memcpy(header.uuid, self->store->uuid, sizeof header.uuid);
    memcpy(header.secret, self->store->secret, sizeof header.secret);
    ligi_pack_header_make(&header, bytes);
    return put_flat(self, bytes, sizeof bytes, 0);
}

static ligi_body body_of(const ligi_plan *plan)
{
    return (ligi_body){.structure = plan->structure,
                       .tensors = plan->tensors,
                       .slots = plan->slots,
                       .hashes = plan->hashes,
                       .count = plan->count,
                       .graphs = plan->graphs.data,
                       .graph_bytes = plan->graphs.bytes};
}

static lig_status put_footer(saving *self)
{
    ligi_plan *plan = self->plan;
    ligi_body body = body_of(plan);
    ligi_manifest_put(&self->manifest, &plan->about, &body);
    LIG_TRY(self->manifest.status);
    uint64_t end = LIGI_PACK_HEADER_BYTES + plan->data_bytes;
    self->trailer.footer_offset =
        (end + LIGI_ALIGN_SMALL - 1) / LIGI_ALIGN_SMALL * LIGI_ALIGN_SMALL;
    self->trailer.footer_bytes = self->manifest.bytes;
    self->trailer.footer_hash = ligi_hash64_plain(self->manifest.data, self->manifest.bytes);
    LIG_TRY(put_flat(self, self->manifest.data, self->manifest.bytes, self->trailer.footer_offset));
    uint8_t bytes[LIGI_PACK_TRAILER_BYTES];
    ligi_pack_trailer_make(&self->trailer, bytes);
    end = self->trailer.footer_offset + self->trailer.footer_bytes;
    self->pack_bytes = end + sizeof bytes;
    return put_flat(self, bytes, sizeof bytes, end);
}

static lig_status write_pack(saving *self)
{
    ligi_plan *plan = self->plan;
    const lig_volume_ops *ops = self->store->place->ops;
    ligi_plan_place(plan, LIGI_PACK_HEADER_BYTES, ALIGN_BIG);
    LIG_TRY(ligi_store_take_id(self->store, &plan->about.id));
    uint64_t guess = LIGI_PACK_HEADER_BYTES + plan->data_bytes + plan->count * 64;
    LIG_TRY(ops->pack_create(self->store->place->self, guess, self->store->secret, &self->pack));
    LIG_TRY(put_header(self));
    for (size_t i = 0; i < plan->count; i++) {
        LIG_TRY(put_tensor(self, i));
        tell_done(self, i);
    }
    LIG_TRY(put_footer(self));
    LIG_TRY(wait_for(self, plan->count));
    return ops->pack_seal(self->pack, &self->pack_id);
}

/* --- inline --- */

static uint64_t manifest_estimate(const ligi_plan *plan)
{
    uint64_t bytes = strlen(plan->structure) + strlen(plan->about.meta) + plan->graphs.bytes;
    for (size_t i = 0; i < plan->count; i++)
        bytes += strlen(plan->tensors[i].name) + 20 + plan->tensors[i].ndim * 3;
    return bytes;
}

static int goes_inline(const saving *self)
{
    uint32_t flags = self->store->place->ops->flags(self->store->place->self);
    return !(flags & LIG_VOLUME_NO_INLINE) && self->plan->bytes < INLINE_BYTES &&
           manifest_estimate(self->plan) < INLINE_MANIFEST_BYTES;
}

static lig_status gather_one(saving *self, size_t index)
{
    const lig_tensor *tensor = &self->plan->tensors[index];
    const ligi_slot *slot = &self->plan->slots[index];
    LIG_TRY(wait_for(self, index));
    if (slot->tied != SIZE_MAX || tensor->bytes == 0)
        return LIG_OK;
    uint8_t *at = self->data + slot->offset;
    if (lies_flat(self, tensor))
        memcpy(at, tensor->data, tensor->bytes);
    else
        LIG_TRY(fill_part(self, index, 0, tensor->bytes, at));
    self->plan->hashes[slot->first_hash] = ligi_hash64(self->store->secret, at, tensor->bytes);
    return LIG_OK;
}

static lig_status gather(saving *self)
{
    ligi_plan *plan = self->plan;
    ligi_plan_place(plan, 0, LIGI_ALIGN_SMALL);
    LIG_TRY(ligi_calloc(&self->data, 1, plan->data_bytes, "an inline model"));
    for (size_t i = 0; i < plan->count; i++) {
        LIG_TRY(gather_one(self, i));
        tell_done(self, i);
    }
    return wait_for(self, plan->count);
}

/* --- the commit --- */

static lig_status take_next_id(const ligi_ledger *ledger, ligi_change *change, uint64_t *id)
{
    ligi_header header;
    LIG_TRY(ligi_ledger_header(ledger, &header));
    *id = header.next_id++;
    ligi_header_put(&change->value, &header);
    ligi_key key = ligi_key_header();
    return ligi_change_put(change, &key);
}

static lig_status put_inline(saving *self, ligi_change *change, ligi_record *record)
{
    ligi_plan *plan = self->plan;
    ligi_body body = body_of(plan);
    self->manifest.bytes = 0;
    ligi_manifest_put(&self->manifest, &plan->about, &body);
    LIG_TRY(self->manifest.status);
    ligi_inline inlined = {.manifest = self->manifest.data,
                           .manifest_bytes = self->manifest.bytes,
                           .data = self->data,
                           .data_bytes = plan->data_bytes};
    record->manifest_bytes = self->manifest.bytes;
    record->manifest_hash = ligi_hash64_plain(self->manifest.data, self->manifest.bytes);
    ligi_inline_put(&change->value, plan->about.id, &inlined, self->store->secret);
    ligi_key key = ligi_key_id(LIGI_TABLE_INLINE, plan->about.id);
    return ligi_change_put(change, &key);
}

static size_t live_tensors(const ligi_plan *plan)
{
    size_t live = 0;
    for (size_t i = 0; i < plan->count; i++)
        live += plan->slots[i].tied == SIZE_MAX && plan->tensors[i].bytes > 0;
    return live;
}

static lig_status commit_edit(void *context, const ligi_ledger *ledger, ligi_change *change)
{
    saving *self = context;
    ligi_plan *plan = self->plan;
    uint64_t taken;
    LIG_TRY(check_free(ledger, plan, &taken));
    if (self->pack_id == 0)
        LIG_TRY(take_next_id(ledger, change, &plan->about.id));
    ligi_use use = {.pack = self->pack_id, .tensors = live_tensors(plan)};
    ligi_record record = {.about = plan->about,
                          .tensor_count = plan->count,
                          .bytes = plan->bytes,
                          .own_bytes = plan->bytes,
                          .pack = self->pack_id,
                          .offset = self->trailer.footer_offset,
                          .manifest_bytes = self->trailer.footer_bytes,
                          .manifest_hash = self->trailer.footer_hash,
                          .uses = &use,
                          .use_count = self->pack_id ? 1 : 0};
    if (self->pack_id == 0)
        LIG_TRY(put_inline(self, change, &record));
    if (taken) {
        ligi_record before = {0};
        lig_status status = ligi_ledger_model(ledger, taken, &before);
        if (status == LIG_OK)
            status = ligi_change_remove(change, &before, 1, plan->about.id);
        ligi_record_fini(&before);
        LIG_TRY(status);
    }
    LIG_TRY(ligi_change_uses(change, &record, 1, self->pack_bytes));
    LIG_TRY(ligi_change_graphs(change, &plan->about, plan->graphs.data, plan->graphs.bytes));
    return ligi_change_model(change, &record);
}

lig_status ligi_save_run(lig_store *store, ligi_plan *plan, const ligi_source *source)
{
    saving self = {.store = store, .plan = plan, .source = source};
    ligi_failure failure;
    lig_status status = goes_inline(&self) ? gather(&self) : write_pack(&self);
    if (status == LIG_OK)
        status = ligi_store_commit(store, commit_edit, &self, NULL);
    ligi_failure_take(&failure, status);
    store->place->ops->pack_close(self.pack);
    /* Not committed after all; or committed and replaced by somebody who could not remove it while
     * it was held here. A commit that failed may still have reached the medium, so the catalog is
     * asked in either case. */
    if (self.pack_id)
        ligi_store_clean_pack(store, self.pack_id);
    ligi_writer_fini(&self.manifest);
    free(self.data);
    free(self.buffer);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

lig_status lig_store_save(lig_store *store, const char *model, const lig_tensor *tensors,
                          size_t count, const lig_save_options *options)
{
    ligi_plan plan = {0};
    ligi_plan_input input = {model, tensors, count, options, 0};
    static const ligi_source memory = {0};
    lig_status status = ligi_save_prepare(store, &input, 1, &plan);
    if (status == LIG_OK)
        status = ligi_save_run(store, &plan, &memory);
    ligi_plan_fini(&plan);
    return status;
}
