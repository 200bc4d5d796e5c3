/* Rounds of progress, the one place where threads sleep, and waiting. */
#ifndef LIGI_PROGRESS_H
#define LIGI_PROGRESS_H

#include "net/transport.h"

typedef enum ligi_driver { LIGI_NOBODY, LIGI_CALLER, LIGI_BACKGROUND } ligi_driver;

/* Drives progress until until(context) is not 0 (called with the lock held), spinning spin_ns and
 * then sleeping; LIG_E_TIMEOUT after timeout_ns (LIG_FOREVER: none), LIG_E_CLOSED if the endpoint
 * closes. A condition that another thread makes true outside a hook needs ligi_net_wake. */
lig_status ligi_net_wait(ligi_net *net, int (*until)(void *context), void *context,
                         int64_t timeout_ns);
/* The same for a caller that holds the lock, once: the condition still holds when this returns.
 * Other threads may have the lock meanwhile. */
lig_status ligi_net_await(ligi_net *net, int (*until)(void *context), void *context,
                          int64_t timeout_ns);
/* With the lock, for servers: from now on a waiting thread spins longer, up to this time, if
 * messages arrive that frequently; 0: the default. */
void ligi_net_be_patient(ligi_net *net, int64_t most_ns);
/* One round without waiting. */
lig_status ligi_net_poll(ligi_net *net);
/* One round, unless another thread has the lock: for helpers that must not block. */
void ligi_net_help(ligi_net *net);
/* Makes every waiting thread check its condition again. Any thread, no lock needed; safe in signal
 * handlers. */
void ligi_net_wake(ligi_net *net);

/* One round: everything possible without blocking. Returns the number of events. */
int ligi_net_round(ligi_net *net);
/* Between two rounds: yields the lock to threads that wait for it. */
void ligi_net_let_in(ligi_net *net);
/* Sets a deadline: a sleeping thread wakes by then. */
void ligi_net_due(ligi_net *net, int64_t at_ns);
lig_status ligi_progress_open(ligi_net *net);
void ligi_progress_close(ligi_net *net);
void ligi_net_sleep(ligi_net *net, ligi_driver as, int64_t deadline_ns);

/* For ligi_link_heard_ns; the start of the current round is accurate enough. */
int64_t ligi_net_round_ns(const ligi_net *net);

/* Watches, changes (events 0 keeps the descriptor, silent) and forgets a descriptor.
 * Level-triggered. Forget before closing it. */
lig_status ligi_net_watch(ligi_net *net, ligi_watch *watch, int fd, uint32_t events);
lig_status ligi_net_rewatch(ligi_net *net, ligi_watch *watch, uint32_t events);
void ligi_net_forget(ligi_net *net, ligi_watch *watch);
/* Sets when the transport's poll must be called at the latest (a pause, lingering). Only one time
 * is kept for all, so poll sets it again. */
void ligi_net_alarm(ligi_net *net, int64_t at_ns);

#endif
