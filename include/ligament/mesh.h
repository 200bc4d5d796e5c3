/* Ligament: the mesh. Workers hold tensors, servers compute on them.
 *
 * One call of a worker pushes tensors to every server and names tensors that the servers fill:
 *
 *   worker: lig_mesh_push_pull -> handler ............................ lig_mesh_wait(handler)
 *   server:              lig_mesh_get_batch -> views, handler -> compute -> lig_mesh_respond
 *
 * Keys are names of buffers, chosen by the caller; they have no order and are not spread over servers. A mesh is
 * **shared**: any thread may call it. In a forked child its calls return LIG_E_CLOSED and close frees memory only.
 *
 * Every wait ends: at its timeout, when the connection of a peer that it needs ends (at once), or when that peer has
 * been silent for `liveness_ns`. LIG_FOREVER waits as long as all needed peers live; 0 asks and does not wait. */
#ifndef LIGAMENT_MESH_H
#define LIGAMENT_MESH_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_mesh lig_mesh;

/* Pinned. */
typedef enum lig_mesh_role { LIG_MESH_WORKER = 0, LIG_MESH_SERVER = 1, LIG_MESH_SCHEDULER = 2 } lig_mesh_role;

#define LIG_MESH_MEMBERS_MAX 4096u   /* processes of one mesh */
#define LIG_MESH_TENSORS_MAX 1024u   /* pushed, and asked of one server, by one request */
#define LIG_MESH_NDIM_MAX 8u         /* of a tensor that travels */
#define LIG_MESH_REQUESTS_MAX 1024u  /* of one worker that are not answered yet; traces that are kept */
#define LIG_MESH_ANY_RANK UINT32_MAX /* the rendezvous gives one out; the only server is 0 */

/* Flags of the options. There is a scheduler, and it alone holds the rendezvous. */
#define LIG_MESH_HAS_SCHEDULER 1u
/* The network between the hosts is nobody else's: "auto" takes UCX, which does not encrypt, to members on other hosts
 * that say the same, where both have an RDMA device. A secret is needed all the same. */
#define LIG_MESH_TRUSTED_FABRIC 2u
#define LIG_MESH_ANY_DEVICE 4u /* with it: whatever UCX has, if it is only TCP */

/* How a job that has its own way to exchange a few bytes (MPI, PMIx) does without a rendezvous: every process calls
 * with its blob; `all` (count * bytes, by member: servers first, then workers) is filled with everybody's. Called
 * once, inside lig_mesh_open, on the calling thread. */
typedef lig_status (*lig_mesh_exchange_fn)(void *context, const void *mine, size_t bytes, void *all, size_t count);

/* Made by LIG_MESH_OPTIONS_INIT, borrowed until lig_mesh_open returns. */
typedef struct lig_mesh_options {
    uint32_t role;         /* lig_mesh_role */
    uint32_t rank;         /* within the role, 0 .. count * group_size - 1; or LIG_MESH_ANY_RANK */
    uint32_t worker_count; /* groups of workers, */
    uint32_t server_count; /* and of servers */
    /* processes in a group; member i of a group of workers talks to member i of every group of servers alone */
    uint32_t group_size;
    uint32_t flags;         /* LIG_MESH_HAS_SCHEDULER and others, or 0 */
    const char *address;    /* of the rendezvous, "host:port"; with `exchange` where rank 0 listens, NULL: this host */
    const char *transport;  /* "inproc", "shm", "tcp", "ucx"; NULL or "auto": the best, for each pair */
    const char *host;       /* what others call this host; NULL: as the rendezvous sees it */
    const void *secret;     /* shared by all, or NULL: this host only */
    size_t secret_bytes;    /* at least 32, random ones */
    int64_t timeout_ns;     /* of lig_mesh_open; 0: a minute */
    int64_t liveness_ns;    /* a peer silent for so long is lost; 0: 10 s */
    int64_t spin_ns;        /* how long a wait looks before it sleeps; 0: 20 us, LIG_FOREVER: it sleeps at once */
    uint64_t receive_bytes; /* limit of a server's buffers for one worker, besides registered ones; 0: 4 GiB */
    lig_mesh_exchange_fn exchange; /* or NULL: rendezvous at `address` */
    void *exchange_context;
    /* NULL, or asked ten times a second by open and barrier, on the thread that waits in them and without locks: 0
     * ends that call with LIG_E_CLOSED. It stays in use until lig_mesh_close. */
    int (*patience)(void *context);
    void *patience_context;
    uint64_t reserved[6]; /* 0 */
} lig_mesh_options;

#define LIG_MESH_OPTIONS_INIT {0, LIG_MESH_ANY_RANK, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}}

/* Joins: returns when all members are there and connected. LIG_E_TIMEOUT names those that are missing; LIG_E_DENIED a
 * wrong secret, or an address of another host without one; LIG_E_EXISTS a rank that is taken. The rendezvous is held
 * by the scheduler or server 0, whoever is first at the address; by the scheduler alone with LIG_MESH_HAS_SCHEDULER. */
LIG_API lig_status lig_mesh_open(lig_mesh **mesh, const lig_mesh_options *options);

/* Leaves in order: what is under way is finished, peers learn that this member has stopped. LIG_E_TIMEOUT when that
 * took longer; the member has left all the same. A scheduler, and who holds the rendezvous, serves until all have
 * stopped or are lost. Every other call ends with LIG_E_CLOSED from then on. */
LIG_API lig_status lig_mesh_stop(lig_mesh *mesh, int64_t timeout_ns);

/* The second half of stop, for callers that wait in slices (lig_mesh_settle is the first, lig_mesh_close the last):
 * peers learn that this member has stopped, and who holds the rendezvous serves the others. LIG_E_TIMEOUT when some are
 * left; it may be called again. */
LIG_API lig_status lig_mesh_linger(lig_mesh *mesh, int64_t timeout_ns);

/* Frees; leaves without waiting when it has not been stopped. Calls on other threads must have ended. */
LIG_API void lig_mesh_close(lig_mesh *mesh);

/* This member. */
LIG_API uint32_t lig_mesh_rank(const lig_mesh *mesh);
LIG_API uint32_t lig_mesh_role_of(const lig_mesh *mesh);

/* --- workers --- */

/* Tensors need no names. Those that are not contiguous are packed once, and unpacked when the reply is there. */
typedef struct lig_mesh_request {
    const lig_tensor *push; /* to every server */
    const uint64_t *push_keys;
    size_t push_count;
    const lig_tensor *pull; /* server-major: pull[s * k + j] is the j-th answer of server s */
    const uint64_t *pull_keys;
    size_t pull_count; /* server_count * k */
} lig_mesh_request;

/* Sends one frame to each server and returns; *handler names the request, in increasing order. Borrows the push
 * tensors and fills the pull tensors until lig_mesh_wait has said how it ended (all but LIG_E_TIMEOUT); the arrays
 * and shapes themselves until the call returns. LIG_E_LIMIT when LIG_MESH_REQUESTS_MAX are not answered yet. */
LIG_API lig_status lig_mesh_push_pull(lig_mesh *mesh, const lig_mesh_request *request, uint64_t *handler);

/* Waits until every server has responded. LIG_E_TIMEOUT: it goes on. LIG_E_PEER names the server that is lost; the
 * contents of pull tensors are then a mixture, and nothing writes to them any more. A server's refusal (LIG_E_LIMIT,
 * LIG_E_MISMATCH, ...) comes with its sentence. The last LIG_MESH_REQUESTS_MAX requests are remembered, older ones
 * are LIG_E_NOTFOUND. */
LIG_API lig_status lig_mesh_wait(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns);

/* 1 when lig_mesh_wait would not wait. Looks for news once and never blocks. */
LIG_API int lig_mesh_done(lig_mesh *mesh, uint64_t handler);

/* Gives a request up: lig_mesh_wait ends with LIG_E_CLOSED unless it was answered already. The tensors stay borrowed
 * until then, since a server may be writing. */
LIG_API lig_status lig_mesh_cancel(lig_mesh *mesh, uint64_t handler);

/* Fills *count and up to `room` numbers: the handler and those after it that belong to the same call, one a push
 * tensor and one a pull tensor of a server. After the wait it is the handler alone. */
LIG_API lig_status lig_mesh_get_all_handlers(lig_mesh *mesh, uint64_t handler, uint64_t *handlers, size_t room,
                                             size_t *count);

/* The eight stamps of a request that has ended, in nanoseconds of this host's lig_mesh_nanosecond:
 *   0 push_pull began   1 request posted     2 request arrived   3 taken by get_batch   (2..5 in the server,
 *   4 respond began     5 response posted    6 response arrived  7 wait told            brought to this clock)
 * With several servers they are those of the last to answer. Between hosts the clocks' offset is estimated from the
 * fastest of many exchanges. */
#define LIG_MESH_STAMPS 8
LIG_API lig_status lig_mesh_fetch_trace(lig_mesh *mesh, uint64_t handler, uint64_t stamps[LIG_MESH_STAMPS]);
LIG_API uint64_t lig_mesh_nanosecond(void);

/* --- servers --- */

/* A request as its server sees it. The memory is the library's, valid until the handler has been responded to; until
 * then no later push changes the tensors. A push to a registered buffer that an unanswered request still fills is
 * handed out after that one's respond. */
typedef struct lig_mesh_arrival {
    uint64_t handler;
    uint32_t worker; /* rank of the worker's group */
    uint32_t tensor_count;
    uint32_t pull_count;
    uint32_t reserved;
    const lig_tensor *tensors; /* as pushed, contiguous */
    const uint64_t *keys;
    const lig_tensor *pulls; /* what respond must give: dtypes, shapes, bytes; no data */
    const uint64_t *pull_keys;
} lig_mesh_arrival;

/* Pinned. */
typedef enum lig_mesh_mode {
    LIG_MESH_ALL = 0, /* one request of every worker, in order of their ranks */
    LIG_MESH_ANY = 1  /* one request of each worker that has one, at least one in all */
} lig_mesh_mode;

/* Takes requests: `room` (at least the number of worker groups for LIG_MESH_ALL) arrivals at most. LIG_E_PEER when a
 * needed worker is lost (any: when all are), LIG_E_CLOSED when it has stopped; nothing is taken then, and the call
 * works again when the worker has joined again. */
LIG_API lig_status lig_mesh_get_batch(lig_mesh *mesh, uint32_t mode, int64_t timeout_ns, lig_mesh_arrival *arrivals,
                                      size_t room, size_t *count);

/* Keeps the memory of an arrival's tensors as it is beyond its respond (that of a registered buffer excepted): no push
 * lands there before the release, which may come on any thread and after lig_mesh_close. Call it before the respond. */
typedef struct lig_mesh_hold lig_mesh_hold;
LIG_API lig_status lig_mesh_hold_take(lig_mesh *mesh, uint64_t handler, lig_mesh_hold **hold);
LIG_API void lig_mesh_hold_drop(lig_mesh_hold *hold);

/* Answers a request: tensors[i] is the i-th pull's, equal to it in dtype and bytes. A request without pulls is
 * answered with none. LIG_E_NOTFOUND: no such handler, or answered already; LIG_E_MISMATCH changes nothing, so that a
 * right answer can follow; LIG_E_PEER: the worker is lost, and the handler is done with. Returns when the tensors may
 * be written again; LIG_E_TIMEOUT: they are on their way and stay borrowed until lig_mesh_settle. */
LIG_API lig_status lig_mesh_respond(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                                    int64_t timeout_ns);

/* Answers `count` requests of one pull each with the first rows of `buffer`: as many as rows[i] says. All are tried;
 * the first failure is returned, and the buffer may then be borrowed until lig_mesh_settle. */
LIG_API lig_status lig_mesh_respond_vec(lig_mesh *mesh, const lig_tensor *buffer, const int64_t *rows,
                                        const uint64_t *handlers, size_t count, int64_t timeout_ns);

/* Answers a request with a status (not LIG_OK) and a sentence, which the worker's wait gives. */
LIG_API lig_status lig_mesh_refuse(lig_mesh *mesh, uint64_t handler, lig_status status, const char *sentence);

/* Waits until nothing of this member is under way: its requests have ended, and no response borrows a tensor. */
LIG_API lig_status lig_mesh_settle(lig_mesh *mesh, int64_t timeout_ns);

/* The i-th of `count` equal slices of `buffer` becomes the landing place of what worker workers[i] pushes under
 * keys[i], from its next request on; larger pushes are refused. The memory is kept until the mesh is closed or the
 * same call names another place for the key. */
LIG_API lig_status lig_mesh_register_recv_buffer(lig_mesh *mesh, const lig_tensor *buffer, const uint32_t *workers,
                                                 const uint64_t *keys, size_t count);

/* --- all --- */

#define LIG_MESH_WITH_SERVERS 1u
#define LIG_MESH_WITH_WORKERS 2u

/* Returns when all members of the named roles, the caller's among them, have called it. */
LIG_API lig_status lig_mesh_barrier(lig_mesh *mesh, uint32_t with, int64_t timeout_ns);

/* Pinned. */
typedef enum lig_mesh_state {
    LIG_MESH_AWAITED = 0, /* not here yet */
    LIG_MESH_ALIVE = 1,
    LIG_MESH_LOST = 2,
    LIG_MESH_STOPPED = 3 /* has left in order */
} lig_mesh_state;

typedef struct lig_mesh_member {
    uint32_t role;
    uint32_t rank;
    uint32_t state;       /* lig_mesh_state */
    uint32_t incarnation; /* how many have had this rank so far */
    char host[256];       /* or "" */
    char transport[16];   /* between it and this member, or "" */
    uint64_t reserved[4];
} lig_mesh_member;

/* Fills up to `room` members and *count, the number there are: servers by rank, then workers. */
LIG_API lig_status lig_mesh_members(lig_mesh *mesh, lig_mesh_member *members, size_t room, size_t *count);

/* Memory that other processes of this host can map: tensors in it move no bytes there. A registered buffer wins over
 * that. It stays until lig_mesh_free, also after lig_mesh_close (then with mesh NULL). */
LIG_API lig_status lig_mesh_empty(lig_mesh *mesh, uint64_t bytes, void **data);
LIG_API void lig_mesh_free(lig_mesh *mesh, void *data);

/* A file descriptor for poll and its kind, borrowed: readable when lig_mesh_done, or get_batch with timeout 0, should
 * be called. */
LIG_API int lig_mesh_fileno(lig_mesh *mesh);

typedef struct lig_mesh_stats {
    uint64_t requests, responses;        /* worker: sent, received; server: received, sent */
    uint64_t bytes_pushed, bytes_pulled; /* of tensors, both ways; those that moved no bytes count as well */
    uint64_t bytes_shared;               /* of these: moved no bytes */
    uint64_t refused, failed;            /* requests */
    uint64_t in_flight;                  /* now */
    uint64_t buffer_bytes;               /* receive buffers, now */
    uint64_t peers_lost, peers_rejoined;
    uint64_t clock_offset_ns_max; /* largest estimate of an offset to a peer */
    uint64_t reserved[8];
} lig_mesh_stats;

LIG_API lig_status lig_mesh_stats_get(lig_mesh *mesh, lig_mesh_stats *stats);

/* From now on appends every request that ends to "<folder>/<role>-<rank>.trace" (the folder is made); NULL ends it.
 * `ligament trace FOLDER` makes one timeline of the files of all members. */
LIG_API lig_status lig_mesh_trace_to(lig_mesh *mesh, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
