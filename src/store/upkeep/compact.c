#include "store/upkeep/compact.h"

#include "base/error.h"
#include "base/map.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/orphans.h"
#include "store/catalog/retired_models.h"
#include "store/format/tensor_references.h"
#include "store/load/read_ranges.h"
#include "store/save/save_write.h"
#include "store/upkeep/report.h"

#include <stdlib.h>
#include <string.h>

/* A pack is written by one save and never changed, so all its bytes are in use as long as the
 * model of its footer exists. If that model was removed and other models use less than half of
 * the pack, those models are written again: each gets a new manifest, the first of them with the
 * bytes, and the pack is removed with the last. Each step is a separate commit; a process that
 * stops in between leaves a consistent store. A view that lacks the commit of a killed process
 * only leads to a worse choice: a step is committed for the version that it was derived from,
 * and packs are removed as after any commit. */

typedef struct compaction {
    lig_store *store;
    uint64_t freed, removed;
    uint64_t *orphans; /* packs whose own model was removed, ascending; then only those to be
                        * rewritten */
    size_t orphan_count, orphan_capacity;
    uint64_t *users; /* models that name bytes in one of them */
    size_t user_count, user_capacity;
    ligi_ownership ownership;
} compaction;

static int is_damage(lig_status status)
{
    return status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED || status == LIG_E_NOTFOUND;
}

static int is_orphan(const compaction *self, uint64_t pack)
{
    return self->orphan_count &&
           bsearch(&pack, self->orphans, self->orphan_count, sizeof pack, ligi_order_u64) != NULL;
}

/* --- looking --- */

/* The packs of retired models that are kept stay as they are. */
static lig_status find_kept(const ligi_catalog_view *view, uint64_t **packs, size_t *count,
                            size_t *capacity)
{
    ligi_walk walk = {0};
    ligi_retired retired;
    ligi_record record;
    lig_status status;
    while (ligi_retired_next(view, &walk, &retired, &record, &status)) {
        lig_status grown =
            ligi_grow(packs, capacity, *count + record.use_count, sizeof **packs, "a compaction");
        for (size_t i = 0; i < record.use_count && grown == LIG_OK; i++)
            (*packs)[(*count)++] = record.uses[i].pack;
        ligi_record_fini(&record);
        LIG_TRY(grown);
    }
    return status;
}

/* Packs that carry the manifest of a living model, or belong to a retired one. */
static lig_status find_parents(const ligi_catalog_view *view, uint64_t **packs, size_t *count)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    size_t capacity = 0;
    while (ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        status = ligi_record_get(&item, view->store->secret, &record);
        uint64_t pack = record.pack;
        ligi_record_fini(&record);
        LIG_TRY(status);
        LIG_TRY(ligi_grow(packs, &capacity, *count + 1, sizeof **packs, "a compaction"));
        (*packs)[(*count)++] = pack;
    }
    LIG_TRY(status);
    LIG_TRY(find_kept(view, packs, count, &capacity));
    if (*count)
        qsort(*packs, *count, sizeof **packs, ligi_order_u64);
    return LIG_OK;
}

static lig_status find_orphans(compaction *self, const ligi_catalog_view *view)
{
    uint64_t *parents = NULL;
    size_t parent_count = 0;
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status = find_parents(view, &parents, &parent_count);
    while (status == LIG_OK &&
           ligi_catalog_view_next(view, LIGI_TABLE_PACK, &walk, &item, &status)) {
        uint64_t pack = item.key_bytes == 9 ? ligi_get_be64((const char *)item.key + 1) : 0;
        if (parent_count && bsearch(&pack, parents, parent_count, sizeof pack, ligi_order_u64))
            continue;
        status = ligi_grow(&self->orphans, &self->orphan_capacity, self->orphan_count + 1,
                           sizeof *self->orphans, "a compaction");
        if (status == LIG_OK)
            self->orphans[self->orphan_count++] = pack;
    }
    free(parents);
    return status;
}

static lig_status add_user(compaction *self, const ligi_catalog_view *view,
                           const lig_catalog_item *item)
{
    ligi_model *model = NULL;
    int gone = 0, names = 0;
    LIG_TRY(ligi_model_list(item, self->store->secret, &model));
    for (size_t i = 0; i < model->record.use_count; i++)
        names |= is_orphan(self, model->record.uses[i].pack);
    lig_status status = LIG_OK;
    if (names)
        status = ligi_model_fill(self->store, view, model, &gone);
    if (gone) { /* retired since the view began; while it is named, its packs are counted */
        ligi_model_free(model);
        return LIG_OK;
    }
    if (names && status == LIG_OK)
        status = ligi_ownership_add(&self->ownership, &model->manifest);
    if (names && status == LIG_OK)
        status = ligi_grow(&self->users, &self->user_capacity, self->user_count + 1,
                           sizeof *self->users, "a compaction");
    if (names && status == LIG_OK)
        self->users[self->user_count++] = model->record.about.id;
    ligi_model_free(model);
    return status;
}

/* Packs that are more than half unused stay in the list. A pack used by a model that cannot be
 * read is left alone. */
static lig_status choose(compaction *self, const ligi_catalog_view *view)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->orphan_count; i++) {
        ligi_pack_record record;
        lig_status status = ligi_catalog_view_pack(view, self->orphans[i], &record);
        if (is_damage(status))
            continue;
        LIG_TRY(status);
        if (ligi_ownership_live(&self->ownership, self->orphans[i]) < record.bytes / 2)
            self->orphans[kept++] = self->orphans[i];
    }
    self->orphan_count = kept;
    return LIG_OK;
}

static lig_status find_users(compaction *self, const ligi_catalog_view *view)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status = LIG_OK;
    while (status == LIG_OK && self->orphan_count &&
           ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status))
        status = add_user(self, view, &item);
    ligi_ownership_sum(&self->ownership);
    return status;
}

static lig_status look(compaction *self)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = find_orphans(self, &view);
    if (status == LIG_OK)
        status = find_users(self, &view);
    if (status == LIG_OK)
        status = choose(self, &view);
    ligi_catalog_view_end(&view);
    return status;
}

static lig_status look_at_one(compaction *self, uint64_t pack)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_grow(&self->orphans, &self->orphan_capacity, 1, sizeof *self->orphans,
                      "a compaction"));
    self->orphans[self->orphan_count++] = pack;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = find_users(self, &view);
    ligi_catalog_view_end(&view);
    return status;
}

/* --- writing a model again --- */

typedef struct moving {
    compaction *compaction;
    ligi_model *model;
    ligi_plan plan;
    ligi_save_write writing;
    ligi_fetch fetch;
    int gone, done;
} moving;

static lig_status fill(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out)
{
    moving *self = context;
    LIG_TRY(ligi_fetch_add(&self->fetch, index, offset, bytes, out, NULL));
    return ligi_fetch_run(&self->fetch);
}

/* The new location of a tensor: its current one, the one it was moved to before, or here. Bytes
 * that other models use too must be in a pack. */
static void choose_slot(moving *self, size_t index)
{
    const lig_stored_tensor *stored = &self->model->manifest.tensors[index];
    ligi_slot *slot = &self->plan.slots[index];
    slot->tied = stored->tied >= 0 ? (size_t)stored->tied : SIZE_MAX;
    slot->owner = stored->owner;
    if (stored->tied >= 0 || stored->pack == 0 || stored->tensor.bytes == 0)
        return;
    ligi_naming *naming = NULL;
    if (is_orphan(self->compaction, stored->pack))
        naming = ligi_ownership_find(&self->compaction->ownership, stored->pack, stored->offset);
    if (naming && naming->moved_pack == 0) {
        self->writing.packed |= naming->count > 1;
        return;
    }
    slot->pack = naming ? naming->moved_pack : stored->pack;
    slot->offset = naming ? naming->moved_offset : stored->offset;
}

static lig_status make_plan(moving *self)
{
    const ligi_manifest *manifest = &self->model->manifest;
    ligi_plan *plan = &self->plan;
    plan->about = self->model->record.about;
    plan->structure = manifest->structure;
    plan->count = manifest->tensor_count;
    LIG_TRY(ligi_calloc(&plan->tensors, plan->count, sizeof *plan->tensors, "a compaction"));
    LIG_TRY(ligi_calloc(&plan->slots, plan->count, sizeof *plan->slots, "a compaction"));
    if (manifest->places) {
        LIG_TRY(ligi_calloc(&plan->places, plan->count, sizeof *plan->places, "a compaction"));
        memcpy(plan->places, manifest->places, plan->count * sizeof *plan->places);
        plan->shown_count = manifest->shown_count;
    }
    for (size_t i = 0; i < plan->count; i++)
        plan->hash_count += manifest->tensors[i].tied < 0
                                ? ligi_manifest_block_count(manifest->tensors[i].tensor.bytes)
                                : 0;
    LIG_TRY(ligi_calloc(&plan->hashes, plan->hash_count, sizeof *plan->hashes, "a compaction"));
    size_t at = 0;
    for (size_t i = 0; i < plan->count; i++) {
        plan->tensors[i] = manifest->tensors[i].tensor;
        choose_slot(self, i);
        if (manifest->tensors[i].tied >= 0)
            continue;
        size_t blocks = ligi_manifest_block_count(plan->tensors[i].bytes);
        plan->slots[i].first_hash = at;
        memcpy(plan->hashes + at, manifest->hashes[i], blocks * sizeof *plan->hashes);
        at += blocks;
    }
    ligi_put_bytes(&plan->graphs, manifest->graphs, manifest->graph_bytes);
    return plan->graphs.status;
}

static lig_status put_places(const moving *self, ligi_change *change, const ligi_record *record)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, record->about.id);
    if (record->pack && self->model->record.pack == 0)
        LIG_TRY(ligi_change_erase(change, &key));
    for (size_t i = 0; i < self->plan.count; i++) {
        const ligi_slot *slot = &self->plan.slots[i];
        uint64_t bytes = self->plan.tensors[i].bytes;
        if (slot->tied != SIZE_MAX || slot->pack || record->pack == 0 ||
            bytes < LIGI_FINGERPRINT_MIN_BYTES)
            continue;
        const uint64_t *hashes = self->plan.hashes + slot->first_hash;
        ligi_fingerprint_entry fingerprint = {
            .first = hashes[0],
            .print = ligi_fingerprint(change->store->secret, hashes, bytes),
            .bytes = bytes,
            .pack = record->pack,
            .offset = slot->offset,
            .owner = slot->owner};
        LIG_TRY(ligi_change_fingerprint(change, &fingerprint));
    }
    return LIG_OK;
}

/* 1 if the model has not changed, and everything that it will refer to exists. */
static int still_fits(const moving *self, const ligi_catalog_view *view, const ligi_record *now,
                      const ligi_record *next)
{
    const ligi_record *before = &self->model->record;
    int fits = now->pack == before->pack && now->offset == before->offset &&
               now->manifest_hash == before->manifest_hash;
    for (size_t i = 0; i < next->use_count && fits; i++) {
        ligi_pack_record record;
        fits = next->uses[i].pack == next->pack ||
               ligi_catalog_view_pack(view, next->uses[i].pack, &record) == LIG_OK;
    }
    return fits;
}

static lig_status replace(moving *self, const ligi_catalog_view *view, ligi_change *change,
                          const ligi_record *now)
{
    ligi_save_write *writing = &self->writing;
    ligi_record next = {.about = now->about,
                        .pack = writing->pack_id,
                        .offset = writing->trailer.footer_offset,
                        .manifest_bytes = writing->trailer.footer_bytes,
                        .manifest_hash = writing->trailer.footer_hash};
    lig_status status = ligi_plan_record(&self->plan, next.pack, &next);
    self->done = status == LIG_OK && still_fits(self, view, now, &next);
    if (self->done && next.pack == 0)
        status = ligi_save_write_inline(writing, change, &next);
    if (self->done && status == LIG_OK)
        status = ligi_change_uses(change, &next, 1, writing->pack_bytes);
    if (self->done && status == LIG_OK)
        status = ligi_change_uses(change, now, -1, 0);
    if (self->done && status == LIG_OK)
        status = put_places(self, change, &next);
    if (self->done && status == LIG_OK)
        status = ligi_change_model(change, &next);
    free(next.uses);
    return status;
}

static lig_status move_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    moving *self = context;
    change->flags |= LIG_EDIT_FREES;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, self->model->record.about.id);
    lig_catalog_item item;
    ligi_record now = {0};
    self->done = 0;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND) /* retired meanwhile */
        return LIG_OK;
    if (status == LIG_OK)
        status = ligi_record_get(&item, change->store->secret, &now);
    if (status == LIG_OK)
        status = replace(self, view, change, &now);
    ligi_record_fini(&now);
    return status;
}

/* From now on other models refer to the bytes written here. */
static void note_moved(moving *self)
{
    uint64_t pack = self->writing.pack_id;
    for (size_t i = 0; i < self->plan.count && pack; i++) {
        const lig_stored_tensor *stored = &self->model->manifest.tensors[i];
        const ligi_slot *slot = &self->plan.slots[i];
        if (slot->tied != SIZE_MAX || slot->pack || !is_orphan(self->compaction, stored->pack))
            continue;
        ligi_naming *naming =
            ligi_ownership_find(&self->compaction->ownership, stored->pack, stored->offset);
        if (naming) {
            naming->moved_pack = pack;
            naming->moved_offset = slot->offset;
        }
    }
}

/* A model that was in a pack is written to a pack again: a rebuilt catalog must find its last
 * manifest. */
static lig_status write_again(moving *self)
{
    lig_store *store = self->compaction->store;
    ligi_source source = {.fill = fill, .context = self};
    self->fetch =
        (ligi_fetch){.store = store, .model = self->model, .verify = 1, .gone = &self->gone};
    self->writing = (ligi_save_write){.store = store,
                                      .plan = &self->plan,
                                      .source = &source,
                                      .packed = self->model->record.pack != 0};
    lig_status status = make_plan(self);
    if (status == LIG_OK)
        status = ligi_save_write_run(&self->writing);
    if (status == LIG_OK)
        status = ligi_change_commit(store, move_edit, self, &self->compaction->freed);
    if (status == LIG_OK && self->done)
        note_moved(self);
    ligi_save_write_fini(&self->writing);
    if (self->writing.pack_id)
        ligi_orphans_remove_pack(store, self->writing.pack_id);
    ligi_fetch_fini(&self->fetch);
    memset(&self->plan.about, 0, sizeof self->plan.about); /* the record's */
    ligi_plan_fini(&self->plan);
    return status;
}

static int needs_moving(const compaction *self, const ligi_record *record)
{
    for (size_t i = 0; i < record->use_count; i++)
        if (is_orphan(self, record->uses[i].pack))
            return 1;
    return 0;
}

/* A model that is damaged or was removed is skipped: its packs are unchanged. */
static lig_status move_model(compaction *self, uint64_t id)
{
    ligi_catalog_view view;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    lig_catalog_item item;
    moving move = {.compaction = self};
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = ligi_catalog_view_get(&view, &key, &item);
    if (status == LIG_OK)
        status = ligi_model_list(&item, self->store->secret, &move.model);
    int wanted = status == LIG_OK && needs_moving(self, &move.model->record);
    if (wanted)
        status = ligi_model_fill(self->store, &view, move.model, &move.gone);
    ligi_catalog_view_end(&view);
    if (wanted && status == LIG_OK)
        status = write_again(&move);
    ligi_model_free(move.model);
    return is_damage(status) ? LIG_OK : status;
}

static lig_status move_users(compaction *self)
{
    lig_status status = LIG_OK;
    for (size_t i = 0; i < self->user_count && self->orphan_count && status == LIG_OK; i++)
        status = move_model(self, self->users[i]);
    return status;
}

static void compaction_fini(compaction *self)
{
    free(self->orphans);
    free(self->users);
    ligi_ownership_fini(&self->ownership);
}

lig_status ligi_compact_packs(lig_store *store, uint64_t *packs, uint64_t *bytes)
{
    compaction self = {.store = store};
    lig_status status = look(&self);
    if (status == LIG_OK)
        status = move_users(&self);
    *packs += self.orphan_count;
    *bytes += self.freed;
    compaction_fini(&self);
    return status;
}

lig_status ligi_compact_pack(lig_store *store, uint64_t pack, uint64_t *freed)
{
    compaction self = {.store = store};
    lig_status status = look_at_one(&self, pack);
    if (status == LIG_OK)
        status = move_users(&self);
    *freed += self.freed;
    compaction_fini(&self);
    return is_damage(status) ? LIG_OK : status;
}
