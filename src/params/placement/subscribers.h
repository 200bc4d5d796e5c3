/* Which other nodes are interested in a row, as its owner knows it. Pure. */
#ifndef LIGI_SUBSCRIBERS_H
#define LIGI_SUBSCRIBERS_H

#include <ligament/base.h>

typedef struct ligi_subscriber {
    uint32_t node;
    uint64_t number; /* of the last delta of its replica that is in the row */
    uint64_t told;   /* the one that it knows to be */
    uint32_t next;   /* cell + 1 */
    uint32_t has_replica;
} ligi_subscriber;

/* Cells for the subscribers of all rows. A row's own part is one number, the caller's: 0 when there
 * are none. In the order in which they came. */
typedef struct ligi_subscribers { /* embedded; zeroed is valid */
    ligi_subscriber *cells;
    size_t capacity;
    uint32_t count, free; /* cells ever used; first free one + 1 */
    uint32_t live;        /* in use */
} ligi_subscribers;

void ligi_subscribers_fini(ligi_subscribers *subscribers);

/* NULL when it is none. Until the next change. */
ligi_subscriber *ligi_subscribers_find(const ligi_subscribers *subscribers, uint32_t row,
                                       uint32_t node);
/* Adds one that is none yet, last. */
lig_status ligi_subscribers_add(ligi_subscribers *subscribers, uint32_t *row, uint32_t node,
                                ligi_subscriber **added);
/* 1 when it was one. */
int ligi_subscribers_remove(ligi_subscribers *subscribers, uint32_t *row, uint32_t node);

/* Walks: first, then next of each; NULL at the end. */
static inline ligi_subscriber *ligi_subscribers_at(const ligi_subscribers *subscribers,
                                                   uint32_t cell)
{
    return cell == 0 ? NULL : &subscribers->cells[cell - 1];
}

/* How many there are; those with a replica alone. */
uint32_t ligi_subscribers_count(const ligi_subscribers *subscribers, uint32_t row);
uint32_t ligi_subscribers_replicas(const ligi_subscribers *subscribers, uint32_t row);

#endif
