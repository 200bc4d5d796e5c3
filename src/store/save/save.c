#include "store/save/save.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/orphans.h"
#include "store/catalog/request_table.h"
#include "store/find/find.h"
#include "store/format/metrics_and_tags.h"
#include "store/load/read_ranges.h"
#include "store/load/resolved_model.h"
#include "store/quota.h"
#include "store/save/dedup_sources.h"
#include "store/save/inline_or_pack.h"
#include "store/save/save_part.h"
#include "store/save/save_write.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- what can be refused at once --- */

/* A copy that replaces older models only: another process may have saved a newer one since the copy
 * began. */
static lig_status check_older(const ligi_catalog_view *view, const ligi_plan *plan, uint64_t taken)
{
    ligi_record record = {0};
    LIG_TRY(ligi_catalog_view_model(view, taken, &record));
    int newer = record.about.created_ns > plan->about.created_ns;
    ligi_record_fini(&record);
    if (newer)
        return lig_fail(LIG_E_EXISTS, "model '%s' in %s is newer", plan->about.name,
                        view->store->uri);
    return LIG_OK;
}

static lig_status check_free(const ligi_catalog_view *view, const ligi_plan *plan, uint64_t *taken)
{
    uint64_t alias;
    LIG_TRY(ligi_catalog_view_alias(view, plan->about.name, &alias));
    if (alias)
        return lig_fail(
            LIG_E_EXISTS,
            "'%s' is an alias in %s (remove the alias first, or save under another name)",
            plan->about.name, view->store->uri);
    LIG_TRY(ligi_catalog_view_name(view, plan->about.name, taken));
    if (*taken && !(plan->flags & LIG_SAVE_REPLACE))
        return lig_fail(LIG_E_EXISTS,
                        "model '%s' already exists in %s (use replace=True, --replace or "
                        "LIG_SAVE_REPLACE to replace it, or save under another name)",
                        plan->about.name, view->store->uri);
    if (*taken && plan->flags & LIG_COPY_NEWER)
        return check_older(view, plan, *taken);
    return LIG_OK;
}

/* The parent may be given by an alias, which may move to another model: its own name is kept.
 */
static lig_status find_parent(const ligi_catalog_view *view, ligi_plan *plan)
{
    if (plan->about.parent_name[0] == '\0' || plan->about.parent)
        return LIG_OK;
    ligi_record parent = {0};
    lig_status status = ligi_catalog_view_find(view, plan->about.parent_name, &parent);
    if (status == LIG_E_NOTFOUND)
        status = lig_fail(status, "there is no model '%s', the parent of '%s', in %s",
                          plan->about.parent_name, plan->about.name, view->store->uri);
    if (status == LIG_OK)
        status = ligi_strdup(&plan->parent_name, parent.about.name);
    if (status == LIG_OK) {
        plan->about.parent = parent.about.id;
        plan->about.parent_name = plan->parent_name;
    }
    ligi_record_fini(&parent);
    return status;
}

lig_status ligi_save_check(lig_store *store, ligi_plan *plan)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    uint64_t taken;
    lig_status status = check_free(&view, plan, &taken);
    if (status == LIG_OK)
        status = find_parent(&view, plan);
    ligi_catalog_view_end(&view);
    return status;
}

/* A parent whose manifest is damaged shares nothing, but is still recorded as the parent. */
static lig_status share_parent(lig_store *store, ligi_plan *plan)
{
    lig_ref *parent = NULL;
    lig_status status = ligi_ref_open(store, NULL, plan->about.parent, 0, &parent);
    if (status == LIG_OK)
        status = ligi_shares_add(plan->shares, parent->model, 0);
    lig_ref_release(parent);
    return status == LIG_E_CORRUPT || status == LIG_E_NOTFOUND ? LIG_OK : status;
}

static lig_status share_all(lig_store *store, ligi_plan *plan, const lig_save_options *options)
{
    LIG_TRY(ligi_shares_open(&plan->shares, store));
    if (options && options->match) {
        const lig_ref *match;
        LIG_TRY(ligi_match_ref(store, options->match, &match));
        LIG_TRY(ligi_shares_add(plan->shares, match->model, options->match->expires_ns));
    }
    if (options && options->parent)
        LIG_TRY(share_parent(store, plan));
    return ligi_shares_seal(plan->shares);
}

/* Boxes of one tensor have one name. */
static lig_status check_tensors(const ligi_plan_input *input, int with_data)
{
    int boxed = input->places || (input->options && input->options->part);
    if (!boxed)
        return ligi_tensors_check(input->tensors, input->count, with_data);
    for (size_t i = 0; i < input->count; i++)
        LIG_TRY(ligi_tensors_check(&input->tensors[i], 1, with_data));
    return LIG_OK;
}

/* The server refuses what the catalog does not allow. A save in the background is refused before it
 * starts; one on its caller's thread in the same request that saves. */
static lig_status prepare_remote(lig_store *store, const ligi_plan_input *input, int with_data,
                                 ligi_plan *plan)
{
    if (input->options && input->options->match) {
        const lig_ref *match;
        LIG_TRY(ligi_match_ref(store, input->options->match, &match));
        plan->match = match->lease;
        plan->match_model = match->model->record.about.id;
    }
    return input->copy ? store->remote->save_begin(store, plan, !with_data) : LIG_OK;
}

/* A view waits until the commits before it are on the disk. The commit of a small model looks at
 * the same records, under the lock, and writes nothing before: it does not wait for others
 * first. */
static int only_commit_checks(const lig_store *store, const ligi_plan_input *input, int with_data,
                              const ligi_plan *plan)
{
    const ligi_volume *volume = store->volume;
    return with_data && !input->copy && plan->part == NULL &&
           (plan->about.parent_name[0] == '\0' || plan->about.parent) &&
           ligi_inline_fits(plan->bytes) &&
           ligi_inline_allowed(plan, volume->ops->flags(volume->self));
}

lig_status ligi_save_prepare(lig_store *store, const ligi_plan_input *input, int with_data,
                             ligi_plan *plan)
{
    LIG_TRY(ligi_store_writable(store));
    LIG_TRY(ligi_labels_check_name("model", input->name));
    LIG_TRY(check_tensors(input, with_data));
    LIG_TRY(ligi_plan_make(plan, input));
    plan->about.created_ns = ligi_date_ns();
    if (store->remote)
        return prepare_remote(store, input, with_data, plan);
    if (!only_commit_checks(store, input, with_data, plan))
        LIG_TRY(ligi_save_check(store, plan));
    return share_all(store, plan, input->options);
}

/* --- the commit --- */

static lig_status take_next_id(const ligi_catalog_view *view, ligi_change *change, uint64_t *id)
{
    ligi_header header;
    LIG_TRY(ligi_catalog_view_header(view, &header));
    *id = header.next_id++;
    ligi_header_put(&change->value, &header);
    ligi_catalog_key key = ligi_catalog_key_header();
    return ligi_change_put(change, &key);
}

static lig_status remove_taken(const ligi_catalog_view *view, ligi_change *change, uint64_t taken,
                               uint64_t successor)
{
    if (taken == 0)
        return LIG_OK;
    ligi_record before = {0};
    lig_status status = ligi_catalog_view_model(view, taken, &before);
    if (status == LIG_OK)
        status = ligi_change_remove(change, &before, 1, successor);
    ligi_record_fini(&before);
    return status;
}

/* Later saves may refer to the new tensors from now on, and to shared tensors in a pack that was
 * revived. */
static lig_status put_fingerprints(const ligi_save_write *self, const ligi_catalog_view *view,
                                   ligi_change *change)
{
    const ligi_plan *plan = self->plan;
    for (size_t i = 0; i < plan->count; i++) {
        const ligi_slot *slot = &plan->slots[i];
        ligi_pack_record record;
        if (slot->tied != SIZE_MAX || plan->tensors[i].bytes < LIGI_FINGERPRINT_MIN_BYTES ||
            (slot->pack == 0 && self->pack_id == 0) ||
            (slot->pack && ligi_catalog_view_pack(view, slot->pack, &record) != LIG_E_NOTFOUND))
            continue;
        const uint64_t *hashes = plan->hashes + slot->first_hash;
        uint64_t bytes = plan->tensors[i].bytes;
        ligi_fingerprint_entry fingerprint = {
            .first = hashes[0],
            .print = ligi_fingerprint(self->store->secret, hashes, bytes),
            .bytes = bytes,
            .pack = slot->pack ? slot->pack : self->pack_id,
            .offset = slot->offset,
            .owner = slot->owner ? slot->owner : plan->about.id};
        LIG_TRY(ligi_change_fingerprint(change, &fingerprint));
    }
    return LIG_OK;
}

static lig_status put_model(ligi_save_write *self, const ligi_catalog_view *view,
                            ligi_change *change, ligi_record *record)
{
    const ligi_plan *plan = self->plan;
    if (self->pack_id == 0)
        LIG_TRY(ligi_save_write_inline(self, change, record));
    LIG_TRY(ligi_change_uses(change, record, 1, self->pack_bytes));
    LIG_TRY(put_fingerprints(self, view, change));
    LIG_TRY(ligi_change_graphs(change, &plan->about, plan->graphs.data, plan->graphs.bytes));
    return ligi_change_model(change, record);
}

static lig_status adopt_manifest(const ligi_save_write *self, ligi_model *model)
{
    size_t manifest = self->manifest.bytes, data = self->pack_id ? 0 : self->data.bytes;
    uint8_t *bytes;
    LIG_TRY(ligi_alloc(&bytes, manifest + data, "a manifest"));
    memcpy(bytes, self->manifest.data, manifest);
    if (data)
        memcpy(bytes + manifest, self->data.data, data);
    LIG_TRY(ligi_model_adopt(model, bytes, manifest, data));
    ligi_manifest_fingerprints(&model->manifest, self->store->secret);
    return LIG_OK;
}

static lig_status describe(const ligi_save_write *self, const ligi_record *record, ligi_model **out)
{
    ligi_writer value = {0};
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    ligi_record_put(&value, record, self->store->secret);
    lig_catalog_item item = {key.bytes, key.size, value.data, value.bytes};
    lig_status status = value.status;
    if (status == LIG_OK)
        status = ligi_model_list(&item, self->store->secret, out);
    ligi_writer_fini(&value);
    LIG_TRY(status);
    return adopt_manifest(self, *out);
}

/* The model as it is about to be committed, with its id. It replaces *model, which an earlier
 * attempt of the commit has set. */
static lig_status make_model(const ligi_save_write *self, const ligi_record *record,
                             ligi_model **model)
{
    ligi_model *made = NULL;
    lig_status status = describe(self, record, &made);
    if (status != LIG_OK) {
        ligi_model_free(made);
        return status;
    }
    ligi_model_free(*model);
    *model = made;
    return LIG_OK;
}

/* The ref is taken while this save still holds all its packs: once committed, the model may be
 * replaced at once. A retried commit has another model in the same packs. A failure to take the
 * ref does not fail the save. */
static lig_status make_ref(ligi_save_write *self, const ligi_record *record, uint64_t version)
{
    int gone;
    if (self->ref) {
        LIG_TRY(make_model(self, record, &self->ref->model));
    } else {
        ligi_model *model = NULL;
        LIG_TRY(make_model(self, record, &model));
        LIG_TRY(ligi_ref_make(self->store, model, &self->ref));
        (void)ligi_ref_hold(self->ref, &gone);
    }
    self->ref->version = version;
    return LIG_OK;
}

static lig_status commit_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    ligi_save_write *self = context;
    ligi_plan *plan = self->plan;
    uint64_t taken;
    LIG_TRY(check_free(view, plan, &taken));
    if (self->pack_id == 0)
        LIG_TRY(take_next_id(view, change, &plan->about.id));
    LIG_TRY(ligi_change_event(change, taken ? LIG_EVENT_REPLACED : LIG_EVENT_SAVED, plan->about.id,
                              plan->about.name, NULL));
    LIG_TRY(remove_taken(view, change, taken, plan->about.id));
    ligi_record record = {.about = plan->about,
                          .pack = self->pack_id,
                          .offset = self->trailer.footer_offset,
                          .manifest_bytes = self->trailer.footer_bytes,
                          .manifest_hash = self->trailer.footer_hash};
    lig_status status = ligi_plan_record(plan, self->pack_id, &record);
    if (status == LIG_OK)
        status = ligi_quota_check(view, &record, NULL);
    if (status == LIG_OK)
        status = put_model(self, view, change, &record);
    if (status == LIG_OK && plan->model)
        status = make_model(self, &record, &self->model);
    if (status == LIG_OK && plan->ref)
        status = make_ref(self, &record, view->version + 1);
    free(record.uses);
    LIG_TRY(status);
    return ligi_once_put(change, plan->once ? plan->once : self->store->once, plan->about.id);
}

static void hand_out(const ligi_save_write *self, lig_status status)
{
    assert(status != LIG_OK || self->plan->part ||
           (self->plan->ref != NULL) == (self->ref != NULL));
    if (status != LIG_OK) {
        lig_ref_release(self->ref);
        ligi_model_free(self->model);
        return;
    }
    if (self->ref)
        *self->plan->ref = self->ref;
    if (self->model)
        *self->plan->model = &self->model->shown;
}

static lig_status commit(ligi_save_write *self)
{
    const ligi_commit commit = {.store = self->store,
                                .edit = commit_edit,
                                .context = self,
                                .interrupt = self->interrupt,
                                .pending = self->store->pending};
    return ligi_change_commit_as(&commit);
}

lig_status ligi_save_run(lig_store *store, ligi_plan *plan, const ligi_source *source)
{
    if (store->remote)
        return store->remote->save_run(store, plan, source);
    const ligi_interrupt cancelled = {source->cancelled, source->context};
    ligi_save_write self = {.store = store,
                            .plan = plan,
                            .source = source,
                            .interrupt = source->cancelled ? &cancelled : NULL,
                            .packed = plan->packed};
    ligi_failure failure;
    int64_t begin = ligi_now_ns();
    lig_part *part = NULL;
    lig_status status = ligi_save_write_run(&self);
    if (status == LIG_OK)
        status = plan->part ? ligi_part_make(&self, &part) : commit(&self);
    ligi_failure_take(&failure, status);
    ligi_save_write_fini(&self);
    hand_out(&self, status);
    /* Not committed; or committed and replaced by a process that could not remove it while it
     * was held here. A commit that failed may still have reached the medium, so the catalog is
     * checked in either case. A part's pack is pinned by now. */
    if (self.pack_id)
        ligi_orphans_remove_pack(store, self.pack_id);
    if (plan->shares)
        ligi_shares_end(plan->shares);
    plan->shares = NULL;
    if (part)
        *plan->part = part;
    ligi_stamps_note(&store->stamps, LIGI_STAMP_SAVE, begin);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

lig_status lig_store_save(lig_store *store, const char *model, const lig_tensor *tensors,
                          size_t count, const lig_save_options *options)
{
    ligi_plan plan = {0};
    ligi_plan_input input = {model, tensors, count, options, 0, NULL, 0};
    static const ligi_source memory = {0};
    lig_status status = ligi_save_prepare(store, &input, 1, &plan);
    if (status == LIG_OK)
        status = ligi_save_run(store, &plan, &memory);
    ligi_plan_fini(&plan);
    return status;
}
