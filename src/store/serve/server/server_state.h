/* A server and its parts, for the files of this folder.
 *
 * Threads: the driver makes all progress of the endpoint and runs the hooks (server_receive.c),
 * which must not block, and short requests (server_driver.c); workers run the others
 * (server_queue.c), small saves in groups that share a sync; each large save has a thread
 * (server_uploads.c); one thread waits for commits while a client watches (server_watch.c).
 *
 * Locks, outer first: the endpoint's; then one of a session's, the queue's, the driver's, the
 * uploads', the watches', the locks'. None of the latter is held over a call of net or of the
 * store. */
#ifndef LIGI_SERVER_STATE_H
#define LIGI_SERVER_STATE_H

#include "base/ticket.h"
#include "net/link/link.h"
#include "net/net.h"
#include "store/handle.h"
#include "store/serve/message/served_head.h"
#include "store/serve/roles/role_file.h"
#include "store/serve/server/server_buffers.h"

#include <ligament/serve.h>

#define LIGI_SERVED_READ_BYTES_MAX (UINT64_C(8) << 20)
#define LIGI_SERVED_REQUESTS_MAX 256 /* of one session at one time */
#define LIGI_SERVED_HELD_MAX 65536   /* refs, matches, parts and locks of one session */
#define LIGI_SERVED_GROUP_MAX 16     /* small saves that share a sync */

typedef struct ligi_served_session ligi_served_session;
typedef struct ligi_served_upload ligi_served_upload;
typedef struct ligi_served_held ligi_served_held;

/* A request that has arrived, or work that a hook may not do itself. */
typedef struct ligi_served_job {
    struct ligi_served_job *next;
    struct ligi_served_job *next_running;      /* in its session, for CANCEL */
    struct ligi_served_job **at_running;       /* what points to it there; NULL: nothing does */
    ligi_served_session *session;              /* held; NULL for the server's own */
    void (*work)(struct ligi_served_job *job); /* not a request; frees the job */
    void *context;                             /* of `work` */
    ligi_served_head head;
    uint8_t *memory; /* body and data, as they came */
    const uint8_t *body, *data;
    uint64_t data_bytes;
    struct iovec iov;
    int64_t received_ns;
    uint64_t charge; /* bytes in flight */
    atomic_int cancelled;
} ligi_served_job;

typedef struct ligi_served_jobs {
    ligi_served_job *first, **end;
} ligi_served_jobs;

/* Jobs, in three lists: small saves are run by few workers, each many in a row with one sync;
 * changes, which may wait for other processes, never by all workers. */
typedef struct ligi_served_queue {
    struct ligi_served_worker *workers;
    size_t worker_count, worker_max; /* that have started, that there will be */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t filled, emptied;
    ligi_served_jobs jobs, changes, saves;
    size_t waiting; /* jobs in all lists */
    size_t running;
    size_t idle;     /* workers that wait */
    size_t savers;   /* workers that run jobs of `saves` */
    size_t changers; /* workers that run jobs of `saves` or `changes` */
    int closed;
} ligi_served_queue;

/* A request being answered. */
typedef struct ligi_served_call {
    struct lig_server *server;
    lig_store *store;
    ligi_served_session *session;
    ligi_served_job *job;
    ligi_writer body; /* of the reply */
    uint8_t *data;    /* likewise; of the server's buffers */
    uint64_t data_bytes;
    uint64_t version;
    uint64_t charge; /* bytes in flight, of the reply */
    int later;       /* the reply comes from elsewhere, which has the job now */
} ligi_served_call;

typedef struct ligi_served_worker {
    struct lig_server *server;
    lig_store *store; /* a separate handle, which holds the state of one request */
    lig_ticket *thread;
    ligi_served_job *job; /* the request that runs; NULL: none, or not a request */
    int saver, changer;   /* counts in `savers`, in `changers` */
    int saved;            /* ran saves last: other jobs are next */
    lig_catalog_pending pending;
    ligi_served_call unsynced[LIGI_SERVED_GROUP_MAX]; /* saves that are done when `pending` is */
    size_t unsynced_count;
} ligi_served_worker;

/* The thread that receives, and the one that receives while that runs a request for long. */
typedef struct ligi_served_driver {
    ligi_served_worker worker;
    lig_ticket *relief;
    ligi_served_job *first, **end; /* requests that it has taken; guarded by the endpoint's lock */
    size_t count, releases;        /* likewise: all of them, and those that are RELEASE */
    int receiving, relieved;       /* likewise: which of the two receives */
    atomic_uint mean_ns[LIGI_SERVED_OP_END];
    atomic_int_fast64_t since_ns; /* when it began the request that it runs; 0: none */
    atomic_int patient;           /* the last request was short: the next may come soon */
    atomic_int watched;           /* the relief watches since_ns */
    pthread_mutex_t lock;         /* guards the next */
    pthread_cond_t changed;
    int closed;
} ligi_served_driver;

typedef struct ligi_served_locks {
    pthread_mutex_t lock; /* guards the list */
    struct ligi_served_lock *first;
} ligi_served_locks;

typedef struct ligi_served_watches {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    ligi_served_job *parked;
    lig_ticket *thread;
    int closed;
} ligi_served_watches;

typedef struct ligi_served_uploads {
    pthread_mutex_t lock; /* guards all below, and the members of uploads that say so */
    pthread_cond_t changed;
    size_t count, active, open;  /* threads; with buffers; in parts */
    uint64_t bytes;              /* in flight, of those with buffers */
    ligi_served_upload *waiting; /* for buffers; first come, first served */
} ligi_served_uploads;

struct lig_server {
    pid_t pid;
    lig_store *store; /* for work outside of the workers */
    ligi_net *net;
    lig_server_options options; /* the values in force; the texts are below */
    char *listen, *secret_file, *address_file;
    ligi_quota *quotas, *keeps; /* a rule of `keeps` has a number of models in place of bytes */
    size_t quota_count, keep_count;
    char address[LIGI_ADDRESS_BYTES_MAX];
    uint8_t card[LIGI_CARD_BYTES_MAX];
    size_t card_bytes;
    uint8_t boot_id[16];
    int same_boot_known;
    uint64_t client_bytes_max;
    atomic_int closing;                          /* the driver ends */
    atomic_int stopping;                         /* no new clients and requests */
    struct ligi_served_descriptors *descriptors; /* NULL: the store has no files */

    pthread_mutex_t lock; /* guards the next */
    pthread_cond_t changed;
    int asked; /* a client has asked for a shutdown, or stop was called */

    ligi_served_session *sessions; /* guarded by the endpoint's lock, like the next ones */
    ligi_served_role_file roles;   /* none: everybody is an admin */
    uint64_t next_tag;             /* of a role */
    int64_t purge_ns;              /* when retired models are checked next */
    atomic_uint session_count;
    uint64_t next_session;
    struct ligi_served_delayed *delayed, **delayed_end; /* replies that the rate holds back */
    int64_t rate_free_ns;                               /* when the next may be sent */

    ligi_served_driver driver;
    ligi_served_queue queue;
    ligi_served_locks locks;
    ligi_served_watches watches;
    ligi_served_uploads uploads;
    ligi_served_buffers buffers;

    atomic_uint_fast64_t flight, requests, refused, dropped, held;
    atomic_uint_fast64_t held_bytes; /* descriptions of what clients hold */
};

/* A client's connection. */
struct ligi_served_session {
    struct lig_server *server;
    ligi_served_session *before, *after; /* in the server's list, under the endpoint's lock */
    ligi_link *link;                     /* NULL: ended; guarded by the endpoint's lock */
    ligi_served_job *receiving;          /* likewise: the one whose payload is arriving */
    ligi_served_upload *uploads;         /* likewise */
    ligi_served_upload *landing;         /* likewise: the one whose data are arriving */
    int64_t stalled_ns; /* likewise: since when replies have been waiting to be sent; 0: none are */
    size_t unsent;      /* likewise: replies that are being sent */
    uint64_t number;
    uint8_t client[LIGI_SERVED_CLIENT_BYTES];
    uint32_t pid;
    char host[LIGI_SERVED_HOST_BYTES_MAX + 1];
    int same_host;
    ligi_served_role role;
    uint8_t pass[LIGI_SERVED_PASS_BYTES]; /* guarded by the endpoint's lock; zeros: none, or used */
    atomic_uint denials;                  /* requests that the role may not make */
    atomic_int users;
    atomic_int ended;
    atomic_uint_fast64_t flight;
    atomic_uint requests; /* that have no reply yet */

    pthread_mutex_t lock; /* guards all below */
    ligi_served_held **held;
    size_t held_count, held_capacity;
    uint64_t held_bytes;
    uint64_t next_number;
    ligi_served_job *running;

    size_t active_uploads, open_uploads; /* guarded by the lock of the server's uploads */
};

#endif
