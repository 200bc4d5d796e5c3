#include "params/state/send_buffer.h"

#include "params/rows/slab.h"

#include <stdlib.h>

enum { ORDER_LEAST = 12 }; /* 4 KiB: less is not lent */
#define POPULATED_LEAST (UINT64_C(64) << 10)
#define POOL_MOST (UINT64_C(128) << 20) /* bytes that are kept for later */

static uint32_t order_of(uint64_t bytes)
{
    uint32_t order = ORDER_LEAST;
    while ((UINT64_C(1) << order) < bytes)
        order++;
    return order - ORDER_LEAST;
}

lig_status ligi_parcel_take(lig_params *node, uint64_t bytes, ligi_parcel **out)
{
    ligi_parcel *parcel;
    uint32_t order = order_of(bytes);
    if (order >= LIGI_PARCEL_ORDERS)
        return lig_fail(LIG_E_LIMIT, "a letter of %llu bytes is too large",
                        (unsigned long long)bytes);
    if (node->parcels[order]) {
        parcel = node->parcels[order];
        node->parcels[order] = parcel->next;
        node->parcel_bytes -= parcel->room;
    } else {
        LIG_TRY(ligi_calloc(&parcel, 1, sizeof *parcel, "a letter"));
        parcel->room = UINT64_C(1) << (order + ORDER_LEAST);
        lig_status status = ligi_net_alloc(node->net, parcel->room, (void **)&parcel->data);
        if (status != LIG_OK) {
            free(parcel);
            return status;
        }
        if (parcel->room >= POPULATED_LEAST) /* its pages at once: a fraction of one by one */
            ligi_region_populate(parcel->data, parcel->room);
    }
    parcel->next = parcel->with = NULL;
    parcel->bytes = 0;
    parcel->holds = 1;
    *out = parcel;
    return LIG_OK;
}

static void destroy_parcel(lig_params *node, ligi_parcel *parcel)
{
    ligi_net_free(node->net, parcel->data);
    free(parcel);
}

void ligi_parcel_drop(lig_params *node, ligi_parcel *parcel)
{
    if (parcel == NULL || --parcel->holds > 0)
        return;
    if (node->parcel_bytes + parcel->room > POOL_MOST) {
        destroy_parcel(node, parcel);
        return;
    }
    uint32_t order = order_of(parcel->room);
    parcel->next = node->parcels[order];
    node->parcels[order] = parcel;
    node->parcel_bytes += parcel->room;
}

void ligi_parcels_fini(lig_params *node)
{
    for (uint32_t i = 0; i < LIGI_PARCEL_ORDERS; i++)
        while (node->parcels[i]) {
            ligi_parcel *parcel = node->parcels[i];
            node->parcels[i] = parcel->next;
            destroy_parcel(node, parcel);
        }
}
