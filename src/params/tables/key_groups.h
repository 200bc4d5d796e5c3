/* Equal keys of a batch, so that their gradients can be summed. Pure. */
#ifndef LIGI_KEY_GROUPS_H
#define LIGI_KEY_GROUPS_H

#include "base/error.h"

#define LIGI_KEY_LAST UINT32_MAX

typedef struct ligi_key_groups { /* zeroed is valid */
    int64_t *keys;               /* the distinct keys, in the order in which they first occur */
    uint32_t *first;             /* of each: its first position */
    uint32_t *last;              /* and its last one */
    uint32_t *next; /* by position: the next position of the same key, or LIGI_KEY_LAST */
    size_t count;   /* of distinct keys */
    size_t room;
    uint64_t *cells;  /* pass above group; another pass: free */
    size_t cell_room; /* a power of two */
    uint32_t pass;
} ligi_key_groups;

/* Fills everything for `count` keys, fewer than LIGI_KEY_LAST. */
lig_status ligi_key_groups_find(ligi_key_groups *groups, const int64_t *keys, size_t count);
void ligi_key_groups_fini(ligi_key_groups *groups);

#endif
