#include "store/catalog/model_ids.h"

#include "base/error.h"
#include "store/catalog/change.h"
#include "store/catalog/commit.h"

enum { IDS_RESERVED = 64 };

static lig_status reserve_ids(void *context, const ligi_catalog_view *view, ligi_change *change)
{
    uint64_t *first = context;
    ligi_header header;
    LIG_TRY(ligi_catalog_view_header(view, &header));
    *first = header.next_id;
    header.next_id += IDS_RESERVED;
    ligi_header_put(&change->value, &header);
    ligi_catalog_key key = ligi_catalog_key_header();
    return ligi_change_put(change, &key);
}

static int take_reserved(lig_store *store, uint64_t *id)
{
    pthread_mutex_lock(&store->lock);
    int there = store->next_id < store->end_id;
    if (there)
        *id = store->next_id++;
    pthread_mutex_unlock(&store->lock);
    return there;
}

lig_status ligi_model_ids_take(lig_store *store, const ligi_interrupt *interrupt, uint64_t *id)
{
    if (take_reserved(store, id))
        return LIG_OK;
    uint64_t first;
    const ligi_commit commit = {
        .store = store, .edit = reserve_ids, .context = &first, .interrupt = interrupt};
    LIG_TRY(ligi_change_commit_as(&commit));
    *id = first;
    pthread_mutex_lock(&store->lock);
    if (store->next_id == store->end_id) { /* two threads may come here: one reservation is kept */
        store->next_id = first + 1;
        store->end_id = first + IDS_RESERVED;
    }
    pthread_mutex_unlock(&store->lock);
    return LIG_OK;
}
