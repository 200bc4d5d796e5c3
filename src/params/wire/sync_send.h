/* Outgoing sync messages. Items for one node are collected until a message is full, and their rows
 * are written directly into the memory that is sent. Messages to a node keep their order. Under the
 * lock of the node; the caller ends with ligi_sync_send_flush before it releases the lock, so that
 * nothing overtakes these messages. */
#ifndef LIGI_SYNC_SEND_H
#define LIGI_SYNC_SEND_H

#include "params/wire/outgoing.h"

/* How messages are sent; tests replace it. As ligi_send_buffer_take, _drop,
 * ligi_params_peer_send. */
typedef struct ligi_send_ops {
    lig_status (*take)(void *context, uint64_t bytes, ligi_send_buffer **buffer);
    void (*drop)(void *context, ligi_send_buffer *buffer);
    lig_status (*outgoing)(void *context, uint32_t to, const ligi_params_outgoing *outgoing);
    void *context;
} ligi_send_ops;

typedef struct ligi_message_draft {
    ligi_send_buffer *buffer; /* NULL: no message is begun */
    ligi_params_message message;
    uint32_t room; /* items before the rows */
    uint64_t rows_bytes;
    uint32_t next; /* of the messages begun, node + 1 */
} ligi_message_draft;

typedef struct ligi_sync_sender {
    ligi_send_ops send_ops;
    ligi_message_draft *drafts; /* [node_count] */
    uint32_t node_count, begun;
    uint64_t row_bytes_max;
} ligi_sync_sender;

lig_status ligi_sync_send_init(ligi_sync_sender *sender, const ligi_send_ops *send_ops,
                               uint32_t node_count, uint64_t row_bytes_max);
void ligi_sync_send_fini(ligi_sync_sender *sender);

/* Receiver, kind of message, origin. */
typedef struct ligi_sync_address {
    uint32_t to;
    ligi_params_message_kind kind;
    uint32_t origin;
    uint8_t hops;
} ligi_sync_address;

/* Reserves room for one item and its row; *row (may be NULL if row_bytes is 0) is where the row
 * goes. Then `add`. */
lig_status ligi_sync_send_reserve(ligi_sync_sender *sender, const ligi_sync_address *address,
                                  uint64_t row_bytes, void **row);
void ligi_sync_send_add(ligi_sync_sender *sender, uint32_t to, const ligi_sync_item *item,
                        uint64_t row_bytes);
/* Both, without a row. */
lig_status ligi_sync_send_item(ligi_sync_sender *sender, const ligi_sync_address *address,
                               const ligi_sync_item *item);
/* Sends all messages begun. */
lig_status ligi_sync_send_flush(ligi_sync_sender *sender);

#endif
