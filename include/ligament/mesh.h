/* Ligament: the mesh. Workers hold tensors, servers compute on them.
 *
 * A worker pushes tensors to every server and names tensors that the servers fill, in one call:
 *
 *   worker: lig_mesh_push_pull -> handler ............................ lig_mesh_wait(handler)
 *   server:              lig_mesh_get_batch -> views, handler -> compute -> lig_mesh_respond
 *
 * Keys identify buffers and are chosen by the caller; they are neither ordered nor partitioned over servers. A mesh is
 * **shared**: any thread may call it. In a forked child its calls return LIG_E_CLOSED and close frees memory only.
 *
 * Every wait ends: at its timeout, as soon as the connection to a needed peer ends, or when that peer has been silent
 * for `liveness_ns`. LIG_FOREVER waits as long as all needed peers live; a timeout of 0 polls. */
#ifndef LIGAMENT_MESH_H
#define LIGAMENT_MESH_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_mesh lig_mesh;

/* The values are fixed. */
typedef enum lig_mesh_role { LIG_MESH_WORKER = 0, LIG_MESH_SERVER = 1, LIG_MESH_SCHEDULER = 2 } lig_mesh_role;

#define LIG_MESH_MEMBERS_MAX 4096u   /* processes of one mesh */
#define LIG_MESH_TENSORS_MAX 1024u   /* pushed, and pulled from one server, per request */
#define LIG_MESH_NDIM_MAX 8u         /* dimensions of a tensor that is sent */
#define LIG_MESH_REQUESTS_MAX 1024u  /* outstanding requests per worker, and traces that are kept */
#define LIG_MESH_ANY_RANK UINT32_MAX /* assigned by the rendezvous; a single server is 0 */

/* Flags of the options. A scheduler exists, and it alone runs the rendezvous. */
#define LIG_MESH_HAS_SCHEDULER 1u
/* The network between the hosts is trusted: "auto" uses UCX, which does not encrypt, for members on other hosts
 * that set this too, if both have an RDMA device. A secret is still required. */
#define LIG_MESH_TRUSTED_FABRIC 2u
#define LIG_MESH_ANY_DEVICE 4u /* with LIG_MESH_TRUSTED_FABRIC: accept any device that UCX supports, even plain TCP */

/* For jobs that can exchange a few bytes themselves (MPI, PMIx) and need no rendezvous: every process calls
 * with its blob; `all` (count * bytes, by member: servers first, then workers) is filled with those of all.
 * Called once, inside lig_mesh_open, on the calling thread. */
typedef lig_status (*lig_mesh_exchange_fn)(void *context, const void *mine, size_t bytes, void *all, size_t count);

/* Initialised by LIG_MESH_OPTIONS_INIT, borrowed until lig_mesh_open returns. */
typedef struct lig_mesh_options {
    uint32_t role;         /* lig_mesh_role */
    uint32_t rank;         /* within the role, 0 .. count * group_size - 1; or LIG_MESH_ANY_RANK */
    uint32_t worker_count; /* number of groups of workers */
    uint32_t server_count; /* number of groups of servers */
    /* processes per group; member i of a group of workers talks only to member i of every group of servers */
    uint32_t group_size;
    uint32_t flags;        /* LIG_MESH_HAS_SCHEDULER and others, or 0 */
    const char *address;   /* of the rendezvous, "host:port"; with `exchange`, where rank 0 listens (NULL: this host) */
    const char *transport; /* "inproc", "shm", "tcp", "ucx"; NULL or "auto": the best for each pair */
    const char *host;      /* the address of this host as seen by others; NULL: as the rendezvous sees it */
    const void *secret;    /* shared by all members, or NULL: this host only */
    size_t secret_bytes;   /* at least 32 random bytes */
    int64_t timeout_ns;    /* of lig_mesh_open; 0: 60 s */
    int64_t liveness_ns;   /* a peer silent for that long is lost; 0: 10 s */
    int64_t spin_ns;       /* how long a wait spins before it sleeps; 0: 20 us; LIG_FOREVER: it sleeps at once */
    uint64_t receive_bytes;        /* limit of a server's buffers per worker, registered ones not counted; 0: 4 GiB */
    lig_mesh_exchange_fn exchange; /* or NULL: rendezvous at `address` */
    void *exchange_context;
    /* NULL, or polled ten times a second by open and barrier, on the calling thread and without locks: 0 ends
     * that call with LIG_E_CLOSED. Must stay valid until lig_mesh_close. */
    int (*patience)(void *context);
    void *patience_context;
    /* Where a server receives tensors that workers push from device memory: lig_memory, and the number of the device.
     * By default in host memory. */
    uint32_t receive_memory;
    int32_t receive_device;
    uint64_t reserved[5]; /* 0 */
} lig_mesh_options;

#define LIG_MESH_OPTIONS_INIT {0, LIG_MESH_ANY_RANK, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}}

/* Joins the mesh: returns when all members are connected. LIG_E_TIMEOUT names the missing members;
 * LIG_E_DENIED: wrong secret, or an address of another host without one; LIG_E_EXISTS: the rank is taken. The
 * rendezvous is run by the scheduler or server 0, whichever listens at the address first; by the scheduler
 * alone with LIG_MESH_HAS_SCHEDULER. */
LIG_API lig_status lig_mesh_open(lig_mesh **mesh, const lig_mesh_options *options);

/* Leaves the mesh: finishes outstanding requests and notifies peers that this member has stopped. LIG_E_TIMEOUT if
 * that takes longer than `timeout_ns`; the member has left in this case too. A scheduler, and the process that runs
 * the rendezvous, serves until all have stopped or are lost. Every other call then returns LIG_E_CLOSED. */
LIG_API lig_status lig_mesh_stop(lig_mesh *mesh, int64_t timeout_ns);

/* The second half of stop, for callers that wait in short intervals (lig_mesh_settle comes before it, lig_mesh_close
 * after it): notifies peers that this member has stopped, and serves the others if it runs the rendezvous.
 * LIG_E_TIMEOUT if some have not left yet; may be called again. */
LIG_API lig_status lig_mesh_linger(lig_mesh *mesh, int64_t timeout_ns);

/* Frees the mesh; if stop was not called, leaves without waiting. Calls on other threads must have ended. */
LIG_API void lig_mesh_close(lig_mesh *mesh);

/* This member. */
LIG_API uint32_t lig_mesh_rank(const lig_mesh *mesh);
LIG_API uint32_t lig_mesh_role_of(const lig_mesh *mesh);

/* --- workers --- */

/* Tensors need no names. Non-contiguous ones are packed once, and unpacked when the reply has arrived. */
typedef struct lig_mesh_request {
    const lig_tensor *push; /* to every server */
    const uint64_t *push_keys;
    size_t push_count;
    const lig_tensor *pull; /* server-major: pull[s * k + j] is the j-th response of server s */
    const uint64_t *pull_keys;
    size_t pull_count; /* server_count * k */
} lig_mesh_request;

/* Sends one frame to each server and returns; *handler identifies the request, in increasing order. Borrows the
 * push tensors and fills the pull tensors until lig_mesh_wait has returned the result (anything but
 * LIG_E_TIMEOUT); the arrays and shapes themselves until the call returns. LIG_E_LIMIT if LIG_MESH_REQUESTS_MAX
 * are outstanding. */
LIG_API lig_status lig_mesh_push_pull(lig_mesh *mesh, const lig_mesh_request *request, uint64_t *handler);

/* Waits until every server has responded. LIG_E_TIMEOUT: the request continues. LIG_E_PEER names the lost
 * server; the contents of pull tensors are then undefined, and nothing writes to them any more. If a server
 * refuses (LIG_E_LIMIT, LIG_E_MISMATCH, ...), its error text is returned. The last LIG_MESH_REQUESTS_MAX
 * requests are remembered, older ones are LIG_E_NOTFOUND. */
LIG_API lig_status lig_mesh_wait(lig_mesh *mesh, uint64_t handler, int64_t timeout_ns);

/* --- device memory ---
 * Tensors in device memory (LIG_MEMORY_CUDA) are contiguous, and all of a member are on one device. The calls above
 * and below take them as they are: their values must be ready, and lig_mesh_wait returns when pulled ones are
 * complete. The calls with a stream (a CUstream; NULL is the legacy default stream, 1 and 2 as in DLPack) are
 * ordered by the stream instead: push_pull_on and respond_on read the tensors after the work that is queued on the
 * stream now, and work that is queued later may overwrite them; wait_on makes the stream wait for the answer and
 * fill the pull tensors, and returns at once. If a request fails, the stream continues, and the next push_pull or
 * wait of this mesh returns the error. If respond_on fails after a part of it was queued, the request is refused
 * once the stream has run that part, and the handler cannot be answered again (LIG_E_NOTFOUND). On a stream that is
 * being captured into a CUDA graph, every replay makes the call; a response goes to the oldest request of the same
 * worker that was taken and not answered, and the next get_batch returns its failure. A captured push_pull needs its
 * wait in the same graph; a replay waits until the request of the previous one has ended. */
LIG_API lig_status lig_mesh_push_pull_on(lig_mesh *mesh, const lig_mesh_request *request, void *stream,
                                         uint64_t *handler);
LIG_API lig_status lig_mesh_wait_on(lig_mesh *mesh, uint64_t handler, void *stream, int64_t timeout_ns);
LIG_API lig_status lig_mesh_respond_on(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                                       void *stream, int64_t timeout_ns);

typedef struct lig_mesh_rows { /* the arguments of lig_mesh_respond_vec */
    const lig_tensor *buffer;
    const int64_t *rows;
    const uint64_t *handlers;
    size_t count;
} lig_mesh_rows;

LIG_API lig_status lig_mesh_respond_vec_on(lig_mesh *mesh, const lig_mesh_rows *rows, void *stream, int64_t timeout_ns);

/* Allocates device memory that servers on this host can open: tensors in it are not copied by push_pull, and servers
 * write pulled ones there. It stays until lig_mesh_hold_drop, even after lig_mesh_close. */
typedef struct lig_mesh_hold lig_mesh_hold;
LIG_API lig_status lig_mesh_empty_on(lig_mesh *mesh, int32_t device, uint64_t bytes, void **data, lig_mesh_hold **hold);

/* 1 if lig_mesh_wait would not block. Makes progress once and never blocks. */
LIG_API int lig_mesh_done(lig_mesh *mesh, uint64_t handler);

/* Cancels a request: lig_mesh_wait then returns LIG_E_CLOSED unless it was already answered. The tensors stay
 * borrowed until then, because a server may still write to them. */
LIG_API lig_status lig_mesh_cancel(lig_mesh *mesh, uint64_t handler);

/* Fills *count and up to `room` numbers: the handler and the following ones of the same call, one per push
 * tensor and one per pull tensor of a server. After the wait only the handler itself. */
LIG_API lig_status lig_mesh_get_all_handlers(lig_mesh *mesh, uint64_t handler, uint64_t *handlers, size_t room,
                                             size_t *count);

/* The eight stamps of a request that has ended, in nanoseconds of this host's lig_mesh_nanosecond:
 *   0 push_pull began   1 request posted     2 request arrived   3 taken by get_batch   (2..5 in the server,
 *   4 respond began     5 response posted    6 response arrived  7 wait notified        converted to this clock)
 * `handler` is any handler of the request (lig_mesh_get_all_handlers): they all have the stamps of their request.
 * With several servers they are those of the last response. Between hosts, the offset of the clocks is estimated
 * from the fastest of many exchanges. */
#define LIG_MESH_STAMPS 8
LIG_API lig_status lig_mesh_fetch_trace(lig_mesh *mesh, uint64_t handler, uint64_t stamps[LIG_MESH_STAMPS]);
LIG_API uint64_t lig_mesh_nanosecond(void);

/* --- servers --- */

/* A request as its server sees it. The memory belongs to the library and is valid until the handler has been
 * responded to; until then no later push changes the tensors. A push to a registered buffer that an unanswered
 * request still uses is delivered after that request's respond. */
typedef struct lig_mesh_arrival {
    uint64_t handler;
    uint32_t worker; /* rank of the worker's group */
    uint32_t tensor_count;
    uint32_t pull_count;
    uint32_t reserved;
    const lig_tensor *tensors; /* as pushed, contiguous */
    const uint64_t *keys;
    const lig_tensor *pulls; /* what respond must provide: dtypes, shapes, bytes; no data */
    const uint64_t *pull_keys;
} lig_mesh_arrival;

/* The values are fixed. */
typedef enum lig_mesh_mode {
    LIG_MESH_ALL = 0, /* one request from every worker, in rank order */
    LIG_MESH_ANY = 1  /* one request from each worker that has one, at least one in all */
} lig_mesh_mode;

/* Takes requests: at most `room` arrivals (at least the number of worker groups for LIG_MESH_ALL). LIG_E_PEER
 * if a needed worker is lost (any: if all are), LIG_E_CLOSED if it has stopped; nothing is taken then, and the
 * call works again when the worker has rejoined. */
LIG_API lig_status lig_mesh_get_batch(lig_mesh *mesh, uint32_t mode, int64_t timeout_ns, lig_mesh_arrival *arrivals,
                                      size_t room, size_t *count);

/* Keeps the memory of an arrival's tensors unchanged beyond its respond (except in a registered buffer): it is
 * not reused before the release, which may be called on any thread and after lig_mesh_close. Call it before the
 * respond. */
LIG_API lig_status lig_mesh_hold_take(lig_mesh *mesh, uint64_t handler, lig_mesh_hold **hold);
LIG_API void lig_mesh_hold_drop(lig_mesh_hold *hold);

/* Answers a request: tensors[i] is for the i-th pull and must equal it in dtype and bytes. A request without
 * pulls is answered with none. LIG_E_NOTFOUND: no such handler, or already answered; LIG_E_MISMATCH changes
 * nothing, so a correct answer can follow; LIG_E_PEER: the worker is lost, and the handler is released. Returns
 * when the tensors may be written again; LIG_E_TIMEOUT: they are being sent and stay borrowed until
 * lig_mesh_settle. */
LIG_API lig_status lig_mesh_respond(lig_mesh *mesh, uint64_t handler, const lig_tensor *tensors, size_t count,
                                    int64_t timeout_ns);

/* Answers `count` requests of one pull each with the first rows[i] rows of `buffer`. All are tried; the first
 * failure is returned, and the buffer may then be borrowed until lig_mesh_settle. */
LIG_API lig_status lig_mesh_respond_vec(lig_mesh *mesh, const lig_tensor *buffer, const int64_t *rows,
                                        const uint64_t *handlers, size_t count, int64_t timeout_ns);

/* Answers a request with a status (not LIG_OK) and an error text, which the worker's wait returns. */
LIG_API lig_status lig_mesh_refuse(lig_mesh *mesh, uint64_t handler, lig_status status, const char *text);

/* Waits until this member has nothing outstanding: its requests have ended, and no response borrows a
 * tensor. */
LIG_API lig_status lig_mesh_settle(lig_mesh *mesh, int64_t timeout_ns);

/* The i-th of `count` equal slices of `buffer` becomes the receive buffer for pushes of worker workers[i] under
 * keys[i], from its next request on; larger pushes are rejected. The memory is used until the mesh is closed or
 * another call registers a different buffer for the key. */
LIG_API lig_status lig_mesh_register_recv_buffer(lig_mesh *mesh, const lig_tensor *buffer, const uint32_t *workers,
                                                 const uint64_t *keys, size_t count);

/* --- all members --- */

#define LIG_MESH_WITH_SERVERS 1u
#define LIG_MESH_WITH_WORKERS 2u

/* Returns when all members of the named roles, the caller's among them, have called it. */
LIG_API lig_status lig_mesh_barrier(lig_mesh *mesh, uint32_t with, int64_t timeout_ns);

/* The values are fixed. */
typedef enum lig_mesh_state {
    LIG_MESH_AWAITED = 0, /* has not joined yet */
    LIG_MESH_ALIVE = 1,
    LIG_MESH_LOST = 2,
    LIG_MESH_STOPPED = 3 /* has left normally */
} lig_mesh_state;

typedef struct lig_mesh_member {
    uint32_t role;
    uint32_t rank;
    uint32_t state;       /* lig_mesh_state */
    uint32_t incarnation; /* how many processes have had this rank so far */
    char host[256];       /* or "" */
    char transport[16];   /* between it and this member, or "" */
    uint64_t reserved[4];
} lig_mesh_member;

/* Fills up to `room` members and *count, the total: servers by rank, then workers. */
LIG_API lig_status lig_mesh_members(lig_mesh *mesh, lig_mesh_member *members, size_t room, size_t *count);

/* Allocates memory that other processes on this host can map: tensors in it are not copied for them. A registered
 * buffer takes precedence. It stays until lig_mesh_free, even after lig_mesh_close (then pass NULL as mesh). */
LIG_API lig_status lig_mesh_empty(lig_mesh *mesh, uint64_t bytes, void **data);
LIG_API void lig_mesh_free(lig_mesh *mesh, void *data);

/* A file descriptor for poll and similar, borrowed: readable when lig_mesh_done, or get_batch with timeout 0,
 * should be called. */
LIG_API int lig_mesh_fileno(lig_mesh *mesh);

typedef struct lig_mesh_stats {
    uint64_t requests, responses;        /* worker: sent, received; server: received, sent */
    uint64_t bytes_pushed, bytes_pulled; /* of tensors, both ways, including those passed without a copy */
    uint64_t bytes_shared;               /* of these: passed without a copy */
    uint64_t refused, failed;            /* requests */
    uint64_t in_flight;                  /* now */
    uint64_t buffer_bytes;               /* receive buffers, now */
    uint64_t peers_lost, peers_rejoined;
    uint64_t clock_offset_ns_max; /* largest estimate of an offset to a peer */
    uint64_t reserved[8];
} lig_mesh_stats;

LIG_API lig_status lig_mesh_stats_get(lig_mesh *mesh, lig_mesh_stats *stats);

/* From now on appends every completed request to "<folder>/<role>-<rank>.trace" (the folder is created); NULL
 * ends it. `ligament trace FOLDER` merges the files of all members into one timeline. */
LIG_API lig_status lig_mesh_trace_to(lig_mesh *mesh, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
