/* Internal state of endpoints and links; net.h is the interface for modules, transport.h the one
 * for transports. Everything is guarded by the endpoint's lock unless marked atomic. */
#ifndef LIGI_NET_STATE_H
#define LIGI_NET_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "net/frame/frame.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/progress.h"
#include "net/progress_thread.h"
#include "net/transport.h"

#define LIGI_TRANSPORTS_MAX 8
#define LIGI_IOV_FEW 16
#define LIGI_HEAD_SMALL 512
#define LIGI_NEVER INT64_MAX

/* A queued message with inline space for typical sizes; taken from a free list. */
typedef struct ligi_queued_send {
    ligi_outgoing out; /* first: a transport's pointer to it is one to the node */
    ligi_link *link;   /* while `sent` is owed */
    uint64_t number;   /* in its link's order */
    int notify;        /* `sent` is owed */
    void *head_memory; /* beyond the usual; kept while it is small */
    size_t head_capacity;
    struct iovec *iov_memory;
    struct iovec few[LIGI_IOV_FEW];
    uint8_t small[LIGI_HEAD_SMALL];
} ligi_queued_send;

/* Connection attempts: addresses in order, and retries after a pause if requested. */
typedef struct ligi_connect_plan {
    char addresses[LIGI_CARD_ADDRESSES_MAX][LIGI_ADDRESS_BYTES_MAX];
    size_t count, next;
    int64_t again_ns, pause_ns;
    int64_t turn_ns; /* when the next address is tried; LIGI_NEVER: this is the last */
    int retry;
    size_t hello_bytes;
    uint8_t hello[LIGI_HELLO_BYTES_MAX];
    char last[LIGI_ERROR_TEXT_BYTES]; /* why the last attempt failed */
} ligi_connect_plan;

struct ligi_link {
    ligi_link *next, **at;  /* in net->links */
    ligi_link *next_listed; /* in net->failing or net->dead */
    ligi_link *next_corked;
    ligi_net *net;
    const ligi_transport_ops *ops;
    void *wire; /* NULL between two attempts, and after drop */
    ligi_state state;
    ligi_service service;
    int keyed;           /* the transport has proved a key, which shm and inproc do not */
    ligi_net_key proved; /* then: which one */
    uint64_t tag;        /* of the secret that an accepted peer proved; 0: the endpoint's own */
    int accepted, final; /* final: other addresses or retries cannot succeed */
    int closing, closed; /* by the owner: freed at the end of the round */
    int told;            /* `lost` was called */
    int failing, corked, graceful;
    lig_status status;
    char *sentence;

    ligi_queued_send *first, *last;
    size_t queued;
    uint64_t numbers; /* messages ever queued */

    ligi_frame_prefix prefix; /* of what is arriving */
    int landing, arriving;
    void *landing_token;

    ligi_connect_plan *plan;
    int64_t deadline_ns, heard_ns;
    void *owner;
    char name[64], address[LIGI_ADDRESS_BYTES_MAX];
};

typedef struct ligi_transport_slot {
    const ligi_transport_ops *ops;
    void *self;
} ligi_transport_slot;

typedef struct ligi_served {
    const ligi_net_hooks *hooks; /* NULL: not served */
    void *context;
    int64_t tick_ns;
    _Atomic int hurried; /* its tick is due, regardless of what it requested */
} ligi_served;

struct ligi_net {
    _Atomic int wanting; /* threads that wait for the lock: a spinning holder yields to them */
    pthread_mutex_t lock;
    int depth; /* of calls into transports and hooks: links are freed when it is 0 */
    ligi_net_options options;
    void *secret;
    ligi_net_peer_secret *peers; /* a secret_memory, the bytes of the secrets behind it */
    size_t peer_count;
    char *contexts[LIGI_KEYS]; /* NULL: no such key */
    char *group;
    int bound;        /* to a group: ligi_net_bind was called */
    uint32_t binding; /* changes with the contexts */
    uint8_t net_id[16], boot_id[16];
    ligi_transport_slot slots[LIGI_TRANSPORTS_MAX];
    size_t slot_count;
    ligi_served services[LIGI_SERVICE_COUNT + 1]; /* the last has no hooks: strangers */
    char addresses[LIGI_CARD_ADDRESSES_MAX][LIGI_ADDRESS_BYTES_MAX];
    size_t address_count;

    ligi_link *links, *failing, *dead, *corked;
    ligi_queued_send *finished,
        **finished_end; /* handed over outside a round: `sent` comes in the next */
    int in_round;
    int64_t round_ns; /* when the last one began */
    ligi_queued_send *free_nodes;
    size_t free_node_count;
    _Atomic int hurried; /* a service is */
    int64_t next_ns;     /* ticks, deadlines and alarms: nothing is due before */
    int64_t alarm_ns;    /* the transports' earliest */
    ligi_net_stats stats;

    int epoll, bell;
    ligi_watch bell_watch;
    int glances;            /* how many a round of spinning has */
    int sockets_hot;        /* the last event was reported by epoll */
    int64_t sockets_ns;     /* when epoll was last asked */
    pthread_cond_t changed; /* something happened, or the driver has left */
    size_t waiters;         /* on `changed` */
    size_t callers;         /* threads inside wait */
    uint64_t drives;        /* waits ever begun and ended */
    ligi_driver driver;
    int64_t patience_ns;      /* spun on top of spin_ns */
    int64_t patience_most_ns; /* ligi_net_be_patient */
    int discouraged;          /* sleeps until patience is tried again */
    _Atomic int asleep, rung;
    int closing;

    pthread_t thread;
    int thread_started, thread_stop;
    pthread_cond_t parked;
    int parked_deep; /* a caller sleeps: the last one to leave signals `parked` */

    uint8_t *here; /* ligi_fork_mark_here */
};

#endif
