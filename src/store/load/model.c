#include "store/load/model.h"

#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

void ligi_model_free(ligi_model *model)
{
    if (model == NULL)
        return;
    ligi_record_fini(&model->record);
    ligi_manifest_fini(&model->manifest);
    free(model->record_bytes);
    free(model->manifest_bytes);
    free(model);
}

static void show(ligi_model *model)
{
    const ligi_record *record = &model->record;
    model->shown = (lig_model){.id = record->about.id,
                               .parent = record->about.parent,
                               .name = record->about.name,
                               .parent_name = record->about.parent_name,
                               .created_ns = record->about.created_ns,
                               .bytes = record->bytes,
                               .own_bytes = record->own_bytes,
                               .tensor_count = record->tensor_count,
                               .metric_count = record->about.metric_count,
                               .tag_count = record->about.tag_count,
                               .tensors = model->manifest.shown,
                               .metrics = record->about.metrics,
                               .tags = record->about.tags,
                               .meta = record->about.meta,
                               .structure = ""};
    if (model->manifest.structure)
        model->shown.structure = model->manifest.structure;
}

void ligi_model_trim(ligi_model *model)
{
    ligi_manifest_fini(&model->manifest);
    free(model->manifest_bytes);
    model->manifest_bytes = NULL;
    model->inline_data = NULL;
    model->manifest_size = model->inline_bytes = 0;
    show(model);
}

uint64_t ligi_model_memory(const ligi_model *model)
{
    return sizeof *model + model->record_size + model->manifest_size + model->inline_bytes +
           model->manifest.tensor_count * sizeof *model->manifest.tensors;
}

lig_status ligi_model_list(const lig_catalog_item *item, const void *secret, ligi_model **out)
{
    ligi_model *model;
    LIG_TRY(ligi_calloc(&model, 1, sizeof *model, "a model"));
    lig_catalog_item copy = *item;
    lig_status status = ligi_alloc(&model->record_bytes, item->value_bytes, "a model");
    if (status == LIG_OK) {
        memcpy(model->record_bytes, item->value, item->value_bytes);
        model->record_size = item->value_bytes;
        copy.value = model->record_bytes;
        status = ligi_record_get(&copy, secret, &model->record);
    }
    if (status != LIG_OK) {
        ligi_model_free(model);
        return status;
    }
    show(model);
    *out = model;
    return LIG_OK;
}

/* Copies of the record (for another thread, for a client) have the name, too: it is part of it. */
static lig_status rename_parent(const ligi_catalog_view *view, const char *name, ligi_model **model)
{
    ligi_record record = (*model)->record;
    ligi_model *renamed = NULL;
    ligi_writer value = {0};
    record.about.parent_name = name;
    ligi_record_put(&value, &record, view->store->secret);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record.about.id);
    lig_catalog_item item = {key.bytes, key.size, value.data, value.bytes};
    lig_status status = value.status;
    if (status == LIG_OK)
        status = ligi_model_list(&item, view->store->secret, &renamed);
    ligi_writer_fini(&value);
    LIG_TRY(status);
    ligi_model_free(*model);
    *model = renamed;
    return LIG_OK;
}

static lig_status update_parent(const ligi_catalog_view *view, ligi_model **model)
{
    const ligi_about *about = &(*model)->record.about;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, about->parent);
    lig_catalog_item item;
    ligi_record parent = {0};
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_OK)
        status = ligi_record_get(&item, view->store->secret, &parent);
    if (status == LIG_OK && strcmp(parent.about.name, about->parent_name) != 0 &&
        ligi_store_sees(view->store, parent.about.name))
        status = rename_parent(view, parent.about.name, model);
    ligi_record_fini(&parent);
    /* a damaged parent must not hide its children */
    return status == LIG_E_NOTFOUND || status == LIG_E_CORRUPT ? LIG_OK : status;
}

lig_status ligi_model_list_in(const ligi_catalog_view *view, const lig_catalog_item *item,
                              ligi_model **out)
{
    ligi_model *model = NULL;
    LIG_TRY(ligi_model_list(item, view->store->secret, &model));
    lig_status status = model->record.about.parent ? update_parent(view, &model) : LIG_OK;
    if (status != LIG_OK) {
        ligi_model_free(model);
        return status;
    }
    *out = model;
    return LIG_OK;
}

lig_status ligi_model_adopt(ligi_model *model, void *bytes, size_t manifest_bytes,
                            size_t inline_bytes)
{
    model->manifest_bytes = bytes;
    model->manifest_size = manifest_bytes;
    model->inline_data = (const uint8_t *)bytes + manifest_bytes;
    model->inline_bytes = inline_bytes;
    LIG_TRY(ligi_manifest_get(bytes, manifest_bytes, model->record.pack, &model->manifest));
    show(model);
    return LIG_OK;
}

/* The manifest, followed by the data. */
static lig_status adopt_copy(ligi_model *model, const ligi_sent_manifest *from)
{
    uint8_t *copy;
    LIG_TRY(ligi_alloc(&copy, from->manifest_bytes + from->inline_bytes, "an inline model"));
    if (from->manifest_bytes)
        memcpy(copy, from->manifest, from->manifest_bytes);
    if (from->inline_bytes)
        memcpy(copy + from->manifest_bytes, from->inlined, from->inline_bytes);
    return ligi_model_adopt(model, copy, from->manifest_bytes, from->inline_bytes);
}

static lig_status read_inline(const ligi_catalog_view *view, ligi_model *model)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_INLINE, model->record.about.id);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT, "its bytes are not in the catalog");
    LIG_TRY(status);
    ligi_inline inlined;
    LIG_TRY(ligi_inline_get(&item, view->store->secret, &inlined));
    const ligi_sent_manifest from = {inlined.manifest, inlined.data, inlined.manifest_bytes,
                                     inlined.data_bytes};
    return adopt_copy(model, &from);
}

static lig_status check_inline(const ligi_model *model)
{
    for (size_t i = 0; i < model->manifest.tensor_count; i++) {
        const lig_stored_tensor *stored = &model->manifest.tensors[i];
        if (stored->pack == 0 && stored->tensor.bytes &&
            (stored->offset > model->inline_bytes ||
             stored->tensor.bytes > model->inline_bytes - stored->offset))
            return lig_fail(LIG_E_CORRUPT, "tensor '%s' is outside its record",
                            stored->tensor.name);
    }
    return LIG_OK;
}

static lig_status read_packed(lig_store *store, ligi_model *model, int *gone)
{
    const ligi_record *record = &model->record;
    ligi_volume *volume = store->volume;
    uint64_t pack_bytes;
    lig_status status = volume->ops->pack_size(volume->self, record->pack, &pack_bytes);
    *gone = status == LIG_E_NOTFOUND;
    LIG_TRY(status);
    if (record->offset > pack_bytes || record->manifest_bytes > pack_bytes - record->offset)
        return lig_fail(LIG_E_CORRUPT, "its manifest is outside pack %016llx",
                        (unsigned long long)record->pack);
    void *manifest;
    LIG_TRY(ligi_alloc(&manifest, record->manifest_bytes, "a manifest"));
    model->manifest_bytes = manifest;
    lig_range range = {.data = manifest, .bytes = record->manifest_bytes, .offset = record->offset};
    size_t bad;
    status = volume->ops->pack_read(volume->self, record->pack, store->secret, &range, 1, &bad);
    *gone = status == LIG_E_NOTFOUND;
    LIG_TRY(status);
    if (ligi_hash64_plain(manifest, record->manifest_bytes) != record->manifest_hash)
        return lig_fail(LIG_E_CORRUPT, "its manifest in pack %016llx is damaged",
                        (unsigned long long)record->pack);
    LIG_TRY(ligi_model_adopt(model, manifest, record->manifest_bytes, 0));
    return ligi_pack_tensors_check(&model->manifest, record->pack, record->offset);
}

static lig_status check_filled(const ligi_model *model)
{
    LIG_TRY(check_inline(model));
    if (model->manifest.about.id != model->record.about.id ||
        model->manifest.shown_count != model->record.tensor_count)
        return lig_fail(LIG_E_CORRUPT, "its manifest belongs to another model");
    return LIG_OK;
}

static lig_status receive(ligi_model *model, const ligi_sent_manifest *sent)
{
    const ligi_record *record = &model->record;
    if (sent->manifest_bytes != record->manifest_bytes ||
        ligi_hash64_plain(sent->manifest, sent->manifest_bytes) != record->manifest_hash)
        return lig_fail(LIG_E_CORRUPT, "its manifest is damaged");
    LIG_TRY(adopt_copy(model, sent));
    if (record->pack)
        LIG_TRY(ligi_pack_tensors_check(&model->manifest, record->pack, record->offset));
    return check_filled(model);
}

lig_status ligi_model_receive(ligi_model *model, const ligi_sent_manifest *sent)
{
    lig_status status = receive(model, sent);
    if (status != LIG_OK)
        return ligi_fail_again(status, "model '%s': %s", model->record.about.name,
                               lig_error_text());
    show(model);
    return LIG_OK;
}

lig_status ligi_model_fill(lig_store *store, const ligi_catalog_view *view, ligi_model *model,
                           int *gone)
{
    *gone = 0;
    lig_status status =
        model->record.pack ? read_packed(store, model, gone) : read_inline(view, model);
    if (status == LIG_OK)
        status = check_filled(model);
    if (status != LIG_OK)
        return ligi_fail_again(*gone ? LIG_E_CORRUPT : status, "model '%s': %s",
                               model->record.about.name, lig_error_text());
    show(model);
    return LIG_OK;
}

lig_status ligi_model_copy(const ligi_model *model, const void *secret, ligi_model **out)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, model->record.about.id);
    lig_catalog_item item = {key.bytes, key.size, model->record_bytes, model->record_size};
    size_t bytes = model->manifest_size + model->inline_bytes;
    void *manifest;
    ligi_model *copy = NULL;
    LIG_TRY(ligi_model_list(&item, secret, &copy));
    lig_status status = ligi_alloc(&manifest, bytes, "a manifest");
    if (status == LIG_OK) {
        memcpy(manifest, model->manifest_bytes, bytes);
        status = ligi_model_adopt(copy, manifest, model->manifest_size, model->inline_bytes);
    }
    if (status != LIG_OK) {
        ligi_model_free(copy);
        return status;
    }
    ligi_manifest_fingerprints(&copy->manifest, secret);
    *out = copy;
    return LIG_OK;
}

void lig_model_destroy(lig_model *model)
{
    ligi_model_free((ligi_model *)model);
}

void lig_models_destroy(lig_model **models, size_t count)
{
    for (size_t i = 0; models && i < count; i++)
        lig_model_destroy(models[i]);
    free(models);
}
