#include "store/handle.h"

#include "backend/registry.h"
#include "base/error.h"
#include "store/catalog/rebuild/catalog_from_footers.h"

#include <ligament/serve.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ligi_volume_hold(ligi_volume *volume)
{
    atomic_fetch_add(&volume->holders, 1);
}

void ligi_volume_drop(ligi_volume *volume)
{
    if (atomic_fetch_sub(&volume->holders, 1) > 1)
        return;
    ligi_backend_close_raw(volume->backend, volume->self);
    free(volume);
}

lig_status ligi_store_usable(const lig_store *store)
{
    if (store->pid == getpid())
        return LIG_OK;
    return lig_fail(
        LIG_E_CLOSED,
        "the store %s was opened before this process was forked (open it again in this process)",
        store->uri);
}

lig_status ligi_store_writable(const lig_store *store)
{
    LIG_TRY(ligi_store_usable(store));
    if (store->mode == 'r')
        return lig_fail(LIG_E_DENIED, "the store %s is open for reading only", store->uri);
    return LIG_OK;
}

void lig_store_set_interrupt(lig_store *store, int (*hook)(void *context), void *context)
{
    store->interrupt = (ligi_interrupt){hook, context};
}

lig_status lig_store_shutdown_server(lig_store *store)
{
    LIG_TRY(ligi_store_usable(store));
    if (store->remote)
        return store->remote->shutdown_server(store);
    return lig_fail(LIG_E_UNSUPPORTED, "%s is not a served store: it has no server to stop",
                    store->uri);
}

lig_status ligi_interrupt_check(const ligi_interrupt *interrupt, const char *what,
                                const lig_store *store)
{
    if (interrupt->hook && interrupt->hook(interrupt->context))
        return lig_fail(LIG_E_CLOSED, "interrupted while waiting for %s of %s", what, store->uri);
    return LIG_OK;
}

int ligi_store_sees(const lig_store *store, const char *model)
{
    return store->scope == NULL || strncmp(model, store->scope, strlen(store->scope)) == 0;
}

lig_status ligi_store_clone(lig_store *store, lig_store **out)
{
    lig_store *made;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a store"));
    lig_status status = ligi_strdup(&made->uri, store->uri);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->pid = store->pid;
    made->holders = 1;
    made->commit_ns = store->commit_ns;
    made->mode = store->mode;
    made->by_footers = store->by_footers;
    made->quotas = store->quotas;
    made->quota_count = store->quota_count;
    made->undelete_ns = store->undelete_ns;
    memcpy(made->uuid, store->uuid, sizeof made->uuid);
    memcpy(made->secret, store->secret, sizeof made->secret);
    ligi_stamps_init(&made->stamps);
    made->stamps.others = &store->stamps;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->idle, NULL);
    ligi_volume_hold(store->volume);
    made->volume = store->volume;
    *out = made;
    return LIG_OK;
}

static void destroy(lig_store *store)
{
    if (store->volume)
        ligi_volume_drop(store->volume);
    ligi_footers_drop(store->footers);
    ligi_stamps_fini(&store->stamps);
    pthread_cond_destroy(&store->idle);
    pthread_mutex_destroy(&store->lock);
    free(store->uri);
    free(store);
}

void ligi_store_hold(lig_store *store)
{
    atomic_fetch_add(&store->holders, 1);
}

void ligi_store_drop(lig_store *store)
{
    if (atomic_fetch_sub(&store->holders, 1) > 1)
        return;
    if (store->pid == getpid()) {
        destroy(store);
        return;
    }
    ligi_volume_drop(store->volume); /* a lock may be held by a thread that is not here */
    free(store->uri);
    free(store);
}
