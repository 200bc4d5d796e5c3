/* Tickets, implementation side: one library thread runs one operation. */
#ifndef LIGI_TICKET_H
#define LIGI_TICKET_H

#include <ligament/base.h>

typedef lig_status (*ligi_ticket_run)(void *context, lig_ticket *ticket);

/* Starts a thread (all signals blocked) that calls run(context, ticket); its status and error text
 * become the ticket's. `release` (may be NULL) frees the context when the operation has ended, on
 * the same thread, before waiters are woken. */
lig_status ligi_ticket_start(ligi_ticket_run run, void (*release)(void *context), void *context,
                             lig_ticket **ticket);
/* For run: reports that `done` steps are done. */
void ligi_ticket_advance(lig_ticket *ticket, uint64_t done);
/* For run: 1 if cancellation was requested. */
int ligi_ticket_cancelled(lig_ticket *ticket);

#endif
