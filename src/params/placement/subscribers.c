/* Which other nodes are interested in a row. */
#include "params/placement/subscribers.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

void ligi_subscribers_fini(ligi_subscribers *subscribers)
{
    free(subscribers->cells);
    *subscribers = (ligi_subscribers){0};
}

ligi_subscriber *ligi_subscribers_find(const ligi_subscribers *subscribers, uint32_t row,
                                       uint32_t node)
{
    ligi_subscriber *one = ligi_subscribers_at(subscribers, row);

    while (one != NULL && one->node != node)
        one = ligi_subscribers_at(subscribers, one->next);
    return one;
}

lig_status ligi_subscribers_add(ligi_subscribers *subscribers, uint32_t *row, uint32_t node,
                                ligi_subscriber **added)
{
    uint32_t cell = subscribers->free;

    assert(ligi_subscribers_find(subscribers, *row, node) == NULL);
    if (cell == 0) {
        LIG_TRY(ligi_grow(&subscribers->cells, &subscribers->capacity, subscribers->count + 1u,
                          sizeof *subscribers->cells, "subscribers"));
        cell = ++subscribers->count;
    } else {
        subscribers->free = subscribers->cells[cell - 1].next;
    }
    uint32_t *link = row;
    while (*link != 0)
        link = &subscribers->cells[*link - 1].next;
    *link = cell;
    subscribers->live++;
    *added = &subscribers->cells[cell - 1];
    **added = (ligi_subscriber){.node = node};
    return LIG_OK;
}

int ligi_subscribers_remove(ligi_subscribers *subscribers, uint32_t *row, uint32_t node)
{
    uint32_t *link = row;

    while (*link != 0 && subscribers->cells[*link - 1].node != node)
        link = &subscribers->cells[*link - 1].next;
    if (*link == 0)
        return 0;
    uint32_t cell = *link;
    *link = subscribers->cells[cell - 1].next;
    subscribers->cells[cell - 1].next = subscribers->free;
    subscribers->free = cell;
    assert(subscribers->live > 0);
    subscribers->live--;
    return 1;
}

uint32_t ligi_subscribers_count(const ligi_subscribers *subscribers, uint32_t row)
{
    uint32_t count = 0;

    for (ligi_subscriber *one = ligi_subscribers_at(subscribers, row); one != NULL;
         one = ligi_subscribers_at(subscribers, one->next))
        count++;
    return count;
}

uint32_t ligi_subscribers_replicas(const ligi_subscribers *subscribers, uint32_t row)
{
    uint32_t count = 0;

    for (ligi_subscriber *one = ligi_subscribers_at(subscribers, row); one != NULL;
         one = ligi_subscribers_at(subscribers, one->next))
        count += one->has_replica != 0;
    return count;
}
