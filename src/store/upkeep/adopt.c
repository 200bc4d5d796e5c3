#include "store/upkeep/adopt.h"

#include "base/error.h"
#include "store/catalog/commit.h"
#include "store/catalog/rebuild/catalog_from_footers.h"

#include <stdio.h>
#include <string.h>

typedef struct adopt_run {
    lig_store *store;
    ligi_footers *footers;
    ligi_report *report;
    size_t known; /* problems before */
    uint64_t adopted;
} adopt_run;

/* 1 when the catalog has no such model, and no model uses its pack. */
static lig_status is_lost(const ligi_catalog_view *view, const ligi_record *record, int *lost)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    ligi_pack_record pack;
    lig_catalog_item item;

    *lost = 0;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND && record->pack != 0)
        status = ligi_catalog_view_pack(view, record->pack, &pack);
    *lost = status == LIG_E_NOTFOUND && record->pack != 0;
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* 1 if no process is about to commit or remove the pack: a save holds its pack until it has
 * committed. Checked under the catalog's lock, so that a later claim finds the pack in the
 * catalog. */
static int is_left(const lig_store *store, uint64_t pack)
{
    const lig_volume_ops *ops = store->volume->ops;
    void *claim = NULL;

    if (ops->pack_claim(store->volume->self, pack, &claim) != LIG_OK)
        return 0;
    ops->pack_close(claim);
    return 1;
}

/* 1 if all packs that the model needs exist. */
static int is_whole(const lig_store *store, const ligi_record *record)
{
    uint64_t bytes;

    for (size_t i = 0; i < record->use_count; i++)
        if (store->volume->ops->pack_size(store->volume->self, record->uses[i].pack, &bytes) !=
            LIG_OK)
            return 0;
    return 1;
}

static lig_status put_graphs(const adopt_run *self, const ligi_record *record, ligi_change *change)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, record->about.id);
    lig_catalog_item item;
    ligi_reader reader;

    if (!ligi_footers_seek(self->footers, key.bytes, key.size, &item) ||
        item.key_bytes != key.size || memcmp(item.key, key.bytes, key.size) != 0)
        return LIG_OK;
    LIG_TRY(ligi_value_open(&item, self->store->secret, &reader));
    return ligi_change_graphs(change, &record->about, reader.data + reader.at,
                              reader.bytes - reader.at);
}

static lig_status put_back(adopt_run *self, const ligi_catalog_view *view, ligi_record *record,
                           ligi_change *change)
{
    char renamed[LIG_NAME_BYTES_MAX + 32];
    uint64_t taken, alias, bytes;

    LIG_TRY(ligi_catalog_view_name(view, record->about.name, &taken));
    LIG_TRY(ligi_catalog_view_alias(view, record->about.name, &alias));
    if (taken != 0 || alias != 0) {
        snprintf(renamed, sizeof renamed, "%s~%llu", record->about.name,
                 (unsigned long long)record->about.id);
        record->about.name = renamed;
    }
    LIG_TRY(self->store->volume->ops->pack_size(self->store->volume->self, record->pack, &bytes));
    LIG_TRY(ligi_change_uses(change, record, 1, bytes));
    LIG_TRY(ligi_change_model(change, record));
    LIG_TRY(ligi_change_event(change, LIG_EVENT_SAVED, record->about.id, record->about.name, NULL));
    LIG_TRY(put_graphs(self, record, change));
    self->adopted++;
    return ligi_report_add(
        self->report, "model '%s' was lost in a damaged log and has been restored from its pack",
        record->about.name);
}

/* Ids that the lost part of the log gave out are not given out again. */
static lig_status raise_ids(const adopt_run *self, const ligi_catalog_view *view,
                            ligi_change *change)
{
    ligi_catalog_key key = ligi_catalog_key_header();
    ligi_header header;

    LIG_TRY(ligi_catalog_view_header(view, &header));
    if (header.next_id >= ligi_footers_next_id(self->footers))
        return LIG_OK;
    header.next_id = ligi_footers_next_id(self->footers);
    ligi_header_put(&change->value, &header);
    return ligi_change_put(change, &key);
}

static lig_status adopt_edit(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    adopt_run *self = context;
    size_t count = ligi_footers_count(self->footers);
    lig_status status = LIG_OK;

    self->adopted = 0;
    ligi_report_cut(self->report, self->known);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        lig_catalog_item item = ligi_footers_item(self->footers, i);
        ligi_record record = {0};
        int lost = 0;
        if (item.key_bytes == 0 || *(const uint8_t *)item.key != LIGI_TABLE_MODEL)
            continue;
        status = ligi_record_get(&item, self->store->secret, &record);
        if (status == LIG_OK)
            status = is_lost(view, &record, &lost);
        if (status == LIG_OK && lost && is_whole(self->store, &record) &&
            is_left(self->store, record.pack))
            status = put_back(self, view, &record, change);
        ligi_record_fini(&record);
    }
    return status == LIG_OK ? raise_ids(self, view, change) : status;
}

lig_status ligi_adopt(lig_store *store, ligi_report *report, uint64_t *adopted)
{
    adopt_run self = {.store = store, .report = report, .known = report->shown.problem_count};
    ligi_footers_options options = {.uuid = store->uuid, .keep_older = 1};

    LIG_TRY(ligi_footers_read(store->volume, NULL, &options, &self.footers));
    lig_status status = ligi_change_commit(store, adopt_edit, &self, NULL);
    ligi_footers_drop(self.footers);
    *adopted += self.adopted;
    return status;
}
