/* Two ends of a connection within one process, each driven by the threads of its own endpoint. A
 * leaf lock of the pair protects the shared state; no hook runs and no endpoint's lock is taken
 * under it. */
#ifndef LIGI_PAIR_H
#define LIGI_PAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/transport.h"

#define LIGI_MAIL_COPIED 16384 /* payloads up to this are copied, larger ones read in place */
#define LIGI_MAIL_MAX 64       /* messages waiting in one direction */

/* A message between the ends. Owned by the side that receives it. */
typedef struct ligi_mail {
    struct ligi_mail *next;
    ligi_frame_prefix prefix;
    int lent;      /* the pieces are the sender's memory */
    int withdrawn; /* withdrawn: that memory must not be read any more */
    size_t count, piece_at, in_piece;
    const uint8_t *head;
    struct iovec *pieces;
} ligi_mail;

typedef struct ligi_inproc_pair ligi_inproc_pair;

/* Queues the message for the other end; *gone is 1 if it was copied completely, 0 if its payload
 * stays lent until ligi_inproc_pair_returned. LIG_E_BUSY (without an error text): no room now. */
lig_status ligi_inproc_pair_put(ligi_inproc_pair *pair, int end, const ligi_outgoing *out,
                                int *gone);
/* 1, once, when the payload lent by `end` has been read. */
int ligi_inproc_pair_returned(ligi_inproc_pair *pair, int end);
/* The next message for `end`, NULL if there is none; *closed is 1 if there will be no more. */
ligi_mail *ligi_inproc_pair_take(ligi_inproc_pair *pair, int end, int *closed);
/* Copies up to *bytes of a message's payload and returns how many; 0 with bytes left: withdrawn.
 * `into` NULL skips. */
size_t ligi_inproc_pair_read(ligi_inproc_pair *pair, ligi_mail *mail, void *into, size_t bytes);
/* The message has been read; frees it. */
void ligi_inproc_pair_done(ligi_inproc_pair *pair, int end, ligi_mail *mail);

lig_status ligi_inproc_pair_create(ligi_net *near_net, ligi_net *far_net, ligi_inproc_pair **pair);
/* 1 if something changed for `end` since the last call. No lock. */
int ligi_inproc_pair_changed(ligi_inproc_pair *pair, int end);
int ligi_inproc_pair_pending(ligi_inproc_pair *pair, int end); /* the same, without taking it */
void ligi_inproc_pair_again(ligi_inproc_pair *pair, int end);  /* as if something had changed */
/* Closes this end; the last one frees. `mail` (may be NULL) is the message it was reading. */
void ligi_inproc_pair_leave(ligi_inproc_pair *pair, int end, ligi_mail *mail);

#endif
