/* The client of a served store: one connection of a lig_store, and the requests on it.
 * Reference-counted together with the store's volume, whose `self` it is, because views and locks
 * outlive the store. */
#ifndef LIGI_CLIENT_H
#define LIGI_CLIENT_H

#include "base/error.h"
#include "net/net.h"
#include "store/handle.h"
#include "store/serve/message/served_head.h"

typedef struct ligi_client_call ligi_client_call;
typedef struct ligi_client_pin ligi_client_pin;

typedef enum ligi_client_state {
    LIGI_CLIENT_DOWN,       /* not connected: the next request connects, if `retry` permits */
    LIGI_CLIENT_CONNECTING, /* one thread does, the others wait */
    LIGI_CLIENT_UP
} ligi_client_state;

/* The options of the URI. */
typedef struct ligi_client_options {
    int64_t retry;       /* seconds to keep trying after the connection was lost; 0: fail at once */
    int64_t liveness_ms; /* a server that is silent for this long during a request is lost */
    char *secret_file;
    char *transport; /* "auto", "tcp", "shm" */
} ligi_client_options;

typedef struct ligi_client {
    ligi_net *net;
    char *uri;          /* for error texts */
    char *address;      /* "tcp://host:port"; NULL: read from address_file */
    char *address_file; /* read at every connect: the server may have moved */
    ligi_client_options options;
    const ligi_interrupt *interrupt; /* of the store */
    uint8_t id[LIGI_SERVED_CLIENT_BYTES];
    struct ligi_client_files *files; /* packs on this host; see client_files.h */

    /* Everything below is guarded by the lock of `net`. */
    ligi_client_state state;
    ligi_link *link;
    ligi_link *attempt; /* being connected */
    int attempt_met;
    ligi_failure lost; /* the reason why there is no link */
    ligi_served_welcome welcome;
    uint8_t card[LIGI_CARD_BYTES_MAX]; /* from the welcome */
    size_t card_bytes;
    int same_host;
    int silent_pings;                     /* without an answer */
    uint8_t uuid[LIGI_SERVED_UUID_BYTES]; /* of the store, since the first connection */
    int limited;                          /* likewise: the role sees only some models */
    uint64_t session;        /* counts connections: objects held by the server end with their
                              * connection */
    ligi_client_call *calls; /* under way */
    uint32_t call_count;
    uint64_t flight_bytes; /* of their payloads and those of the replies */
    uint64_t next_id, next_sequence;
    uint64_t version;         /* the latest that a reply reported */
    ligi_client_call *parked; /* a WATCH that waits at the server; NULL: none */
    int parking;              /* a thread is about to send it */
    uint64_t *releases;       /* delayed because the queue was full */
    size_t release_count, release_capacity;
    ligi_client_pin *pins; /* of refs and matches; see packs/client_pins.h */
    size_t pin_count, pin_capacity;
} ligi_client;

#endif
