#include "store/catalog/orphans.h"

#include "base/error.h"
#include "base/log.h"
#include "store/catalog/catalog_view.h"
#include "store/catalog/catalog_wait.h"
#include "store/catalog/rebuild/footer_read.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Packs that the catalog of one snapshot does not name. Both sides come in ascending order. */
typedef struct orphan_list {
    uint64_t *packs;
    size_t count, capacity;
} orphan_list;

static lig_status next_named(const ligi_catalog_view *view, ligi_walk *walk, uint64_t *pack)
{
    lig_catalog_item item;
    lig_status status;
    *pack = UINT64_MAX;
    if (ligi_catalog_view_next(view, LIGI_TABLE_PACK, walk, &item, &status) && item.key_bytes == 9)
        *pack = ligi_get_be64((const uint8_t *)item.key + 1);
    return status;
}

static lig_status collect(lig_store *store, const ligi_catalog_view *view, orphan_list *found)
{
    const lig_volume_ops *ops = store->volume->ops;
    ligi_walk walk = {0};
    uint64_t named = 0, pack = 0;
    for (;;) {
        lig_status status = ops->pack_next(store->volume->self, pack, &pack);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        while (named < pack)
            LIG_TRY(next_named(view, &walk, &named));
        if (named == pack)
            continue;
        LIG_TRY(ligi_grow(&found->packs, &found->capacity, found->count + 1, sizeof *found->packs,
                          "a list of packs"));
        found->packs[found->count++] = pack;
    }
}

int ligi_orphans_named(lig_store *store, uint64_t pack)
{
    ligi_catalog_view view;
    if (ligi_catalog_view_begin(store, &view) != LIG_OK)
        return 1;
    ligi_pack_record record;
    int named = ligi_catalog_view_pack(&view, pack, &record) != LIG_E_NOTFOUND;
    ligi_catalog_view_end(&view);
    return named;
}

/* A writer, and a save that revives a pack, hold the pack until they have committed. So a claim
 * means that no process is about to commit it, and a settled catalog shows every commit; without
 * settling, the commit of a killed process may be missing. */
int ligi_orphans_unnamed(lig_store *store, uint64_t pack)
{
    return ligi_catalog_settle(store, NULL, LIGI_CATALOG_TIDY_NS) == LIG_OK &&
           !ligi_orphans_named(store, pack);
}

/* A sealed pack is complete. A pack that cannot be read is damaged, newer or belongs to another
 * store: it must not be removed. */
int ligi_orphans_owned(lig_store *store, uint64_t pack)
{
    ligi_pack_header header;
    ligi_pack_trailer trailer;
    void *footer = NULL;
    lig_status status = ligi_footer_read(store->volume, pack, &header, &trailer, &footer);
    free(footer);
    return status == LIG_OK && memcmp(header.uuid, store->uuid, sizeof header.uuid) == 0;
}

typedef struct orphan_removal {
    lig_store *store;
    int tidies; /* not requested by a caller, so no caller should wait for it */
    uint64_t packs, bytes;
} orphan_removal;

/* Fails only when the catalog cannot be settled. */
static lig_status remove_orphan(orphan_removal *self, uint64_t pack)
{
    lig_store *store = self->store;
    const lig_volume_ops *ops = store->volume->ops;
    void *claim = NULL;
    uint64_t size = 0;
    if (ops->pack_claim(store->volume->self, pack, &claim) != LIG_OK)
        return LIG_OK;
    lig_status status = ligi_catalog_settle(store, self->tidies ? NULL : &store->interrupt,
                                            self->tidies ? LIGI_CATALOG_TIDY_NS : store->commit_ns);
    if (status == LIG_OK && !ligi_orphans_named(store, pack) && ligi_orphans_owned(store, pack)) {
        (void)ops->pack_size(store->volume->self, pack, &size);
        if (ops->pack_remove(store->volume->self, pack) == LIG_OK) {
            self->packs += 1;
            self->bytes += size;
        }
    }
    ops->pack_close(claim);
    return status;
}

static lig_status remove_all(orphan_removal *self)
{
    lig_store *store = self->store;
    orphan_list found = {0};
    ligi_catalog_view view;
    /* The removal is decided for each pack, under its claim, from a settled catalog. If there is
     * nothing to remove, this does not wait. */
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++) {
        found.count = 0;
        status = ligi_catalog_view_begin(store, &view);
        if (status != LIG_OK)
            break;
        status = collect(store, &view, &found);
        ligi_catalog_view_end(&view);
    }
    for (size_t i = 0; i < found.count && status == LIG_OK; i++)
        status = remove_orphan(self, found.packs[i]);
    free(found.packs);
    return status;
}

lig_status ligi_orphans_remove(lig_store *store, uint64_t *packs, uint64_t *bytes)
{
    orphan_removal removal = {.store = store};
    lig_status status = remove_all(&removal);
    *packs += removal.packs;
    *bytes += removal.bytes;
    return status;
}

lig_status ligi_orphans_tidy(lig_store *store)
{
    orphan_removal removal = {.store = store, .tidies = 1};
    lig_status status = remove_all(&removal);
    return status == LIG_E_TIMEOUT ? LIG_OK : status;
}

void ligi_orphans_remove_pack(lig_store *store, uint64_t pack)
{
    orphan_removal removal = {.store = store, .tidies = 1};
    if (!ligi_orphans_named(store, pack))
        (void)remove_orphan(&removal, pack);
}

/* --- packs that lost their last model --- */

/* Packs are claimed together, to settle the catalog once; each claim is an open file. */
enum { REMOVE_BATCH = 64 };

static void log_kept(const lig_store *store, uint64_t pack, lig_status status)
{
    if (status != LIG_E_NOTFOUND && status != LIG_E_BUSY)
        ligi_log(LIG_LOG_WARNING, "cannot remove pack %016llx of %s: %s", (unsigned long long)pack,
                 store->uri, lig_error_text());
}

static size_t claim_dead(lig_store *store, ligi_count *counts, size_t count)
{
    ligi_volume *volume = store->volume;
    size_t claimed = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i].record.models)
            continue;
        assert(counts[i].claim == NULL);
        lig_status status = volume->ops->pack_claim(volume->self, counts[i].pack, &counts[i].claim);
        claimed += status == LIG_OK;
        if (status != LIG_OK)
            log_kept(store, counts[i].pack, status);
    }
    return claimed;
}

/* A save that refers to a pack may have brought it back since the commit, and may have been killed
 * over it: the check begins when all are claimed and the catalog is settled. */
static lig_status release_named(lig_store *store, ligi_count *counts, size_t count)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_settle(store, NULL, LIGI_CATALOG_TIDY_NS));
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    for (size_t i = 0; i < count; i++) {
        ligi_pack_record record;
        if (counts[i].claim &&
            ligi_catalog_view_pack(&view, counts[i].pack, &record) == LIG_E_NOTFOUND)
            continue;
        store->volume->ops->pack_close(counts[i].claim);
        counts[i].claim = NULL;
    }
    ligi_catalog_view_end(&view);
    return LIG_OK;
}

static void remove_batch(lig_store *store, ligi_count *counts, size_t count, uint64_t *freed)
{
    ligi_volume *volume = store->volume;
    if (claim_dead(store, counts, count) == 0)
        return;
    lig_status looked = release_named(store, counts, count);
    for (size_t i = 0; i < count; i++) {
        if (counts[i].claim == NULL)
            continue;
        assert(counts[i].record.models == 0);
        lig_status status = looked;
        if (status == LIG_OK)
            status = volume->ops->pack_remove(volume->self, counts[i].pack);
        if (status == LIG_OK && freed)
            *freed += counts[i].record.bytes;
        if (status != LIG_OK)
            log_kept(store, counts[i].pack, status);
        volume->ops->pack_close(counts[i].claim);
        counts[i].claim = NULL;
    }
}

/* The commit is valid: a pack that cannot be removed now, for example because a match pins it,
 * is left for a later open or compact. */
void ligi_orphans_remove_dead(lig_store *store, ligi_count *counts, size_t count, uint64_t *freed)
{
    for (size_t i = 0; i < count; i += REMOVE_BATCH)
        remove_batch(store, counts + i, count - i < REMOVE_BATCH ? count - i : REMOVE_BATCH, freed);
}
