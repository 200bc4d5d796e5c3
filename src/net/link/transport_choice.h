/* Selects which of a peer's addresses, and therefore which transports, are tried, in order of
 * preference. */
#ifndef LIGI_TRANSPORT_CHOICE_H
#define LIGI_TRANSPORT_CHOICE_H

#include "net/net_state.h"

/* Fills the addresses of `plan` with those of the peer's card (connect->card) that are usable from
 * here: the highest `rank` of a transport first, equal ranks in the order of the card. NOTFOUND if
 * there is none. Call with the lock of `net`. */
lig_status ligi_link_choose(ligi_net *net, const ligi_connect *connect, ligi_connect_plan *plan);

#endif
