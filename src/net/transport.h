/* A transport moves messages between two ends. It is a const table in its own folder and one line
 * in builtin.def; the core (link.c, progress.c) has the queues, the hello, the limits, the hooks
 * and the waiting, so a transport only transfers bytes.
 *
 * A link whose queue ends in messages sent with LIGI_SEND_MORE is not told to send until the round
 * ends, so a transport need not look at that flag.
 *
 * Words: a **wire** is the transport's private part of a link. `self` is the transport's state in
 * one endpoint. Everything is called with the endpoint's lock held, nothing may block.
 *
 * A transport in a separate shared object cannot see our hidden symbols: it reaches the core by
 * the ligi_host table that `open` gets, whose entries are the functions of the same names below. */
#ifndef LIGI_TRANSPORT_H
#define LIGI_TRANSPORT_H

#include "base/uri/option.h"
#include "net/net.h"

#define LIGI_TRANSPORT_ABI 4
#define LIGI_PROOF_BYTES 32

/* --- what travels --- */

typedef enum ligi_kind { LIGI_KIND_HELLO = 1, LIGI_KIND_DATA = 2, LIGI_KIND_BYE = 3 } ligi_kind;

/* The numbers that precede a message's head; a transport transfers all three. */
typedef struct ligi_frame_prefix {
    uint32_t kind; /* ligi_kind */
    uint32_t head_bytes;
    uint64_t payload_bytes;
} ligi_frame_prefix;

/* A message waiting in a link's queue. The transport sends prefix, head, payload, in that order,
 * and messages in the order of the queue. */
typedef struct ligi_outgoing {
    struct ligi_outgoing *next;
    ligi_frame_prefix prefix;
    uint32_t flags; /* LIGI_SEND_* */
    uint32_t count; /* of iov */
    uint64_t at;    /* for the transport: its progress; 0 = not begun (cancel is still possible) */
    const uint8_t *head;
    struct iovec *iov; /* the transport may change the entries while sending */
    uint64_t lent;     /* set by the transport: bytes of the payload that are lent and not moved */
    void *token;
} ligi_outgoing;

/* Received messages: see ligi_link_take. */
typedef struct ligi_incoming {
    const void *head;   /* prefix.head_bytes; private memory, not the peer's to change */
    ligi_piece *pieces; /* NULL: nothing was lent */
    size_t piece_count;
    struct iovec *iov; /* filled by take: destination of the bytes to move; the array may be changed
                        * meanwhile. NULL with bytes to move: discard them */
    size_t count;
    uint64_t bytes; /* filled by take: to be moved */
} ligi_incoming;

/* A descriptor watched by the endpoint's epoll set. Embedded in a wire or in `self`. */
typedef struct ligi_watch {
    void (*ready)(void *context, uint32_t events); /* EPOLLIN and so on */
    void *context;
    int fd; /* -1: not watched */
    uint32_t events;
} ligi_watch;

/* --- the table --- */

typedef struct ligi_host ligi_host;

typedef struct ligi_transport_ops {
    uint32_t abi;  /* LIGI_TRANSPORT_ABI */
    uint32_t size; /* sizeof(ligi_transport_ops) */
    const char *scheme;
    const char *help;           /* one line, for `ligament info` */
    const char *near;           /* listen here for peers on this host */
    const char *far4, *far6;    /* listen here for other hosts, over IPv4 and IPv6; NULL: its
                                   addresses only ever mean this host */
    const ligi_option *options; /* of its addresses; may be NULL */
    size_t option_count;
    int rank;  /* the order in which a card's addresses are tried: highest first */
    int clear; /* 1: it does not encrypt, so naming it declares the network trusted; ligi_fabric */

    /* Called when its scheme is first listened on, connected to or allocated from.
     * LIG_E_UNSUPPORTED with an error text if this machine cannot. */
    lig_status (*open)(ligi_net *net, const ligi_host *host, void **self);
    /* All its wires are dropped before. In a forked child (`forked`) frees memory and closes file
     * descriptors, and changes nothing the parent can see. */
    void (*close)(void *self, int forked);

    /* Fills `address` (a whole URI). For each connecting peer: ligi_link_accept. */
    lig_status (*listen)(void *self, const ligi_uri *uri, char address[LIGI_ADDRESS_BYTES_MAX]);
    /* Whether this address may be tried from here. `same_host`: the card has our boot id. NULL:
     * always.
     */
    int (*reaches)(void *self, const char *address, int same_host);
    /* Starts to connect: LIG_OK if it is in progress; ligi_link_fail later if it fails
     * (LIG_E_PEER if the peer does not listen: the core may retry). The queue already contains
     * our hello. `*wire` is created here, but not by a failing call. */
    lig_status (*connect)(void *self, const ligi_uri *uri, ligi_link *link, void **wire);
    /* Blocking work of connect (name resolution) is done here, before it and without the lock; the
     * result replaces the URI. May be NULL. */
    lig_status (*resolve)(const ligi_uri *uri, char address[LIGI_ADDRESS_BYTES_MAX]);

    /* The queue is not empty: send what can be sent now (ligi_link_queue, ligi_link_gone). The
     * rest is sent when the watch or poll indicates it. */
    void (*send)(void *wire);
    /* The landing was diverted: the iovecs filled by take are invalid from now on. */
    void (*divert)(void *wire);
    /* Frees the wire. `graceful`: everything in the queue was moved, including a final goodbye, and
     * the peer should be able to read it. */
    void (*drop)(void *wire, int graceful);

    /* Polls everything that has no file descriptor; cheap (called while spinning). Returns the
     * number of events. May be NULL. */
    int (*poll)(void *self);
    /* The endpoint is about to sleep: from now on every event must signal a watched descriptor
     * (set "asleep" flags). Returns 1 if something happened meanwhile: then it does not sleep.
     * May be NULL. disarm follows in either case. */
    int (*arm)(void *self);
    void (*disarm)(void *self);

    /* Memory that peers can map when it is lent; NULL where they cannot. free is called with self
     * NULL after close. */
    lig_status (*alloc)(void *self, uint64_t bytes, void **memory);
    int (*free)(void *self, void *memory); /* 1 if the memory belonged to the transport and was
                                            * freed */

    lig_status (*local_host)(void *wire, char host[LIGI_ADDRESS_BYTES_MAX]); /* may be NULL */
    lig_status (*reserve)(void *self, uint64_t bytes, void **memory);        /* may be NULL */
} ligi_transport_ops;

/* builtin.def expanded; ends with NULL. */
extern const ligi_transport_ops *const ligi_transports[];
/* The schemes of those that are loaded; ends with NULL. */
extern const char *const ligi_transports_loaded[];

/* --- what the core does for transports --- */

/* A mapping of a peer's memory: made by the transport with one reference, unmapped by `end` when
 * the last is dropped. */
struct ligi_mapping {
    void (*end)(ligi_mapping *mapping);
    uint64_t refs; /* atomic */
};

struct ligi_host {
    uint32_t abi, size;
    lig_status (*link_accept)(ligi_net *net, const ligi_transport_ops *ops, void *wire,
                              const char *peer, ligi_link **link);
    ligi_outgoing *(*link_queue)(ligi_link *link);
    ligi_outgoing *(*link_queue_end)(ligi_link *link);
    void (*link_gone)(ligi_link *link);
    lig_status (*link_begin)(ligi_link *link, const ligi_frame_prefix *prefix);
    lig_status (*link_take)(ligi_link *link, ligi_incoming *in);
    void (*link_landed)(ligi_link *link);
    void (*link_fail)(ligi_link *link, lig_status status);
    int (*link_dead)(const ligi_link *link);
    void (*link_heard)(ligi_link *link, int64_t now_ns);
    lig_status (*net_watch)(ligi_net *net, ligi_watch *watch, int fd, uint32_t events);
    lig_status (*net_rewatch)(ligi_net *net, ligi_watch *watch, uint32_t events);
    void (*net_forget)(ligi_net *net, ligi_watch *watch);
    void (*net_alarm)(ligi_net *net, int64_t at_ns);
    void (*net_wake)(ligi_net *net);
    const void *(*net_secret)(const ligi_net *net, size_t *bytes);
    const ligi_net_options *(*net_limits)(const ligi_net *net);
    const char *(*link_address)(const ligi_link *link);
    lig_status (*options_fill)(const ligi_option *table, size_t count, const ligi_uri *uri,
                               const char *const *also, void *into);
    void (*options_fini)(const ligi_option *table, size_t count, void *into);
    lig_status (*fail)(lig_status status, const char *format, ...) LIG_PRINTF(2, 3); /* lig_fail */
    lig_status (*net_prove)(const ligi_net *net, ligi_net_key key, const struct iovec *words,
                            uint8_t proof[LIGI_PROOF_BYTES]);
    ligi_net_key (*link_key)(const ligi_link *link);
    void (*link_proved)(ligi_link *link, ligi_net_key key);
};

#endif
