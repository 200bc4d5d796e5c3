/* Rounds, the one sleeping place, and waiting. */
#ifndef LIGI_PROGRESS_H
#define LIGI_PROGRESS_H

#include "net/transport.h"

typedef enum ligi_driver { LIGI_NOBODY, LIGI_CALLER, LIGI_BACKGROUND } ligi_driver;

/* Drives until until(context) is not 0 (asked with the lock held), spinning spin_ns and then
 * sleeping; LIG_E_TIMEOUT after timeout_ns (LIG_FOREVER: none), LIG_E_CLOSED when the endpoint
 * closes. A condition that another thread makes true outside a hook needs ligi_net_wake. */
lig_status ligi_net_wait(ligi_net *net, int (*until)(void *context), void *context,
                         int64_t timeout_ns);
/* The same for a caller that has locked, once: what it waited for is as it was found when this
 * returns. Meanwhile others have the lock. */
lig_status ligi_net_await(ligi_net *net, int (*until)(void *context), void *context,
                          int64_t timeout_ns);
/* One round without waiting. */
lig_status ligi_net_poll(ligi_net *net);
/* One round, unless another thread has the lock: for those who help and must not wait. */
void ligi_net_help(ligi_net *net);
/* Has every waiting thread ask its condition again. Any thread, no lock needed; for signal handlers
 * too. */
void ligi_net_wake(ligi_net *net);

/* One round: everything that can happen without waiting. Returns how many things did. */
int ligi_net_round(ligi_net *net);
/* Between two rounds: threads that want the lock get it. */
void ligi_net_let_in(ligi_net *net);
/* Something is due at that moment: whoever sleeps wakes by then. */
void ligi_net_due(ligi_net *net, int64_t at_ns);
lig_status ligi_progress_open(ligi_net *net);
void ligi_progress_close(ligi_net *net);
void ligi_net_sleep(ligi_net *net, ligi_driver as, int64_t deadline_ns);

/* For ligi_link_heard_ns; when the round of progress began that it is called in is near enough. */
int64_t ligi_net_round_ns(const ligi_net *net);

/* Watches, changes (events 0 keeps the descriptor, silent) and forgets a descriptor.
 * Level-triggered. Forget before closing it. */
lig_status ligi_net_watch(ligi_net *net, ligi_watch *watch, int fd, uint32_t events);
lig_status ligi_net_rewatch(ligi_net *net, ligi_watch *watch, uint32_t events);
void ligi_net_forget(ligi_net *net, ligi_watch *watch);
/* Says when the transport wants its poll called at the latest (a pause, lingering). One moment is
 * kept for all, so poll says again what it still waits for. */
void ligi_net_alarm(ligi_net *net, int64_t at_ns);

#endif
