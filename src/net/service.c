#include "net/service.h"

#include "net/link/link.h"
#include "net/net.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <stdlib.h>
#include <string.h>

lig_status ligi_net_serve(ligi_net *net, ligi_service service, const ligi_net_hooks *hooks,
                          void *context)
{
    lig_status status = LIG_OK;

    LIG_TRY(ligi_net_mine(net));
    if ((unsigned)service >= LIGI_SERVICE_COUNT)
        return lig_fail(LIG_E_INVALID, "invalid service %d", service);
    ligi_net_lock(net);
    ligi_served *served = &net->services[service];
    if (served->hooks != NULL) {
        status = lig_fail(LIG_E_EXISTS, "service %d is already served by this endpoint", service);
    } else {
        served->hooks = hooks;
        served->context = context;
        served->tick_ns = 0;
        ligi_net_due(net, 0);
    }
    ligi_net_unlock(net);
    return status;
}

void ligi_net_unserve(ligi_net *net, ligi_service service)
{
    if (ligi_net_mine(net) != LIG_OK)
        return;
    ligi_net_enter(net);
    for (ligi_link *link = net->links; link != NULL; link = link->next)
        if (link->service == service)
            ligi_link_close(link, NULL);
    net->services[service].hooks = NULL;
    ligi_net_leave(net);
}

/* Without the lock: the calling thread may not be allowed to block. */
void ligi_net_hurry(ligi_net *net, ligi_service service)
{
    if (ligi_net_mine(net) != LIG_OK)
        return;
    atomic_store(&net->services[service].hurried, 1);
    atomic_store(&net->hurried, 1);
    ligi_net_wake(net);
}

static lig_status alloc_shared(ligi_net *net, uint64_t bytes, void **memory)
{
    ligi_transport_slot *slot;

    for (size_t i = 0; ligi_transports[i] != NULL; i++) {
        if (ligi_transports[i]->alloc == NULL)
            continue;
        LIG_TRY(ligi_net_transport(net, ligi_transports[i]->scheme, &slot));
        return slot->ops->alloc(slot->self, bytes, memory);
    }
    return LIG_E_UNSUPPORTED;
}

static lig_status alloc_plain(uint64_t bytes, void **memory)
{
    uint64_t rounded = (bytes + 63) / 64 * 64;

    void *made = rounded >= bytes ? aligned_alloc(64, rounded ? rounded : 64) : NULL;
    if (made == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory: %llu bytes for a tensor",
                        (unsigned long long)bytes);
    memset(made, 0, rounded);
    *memory = made;
    return LIG_OK;
}

lig_status ligi_net_alloc(ligi_net *net, uint64_t bytes, void **memory)
{
    LIG_TRY(ligi_net_mine(net));
    ligi_net_enter(net);
    lig_status status = alloc_shared(net, bytes, memory);
    ligi_net_leave(net);
    return status == LIG_E_UNSUPPORTED ? alloc_plain(bytes, memory) : status;
}

lig_status ligi_net_reserve(ligi_net *net, uint64_t bytes, void **memory)
{
    lig_status status = LIG_OK;
    ligi_transport_slot *slot = NULL;

    LIG_TRY(ligi_net_mine(net));
    ligi_net_enter(net);
    for (size_t i = 0; ligi_transports[i] != NULL && slot == NULL && status == LIG_OK; i++)
        if (ligi_transports[i]->reserve != NULL)
            status = ligi_net_transport(net, ligi_transports[i]->scheme, &slot);
    if (slot != NULL && status == LIG_OK)
        status = slot->ops->reserve(slot->self, bytes, memory);
    else if (status == LIG_OK)
        status = lig_fail(LIG_E_UNSUPPORTED, "none of the available transports can share memory");
    ligi_net_leave(net);
    return status;
}

static int free_shared(ligi_net *net, void *memory)
{
    for (size_t i = 0; net != NULL && i < net->slot_count; i++)
        if (net->slots[i].ops->free != NULL && net->slots[i].ops->free(net->slots[i].self, memory))
            return 1;
    for (size_t i = 0; net == NULL && ligi_transports[i] != NULL; i++)
        if (ligi_transports[i]->free != NULL && ligi_transports[i]->free(NULL, memory))
            return 1;
    return 0;
}

void ligi_net_free(ligi_net *net, void *memory)
{
    if (memory == NULL)
        return;
    if (net != NULL)
        ligi_net_lock(net);
    int was_shared = free_shared(net, memory);
    if (net != NULL)
        ligi_net_unlock(net);
    if (!was_shared)
        free(memory);
}
