/* The send queue of a link: nodes from a free list. */
#ifndef LIGI_LINK_SEND_H
#define LIGI_LINK_SEND_H

#include "net/transport.h"

typedef struct ligi_queued_send ligi_queued_send;

/* Never blocks. *done (may be NULL only without a payload) is 1 if nothing is borrowed any more,
 * and then `sent` is not called; always so for a message without payload. Such a message, sent
 * inside a hook, leaves at the end of the current round, batched with others. LIG_E_BUSY: queue_max
 * messages are queued, this one was not accepted. On a lost link: its status and error text. */
lig_status ligi_net_send(ligi_link *link, const ligi_send *send, int *done);

/* Cancels a message that has not begun to be sent: `sent` is called (LIG_E_CLOSED) before this
 * returns LIG_OK. LIG_E_BUSY if it has begun: only closing the link returns the memory at once.
 * LIG_E_NOTFOUND if it is not queued. */
lig_status ligi_net_cancel(ligi_link *link, void *token);

/* Ends the queue: `sent` with `status` for borrowed messages. */
void ligi_link_cancel_all(ligi_link *link, lig_status status);
lig_status ligi_link_put_hello(ligi_link *link, const void *data, size_t bytes);
void ligi_link_take_back_hello(ligi_link *link);
/* 1 if the peer may have read it. */
int ligi_link_hello_left(const ligi_link *link);
/* Cancels queued messages and sends a goodbye, as far as possible without blocking. */
void ligi_link_say_bye(ligi_link *link, lig_status status, const char *text);
void ligi_link_flush(ligi_link *link);
void ligi_net_flush(ligi_net *net);
/* `sent` for what was handed over; of one link, or of all (NULL). */
void ligi_net_tell_sent(ligi_net *net, const ligi_link *link);

/* The first message not yet handed over, NULL if there is none (or none may be sent yet: before the
 * peer's hello only ours). Later ones by `->next`, up to but excluding ligi_link_queue_end. */
ligi_outgoing *ligi_link_queue(ligi_link *link);
ligi_outgoing *ligi_link_queue_end(ligi_link *link);
/* The first of the queue has been sent: its memory is no longer needed. Frees it. */
void ligi_link_gone(ligi_link *link);

#endif
