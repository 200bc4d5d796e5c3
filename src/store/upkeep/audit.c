#include "store/upkeep/audit.h"

#include "base/error.h"
#include "base/map.h"
#include "store/catalog/change.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/rebuild/lost_notice.h"
#include "store/catalog/retired_models.h"
#include "store/upkeep/index_check.h"

#include <stdlib.h>
#include <string.h>

typedef struct known { /* a model whose record is sound */
    uint64_t id;
    ligi_catalog_key name;
} known;

typedef struct audit {
    const ligi_catalog_view *view;
    ligi_change *change;
    ligi_report *report;
    uint64_t *mended;
    known *models;
    size_t model_count, model_capacity;
    ligi_count *packs;
    size_t pack_count, pack_capacity;
    ligi_map by_id, by_pack; /* -> index; made when both arrays are complete */
    int damaged;             /* some record could not be read: counts are not to be trusted */
} audit;

static const void *secret_of(const audit *self)
{
    return self->view->store->secret;
}

static lig_status add_uses(audit *self, const ligi_record *record)
{
    for (size_t i = 0; i < record->use_count; i++) {
        LIG_TRY(ligi_grow(&self->packs, &self->pack_capacity, self->pack_count + 1,
                          sizeof *self->packs, "a check"));
        self->packs[self->pack_count++] =
            (ligi_count){.pack = record->uses[i].pack,
                         .record = {.models = 1, .tensors = record->uses[i].tensors}};
    }
    return LIG_OK;
}

static lig_status add_model(audit *self, const ligi_record *record)
{
    LIG_TRY(ligi_grow(&self->models, &self->model_capacity, self->model_count + 1,
                      sizeof *self->models, "a check"));
    self->models[self->model_count++] =
        (known){record->about.id,
                ligi_catalog_key_text(LIGI_TABLE_NAME, secret_of(self), record->about.name)};
    return add_uses(self, record);
}

/* Retired models that are kept use their packs. */
static lig_status read_retired(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_RETIRED, &walk, &item, &status)) {
        ligi_retired retired;
        ligi_record record = {0};
        status = ligi_retired_get(&item, secret_of(self), &retired);
        if (status == LIG_OK)
            status = ligi_retired_record(&retired, secret_of(self), &record);
        if (status == LIG_OK)
            status = add_uses(self, &record);
        else if (status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED) {
            self->damaged = 1;
            status = ligi_report_add(self->report, "a retired model: %s", lig_error_text());
        }
        ligi_record_fini(&record);
        LIG_TRY(status);
    }
    return status;
}

static lig_status read_models(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        status = ligi_record_get(&item, secret_of(self), &record);
        if (status == LIG_OK)
            status = add_model(self, &record);
        else if (status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED) {
            self->damaged = 1;
            uint64_t id = item.key_bytes == 9 ? ligi_get_be64((const char *)item.key + 1) : 0;
            status = ligi_report_add(self->report, "model %llu: %s", (unsigned long long)id,
                                     lig_error_text());
        }
        ligi_record_fini(&record);
        LIG_TRY(status);
    }
    return status;
}

static int by_number(const void *a, const void *b)
{
    uint64_t left = ((const ligi_count *)a)->pack, right = ((const ligi_count *)b)->pack;
    return left < right ? -1 : left > right;
}

/* One entry a pack, and tables over both arrays. */
static lig_status index_all(audit *self)
{
    if (self->pack_count)
        qsort(self->packs, self->pack_count, sizeof *self->packs, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < self->pack_count; i++) {
        if (kept && self->packs[kept - 1].pack == self->packs[i].pack) {
            self->packs[kept - 1].record.models += self->packs[i].record.models;
            self->packs[kept - 1].record.tensors += self->packs[i].record.tensors;
        } else {
            self->packs[kept++] = self->packs[i];
        }
    }
    self->pack_count = kept;
    LIG_TRY(ligi_map_reserve(&self->by_id, self->model_count));
    LIG_TRY(ligi_map_reserve(&self->by_pack, kept));
    for (size_t i = 0; i < self->model_count; i++)
        LIG_TRY(ligi_map_insert(&self->by_id, &self->models[i].id, sizeof(uint64_t), i, NULL));
    for (size_t i = 0; i < kept; i++)
        LIG_TRY(ligi_map_insert(&self->by_pack, &self->packs[i].pack, sizeof(uint64_t), i, NULL));
    return LIG_OK;
}

static lig_status erase_item(audit *self, const lig_catalog_item *item)
{
    if (self->change == NULL || item->key_bytes > sizeof(((ligi_catalog_key *)0)->bytes))
        return LIG_OK;
    ligi_catalog_key key = {.size = item->key_bytes};
    memcpy(key.bytes, item->key, item->key_bytes);
    *self->mended += 1;
    return ligi_change_erase(self->change, &key);
}

static lig_status check_names(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_NAME, &walk, &item, &status)) {
        uint64_t id = 0, at;
        int sound = ligi_catalog_name_get(&item, secret_of(self), &id) == LIG_OK &&
                    ligi_map_find(&self->by_id, &id, sizeof id, &at) &&
                    item.key_bytes == self->models[at].name.size &&
                    memcmp(item.key, self->models[at].name.bytes, item.key_bytes) == 0;
        if (sound || self->damaged)
            continue;
        LIG_TRY(ligi_report_add(self->report,
                                "a name refers to model %llu, which has a different name",
                                (unsigned long long)id));
        LIG_TRY(erase_item(self, &item));
    }
    return status;
}

static lig_status tell_named(audit *self, uint64_t id)
{
    ligi_record record = {0};
    lig_status status = ligi_catalog_view_model(self->view, id, &record);
    if (status == LIG_OK)
        status = ligi_change_event(self->change, LIG_EVENT_UPDATED, id, record.about.name, NULL);
    ligi_record_fini(&record);
    return status;
}

static lig_status check_named(audit *self)
{
    for (size_t i = 0; i < self->model_count; i++) {
        const known *model = &self->models[i];
        lig_catalog_item item;
        uint64_t id = 0;
        lig_status status = ligi_catalog_view_get(self->view, &model->name, &item);
        if (status == LIG_OK)
            status = ligi_catalog_name_get(&item, secret_of(self), &id);
        if (status == LIG_OK && id == model->id)
            continue;
        if (status != LIG_OK && status != LIG_E_NOTFOUND && status != LIG_E_CORRUPT)
            return status;
        LIG_TRY(ligi_report_add(self->report, "model %llu cannot be found by its name",
                                (unsigned long long)model->id));
        if (self->change == NULL || (id && ligi_map_find(&self->by_id, &id, sizeof id, NULL)))
            continue;
        ligi_catalog_name_put(&self->change->value, &model->name, model->id, secret_of(self));
        LIG_TRY(ligi_change_put(self->change, &model->name));
        LIG_TRY(tell_named(self, model->id));
        *self->mended += 1;
    }
    return LIG_OK;
}

static lig_status check_aliases(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_ALIAS, &walk, &item, &status)) {
        const char *alias = "";
        uint64_t id = 0;
        int sound = ligi_alias_get(&item, secret_of(self), &alias, &id) == LIG_OK &&
                    (self->damaged || ligi_map_find(&self->by_id, &id, sizeof id, NULL));
        if (sound)
            continue;
        LIG_TRY(ligi_report_add(self->report, "alias '%s' refers to no model", alias));
        LIG_TRY(erase_item(self, &item));
        if (self->change && alias[0])
            LIG_TRY(ligi_change_event(self->change, LIG_EVENT_ALIAS, 0, alias, NULL));
    }
    return status;
}

static lig_status check_inlined(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_INLINE, &walk, &item, &status)) {
        uint64_t id = item.key_bytes == 9 ? ligi_get_be64((const char *)item.key + 1) : 0;
        if (self->damaged || ligi_map_find(&self->by_id, &id, sizeof id, NULL))
            continue;
        LIG_TRY(ligi_report_add(self->report,
                                "the catalog contains data of model %llu, which does not exist",
                                (unsigned long long)id));
        LIG_TRY(erase_item(self, &item));
    }
    return status;
}

/* Sizes come from the volume: a pack's record may be the damaged part. */
static lig_status mend_count(audit *self, const ligi_count *count)
{
    ligi_volume *volume = self->view->store->volume;
    ligi_pack_record record = count->record;
    lig_status status = volume->ops->pack_size(volume->self, count->pack, &record.bytes);
    if (self->change == NULL || self->damaged || status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, count->pack);
    ligi_pack_record_put(&self->change->value, count->pack, &record, secret_of(self));
    *self->mended += 1;
    return ligi_change_put(self->change, &key);
}

static lig_status check_packs(audit *self)
{
    for (size_t i = 0; i < self->pack_count; i++) {
        const ligi_count *count = &self->packs[i];
        ligi_pack_record record = {0};
        lig_status status = ligi_catalog_view_pack(self->view, count->pack, &record);
        if (status == LIG_OK && record.models == count->record.models &&
            record.tensors == count->record.tensors)
            continue;
        if (status != LIG_OK && status != LIG_E_NOTFOUND && status != LIG_E_CORRUPT)
            return status;
        if (self->damaged)
            continue;
        LIG_TRY(ligi_report_add(self->report,
                                "pack %016llx is recorded as used by %llu models and %llu tensors, "
                                "but is used by %llu and %llu",
                                (unsigned long long)count->pack, (unsigned long long)record.models,
                                (unsigned long long)record.tensors,
                                (unsigned long long)count->record.models,
                                (unsigned long long)count->record.tensors));
        LIG_TRY(mend_count(self, count));
    }
    return LIG_OK;
}

static lig_status check_pack_records(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_PACK, &walk, &item, &status)) {
        uint64_t pack = item.key_bytes == 9 ? ligi_get_be64((const char *)item.key + 1) : 0;
        if (self->damaged || ligi_map_find(&self->by_pack, &pack, sizeof pack, NULL))
            continue;
        LIG_TRY(ligi_report_add(self->report, "pack %016llx is recorded, but no model uses it",
                                (unsigned long long)pack));
        LIG_TRY(erase_item(self, &item));
    }
    return status;
}

/* Tensors that a save would refer to must exist. */
static lig_status check_fingerprints(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_FINGERPRINT, &walk, &item, &status)) {
        ligi_fingerprint_entry fingerprint = {0};
        int read = ligi_fingerprint_get(&item, secret_of(self), &fingerprint) == LIG_OK;
        if (self->damaged || (read && ligi_map_find(&self->by_pack, &fingerprint.pack,
                                                    sizeof fingerprint.pack, NULL)))
            continue;
        LIG_TRY(read ? ligi_report_add(self->report,
                                       "a fingerprint refers to pack %016llx, which no model uses",
                                       (unsigned long long)fingerprint.pack)
                     : ligi_report_add(self->report, "%s", lig_error_text()));
        LIG_TRY(erase_item(self, &item));
    }
    return status;
}

/* A repair has reported them when it ends: they go. */
static lig_status check_notices(audit *self)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(self->view, LIGI_TABLE_NOTICE, &walk, &item, &status)) {
        const char *text = "";
        int read = ligi_notice_get(&item, secret_of(self), &text) == LIG_OK;
        LIG_TRY(ligi_report_add(self->report, "%s", read ? text : lig_error_text()));
        LIG_TRY(erase_item(self, &item));
    }
    return status;
}

static lig_status check_index(audit *self)
{
    return self->damaged ? LIG_OK
                         : ligi_index_check(self->view, self->change, self->report, self->mended);
}

lig_status ligi_audit(const ligi_catalog_view *view, ligi_change *change, ligi_report *report,
                      uint64_t *mended)
{
    audit self = {.view = view, .change = change, .report = report, .mended = mended};
    lig_status (*const steps[])(audit *) = {read_models,        read_retired,  index_all,
                                            check_names,        check_named,   check_aliases,
                                            check_inlined,      check_packs,   check_pack_records,
                                            check_fingerprints, check_notices, check_index};
    lig_status status = LIG_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == LIG_OK; i++)
        status = steps[i](&self);
    ligi_map_fini(&self.by_id);
    ligi_map_fini(&self.by_pack);
    free(self.models);
    free(self.packs);
    return status;
}
