/* Messages between processes. A `ligi_net` is this process's endpoint: it holds the transports, the
 * connections (`ligi_link`), the one place where threads sleep, and one lock. A message is a head
 * (a few bytes the module above understands) and a payload (any number of pieces of memory); it
 * arrives completely, once, and in order, or its link is lost. Nothing here depends on tensors,
 * ranks or meshes.
 *
 * How a module uses it (group, mesh, params, a served store):
 *   open, serve(service, hooks), listen, connect; then send, and wait for what the hooks bring.
 *
 * Threads. Everything here is **shared**. One recursive lock guards the endpoint. Hooks are called
 * with it held, only by a thread that is inside ligi_net_wait or ligi_net_poll (or by the
 * endpoint's own background thread), and may call everything here except wait, poll and close of
 * the endpoint. They must not block. The modules above guard their own state with the same lock
 * (ligi_net_lock), so no lock order has to be observed; a module with another lock takes it inside
 * this one and never calls net while holding it.
 *
 * Fork. In a forked child every call returns LIG_E_CLOSED and close frees memory only. */
#ifndef LIGI_NET_H
#define LIGI_NET_H

#include <ligament/base.h>

#include <sys/uio.h>

typedef struct ligi_transport_slot ligi_transport_slot;

#define LIGI_NET_VERSION 1         /* of the wire protocol; the same at both ends */
#define LIGI_HEAD_BYTES_MAX 65536  /* of a message's head */
#define LIGI_HELLO_BYTES_MAX 1024  /* of a module's part of a hello */
#define LIGI_CARD_BYTES_MAX 1024   /* of a card */
#define LIGI_ADDRESS_BYTES_MAX 256 /* of an address, with its NUL */
#define LIGI_PIECES_MAX 1024       /* iovec entries of a payload in one send or receive */

typedef struct ligi_net ligi_net;
typedef struct ligi_link ligi_link;
typedef struct ligi_mapping ligi_mapping;

/* A link belongs to one module, named by its first message. Fixed: the numbers are part of the
 * protocol. */
typedef enum ligi_service {
    LIGI_SERVICE_TEST = 0,
    LIGI_SERVICE_GROUP = 1,
    LIGI_SERVICE_MESH = 2,
    LIGI_SERVICE_PARAMS = 3,
    LIGI_SERVICE_STORE = 4,
    LIGI_SERVICE_COUNT = 8
} ligi_service;

/* --- the endpoint --- */

/* Whether the network between hosts is trusted. It matters to transports that do not encrypt:
 * "auto" uses them only if the user allows it. */
typedef enum ligi_fabric {
    LIGI_FABRIC_STRANGE = 0, /* others may listen */
    LIGI_FABRIC_DEVICE = 1,  /* private; used if a device makes them faster */
    LIGI_FABRIC_ANY = 2      /* private; used with any device */
} ligi_fabric;

typedef struct ligi_net_options {
    const void *secret; /* borrowed by open; NULL: none, then only addresses of this host are
                         * used */
    size_t secret_bytes;
    const char *group; /* with a secret: limits peers to this group (a module's name, a served
                        * store's); NULL: "". See ligi_net_bind */
    int64_t spin_ns;   /* how long a waiting thread spins before it sleeps; 0: 20 us, < 0: never */
    int64_t hello_ns;  /* a connection without a hello by then is dropped; 0: 10 s */
    uint64_t payload_bytes_max; /* of one message; 0: 1 TiB. The head hook may set a lower limit */
    uint32_t queue_max;         /* queued messages per link; 0: 4096 */
    uint32_t stranger_max; /* accepted connections that have not sent a hello; 0: 256. Above it the
                            * oldest is dropped */
    uint32_t link_max;     /* links; 0: 16384, some of each service for 4096 members */
    int background;        /* 1: a library thread drives progress while no caller does */
    ligi_fabric fabric;
    int64_t turn_ns; /* if an address of a card accepts no hello by then, the next one is tried; 0:
                      * 5 s. At most half of the connection's remaining time */
} ligi_net_options;

/* With a secret: what a connection proves in addition. */
typedef enum ligi_net_key {
    LIGI_KEY_MEET = 0,   /* of the rendezvous; of all connections if there is no group */
    LIGI_KEY_MEMBER = 1, /* of members among each other: none until the group's id is known */
    LIGI_KEYS = 2
} ligi_net_key;

lig_status ligi_net_open(ligi_net **net, const ligi_net_options *options);
/* Closes every link (peers are notified) and listener, and ends the background thread. No hook
 * is called any more except `sent` for messages still borrowed. Takes at most about a second. */
void ligi_net_close(ligi_net *net);

void ligi_net_lock(ligi_net *net); /* recursive; must not be held over wait, poll or close */
void ligi_net_unlock(ligi_net *net);

/* Starts listening at a URI ("tcp://127.0.0.1:0", "tcp://[::1]:7000?backlog=64", "shm:",
 * "inproc:name", "ucx://..."); unknown options are rejected. Fills `address` with what a peer
 * connects to, including the port or name that was chosen. May be called several times. */
lig_status ligi_net_listen(ligi_net *net, const char *uri, char address[LIGI_ADDRESS_BYTES_MAX]);

/* This endpoint's card: its addresses and host, as a blob for peers. `host` (may be NULL) replaces
 * the host of wildcard addresses (0.0.0.0, [::]). */
lig_status ligi_net_card(ligi_net *net, const char *host, void *card, size_t *bytes);

/* --- hooks of a module --- */

typedef struct ligi_hello {
    const void *data; /* data of the peer's module; untrusted until checked */
    size_t bytes;
    uint8_t net_id[16];  /* random, one per endpoint */
    uint8_t boot_id[16]; /* of the peer's host, as claimed */
    uint32_t uid, pid;   /* as claimed */
} ligi_hello;

typedef struct ligi_reply {
    size_t bytes;
    uint8_t data[LIGI_HELLO_BYTES_MAX];
} ligi_reply;

/* A piece of a received payload that the sender lent: it is in memory that both map. */
typedef struct ligi_piece {
    uint64_t offset, bytes; /* in the payload */
    void *shared;           /* NULL: these bytes must be copied */
    ligi_mapping *mapping;  /* keeps `shared` readable; see ligi_mapping_keep */
    int read_only;          /* writing would raise SIGBUS or SIGSEGV */
    int taken;              /* set by the hook: used in place, not copied */
} ligi_piece;

typedef struct ligi_arrival {
    const void
        *head; /* until the hook returns; copied out of shared memory, untrusted until checked */
    size_t head_bytes;
    uint64_t payload_bytes;
    ligi_piece *pieces; /* in order, together the payload; none if nothing was lent */
    size_t piece_count;
} ligi_arrival;

/* Where a payload is received: `count` entries whose sum is the payload without the taken pieces.
 * The array and the memory must stay valid until arrived or lost. The entries are modified: they
 * describe the rest to be received. If the hook fills nothing, the payload is discarded. */
typedef struct ligi_landing {
    struct iovec *iov;
    size_t count;
    void *token; /* passed to arrived */
} ligi_landing;

typedef struct ligi_net_hooks {
    /* A peer sent its hello. Accepted link: fill *reply (for the peer's `met`); the module owns the
     * link from here on and closes it with ligi_link_close. On failure the peer is refused with the
     * error text, and the link is freed. On a link made by connect: it is up; on failure it is
     * lost. */
    lig_status (*met)(void *context, ligi_link *link, const ligi_hello *hello, ligi_reply *reply);
    /* A message begins. On failure the link is lost, and the error text is sent to the peer. */
    lig_status (*head)(void *context, ligi_link *link, const ligi_arrival *arrival,
                       ligi_landing *landing);
    /* The message is complete. May be NULL. Called for every message, also for one without
     * payload. */
    void (*arrived)(void *context, ligi_link *link, void *token);
    /* A message is no longer borrowed: it was sent (LIG_OK), the link was lost or closed, or the
     * message was cancelled. May be NULL. Not called if send returned `done`. */
    void (*sent)(void *context, ligi_link *link, void *token, lig_status status);
    /* The link is unusable; close it, now or later. Called at most once, never after close, and
     * after `sent` for everything borrowed. LIG_E_CLOSED: the peer sent a goodbye; LIG_E_PEER: the
     * connection broke; LIG_E_TIMEOUT, LIG_E_DENIED, LIG_E_CORRUPT... as the error text says. */
    void (*lost)(void *context, ligi_link *link, lig_status status, const char *sentence);
    /* May be NULL. Called when `now_ns` has reached the last returned time (first: at serve);
     * returns when it must be called next. For heartbeats and deadlines. */
    int64_t (*tick)(void *context, int64_t now_ns);
} ligi_net_hooks;

/* --- links --- */

typedef struct ligi_connect {
    const char *address; /* a URI as listen returned it; NULL if there is a card */
    const void *card;    /* the best of its addresses is taken: shared memory on one host, ucx where
                            both have it, trust the fabric and have a device for it, else tcp; the
                            next when one fails */
    size_t card_bytes;
    const char
        *only; /* with a card, may be NULL or "auto": "shm", "tcp", ...: that transport alone */
    ligi_service service;
    const void *hello; /* borrowed; at most LIGI_HELLO_BYTES_MAX bytes */
    size_t hello_bytes;
    int64_t timeout_ns; /* total, until met; 0: hello_ns of the endpoint */
    int retry;          /* 1: if the peer does not listen yet, retry until the timeout */
    void *owner;        /* ligi_link_owner */
} ligi_connect;

/* --- messages --- */

/* Another message follows soon: this one may wait for it, at most until the next send without this
 * flag, or the end of the round of progress. */
#define LIGI_SEND_MORE 1u
/* Pieces in memory of ligi_net_alloc are lent instead of copied if the transport can: they must
 * stay unchanged until a message of the module's protocol says that the peer no longer needs them;
 * `sent` does not say it. */
#define LIGI_SEND_LEND 2u

typedef struct ligi_send {
    const void *head; /* borrowed during the call only */
    size_t head_bytes;
    const struct iovec *iov; /* the array is borrowed during the call only, the memory until sent */
    size_t count;
    uint32_t flags;
    void *token; /* passed to `sent`, and identifies the message for cancel */
} ligi_send;

/* --- statistics --- */

typedef struct ligi_net_stats {
    uint64_t sent_count, sent_bytes, received_count, received_bytes; /* heads and payloads */
    uint64_t lent_bytes; /* of the bytes sent: lent, not copied */
    uint64_t link_count, stranger_count, lost_count, refused_count;
    uint64_t sleeps, wakes;
} ligi_net_stats;

void ligi_net_stats_get(ligi_net *net, ligi_net_stats *stats);

/* LIG_E_CLOSED in a forked child. */
lig_status ligi_net_mine(const ligi_net *net);
/* The transport of a scheme, opened at first use. */
lig_status ligi_net_transport(ligi_net *net, const char *scheme, ligi_transport_slot **slot);
/* Lock and unlock around calls of transports and hooks; the last leave frees dead links. */
void ligi_net_enter(ligi_net *net);
void ligi_net_leave(ligi_net *net);

/* A secret of one peer, for an endpoint that distinguishes its peers by their secrets. */
typedef struct ligi_net_peer_secret {
    const void *secret;
    size_t bytes;
    uint64_t tag; /* not 0; see ligi_link_tag */
} ligi_net_peer_secret;

/* From now on connecting peers may prove one of these in place of the endpoint's own secret, which
 * must exist. Copied; replaces the previous ones. Existing links are unaffected. */
lig_status ligi_net_accept_secrets(ligi_net *net, const ligi_net_peer_secret *secrets,
                                   size_t count);
/* With the lock held; the secrets that were set, borrowed until the next accept_secrets. */
const ligi_net_peer_secret *ligi_net_peer_secrets(const ligi_net *net, size_t *count);

/* The endpoint's secret; NULL if there is none. */
const void *ligi_net_secret(const ligi_net *net, size_t *bytes);
const ligi_net_options *ligi_net_limits(const ligi_net *net); /* the values in force */

#endif
