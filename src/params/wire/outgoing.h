/* A message that is to be sent, and the memory of its payload. Types only. */
#ifndef LIGI_OUTGOING_H
#define LIGI_OUTGOING_H

#include "params/wire/params_message.h"

#include <stddef.h>

/* A buffer for one payload. Taken under the lock, filled by whoever has it, given to
 * ligi_params_peer_send or back. */
#define LIGI_SEND_BUFFER_ORDERS 14 /* 4 KiB to 32 MiB */

typedef struct ligi_send_buffer {
    struct ligi_send_buffer *next, *with; /* in the pool; with others of one ticket */
    uint64_t room, bytes;                 /* what is used of it */
    uint8_t *data;                        /* 64-aligned; lendable where there is a net */
    uint32_t holds;                       /* sends, and whoever waits for an answer */
    uint32_t worker, left; /* the first of a request that was given up: what is not */
    uint64_t ticket;       /* answered of it; until then its peers may read them */
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
