/* A link: a connection to a peer, from hello to goodbye. First the calls of modules, then those of
 * the core, then those of transports. */
#ifndef LIGI_LINK_H
#define LIGI_LINK_H

#include "net/transport.h"

typedef enum ligi_state {
    LIGI_STRANGER,   /* accepted, no hello received */
    LIGI_CONNECTING, /* ours is sent, theirs has not arrived */
    LIGI_MEETING,    /* inside `met` */
    LIGI_UP,
    LIGI_ENDED /* failed; `lost` has been called or will be at the end of the round */
} ligi_state;

typedef struct ligi_served ligi_served;

/* Ends the link and frees it; queued messages are cancelled (`sent` is called, LIG_E_CLOSED). The
 * peer's `lost` gets LIG_E_CLOSED and `reason` (NULL: none). Never blocks. NULL is valid. */
void ligi_link_close(ligi_link *link, const char *reason);

void ligi_link_set_owner(ligi_link *link, void *owner);
void *ligi_link_owner(const ligi_link *link);
/* The name of the peer in error texts; initially its address. Copied, truncated to 63 bytes. */
void ligi_link_set_name(ligi_link *link, const char *name);
const char *ligi_link_name(const ligi_link *link);
const char *ligi_link_scheme(const ligi_link *link); /* "tcp"; static storage */
int ligi_link_near(const ligi_link *link);           /* it can only connect this host */
int ligi_link_maps_memory(const ligi_link *link);    /* the peer can map what is lent to it */
int ligi_link_up(const ligi_link *link);             /* met, and not lost */
size_t ligi_link_queued(const ligi_link *link);      /* messages that are not yet handed over */
/* This end's host as the peer sees it ("10.0.0.7"); "" where there is none. */
lig_status ligi_link_local_host(const ligi_link *link, char host[LIGI_ADDRESS_BYTES_MAX]);
/* The time of the last received byte. */
int64_t ligi_link_heard_ns(const ligi_link *link);

/* A taken piece stays readable while its mapping is kept, regardless of link, peer and endpoint.
 * No lock needed. */
void ligi_mapping_keep(ligi_mapping *mapping);
void ligi_mapping_drop(ligi_mapping *mapping);

lig_status ligi_link_create(ligi_net *net, ligi_state state, const char *address, ligi_link **link);
void ligi_link_free(ligi_link *link); /* the wire is closed and the queue empty */
/* Failed links: the next attempt, or `lost`. */
void ligi_net_settle(ligi_net *net);
void ligi_net_bury(ligi_net *net);
const ligi_served *ligi_link_served(const ligi_link *link);

/* A peer connects: creates a link with this wire (the core calls drop on it when the link ends; on
 * failure it stays the caller's). `peer` names it in error texts. */
lig_status ligi_link_accept(ligi_net *net, const ligi_transport_ops *ops, void *wire,
                            const char *peer, ligi_link **link);
/* The link has failed with this thread's error text: `lost` is called at the end of the round. Stop
 * reading and writing; drop follows. May be called twice, the first counts. */
void ligi_link_fail(ligi_link *link, lig_status status);
/* 1 if the link was closed or failed: return without touching the wire, which lives until the end
 * of the round. */
int ligi_link_dead(const ligi_link *link);
void ligi_link_heard(ligi_link *link, int64_t now_ns);
const char *ligi_link_address(const ligi_link *link); /* the address connected to, or the name of
                                                       * the accepted peer */

#endif
