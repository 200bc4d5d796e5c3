/* Ligament: the parameter manager. Rows of numbers, spread over processes (nodes), found by an integer key.
 *
 *   node:   lig_params_open(tables) ......................................... lig_params_shutdown, lig_params_close
 *   worker: lig_params_worker_open -> intent, advance_clock, pull, push, set -> lig_params_worker_finalize, _close
 *
 * A worker says which keys it will touch, and when on its own clock (intent); the nodes move rows, or copy them, to
 * where they will be wanted before they are. Access without intent is right as well, only slower.
 *
 * What holds, always:
 *   - One access of one key is atomic; accesses of several keys are not atomic together.
 *   - What one worker issues on one key takes effect in the order of issue, also when it is not waited for, and while
 *     the row moves. In one call that is the order of its keys: of a key that is set twice the last value counts.
 *   - Every push takes effect once. Copies of a row converge to the owner's bytes once nobody pushes.
 *
 * lig_params is **shared**. A worker belongs to one thread at a time; there are `worker_count` of them on each node. In
 * a forked child all calls return LIG_E_CLOSED and close frees memory only. Every wait ends: at its timeout, or with
 * LIG_E_PEER as soon as a node is lost; what the job had is then in its last save. */
#ifndef LIGAMENT_PARAMS_H
#define LIGAMENT_PARAMS_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_params lig_params;
typedef struct lig_params_worker lig_params_worker;

#define LIG_PARAMS_NODES_MAX 1024u
#define LIG_PARAMS_WORKERS_MAX 1024u       /* of one node */
#define LIG_PARAMS_TABLES_MAX 64u          /* of one job */
#define LIG_PARAMS_LENGTH_MAX 65536u       /* elements of a row */
#define LIG_PARAMS_HASHED_SHIFT 56         /* of a table's number in a hashed key */
#define LIG_PARAMS_LOCAL (INT64_C(-1))     /* a ticket: nothing is left to wait for */
#define LIG_PARAMS_FOREVER_CLOCK INT64_MAX /* an intent that never ends */

/* Pinned. */
typedef enum lig_params_role { LIG_PARAMS_NODE = 0, LIG_PARAMS_SCHEDULER = 1 } lig_params_role;
typedef enum lig_params_techniques {
    LIG_PARAMS_ALL = 0, /* one interested node: the row moves there; several: they get copies */
    LIG_PARAMS_REPLICATION_ONLY = 1,
    LIG_PARAMS_RELOCATION_ONLY = 2
} lig_params_techniques;
typedef enum lig_params_optimizer_kind {
    LIG_PARAMS_ADD = 0, /* push adds */
    LIG_PARAMS_SGD = 1, /* push is a gradient from here on */
    LIG_PARAMS_ADAGRAD = 2,
    LIG_PARAMS_ROWWISE_ADAGRAD = 3,
    LIG_PARAMS_ADAM = 4 /* its rows are moved, never copied: its state is not a sum */
} lig_params_optimizer_kind;
typedef enum lig_params_init_kind {
    LIG_PARAMS_ZERO = 0,
    LIG_PARAMS_CONSTANT = 1, /* a */
    LIG_PARAMS_UNIFORM = 2,  /* a <= x < b */
    LIG_PARAMS_NORMAL = 3    /* mean a, deviation b */
} lig_params_init_kind;

typedef struct lig_params_optimizer {
    uint32_t kind; /* float32, float64, bfloat16 rows only, except ADD */
    uint32_t reserved;
    double lr, eps, beta1, beta2, weight_decay; /* Adam: its step number stands beside each row */
} lig_params_optimizer;

/* Depends on seed, table, key and element alone: not on nodes or order. */
typedef struct lig_params_init {
    uint32_t kind;
    uint32_t reserved;
    double a, b;
    uint64_t seed;
} lig_params_init;

typedef struct lig_params_table {
    const char *name;   /* NULL: "values"; no two are equal */
    uint64_t key_count; /* or, with hashed keys, how many may be in use at most */
    uint32_t length;    /* elements of a row, 1 .. LIG_PARAMS_LENGTH_MAX; 0: as `lengths` says */
    uint32_t reserved;
    const uint32_t *lengths; /* one a key; dense keys only */
    lig_params_optimizer optimizer;
    lig_params_init init;
} lig_params_table;

#define LIG_PARAMS_HAS_SCHEDULER 1u  /* flags: it alone holds the rendezvous; otherwise node 0 does */
#define LIG_PARAMS_HASHED 2u         /* any keys; without: 0 .. sum of key_count - 1, table after table */
#define LIG_PARAMS_TRUSTED_FABRIC 4u /* as LIG_MESH_TRUSTED_FABRIC, */
#define LIG_PARAMS_ANY_DEVICE 8u     /* LIG_MESH_ANY_DEVICE */

/* Like lig_mesh_exchange_fn; `all` is by rank. */
typedef lig_status (*lig_params_exchange_fn)(void *context, const void *mine, size_t bytes, void *all, size_t count);

/* Made by LIG_PARAMS_OPTIONS_INIT, borrowed until open returns. All nodes must say the same about tables, dtype,
 * techniques and counts: LIG_E_MISMATCH names the difference. */
typedef struct lig_params_options {
    uint32_t role;
    uint32_t rank; /* UINT32_MAX: the rendezvous gives one out */
    uint32_t node_count;
    uint32_t worker_count; /* of each node */
    const lig_params_table *tables;
    uint32_t table_count;
    uint32_t dtype;      /* float32, float64, bfloat16, int32, int64; of all tables */
    uint32_t techniques; /* lig_params_techniques */
    uint32_t flags;
    const char *address;   /* of the rendezvous, "host:port"; one node needs none */
    const char *transport; /* "shm", "tcp", "inproc", "ucx"; NULL or "auto" */
    const char *host;      /* what others call this host */
    const void *secret;
    size_t secret_bytes;
    int64_t timeout_ns;  /* of open, and of calls that have no timeout of their own; 0: a minute */
    int64_t liveness_ns; /* 0: 10 s */
    int64_t spin_ns;     /* 0: 20 us; LIG_FOREVER: sleeps at once */
    int64_t round_ns;    /* rounds of moving and copying are at least so far apart, a fifth of it while very many rows
                          * are to come; 0: 1 ms. Nothing to do, no round */
    lig_params_exchange_fn exchange;
    void *exchange_context;
    /* NULL, or asked ten times a second by open and by every call that waits, on its thread and without locks: 0 ends
     * that call with LIG_E_CLOSED. It stays in use until lig_params_close. */
    int (*patience)(void *context);
    void *patience_context;
    uint64_t reserved[6];
} lig_params_options;

#define LIG_PARAMS_OPTIONS_INIT                                                                                        \
    {0, UINT32_MAX, 1, 1, 0, 0, LIG_FLOAT32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

/* Joins: returns when all nodes are connected. A row begins at its home (key % node_count), as its table's init says.
 */
LIG_API lig_status lig_params_open(lig_params **params, const lig_params_options *options);

/* Waits for all nodes, then leaves; who holds the rendezvous (a scheduler, node 0) serves until all have. Workers that
 * are not finalized count as such from here on. May be called again after LIG_E_TIMEOUT. */
LIG_API lig_status lig_params_shutdown(lig_params *params, int64_t timeout_ns);
/* Frees; leaves without waiting if need be. All workers must be closed. NULL is fine. */
LIG_API void lig_params_close(lig_params *params);

LIG_API uint32_t lig_params_rank(const lig_params *params);
LIG_API uint32_t lig_params_node_count(const lig_params *params);
LIG_API uint64_t lig_params_key_count(const lig_params *params);
/* The first key of a table; LIG_E_NOTFOUND names the tables there are. */
LIG_API lig_status lig_params_offset(const lig_params *params, const char *table, int64_t *key);
/* Elements of a key's row; 0 for a key that cannot be. */
LIG_API uint32_t lig_params_length(const lig_params *params, int64_t key);
/* Elements of all rows together, as pull fills and push takes them. Refuses keys as they do. */
LIG_API lig_status lig_params_lengths(const lig_params *params, const int64_t *keys, size_t count, uint64_t *elements);

/* Of this node's pushes from now on; table NULL: of all. */
LIG_API lig_status lig_params_set_lr(lig_params *params, const char *table, double lr);
LIG_API lig_status lig_params_get_lr(const lig_params *params, const char *table, double *lr);

/* All nodes; one thread a node calls it. */
LIG_API lig_status lig_params_barrier(lig_params *params, int64_t timeout_ns);

/* Every node calls. One model of the store at `uri`: a tensor [keys, length] a table under its name (rows of unequal
 * length: one flat tensor and "<table>.lengths"), optimizer state as "<table>.<state>", hashed keys as "<table>.keys".
 * A model of that name makes way in the same commit; what fails on one node fails on all, with its sentence, and leaves
 * it. Blocks of rows (about 4 MiB) that the store has already are not written again. No worker may push meanwhile.
 * Load takes a save of any number of nodes, or any model with such tensors; tables, lengths, optimizers' states and
 * dtype must agree (LIG_E_MISMATCH, nothing is changed). */
LIG_API lig_status lig_params_save(lig_params *params, const char *uri, const char *model, int64_t timeout_ns);
LIG_API lig_status lig_params_load(lig_params *params, const char *uri, const char *model, int64_t timeout_ns);

typedef struct lig_params_stats {
    uint64_t pulls, pushes, sets;    /* keys, of workers of this node */
    uint64_t local, replica, shared; /* of these: in a row owned here; in a copy; read from a peer's memory */
    uint64_t remote;                 /* the rest: by message */
    uint64_t intents;                /* keys, signalled */
    uint64_t relocations_in, relocations_out, replications, drops;
    uint64_t forwarded; /* requests for keys that had moved on */
    uint64_t rounds, bytes_sent, bytes_received;
    uint64_t rows_owned, rows_copied; /* now */
    uint64_t samples;
    uint64_t reserved[8];
} lig_params_stats;
LIG_API lig_status lig_params_stats_get(lig_params *params, lig_params_stats *stats);
LIG_API lig_status lig_params_stats_reset(lig_params *params);

/* --- sampling --- */

/* Pinned. */
typedef enum lig_params_scheme {
    LIG_PARAMS_NAIVE = 0,       /* drawn at prepare, pulled like any key */
    LIG_PARAMS_PRELOC = 1,      /* and an intent is signalled */
    LIG_PARAMS_POOL = 2,        /* drawn from a pool whose keys are preloc'ed together and used `reuse` times */
    LIG_PARAMS_SAMPLE_LOCAL = 3 /* drawn at pull, among keys that are here; where too few are, among all */
} lig_params_scheme;
typedef enum lig_params_distribution {
    LIG_PARAMS_SAMPLE_UNIFORM = 0,
    LIG_PARAMS_SAMPLE_LOG_UNIFORM = 1, /* p(min + i) ~ log((i + 2) / (i + 1)) */
    LIG_PARAMS_SAMPLE_WEIGHTS = 2
} lig_params_distribution;

typedef struct lig_params_sampling {
    uint32_t scheme, distribution;
    int64_t min, max;      /* keys min .. max - 1; dense keys only */
    const double *weights; /* max - min of them, not negative, finite, not all 0; borrowed by the call */
    uint32_t with_replacement;
    uint32_t pool_size, reuse; /* 0: 250, 1 */
    uint32_t reserved;
    uint64_t seed;
} lig_params_sampling;

/* Before the first prepare_sample; all nodes alike. */
LIG_API lig_status lig_params_enable_sampling(lig_params *params, const lig_params_sampling *sampling);

/* --- workers --- */

/* `id` 0 .. worker_count - 1, each once on a node. */
LIG_API lig_status lig_params_worker_open(lig_params_worker **worker, lig_params *params, uint32_t id);
/* Its intents end; waits for its tickets, for their effect everywhere (flush) and for all other workers. */
LIG_API lig_status lig_params_worker_finalize(lig_params_worker *worker, int64_t timeout_ns);
LIG_API void lig_params_worker_close(lig_params_worker *worker);

/* Rows one after another, in the order of keys; `elements` is the room of `values`, and must be the sum of the rows'
 * lengths. Keys may be in any order, repeated, and none. Everything is checked before anything happens. What is at
 * hand is done at once; if that is all, *ticket is LIG_PARAMS_LOCAL. Otherwise `keys` is done with, and `values` of a
 * pull is borrowed until lig_params_wait has said how it ended; of push and set it is copied and done with. At most
 * 1024 tickets and 64 MiB of rows of a worker are under way: a further call, and the rest of a larger one, waits.
 * Rows that are on their way here because of an intent are waited for, a few milliseconds at most. */
LIG_API lig_status lig_params_pull(lig_params_worker *worker, const int64_t *keys, size_t count, void *values,
                                   uint64_t elements, int64_t *ticket);
LIG_API lig_status lig_params_push(lig_params_worker *worker, const int64_t *keys, size_t count, const void *values,
                                   uint64_t elements, int64_t *ticket);
LIG_API lig_status lig_params_set(lig_params_worker *worker, const int64_t *keys, size_t count, const void *values,
                                  uint64_t elements, int64_t *ticket);
/* *local is 0 and nothing filled when some key is not here, or goes meanwhile. Never sends. */
LIG_API lig_status lig_params_pull_if_local(lig_params_worker *worker, const int64_t *keys, size_t count, void *values,
                                            uint64_t elements, int *local);

/* LIG_E_TIMEOUT: it goes on. A ticket that was waited for is LIG_OK again. */
LIG_API lig_status lig_params_wait(lig_params_worker *worker, int64_t ticket, int64_t timeout_ns);
LIG_API lig_status lig_params_wait_all(lig_params_worker *worker, int64_t timeout_ns);
LIG_API int lig_params_done(lig_params_worker *worker, int64_t ticket);

/* This worker will touch the keys while start <= its clock < end (0: start + 1). Of one key the latest end counts.
 * Never waits; one that has ended already is ignored. */
LIG_API lig_status lig_params_intent(lig_params_worker *worker, const int64_t *keys, size_t count, int64_t start,
                                     int64_t end);
/* The new clock, and the clock; -1 with a sentence in a child of a fork, which has no workers. */
LIG_API int64_t lig_params_advance_clock(lig_params_worker *worker);
LIG_API int64_t lig_params_current_clock(const lig_params_worker *worker);

/* Promises `count` samples at those clocks. pull_sample gives the next `count` of them (several calls may use one
 * up): keys and rows; `values` has room for so many rows, which are all of one length in the range of the sampling.
 * Without replacement no key comes twice in one sample. One that is used up is finished. */
LIG_API lig_status lig_params_prepare_sample(lig_params_worker *worker, uint64_t count, int64_t start, int64_t end,
                                             int64_t *sample);
LIG_API lig_status lig_params_pull_sample(lig_params_worker *worker, int64_t sample, int64_t *keys, size_t count,
                                          void *values, int64_t *ticket);
LIG_API lig_status lig_params_finish_sample(lig_params_worker *worker, int64_t sample);

/* wait_sync: what this node has pushed has reached the owners, and what it had been sent is in. flush: what this
 * worker pushed is in the owner's row and in every copy; both end also while others push on. barrier: all workers of
 * all nodes; LIG_E_INVALID when one of them finalizes, or its node shuts down, instead. */
LIG_API lig_status lig_params_wait_sync(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_flush(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_worker_barrier(lig_params_worker *worker, int64_t timeout_ns);
/* For loading the first values: a barrier before, and at the end everything applied everywhere and stats reset. */
LIG_API lig_status lig_params_begin_setup(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_end_setup(lig_params_worker *worker, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
