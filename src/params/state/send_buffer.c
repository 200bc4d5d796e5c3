#include "params/state/send_buffer.h"

#include "net/service.h"
#include "params/rows/slab.h"

#include <assert.h>
#include <stdlib.h>

enum { ORDER_LEAST = 12 }; /* 4 KiB: smaller buffers are not lent */
#define POPULATED_LEAST (UINT64_C(64) << 10)
#define POOL_MOST (UINT64_C(128) << 20) /* bytes kept in the pool */

static uint32_t order_of(uint64_t bytes)
{
    uint32_t order = ORDER_LEAST;
    while ((UINT64_C(1) << order) < bytes)
        order++;
    return order - ORDER_LEAST;
}

/* Larger ones, for rows of many megabytes, are as large as needed, and not kept. */
static uint64_t room_for(uint64_t bytes)
{
    uint32_t order = order_of(bytes);
    if (order < LIGI_SEND_BUFFER_ORDERS)
        return UINT64_C(1) << (order + ORDER_LEAST);
    return (bytes + LIGI_HUGE_PAGE - 1) / LIGI_HUGE_PAGE * LIGI_HUGE_PAGE;
}

lig_status ligi_send_buffer_take(lig_params *node, uint64_t bytes, ligi_send_buffer **out)
{
    ligi_send_buffer *buffer;
    uint32_t order = order_of(bytes);
    if (order < LIGI_SEND_BUFFER_ORDERS && node->buffers[order]) {
        buffer = node->buffers[order];
        assert(buffer->holds == 0 && buffer->room >= bytes && node->buffer_bytes >= buffer->room);
        node->buffers[order] = buffer->next;
        node->buffer_bytes -= buffer->room;
    } else {
        LIG_TRY(ligi_calloc(&buffer, 1, sizeof *buffer, "a message"));
        buffer->room = room_for(bytes);
        lig_status status = ligi_net_alloc(node->session.net, buffer->room, (void **)&buffer->data);
        if (status != LIG_OK) {
            free(buffer);
            return status;
        }
        if (buffer->room >= POPULATED_LEAST) /* populates all pages at once, which is much cheaper
                                              * than one by one */
            ligi_region_populate(buffer->data, buffer->room);
    }
    buffer->next = buffer->with = NULL;
    buffer->bytes = 0;
    buffer->holds = 1;
    buffer->of_sync = 0;
    *out = buffer;
    return LIG_OK;
}

static void destroy_buffer(lig_params *node, ligi_send_buffer *buffer)
{
    ligi_net_free(node->session.net, buffer->data);
    free(buffer);
}

void ligi_send_buffer_drop(lig_params *node, ligi_send_buffer *buffer)
{
    assert(buffer == NULL || buffer->holds > 0);
    if (buffer == NULL || --buffer->holds > 0)
        return;
    assert(!buffer->of_sync || node->sync_bytes >= buffer->room);
    if (buffer->of_sync)
        node->sync_bytes -= buffer->room;
    uint32_t order = order_of(buffer->room);
    if (order >= LIGI_SEND_BUFFER_ORDERS || node->buffer_bytes + buffer->room > POOL_MOST) {
        destroy_buffer(node, buffer);
        return;
    }
    buffer->next = node->buffers[order];
    node->buffers[order] = buffer;
    node->buffer_bytes += buffer->room;
}

void ligi_send_buffers_fini(lig_params *node)
{
    for (uint32_t i = 0; i < LIGI_SEND_BUFFER_ORDERS; i++)
        while (node->buffers[i]) {
            ligi_send_buffer *buffer = node->buffers[i];
            node->buffers[i] = buffer->next;
            destroy_buffer(node, buffer);
        }
}
