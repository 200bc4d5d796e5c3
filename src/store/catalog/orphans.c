#include "store/catalog/orphans.h"

#include "base/error.h"
#include "store/catalog/catalog_view.h"
#include "store/catalog/footer_read.h"

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

/* A writer, and a save that brings a pack back, hold the pack until they have committed. So a claim
 * means that nobody is going to commit it, and what was committed shows once the catalog is
 * settled; before that, the commit of a killed process may not. */
int ligi_orphans_unnamed(lig_store *store, uint64_t pack)
{
    return store->volume->ops->catalog_settle(store->volume->self) == LIG_OK &&
           !ligi_orphans_named(store, pack);
}

/* What was sealed is whole. A pack that cannot be read is damaged, newer or somebody else's: it is
 * not ours to remove. */
int ligi_orphans_owned(lig_store *store, uint64_t pack)
{
    ligi_pack_header header;
    ligi_pack_trailer trailer;
    void *footer = NULL;
    lig_status status = ligi_footer_read(store->volume, pack, &header, &trailer, &footer);
    free(footer);
    return status == LIG_OK && memcmp(header.uuid, store->uuid, sizeof header.uuid) == 0;
}

static void remove_orphan(lig_store *store, uint64_t pack, uint64_t *packs, uint64_t *bytes)
{
    const lig_volume_ops *ops = store->volume->ops;
    void *claim = NULL;
    uint64_t size = 0;
    if (ops->pack_claim(store->volume->self, pack, &claim) != LIG_OK)
        return;
    if (ligi_orphans_unnamed(store, pack) && ligi_orphans_owned(store, pack)) {
        (void)ops->pack_size(store->volume->self, pack, &size);
        if (ops->pack_remove(store->volume->self, pack) == LIG_OK) {
            *packs += 1;
            *bytes += size;
        }
    }
    ops->pack_close(claim);
}

lig_status ligi_orphans_remove(lig_store *store, uint64_t *packs, uint64_t *bytes)
{
    orphan_list found = {0};
    ligi_catalog_view view;
    uint64_t removed = 0, freed = 0;
    /* What is removed is decided for each pack, under its claim, from a settled catalog. Where
     * there is nothing to remove, nobody is waited for. */
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = collect(store, &view, &found);
    ligi_catalog_view_end(&view);
    for (size_t i = 0; i < found.count && status == LIG_OK; i++)
        remove_orphan(store, found.packs[i], &removed, &freed);
    free(found.packs);
    if (packs)
        *packs += removed;
    if (bytes)
        *bytes += freed;
    return status;
}

void ligi_orphans_remove_pack(lig_store *store, uint64_t pack)
{
    uint64_t packs = 0, bytes = 0;
    if (!ligi_orphans_named(store, pack))
        remove_orphan(store, pack, &packs, &bytes);
}
