#include "backend/mem/mem_catalog.h"

#include <inttypes.h>
#include <stdlib.h>

#include "backend/item_map.h"
#include "backend/mem/mem_events.h"
#include "base/error.h"

/* Never changed once published: a snapshot is a reference to one of these. */
struct ligi_mem_catalog {
    ligi_item_map *items; /* NULL: none; first, for ligi_item_snapshot_get */
    atomic_size_t refs;
    uint64_t version;
};

void ligi_mem_catalog_release(ligi_mem_catalog *catalog)
{
    if (catalog == NULL || atomic_fetch_sub(&catalog->refs, 1) != 1)
        return;
    ligi_item_map_release(catalog->items);
    free(catalog);
}

uint64_t ligi_mem_catalog_version(const ligi_mem_catalog *catalog)
{
    return catalog == NULL ? 0 : catalog->version;
}

static lig_status catalog_create(ligi_mem_catalog **out)
{
    LIG_TRY(ligi_calloc(out, 1, sizeof **out, "the catalog"));
    atomic_init(&(*out)->refs, 1);
    return LIG_OK;
}

lig_status ligi_mem_catalog_begin(void *self, void **snapshot, uint64_t *version)
{
    ligi_mem *mem = self;
    ligi_mem_volume *volume = mem->volume;
    lig_status status = LIG_OK;

    LIG_TRY(ligi_mem_usable(mem));
    pthread_mutex_lock(&volume->lock);
    if (volume->catalog == NULL)
        status = catalog_create(&volume->catalog);
    if (status == LIG_OK) {
        atomic_fetch_add(&volume->catalog->refs, 1);
        *snapshot = volume->catalog;
        *version = volume->catalog->version;
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}

void ligi_mem_catalog_end(void *snapshot)
{
    ligi_mem_catalog_release(snapshot);
}

/* The lock is held. */
static lig_status apply(ligi_mem_volume *volume, const lig_catalog_edit *edit)
{
    ligi_mem_catalog *old = volume->catalog, *next;
    uint64_t current = ligi_mem_catalog_version(old);

    if (current != edit->version)
        return lig_fail(LIG_E_BUSY,
                        "the catalog is at version %" PRIu64
                        ", but the change is based on %" PRIu64,
                        current, edit->version);
    LIG_TRY(catalog_create(&next));
    lig_status status = ligi_item_map_edit(old == NULL ? NULL : old->items, edit->ops,
                                           edit->op_count, &next->items);
    if (status != LIG_OK) {
        ligi_mem_catalog_release(next);
        return status;
    }
    next->version = edit->version + 1;
    volume->catalog = next;
    ligi_mem_catalog_release(old);
    return LIG_OK;
}

lig_status ligi_mem_catalog_commit(void *self, const lig_catalog_edit *edit)
{
    ligi_mem *mem = self;
    ligi_mem_events *events;

    LIG_TRY(ligi_mem_writable(mem));
    LIG_TRY(ligi_mem_events_make(edit, &events));
    pthread_mutex_lock(&mem->volume->lock);
    lig_status status = ligi_mem_events_reserve(mem->volume);
    if (status == LIG_OK)
        status = apply(mem->volume, edit);
    if (status == LIG_OK)
        ligi_mem_events_add(mem->volume, events, edit->version + 1);
    else
        ligi_mem_events_release(events);
    pthread_mutex_unlock(&mem->volume->lock);
    return status;
}
