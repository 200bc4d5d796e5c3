/* An outgoing message, and the memory of its payload. Types only. */
#ifndef LIGI_OUTGOING_H
#define LIGI_OUTGOING_H

#include "params/wire/params_message.h"

#include <stddef.h>

/* A buffer for one payload. Taken under the lock, filled by its holder, passed to
 * ligi_params_peer_send or returned. */
#define LIGI_SEND_BUFFER_ORDERS 14 /* 4 KiB to 32 MiB */

typedef struct ligi_send_buffer {
    struct ligi_send_buffer *next, *with; /* in the pool; with others of one ticket */
    uint64_t room, bytes;                 /* bytes used */
    uint8_t *data;                        /* 64-aligned; can be lent where there is a net */
    uint32_t holds;                       /* references: sends, and requests without a response */
    uint32_t of_sync;                     /* whether node->sync_bytes includes it */
    uint32_t worker, left;                /* first buffer of a request that was given up: keys */
    uint64_t ticket;                      /* without a response; until then peers may read them */
} ligi_send_buffer;

/* A message; ligi_params_peer_send sends it. */
typedef struct ligi_params_outgoing {
    ligi_params_message message; /* version is filled in */
    const void *tail;
    size_t tail_bytes;
    ligi_send_buffer *buffer;
    uint32_t send_flags; /* LIGI_SEND_* */
} ligi_params_outgoing;

#endif
