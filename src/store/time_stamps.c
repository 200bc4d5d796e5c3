#include "store/time_stamps.h"

#include "base/error.h"
#include "store/handle.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[LIGI_STAMP_COUNT] = {"find", "load",  "save", "retire", "lookup",
                                                    "read", "write", "sync", "commit"};

void ligi_stamps_init(ligi_stamps *stamps)
{
    memset(stamps, 0, sizeof *stamps);
    pthread_mutex_init(&stamps->lock, NULL);
}

void ligi_stamps_fini(ligi_stamps *stamps)
{
    for (int i = 0; i < LIGI_STAMP_COUNT; i++)
        free(stamps->rings[i].pairs);
    pthread_mutex_destroy(&stamps->lock);
}

void ligi_stamps_note(ligi_stamps *stamps, enum ligi_stamp what, int64_t begin_ns)
{
    int64_t end_ns = ligi_now_ns();
    if (stamps->others)
        stamps = stamps->others;
    pthread_mutex_lock(&stamps->lock);
    ligi_stamps_ring_add(&stamps->rings[what], begin_ns, end_ns);
    pthread_mutex_unlock(&stamps->lock);
}

const char *lig_store_time_stamp_name(size_t index)
{
    return index < LIGI_STAMP_COUNT ? names[index] : NULL;
}

static lig_status find_name(const char *name, int *what)
{
    for (int i = 0; name && i < LIGI_STAMP_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *what = i;
            return LIG_OK;
        }
    return lig_fail(LIG_E_NOTFOUND,
                    "unknown operation '%s' (expected find, load, save, retire, lookup, read, "
                    "write, sync or commit)",
                    name ? name : "");
}

/* A client measures its own reads and verification, the server everything else. */
static int is_remote(const lig_store *store, int what)
{
    return store->remote && what != LIGI_STAMP_LOAD && what != LIGI_STAMP_READ;
}

lig_status lig_store_time_stamps(lig_store *store, const char *name, int64_t **out, size_t *count)
{
    int what = 0;
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(find_name(name, &what));
    if (is_remote(store, what))
        return store->remote->time_stamps(store, name, out, count);
    int64_t *stamps = NULL;
    pthread_mutex_lock(&store->stamps.lock);
    const ligi_stamps_ring *ring = &store->stamps.rings[what];
    lig_status status = ligi_calloc(&stamps, 2 * ring->count + 1, sizeof *stamps, "time stamps");
    if (status == LIG_OK) {
        ligi_stamps_ring_copy(ring, stamps);
        *out = stamps;
        *count = 2 * ring->count;
    }
    pthread_mutex_unlock(&store->stamps.lock);
    return status;
}

void lig_time_stamps_destroy(int64_t *stamps)
{
    free(stamps);
}

lig_status lig_store_clear_time_stamps(lig_store *store, const char *name)
{
    int what = -1;
    LIG_TRY(ligi_store_usable(store));
    if (name)
        LIG_TRY(find_name(name, &what));
    if (store->remote)
        LIG_TRY(store->remote->clear_time_stamps(store, name));
    pthread_mutex_lock(&store->stamps.lock);
    for (int i = 0; i < LIGI_STAMP_COUNT; i++)
        if (what < 0 || what == i)
            store->stamps.rings[i].count = store->stamps.rings[i].oldest = 0;
    pthread_mutex_unlock(&store->stamps.lock);
    return LIG_OK;
}
