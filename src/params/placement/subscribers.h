/* Which other nodes are interested in a row, as known by its owner. Pure. */
#ifndef LIGI_SUBSCRIBERS_H
#define LIGI_SUBSCRIBERS_H

#include <ligament/base.h>

typedef struct ligi_subscriber {
    uint32_t node;
    uint64_t number; /* number of its replica's last delta in the row */
    uint64_t told;   /* the last one confirmed to it */
    uint32_t next;   /* cell + 1 */
    uint32_t has_replica;
} ligi_subscriber;

/* Cells for the subscribers of all rows. A row stores one number, owned by the caller: 0 if it has
 * none. Subscribers are in order of arrival. */
typedef struct ligi_subscribers { /* embedded; zeroed is valid */
    ligi_subscriber *cells;
    size_t capacity;
    uint32_t count, free; /* cells ever used; first free one + 1 */
    uint32_t live;        /* in use */
} ligi_subscribers;

void ligi_subscribers_fini(ligi_subscribers *subscribers);

/* NULL if the node is not subscribed. Valid until the next change. */
ligi_subscriber *ligi_subscribers_find(const ligi_subscribers *subscribers, uint32_t row,
                                       uint32_t node);
/* Appends a node that is not subscribed yet. */
lig_status ligi_subscribers_add(ligi_subscribers *subscribers, uint32_t *row, uint32_t node,
                                ligi_subscriber **added);
/* 1 if it was subscribed. */
int ligi_subscribers_remove(ligi_subscribers *subscribers, uint32_t *row, uint32_t node);

/* Iteration: first, then next; NULL at the end. */
static inline ligi_subscriber *ligi_subscribers_at(const ligi_subscribers *subscribers,
                                                   uint32_t cell)
{
    return cell == 0 ? NULL : &subscribers->cells[cell - 1];
}

/* The number of subscribers; of those with a replica. */
uint32_t ligi_subscribers_count(const ligi_subscribers *subscribers, uint32_t row);
uint32_t ligi_subscribers_replicas(const ligi_subscribers *subscribers, uint32_t row);

#endif
