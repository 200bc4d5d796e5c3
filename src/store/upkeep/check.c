#include "base/error.h"
#include "base/hash.h"
#include "store/catalog/catalog_wait.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"
#include "store/catalog/commit_event.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/orphans.h"
#include "store/catalog/rebuild/footer_read.h"
#include "store/load/read_ranges.h"
#include "store/upkeep/adopt.h"
#include "store/upkeep/audit.h"
#include "store/upkeep/compact.h"
#include "store/upkeep/index_check.h"
#include "store/upkeep/retire.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (UINT64_C(8) << 20)
enum { CHECK_TRIES = 10 };

typedef struct check_run {
    lig_store *store;
    ligi_report *report;
    uint32_t flags;
    const lig_progress *progress; /* or NULL */
    uint64_t read, total;         /* bytes, for the progress */
    uint8_t *buffer;
    uint64_t *ids;
    size_t id_count, id_capacity;
    ligi_fingerprint_entry *fingerprints; /* that the catalog lacks */
    size_t fingerprint_count, fingerprint_capacity;
    uint64_t mended;
    size_t known; /* problems reported before the audit */
    int reindex;  /* graphs were mended */
} check_run;

/* Only damage of stored bytes is reported as a problem; a failing machine is a failure of the call.
 */
static int is_damage(lig_status status)
{
    return status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED || status == LIG_E_NOTFOUND;
}

/* --- bytes against checksums --- */

static lig_status advance(check_run *self, uint64_t bytes)
{
    self->read += bytes;
    if (self->progress == NULL ||
        self->progress->hook(self->progress->context, self->read, self->total) == 0)
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED, "the check of %s was interrupted", self->store->uri);
}

/* Reads tensor `index` alone; a mismatch becomes a problem. */
static lig_status verify_one(check_run *self, ligi_fetch *fetch, size_t index)
{
    uint64_t total = fetch->model->manifest.tensors[index].tensor.bytes;
    for (uint64_t at = 0; at < total; at += BUFFER_BYTES) {
        uint64_t bytes = total - at < BUFFER_BYTES ? total - at : BUFFER_BYTES;
        lig_status status = ligi_fetch_add(fetch, index, at, bytes, self->buffer, NULL);
        if (status == LIG_OK)
            status = ligi_fetch_run(fetch);
        if (is_damage(status))
            return ligi_report_add(self->report, "%s", lig_error_text());
        LIG_TRY(status);
        LIG_TRY(advance(self, bytes));
    }
    return LIG_OK;
}

/* Reads tensors [first, end) together; one by one after a mismatch. */
static lig_status verify_batch(check_run *self, ligi_fetch *fetch, size_t first, size_t end)
{
    uint64_t used = 0;
    lig_status status = LIG_OK;
    for (size_t i = first; i < end && status == LIG_OK; i++) {
        const lig_stored_tensor *stored = &fetch->model->manifest.tensors[i];
        if (stored->tied >= 0)
            continue;
        status = ligi_fetch_add(fetch, i, 0, stored->tensor.bytes, self->buffer + used, NULL);
        used += stored->tensor.bytes;
    }
    if (status == LIG_OK)
        status = ligi_fetch_run(fetch);
    fetch->count = 0;
    if (status == LIG_OK)
        return advance(self, used);
    if (!is_damage(status))
        return status;
    for (size_t i = first; i < end; i++)
        if (fetch->model->manifest.tensors[i].tied < 0)
            LIG_TRY(verify_one(self, fetch, i));
    return LIG_OK;
}

static lig_status verify_tensors(check_run *self, ligi_fetch *fetch)
{
    const ligi_manifest *manifest = &fetch->model->manifest;
    size_t first = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        uint64_t bytes = manifest->tensors[i].tied < 0 ? manifest->tensors[i].tensor.bytes : 0;
        if (bytes > BUFFER_BYTES - used) {
            LIG_TRY(verify_batch(self, fetch, first, i));
            first = i;
            used = 0;
        }
        if (bytes > BUFFER_BYTES) {
            LIG_TRY(verify_one(self, fetch, i));
            first = i + 1;
        } else {
            used += bytes;
        }
    }
    return verify_batch(self, fetch, first, manifest->tensor_count);
}

/* Compares the record with the manifest. */
static lig_status verify_record(check_run *self, const ligi_model *model)
{
    ligi_record derived = {0};
    const ligi_record *record = &model->record;
    LIG_TRY(ligi_record_of(&model->manifest, record, &derived));
    int same = derived.bytes == record->bytes && derived.own_bytes == record->own_bytes &&
               derived.use_count == record->use_count &&
               (record->use_count == 0 ||
                memcmp(derived.uses, record->uses, record->use_count * sizeof *record->uses) == 0);
    free(derived.uses);
    return same ? LIG_OK
                : ligi_report_add(self->report, "model '%s': its record and its manifest differ",
                                  record->about.name);
}

static lig_status verify_model(check_run *self, ligi_model *model)
{
    int gone = 0;
    ligi_fetch fetch = {.store = self->store, .model = model, .verify = 1, .gone = &gone};
    self->report->shown.tensors += model->record.tensor_count;
    self->report->shown.bytes += model->record.bytes;
    lig_status status = verify_record(self, model);
    if (status == LIG_OK)
        status = verify_tensors(self, &fetch);
    ligi_fetch_fini(&fetch);
    return status;
}

/* Later saves should find tensors that are large enough to be shared. Concurrent saves may write
 * the same bytes twice; the table refers to one of the two, and drops it with its pack. So a
 * missing entry is a lost opportunity and not a problem: repair restores it. */
static lig_status verify_fingerprints(check_run *self, const ligi_catalog_view *view,
                                      const ligi_model *model)
{
    const ligi_manifest *manifest = &model->manifest;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        ligi_fingerprint_entry fingerprint;
        lig_catalog_item item;
        if (!ligi_fingerprint_of(manifest, i, self->store->secret, &fingerprint))
            continue;
        ligi_catalog_key key = ligi_fingerprint_key(&fingerprint);
        lig_status status = ligi_catalog_view_get(view, &key, &item);
        if (status != LIG_E_NOTFOUND) {
            LIG_TRY(status);
            continue;
        }
        LIG_TRY(ligi_grow(&self->fingerprints, &self->fingerprint_capacity,
                          self->fingerprint_count + 1, sizeof *self->fingerprints, "a check"));
        self->fingerprints[self->fingerprint_count++] = fingerprint;
    }
    return LIG_OK;
}

static lig_status mend_fingerprints(void *context, const ligi_catalog_view *view,
                                    ligi_change *change)
{
    check_run *self = context;
    for (size_t i = 0; i < self->fingerprint_count; i++) {
        ligi_pack_record record;
        lig_status status = ligi_catalog_view_pack(view, self->fingerprints[i].pack, &record);
        if (status == LIG_OK)
            status = ligi_change_fingerprint(change, &self->fingerprints[i]);
        if (!is_damage(status))
            LIG_TRY(status);
    }
    return LIG_OK;
}

/* The catalog's copy of the graphs, which a search reads, against the manifest's. */
static lig_status verify_graphs(check_run *self, const ligi_catalog_view *view, ligi_model *model,
                                int *wrong)
{
    const ligi_manifest *manifest = &model->manifest;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, model->record.about.id);
    lig_catalog_item item;
    ligi_reader reader = {0};
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_OK)
        status = ligi_value_open(&item, self->store->secret, &reader);
    if (status != LIG_OK && !is_damage(status))
        return status;
    size_t bytes = reader.bytes - reader.at;
    int same = status == LIG_E_NOTFOUND
                   ? manifest->graph_bytes == 0
                   : status == LIG_OK && bytes == manifest->graph_bytes &&
                         memcmp(reader.data + reader.at, manifest->graphs, bytes) == 0;
    *wrong = !same;
    return same
               ? LIG_OK
               : ligi_report_add(self->report,
                                 "model '%s': the graphs in the catalog and in its manifest differ",
                                 model->record.about.name);
}

static lig_status mend_graphs(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    const ligi_model *model = context;
    const ligi_manifest *manifest = &model->manifest;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, model->record.about.id);
    ligi_record record = {0};
    if (manifest->graph_bytes == 0)
        return ligi_change_erase(change, &key);
    lig_status status = ligi_catalog_view_model(view, model->record.about.id, &record);
    if (status == LIG_OK)
        status = ligi_change_graphs(change, &record.about, manifest->graphs, manifest->graph_bytes);
    ligi_record_fini(&record);
    return status;
}

static lig_status mend_index(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    check_run *self = context;
    ligi_report *told = NULL; /* already reported */
    uint64_t mended = 0;
    LIG_TRY(ligi_report_create(&told));
    lig_status status = ligi_index_check(view, change, told, &mended);
    lig_report_destroy(&told->shown);
    self->reindex = 0;
    return status;
}

/* For edits that read the whole catalog. */
static lig_status commit_slowly(check_run *self, ligi_edit edit)
{
    const ligi_commit commit = {.store = self->store, .edit = edit, .context = self, .slow = 1};
    return ligi_change_commit_as(&commit);
}

/* Each model in a separate view: a view held while gigabytes are read would keep the catalog
 * from growing. */
static lig_status check_model(check_run *self, uint64_t id)
{
    ligi_catalog_view view;
    ligi_model *model = NULL;
    lig_catalog_item item;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    int gone = 0, wrong = 0;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = ligi_catalog_view_get(&view, &key, &item);
    int there = status == LIG_OK;
    if (there)
        status = ligi_model_list(&item, self->store->secret, &model);
    int listed = status == LIG_OK;
    if (listed)
        status = ligi_model_fill(self->store, &view, model, &gone);
    if (listed && status == LIG_OK)
        status = verify_fingerprints(self, &view, model);
    if (listed && status == LIG_OK)
        status = verify_graphs(self, &view, model, &wrong);
    ligi_catalog_view_end(&view);
    if (wrong && status == LIG_OK && self->flags & LIG_CHECK_REPAIR) {
        self->mended += self->reindex = 1;
        status = ligi_change_commit(self->store, mend_graphs, model, NULL);
    }
    self->report->shown.models += there;
    if (listed && status == LIG_OK)
        status = verify_model(self, model);
    else if (listed && is_damage(status))
        status = ligi_report_add(self->report, "%s", lig_error_text());
    else if (is_damage(status)) /* retired meanwhile, or reported by the audit */
        status = LIG_OK;
    ligi_model_free(model);
    return status;
}

/* The current catalog entry of the id; 0 if there is none. */
static lig_status record_now(lig_store *store, uint64_t id, uint64_t *hash)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, id);
    lig_status status = LIG_E_BUSY;
    *hash = 0;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++) {
        ligi_catalog_view view;
        lig_catalog_item item;
        LIG_TRY(ligi_catalog_view_begin(store, &view));
        status = ligi_catalog_view_get(&view, &key, &item);
        if (status == LIG_OK)
            *hash = ligi_hash64_plain(item.value, item.value_bytes);
        ligi_catalog_view_end(&view);
    }
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* A model that was replaced, retired or moved while it was checked has no problem: only damage of
 * an unchanged record is reported. A repaired one is not checked again, because its problem belongs
 * in the report. */
static lig_status check_settled(check_run *self, uint64_t id)
{
    lig_report *shown = &self->report->shown;
    const lig_report counted = *shown;
    uint64_t before, after = 0;
    for (int i = 0; i < CHECK_TRIES; i++) {
        size_t known = shown->problem_count;
        uint64_t mended = self->mended;
        LIG_TRY(record_now(self->store, id, &before));
        lig_status status = check_model(self, id);
        if (status != LIG_E_BUSY) /* a view that was too old */
            LIG_TRY(status);
        if (status == LIG_OK && shown->problem_count == known)
            return LIG_OK;
        LIG_TRY(record_now(self->store, id, &after));
        if (status == LIG_OK && (before == after || self->mended != mended))
            return LIG_OK;
        ligi_report_cut(self->report, known);
        shown->models = counted.models;
        shown->tensors = counted.tensors;
        shown->bytes = counted.bytes;
    }
    return LIG_OK;
}

static lig_status try_list_ids(check_run *self)
{
    ligi_catalog_view view;
    self->id_count = 0;
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(&view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        status = ligi_grow(&self->ids, &self->id_capacity, self->id_count + 1, sizeof *self->ids,
                           "a check");
        if (status != LIG_OK)
            break;
        if (item.key_bytes == 9)
            self->ids[self->id_count++] = ligi_get_be64((const char *)item.key + 1);
    }
    ligi_catalog_view_end(&view);
    return status;
}

static lig_status list_ids(check_run *self)
{
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++)
        status = try_list_ids(self);
    return status;
}

/* --- packs --- */

/* A pack that is not recorded may belong to a save under way: then it cannot be claimed. A complete
 * one was left by a killed save, or was held by a match while its last model was retired: this is
 * not a problem.
 */
static lig_status check_stray(check_run *self, uint64_t pack)
{
    ligi_volume *volume = self->store->volume;
    void *claim = NULL;
    if (self->store->mode == 'r' || volume->ops->pack_claim(volume->self, pack, &claim) != LIG_OK)
        return LIG_OK;
    int named = !ligi_orphans_unnamed(self->store, pack); /* committed since the first look */
    int leftover = !named && ligi_orphans_owned(self->store, pack);
    uint64_t bytes = 0;
    if (leftover && volume->ops->pack_size(volume->self, pack, &bytes) == LIG_OK)
        self->report->shown.leftover_bytes += bytes;
    volume->ops->pack_close(claim);
    if (named || leftover)
        return LIG_OK;
    return ligi_report_add(self->report,
                           "pack %016llx is used by no model, and is damaged or belongs to another "
                           "store (move it away)",
                           (unsigned long long)pack);
}

/* Loads need neither header nor footer of a pack, but a lost catalog is made from them. */
static lig_status verify_frame(const check_run *self, uint64_t pack)
{
    ligi_pack_header header = {0};
    ligi_pack_trailer trailer;
    void *footer = NULL;
    lig_status status = ligi_footer_read(self->store->volume, pack, &header, &trailer, &footer);
    free(footer);
    LIG_TRY(status);
    if (memcmp(header.uuid, self->store->uuid, sizeof header.uuid) != 0 ||
        memcmp(header.secret, self->store->secret, sizeof header.secret) != 0)
        return lig_fail(LIG_E_CORRUPT, "the pack's header belongs to another store");
    return LIG_OK;
}

static lig_status check_frame(check_run *self, uint64_t pack)
{
    ligi_failure failure;
    lig_status status = verify_frame(self, pack);
    if (status != LIG_E_CORRUPT && status != LIG_E_UNSUPPORTED)
        return status == LIG_E_NOTFOUND ? LIG_OK : status; /* removed, or reported with its
                                                            * models */
    ligi_failure_take(&failure, status);
    if (!ligi_orphans_named(self->store, pack))
        return LIG_OK;
    LIG_TRY(
        ligi_report_add(self->report, "pack %016llx: %s", (unsigned long long)pack, failure.text));
    if (!(self->flags & LIG_CHECK_REPAIR) || status == LIG_E_UNSUPPORTED)
        return LIG_OK;
    LIG_TRY(ligi_compact_pack(self->store, pack, &self->report->shown.freed_bytes));
    self->mended += !ligi_orphans_named(self->store, pack);
    return LIG_OK;
}

static lig_status check_packs(check_run *self)
{
    const lig_volume_ops *ops = self->store->volume->ops;
    uint64_t pack = 0;
    lig_status status;
    while ((status = ops->pack_next(self->store->volume->self, pack, &pack)) == LIG_OK) {
        self->report->shown.packs++;
        status = ligi_orphans_named(self->store, pack) ? check_frame(self, pack)
                                                       : check_stray(self, pack);
        if (status != LIG_OK)
            break;
    }
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* --- the calls --- */

static lig_status audit_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    check_run *self = context;
    self->mended = 0;
    ligi_report_cut(self->report, self->known);
    return ligi_audit(view, change, self->report, &self->mended);
}

static lig_status audit(check_run *self)
{
    if (self->flags & LIG_CHECK_REPAIR)
        return commit_slowly(self, audit_edit);
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++) {
        ligi_catalog_view view;
        ligi_report_cut(self->report, self->known);
        LIG_TRY(ligi_catalog_view_begin(self->store, &view));
        status = ligi_audit(&view, NULL, self->report, &self->mended);
        ligi_catalog_view_end(&view);
    }
    return status;
}

/* Repairs are commits: they are made only if the catalog is still what they were derived from, so a
 * view that lacks the commit of a killed process does no harm to it. It is settled for the report,
 * which should include that commit, too. */
static lig_status add_problem(void *context, const char *text, const void *event, size_t bytes)
{
    check_run *self = context;
    lig_event told;
    if (event == NULL || ligi_event_get(event, bytes, &told) != LIG_OK)
        return ligi_report_add(self->report, "%s", text);
    return ligi_report_add(self->report, "%s (affects model '%s')", text, told.name);
}

/* The log and its checkpoints, before the catalog that was made of them. */
static lig_status verify_catalog(check_run *self)
{
    const ligi_volume *volume = self->store->volume;
    if (self->store->by_footers)
        return ligi_report_add(self->report,
                               "the catalog cannot be read: models below 64 KiB, aliases and later "
                               "changes are missing (run ligament check --repair)");
    if (volume->ops->catalog_verify == NULL)
        return LIG_OK;
    return volume->ops->catalog_verify(volume->self, (self->flags & LIG_CHECK_REPAIR) != 0,
                                       add_problem, self);
}

static lig_status check(check_run *self)
{
    uint64_t adopted = 0;
    LIG_TRY(verify_catalog(self));
    if (self->flags & LIG_CHECK_REPAIR && self->report->shown.problem_count > 0)
        LIG_TRY(ligi_adopt(self->store, self->report, &adopted));
    self->known = self->report->shown.problem_count;
    lig_status status =
        ligi_catalog_settle(self->store, &self->store->interrupt, self->store->commit_ns);
    if (status == LIG_E_CLOSED)
        return status;
    LIG_TRY(audit(self));
    LIG_TRY(ligi_alloc(&self->buffer, BUFFER_BYTES, "a check"));
    LIG_TRY(list_ids(self));
    for (size_t i = 0; i < self->id_count; i++)
        LIG_TRY(check_settled(self, self->ids[i]));
    if (self->flags & LIG_CHECK_REPAIR && self->fingerprint_count) {
        self->mended += self->fingerprint_count;
        LIG_TRY(ligi_change_commit(self->store, mend_fingerprints, self, NULL));
    }
    if (self->reindex)
        LIG_TRY(commit_slowly(self, mend_index));
    LIG_TRY(check_packs(self));
    if (self->flags & LIG_CHECK_REPAIR)
        LIG_TRY(ligi_orphans_remove(self->store, &self->mended, &self->report->shown.freed_bytes));
    self->report->shown.repaired = self->mended + adopted;
    return LIG_OK;
}

lig_status lig_store_check(lig_store *store, uint32_t flags, lig_report **report)
{
    return lig_store_check_progress(store, flags, NULL, report);
}

lig_status lig_store_check_progress(lig_store *store, uint32_t flags, const lig_progress *progress,
                                    lig_report **report)
{
    LIG_TRY(flags & LIG_CHECK_REPAIR ? ligi_store_writable(store) : ligi_store_usable(store));
    if (flags & ~LIG_CHECK_REPAIR)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x for a check", flags);
    if (store->remote)
        return store->remote->check(store, flags, progress, report);
    check_run self = {.store = store, .flags = flags, .progress = progress};
    if (progress) {
        lig_store_stats stats;
        LIG_TRY(lig_store_stat(store, &stats));
        self.total = stats.bytes;
    }
    LIG_TRY(ligi_report_create(&self.report));
    lig_status status = check(&self);
    free(self.buffer);
    free(self.ids);
    free(self.fingerprints);
    if (status == LIG_OK)
        *report = &self.report->shown;
    else
        lig_report_destroy(&self.report->shown);
    return status;
}

/* A volume that applies it as an edit may refuse its version: there is nothing to apply. */
static lig_status free_catalog(lig_store *store)
{
    const lig_catalog_edit nothing = {.flags = LIG_EDIT_FREES};
    lig_status status = store->volume->ops->catalog_commit(store->volume->self, &nothing);
    return status == LIG_E_BUSY ? LIG_OK : status;
}

lig_status lig_store_compact(lig_store *store, lig_report **report)
{
    LIG_TRY(ligi_store_writable(store));
    if (store->remote)
        return store->remote->compact(store, report);
    ligi_report *made;
    LIG_TRY(ligi_report_create(&made));
    lig_store_stats stats;
    lig_status status = ligi_retired_purge(store, &made->shown.freed_bytes);
    if (status == LIG_OK)
        status = ligi_orphans_remove(store, &made->shown.repaired, &made->shown.freed_bytes);
    if (status == LIG_OK)
        status = ligi_compact_packs(store, &made->shown.repaired, &made->shown.freed_bytes);
    if (status == LIG_OK)
        status = free_catalog(store);
    if (status == LIG_OK)
        status = lig_store_stat(store, &stats);
    if (status != LIG_OK) {
        lig_report_destroy(&made->shown);
        return status;
    }
    made->shown.models = stats.models;
    made->shown.tensors = stats.tensors;
    made->shown.packs = stats.packs;
    made->shown.bytes = stats.bytes;
    *report = &made->shown;
    return LIG_OK;
}
