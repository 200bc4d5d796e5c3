#include "store/save/dedup_sources.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/map.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/orphans.h"
#include "store/load/pins.h"

#include <stdlib.h>
#include <string.h>

/* Longer than any save takes; the pin is released when the save ends. */
#define LEASE_NS (INT64_C(24) * 3600 * 1000000000)

typedef struct known {
    uint64_t first, bytes; /* together the key in `begins` */
    uint64_t pack, offset, owner;
    size_t hash; /* where its hashes begin in the pool */
    size_t next; /* another one with the same key; SIZE_MAX: none */
} known;

typedef struct held {
    uint64_t pack;
    int there;
} held;

struct ligi_shares {
    lig_store *store;
    known *tensors;
    size_t count, capacity;
    uint64_t *hashes;
    size_t hash_count, hash_capacity;
    ligi_map begins, sizes; /* over `tensors`, once all have been added */
    held *packs;
    size_t pack_count, pack_capacity;
    ligi_pin **pins;
    size_t pin_count, pin_capacity;
};

lig_status ligi_shares_open(ligi_shares **out, lig_store *store)
{
    ligi_shares *self;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a save"));
    self->store = store;
    *out = self;
    return LIG_OK;
}

static void release(ligi_shares *self)
{
    for (size_t i = 0; i < self->pin_count; i++)
        ligi_pin_release(self->pins[i]);
    self->pin_count = 0;
}

void ligi_shares_end(ligi_shares *self)
{
    release(self);
    for (size_t i = 0; i < self->pack_count; i++)
        ligi_orphans_remove_pack(self->store, self->packs[i].pack);
    ligi_shares_close(self);
}

void ligi_shares_close(ligi_shares *self)
{
    if (self == NULL)
        return;
    release(self);
    ligi_map_fini(&self->begins);
    ligi_map_fini(&self->sizes);
    free(self->tensors);
    free(self->hashes);
    free(self->packs);
    free(self->pins);
    free(self);
}

/* --- packs --- */

static const held *find_held(const ligi_shares *self, uint64_t pack)
{
    for (size_t i = self->pack_count; i-- > 0;)
        if (self->packs[i].pack == pack)
            return &self->packs[i];
    return NULL;
}

/* Checks the packs from number `first` on, which have just been pinned. A process that removes
 * one nevertheless had checked for pins before, and settled the catalog before that: this view
 * is newer and does not contain the pack any more. */
static lig_status look_up(ligi_shares *self, size_t first, int64_t held_ns)
{
    const lig_volume_ops *ops = self->store->volume->ops;
    ligi_catalog_view view;
    int trusted = held_ns > ligi_date_ns();
    LIG_TRY(ligi_catalog_view_begin(self->store, &view));
    lig_status status = LIG_OK;
    for (size_t i = first; i < self->pack_count && status == LIG_OK; i++) {
        ligi_pack_record record;
        uint64_t bytes, pack = self->packs[i].pack;
        status = ligi_catalog_view_pack(&view, pack, &record);
        self->packs[i].there = status == LIG_OK || (status == LIG_E_NOTFOUND && trusted);
        if (ops->pack_size(self->store->volume->self, pack, &bytes) != LIG_OK)
            self->packs[i].there = 0; /* recorded and lost: nothing to refer to */
        if (status == LIG_E_NOTFOUND || status == LIG_E_CORRUPT)
            status = LIG_OK;
    }
    ligi_catalog_view_end(&view);
    return status;
}

static lig_status hold(ligi_shares *self, const ligi_use *uses, size_t count, int64_t held_ns)
{
    size_t first = self->pack_count;
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_grow(&self->packs, &self->pack_capacity, first + count, sizeof *self->packs,
                      "a save"));
    LIG_TRY(ligi_grow(&self->pins, &self->pin_capacity, self->pin_count + 1, sizeof *self->pins,
                      "a save"));
    LIG_TRY(ligi_pin_take(self->store, uses, count, LEASE_NS, &self->pins[self->pin_count]));
    self->pin_count++;
    for (size_t i = 0; i < count; i++)
        if (find_held(self, uses[i].pack) == NULL)
            self->packs[self->pack_count++] = (held){.pack = uses[i].pack};
    return look_up(self, first, held_ns);
}

/* --- models --- */

static lig_status add_tensor(ligi_shares *self, const ligi_manifest *manifest, size_t index)
{
    const lig_stored_tensor *stored = &manifest->tensors[index];
    size_t blocks = ligi_manifest_block_count(stored->tensor.bytes);
    LIG_TRY(ligi_grow(&self->tensors, &self->capacity, self->count + 1, sizeof *self->tensors,
                      "a save"));
    LIG_TRY(ligi_grow(&self->hashes, &self->hash_capacity, self->hash_count + blocks,
                      sizeof *self->hashes, "a save"));
    memcpy(self->hashes + self->hash_count, manifest->hashes[index], blocks * sizeof(uint64_t));
    self->tensors[self->count++] = (known){.first = manifest->hashes[index][0],
                                           .bytes = stored->tensor.bytes,
                                           .pack = stored->pack,
                                           .offset = stored->offset,
                                           .owner = stored->owner,
                                           .hash = self->hash_count,
                                           .next = SIZE_MAX};
    self->hash_count += blocks;
    return LIG_OK;
}

lig_status ligi_shares_add(ligi_shares *self, const ligi_model *model, int64_t held_ns)
{
    const ligi_manifest *manifest = &model->manifest;
    LIG_TRY(hold(self, model->record.uses, model->record.use_count, held_ns));
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const lig_stored_tensor *stored = &manifest->tensors[i];
        if (stored->tied >= 0 || stored->tensor.bytes == 0)
            continue;
        const held *pack = stored->pack ? find_held(self, stored->pack) : NULL;
        if (stored->pack == 0 || (pack && pack->there))
            LIG_TRY(add_tensor(self, manifest, i));
    }
    return LIG_OK;
}

lig_status ligi_shares_seal(ligi_shares *self)
{
    LIG_TRY(ligi_map_reserve(&self->begins, self->count));
    LIG_TRY(ligi_map_reserve(&self->sizes, self->count));
    for (size_t i = 0; i < self->count; i++) {
        known *one = &self->tensors[i];
        uint64_t head;
        lig_status status =
            ligi_map_insert(&self->begins, &one->first, 2 * sizeof one->first, i, &head);
        if (status == LIG_E_EXISTS) {
            one->next = self->tensors[head].next;
            self->tensors[head].next = i;
        } else {
            LIG_TRY(status);
        }
        status = ligi_map_insert(&self->sizes, &one->bytes, sizeof one->bytes, i, NULL);
        if (status != LIG_E_EXISTS)
            LIG_TRY(status);
    }
    return LIG_OK;
}

/* --- looking --- */

/* 1 when a key of the table begins like this. */
static int has_prefix(const ligi_catalog_view *view, const ligi_catalog_key *key)
{
    lig_catalog_item item;
    return ligi_catalog_view_seek(view, key, &item) == LIG_OK && item.key_bytes >= key->size &&
           memcmp(item.key, key->bytes, key->size) == 0;
}

/* 1 when the model that wrote the bytes exists for this handle: otherwise they are written again.
 */
static int is_seen(const ligi_catalog_view *view, const ligi_fingerprint_entry *stored)
{
    ligi_record owner = {0};
    if (view->store->scope == NULL)
        return 1;
    int seen = ligi_catalog_view_model(view, stored->owner, &owner) == LIG_OK &&
               ligi_store_sees(view->store, owner.about.name);
    ligi_record_fini(&owner);
    return seen;
}

/* The same as has_prefix for entries that are seen. */
static int has_seen(const ligi_catalog_view *view, const ligi_catalog_key *prefix)
{
    ligi_catalog_key key = *prefix;
    lig_catalog_item item;
    while (ligi_catalog_view_seek(view, &key, &item) == LIG_OK && item.key_bytes >= prefix->size &&
           memcmp(item.key, prefix->bytes, prefix->size) == 0 &&
           item.key_bytes < sizeof key.bytes) {
        ligi_fingerprint_entry entry = {0};
        if (ligi_fingerprint_get(&item, view->store->secret, &entry) == LIG_OK &&
            is_seen(view, &entry))
            return 1;
        memcpy(key.bytes, item.key, item.key_bytes);
        key.bytes[item.key_bytes] = 0; /* the smallest key that is greater */
        key.size = item.key_bytes + 1;
    }
    return 0;
}

int ligi_shares_may(const ligi_shares *self, uint64_t bytes)
{
    return bytes >= LIGI_FINGERPRINT_MIN_BYTES ||
           (self->count && ligi_map_find(&self->sizes, &bytes, sizeof bytes, NULL));
}

int ligi_shares_size(const ligi_shares *self, const ligi_catalog_view *view, uint64_t bytes)
{
    if (ligi_map_find(&self->sizes, &bytes, sizeof bytes, NULL))
        return 1;
    ligi_catalog_key table = {.bytes = {LIGI_TABLE_FINGERPRINT}, .size = 1};
    return bytes >= LIGI_FINGERPRINT_MIN_BYTES && has_prefix(view, &table);
}

int ligi_shares_begin(const ligi_shares *self, const ligi_catalog_view *view, uint64_t first,
                      uint64_t bytes)
{
    uint64_t key[2] = {first, bytes};
    if (ligi_map_find(&self->begins, key, sizeof key, NULL))
        return 1;
    ligi_fingerprint_entry like = {.first = first, .bytes = bytes};
    ligi_catalog_key prefix = ligi_fingerprint_prefix(&like);
    if (bytes < LIGI_FINGERPRINT_MIN_BYTES)
        return 0;
    return view->store->scope ? has_seen(view, &prefix) : has_prefix(view, &prefix);
}

static int find_known(const ligi_shares *self, const uint64_t *hashes, uint64_t bytes,
                      ligi_fingerprint_entry *found)
{
    uint64_t key[2] = {hashes[0], bytes}, at;
    if (!ligi_map_find(&self->begins, key, sizeof key, &at))
        return 0;
    size_t size = ligi_manifest_block_count(bytes) * sizeof *hashes;
    for (; at != SIZE_MAX; at = self->tensors[at].next) {
        const known *one = &self->tensors[at];
        if (memcmp(self->hashes + one->hash, hashes, size) != 0)
            continue;
        found->pack = one->pack;
        found->offset = one->offset;
        found->owner = one->owner;
        return 1;
    }
    return 0;
}

/* A record that cannot be read, or refers to nothing, is treated as missing: `check` reports it. */
static lig_status find_stored(ligi_shares *self, const ligi_catalog_view *view,
                              ligi_fingerprint_entry *found)
{
    const void *secret = self->store->secret;
    ligi_catalog_key key = ligi_fingerprint_key(found);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    ligi_fingerprint_entry stored = {.first = found->first};
    if (status == LIG_OK)
        status = ligi_fingerprint_get(&item, secret, &stored);
    if (status == LIG_E_NOTFOUND || status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED)
        return LIG_OK;
    LIG_TRY(status);
    if (stored.bytes != found->bytes || stored.print.high != found->print.high ||
        !is_seen(view, &stored))
        return LIG_OK;
    if (find_held(self, stored.pack) == NULL) {
        ligi_use use = {.pack = stored.pack};
        LIG_TRY(hold(self, &use, 1, 0));
    }
    if (find_held(self, stored.pack)->there)
        *found = stored;
    return LIG_OK;
}

lig_status ligi_shares_find(ligi_shares *self, const ligi_catalog_view *view,
                            const uint64_t *hashes, uint64_t bytes, ligi_fingerprint_entry *found)
{
    *found =
        (ligi_fingerprint_entry){.first = hashes[0],
                                 .bytes = bytes,
                                 .print = ligi_fingerprint(self->store->secret, hashes, bytes)};
    if (find_known(self, hashes, bytes, found) || bytes < LIGI_FINGERPRINT_MIN_BYTES)
        return LIG_OK;
    return find_stored(self, view, found);
}
