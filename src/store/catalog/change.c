#include "store/catalog/change.h"

#include "base/error.h"
#include "store/catalog/commit_event.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/model_graphs.h"
#include "store/catalog/rebuild/footer_read.h"
#include "store/catalog/retired_models.h"
#include "store/catalog/search_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void ligi_change_fini(ligi_change *change)
{
    ligi_volume *volume = change->store->volume;
    assert(change->view == NULL);
    for (size_t i = 0; i < change->claim_count; i++)
        volume->ops->pack_close(change->claims[i]);
    free(change->claims);
    free(change->fingerprints);
    ligi_writer_fini(&change->bytes);
    ligi_writer_fini(&change->value);
    free(change->ops);
    free(change->events);
    free(change->counts);
    ligi_search_index_edits_fini(&change->index);
}

static lig_status add_op(ligi_change *change, const ligi_catalog_key *key, const ligi_writer *value)
{
    assert(change->view != NULL && key->size > 0);
    LIG_TRY(ligi_grow(&change->ops, &change->capacity, change->count + 1, sizeof *change->ops,
                      "a change of the catalog"));
    ligi_change_op op = {.key = change->bytes.bytes, .key_bytes = key->size, .value = SIZE_MAX};
    ligi_put_bytes(&change->bytes, key->bytes, key->size);
    if (value) {
        LIG_TRY(value->status);
        op.value = change->bytes.bytes;
        op.value_bytes = value->bytes;
        ligi_put_bytes(&change->bytes, value->data, value->bytes);
    }
    LIG_TRY(change->bytes.status);
    change->ops[change->count++] = op;
    return LIG_OK;
}

lig_status ligi_change_put(ligi_change *change, const ligi_catalog_key *key)
{
    return add_op(change, key, &change->value);
}

lig_status ligi_change_erase(ligi_change *change, const ligi_catalog_key *key)
{
    return add_op(change, key, NULL);
}

lig_status ligi_change_event(ligi_change *change, int32_t kind, uint64_t model, const char *name,
                             const char *other)
{
    lig_event event = {.kind = kind, .model = model, .name = name, .other = other};
    assert(change->view != NULL && name != NULL);
    LIG_TRY(ligi_grow(&change->events, &change->event_capacity, change->event_count + 1,
                      sizeof *change->events, "a change of the catalog"));
    size_t at = change->bytes.bytes;
    ligi_event_put(&change->bytes, &event);
    LIG_TRY(change->bytes.status);
    change->events[change->event_count++] = (ligi_change_event_place){at, change->bytes.bytes - at};
    return LIG_OK;
}

/* A pack that lost its last model while a match pinned it is revived. It is claimed until this
 * change has ended: a process that is about to remove it must claim it too, and reads the
 * catalog under that claim. */
static lig_status revive(ligi_change *change, ligi_count *count)
{
    ligi_volume *volume = change->store->volume;
    assert(count->unknown && count->record.models == 0);
    LIG_TRY(ligi_grow(&change->claims, &change->claim_capacity, change->claim_count + 1,
                      sizeof *change->claims, "the packs of a change"));
    LIG_TRY(
        volume->ops->pack_claim(volume->self, count->pack, &change->claims[change->claim_count]));
    change->claim_count++;
    return volume->ops->pack_size(volume->self, count->pack, &count->record.bytes);
}

static lig_status find_count(ligi_change *change, uint64_t pack, ligi_count **found)
{
    for (size_t i = 0; i < change->count_count; i++)
        if (change->counts[i].pack == pack) {
            *found = &change->counts[i];
            return LIG_OK;
        }
    LIG_TRY(ligi_grow(&change->counts, &change->count_capacity, change->count_count + 1,
                      sizeof *change->counts, "the packs of a change"));
    ligi_count count = {.pack = pack};
    lig_status status = ligi_catalog_view_pack(change->view, pack, &count.record);
    if (status == LIG_E_NOTFOUND)
        count.unknown = 1;
    else
        LIG_TRY(status);
    change->counts[change->count_count] = count;
    *found = &change->counts[change->count_count++];
    return LIG_OK;
}

lig_status ligi_change_uses(ligi_change *change, const ligi_record *record, int sign,
                            uint64_t bytes)
{
    assert(sign == 1 || sign == -1);
    for (size_t i = 0; i < record->use_count; i++) {
        const ligi_use *use = &record->uses[i];
        ligi_count *count;
        LIG_TRY(find_count(change, use->pack, &count));
        ligi_pack_record *now = &count->record;
        if (sign > 0 && count->unknown) {
            now->bytes = bytes;
            if (use->pack != record->pack)
                LIG_TRY(revive(change, count));
            count->unknown = 0;
        }
        if (sign > 0) {
            now->models++;
            now->tensors += use->tensors;
        } else { /* a count that is too low is a damage that `check` finds; it must not wrap */
            now->models -= now->models > 0;
            now->tensors -= now->tensors < use->tensors ? now->tensors : use->tensors;
        }
    }
    return LIG_OK;
}

lig_status ligi_change_model(ligi_change *change, const ligi_record *record)
{
    const void *secret = change->view->store->secret;
    assert(change->view->store == change->store);
    ligi_record_put(&change->value, record, secret);
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    LIG_TRY(ligi_change_put(change, &key));
    key = ligi_catalog_key_text(LIGI_TABLE_NAME, secret, record->about.name);
    ligi_catalog_name_put(&change->value, &key, record->about.id, secret);
    return ligi_change_put(change, &key);
}

static lig_status move_aliases(ligi_change *change, const ligi_about *from, uint64_t successor)
{
    const void *secret = change->view->store->secret;
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(change->view, LIGI_TABLE_ALIAS, &walk, &item, &status)) {
        const char *alias;
        uint64_t id;
        LIG_TRY(ligi_alias_get(&item, secret, &alias, &id));
        if (id != from->id)
            continue;
        ligi_catalog_key key = ligi_catalog_key_text(LIGI_TABLE_ALIAS, secret, alias);
        if (successor)
            ligi_alias_put(&change->value, &key, alias, successor, secret);
        LIG_TRY(successor ? ligi_change_put(change, &key) : ligi_change_erase(change, &key));
        LIG_TRY(ligi_change_event(change, LIG_EVENT_ALIAS, successor, alias,
                                  successor ? from->name : NULL));
    }
    return status;
}

lig_status ligi_change_graphs(ligi_change *change, const ligi_about *about, const void *graphs,
                              size_t bytes)
{
    if (bytes == 0)
        return LIG_OK;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, about->id);
    ligi_value_begin(&change->value);
    ligi_put_bytes(&change->value, graphs, bytes);
    ligi_value_end(&change->value, &key, change->view->store->secret);
    LIG_TRY(ligi_change_put(change, &key));
    ligi_graphs read = {0};
    lig_status status = ligi_graphs_get(graphs, bytes, &read);
    if (status == LIG_OK)
        status = ligi_search_index_model(&change->index, about, &read, 1);
    ligi_graphs_fini(&read);
    return status;
}

/* Index entries of a model whose graphs cannot be read stay until `check` rebuilds the index. */
static lig_status forget_graphs(ligi_change *change, const ligi_about *about)
{
    ligi_graphs graphs = {0};
    lig_status status = ligi_graphs_read(change->view, about->id, &graphs);
    if (status == LIG_OK && graphs.count)
        status = ligi_search_index_model(&change->index, about, &graphs, 0);
    if (status == LIG_E_CORRUPT)
        status = LIG_OK;
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, about->id);
    if (status == LIG_OK && graphs.count)
        status = ligi_change_erase(change, &key);
    ligi_graphs_fini(&graphs);
    return status;
}

/* All index entries of a model. */
static lig_status forget_model(ligi_change *change, const ligi_record *record, int keep_name)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_MODEL, record->about.id);
    assert(change->event_count > 0); /* every removal has an event */
    LIG_TRY(ligi_change_erase(change, &key));
    if (!keep_name) {
        key =
            ligi_catalog_key_text(LIGI_TABLE_NAME, change->view->store->secret, record->about.name);
        LIG_TRY(ligi_change_erase(change, &key));
    }
    if (record->pack == 0) {
        key = ligi_catalog_key_id(LIGI_TABLE_INLINE, record->about.id);
        LIG_TRY(ligi_change_erase(change, &key));
    }
    return forget_graphs(change, &record->about);
}

lig_status ligi_change_remove(ligi_change *change, const ligi_record *record, int keep_name,
                              uint64_t successor)
{
    LIG_TRY(forget_model(change, record, keep_name));
    LIG_TRY(ligi_change_uses(change, record, -1, 0));
    return move_aliases(change, &record->about, successor);
}

lig_status ligi_change_hide(ligi_change *change, const ligi_record *record, int64_t until_ns)
{
    ligi_retired retired = {.until_ns = until_ns};
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_RETIRED, record->about.id);
    LIG_TRY(ligi_retired_take(change->view, record, &retired));
    ligi_retired_put(&change->value, &retired, change->view->store->secret);
    LIG_TRY(ligi_change_put(change, &key));
    LIG_TRY(forget_model(change, record, 0));
    return move_aliases(change, &record->about, 0);
}

lig_status ligi_change_fingerprint(ligi_change *change, const ligi_fingerprint_entry *fingerprint)
{
    assert(change->view != NULL);
    LIG_TRY(ligi_grow(&change->fingerprints, &change->fingerprint_capacity,
                      change->fingerprint_count + 1, sizeof *change->fingerprints,
                      "the fingerprints of a change"));
    change->fingerprints[change->fingerprint_count++] = *fingerprint;
    return LIG_OK;
}

static lig_status forget_fingerprint(ligi_change *change, const ligi_fingerprint_entry *fingerprint)
{
    ligi_catalog_key key = ligi_fingerprint_key(fingerprint);
    lig_catalog_item item;
    ligi_fingerprint_entry there = {0};
    lig_status status = ligi_catalog_view_get(change->view, &key, &item);
    if (status == LIG_OK)
        status = ligi_fingerprint_get(&item, change->store->secret, &there);
    if (status == LIG_OK && there.pack == fingerprint->pack)
        return ligi_change_erase(change, &key);
    return status == LIG_E_NOTFOUND || status == LIG_E_CORRUPT ? LIG_OK : status;
}

/* If the pack cannot be read: all entries that refer to it. */
static lig_status search_fingerprints(ligi_change *change, uint64_t pack)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(change->view, LIGI_TABLE_FINGERPRINT, &walk, &item, &status)) {
        ligi_fingerprint_entry fingerprint = {0};
        ligi_catalog_key key = {.size = item.key_bytes};
        if (ligi_fingerprint_get(&item, change->store->secret, &fingerprint) != LIG_OK ||
            fingerprint.pack != pack)
            continue;
        memcpy(key.bytes, item.key, item.key_bytes);
        LIG_TRY(ligi_change_erase(change, &key));
    }
    return status;
}

/* The fingerprints of a pack's tensors are removed with it; its footer lists them. */
static lig_status forget_fingerprints(ligi_change *change, uint64_t pack)
{
    ligi_pack_header header;
    ligi_pack_trailer trailer;
    ligi_manifest manifest = {0};
    ligi_fingerprint_entry fingerprint;
    void *bytes = NULL;
    lig_status read = ligi_footer_read(change->store->volume, pack, &header, &trailer, &bytes);
    if (read == LIG_OK)
        read = ligi_manifest_get(bytes, trailer.footer_bytes, pack, &manifest);
    lig_status status = read == LIG_OK ? LIG_OK : search_fingerprints(change, pack);
    for (size_t i = 0; i < manifest.tensor_count && read == LIG_OK && status == LIG_OK; i++)
        if (ligi_fingerprint_of(&manifest, i, change->store->secret, &fingerprint) &&
            fingerprint.pack == pack)
            status = forget_fingerprint(change, &fingerprint);
    ligi_manifest_fini(&manifest);
    free(bytes);
    return status;
}

/* After the removals: the same bytes may be stored elsewhere from now on. */
static lig_status put_fingerprints(ligi_change *change)
{
    for (size_t i = 0; i < change->fingerprint_count; i++) {
        ligi_catalog_key key = ligi_fingerprint_key(&change->fingerprints[i]);
        ligi_fingerprint_put(&change->value, &change->fingerprints[i], change->store->secret);
        LIG_TRY(ligi_change_put(change, &key));
    }
    return LIG_OK;
}

static lig_status put_counts(ligi_change *change)
{
    for (size_t i = 0; i < change->count_count; i++) {
        const ligi_count *count = &change->counts[i];
        ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_PACK, count->pack);
        if (count->record.models) {
            ligi_pack_record_put(&change->value, count->pack, &count->record,
                                 change->view->store->secret);
            LIG_TRY(ligi_change_put(change, &key));
        } else {
            LIG_TRY(ligi_change_erase(change, &key));
            LIG_TRY(forget_fingerprints(change, count->pack));
        }
    }
    return put_fingerprints(change);
}

static lig_status get_item(void *context, const ligi_catalog_key *key, lig_catalog_item *item)
{
    return ligi_catalog_view_get(((ligi_change *)context)->view, key, item);
}

static lig_status put_item(void *context, const ligi_catalog_key *key, const ligi_writer *value)
{
    return add_op(context, key, value);
}

static lig_status put_index(ligi_change *change)
{
    ligi_search_index_sink sink = {
        .get = get_item, .put = put_item, .secret = change->view->store->secret, .context = change};
    return ligi_search_index_apply(&change->index, &sink);
}

lig_status ligi_change_finish(ligi_change *change)
{
    assert(change->view != NULL);
    LIG_TRY(put_counts(change));
    return put_index(change);
}
