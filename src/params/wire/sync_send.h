/* Letters of sync on their way out: items for one node are put together until there are enough of
 * them, and their rows are written straight into the memory that is sent. In order: what was said
 * first to a node arrives first. Under the lock of the node; whoever has said all there is to say
 * calls ligi_courier_send before it gives the lock back, so that nothing else that is sent to a
 * node overtakes these. */
#ifndef LIGI_SYNC_SEND_H
#define LIGI_SYNC_SEND_H

#include "params/wire/outgoing.h"

/* How letters leave; a test has another way than the node. As ligi_parcel_take, _drop,
 * ligi_peer_post. */
typedef struct ligi_carrier {
    lig_status (*take)(void *context, uint64_t bytes, ligi_parcel **parcel);
    void (*drop)(void *context, ligi_parcel *parcel);
    lig_status (*post)(void *context, uint32_t to, const ligi_post *post);
    void *context;
} ligi_carrier;

typedef struct ligi_envelope {
    ligi_parcel *parcel; /* NULL: none is begun */
    ligi_letter letter;
    uint32_t room; /* items before the rows */
    uint64_t rows_bytes;
    uint32_t next; /* of those that are begun, node + 1 */
} ligi_envelope;

typedef struct ligi_courier {
    ligi_carrier carrier;
    ligi_envelope *envelopes; /* [node_count] */
    uint32_t node_count, begun;
    uint64_t row_bytes_max;
} ligi_courier;

lig_status ligi_courier_init(ligi_courier *courier, const ligi_carrier *carrier,
                             uint32_t node_count, uint64_t row_bytes_max);
void ligi_courier_fini(ligi_courier *courier);

/* To whom, in what kind of letter, on whose behalf. */
typedef struct ligi_address {
    uint32_t to;
    ligi_letter_kind kind;
    uint32_t origin;
    uint8_t hops;
} ligi_address;

/* Makes room for one item and its row; *row (may be NULL when row_bytes is 0) is where the row
 * goes. Then `add`. */
lig_status ligi_courier_room(ligi_courier *courier, const ligi_address *address, uint64_t row_bytes,
                             void **row);
void ligi_courier_add(ligi_courier *courier, uint32_t to, const ligi_item *item,
                      uint64_t row_bytes);
/* Both, without a row. */
lig_status ligi_courier_say(ligi_courier *courier, const ligi_address *address,
                            const ligi_item *item);
/* Sends all that was begun. */
lig_status ligi_courier_send(ligi_courier *courier);

#endif
