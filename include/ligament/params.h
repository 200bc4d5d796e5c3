/* Ligament: the parameter manager. Rows of numbers, distributed over processes (nodes), addressed by an integer key.
 *
 *   node:   lig_params_open(tables) ......................................... lig_params_shutdown, lig_params_close
 *   worker: lig_params_worker_open -> intent, advance_clock, pull, push, set -> lig_params_worker_finalize, _close
 *
 * A worker announces which keys it will access, and when on its own clock (intent); the nodes relocate or replicate
 * those rows before they are needed. Access without intent is correct as well, only slower.
 *
 * Guarantees:
 *   - One access of one key is atomic; accesses of several keys are not atomic together.
 *   - Accesses of one key by one worker take effect in program order, even if the worker does not wait for them and
 *     while the row moves. Within a call that is the order of its keys: if a key is set twice, the last value remains.
 *   - Every push takes effect exactly once. Replicas converge to the owner's bytes once pushes stop.
 *
 * lig_params is **shared**. A worker belongs to one thread at a time; each node has `worker_count` of them. In a forked
 * child all calls return LIG_E_CLOSED and close frees memory only. Every wait ends: at its timeout, or with LIG_E_PEER
 * as soon as a node is lost; the job then continues from its last save. */
#ifndef LIGAMENT_PARAMS_H
#define LIGAMENT_PARAMS_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_params lig_params;
typedef struct lig_params_worker lig_params_worker;

#define LIG_PARAMS_NODES_MAX 1024u
#define LIG_PARAMS_WORKERS_MAX 1024u       /* per node */
#define LIG_PARAMS_TABLES_MAX 64u          /* per job */
#define LIG_PARAMS_LENGTH_MAX 2147483648u  /* elements per row */
#define LIG_PARAMS_HASHED_SHIFT 56         /* bits of the table's number in a hashed key */
#define LIG_PARAMS_LOCAL (INT64_C(-1))     /* ticket of an access of local rows; it is complete */
#define LIG_PARAMS_SHARED (INT64_C(0))     /* ticket of a pull from a peer's shared memory; it is complete */
#define LIG_PARAMS_FOREVER_CLOCK INT64_MAX /* an intent that never ends */

/* The values are fixed. */
typedef enum lig_params_role { LIG_PARAMS_NODE = 0, LIG_PARAMS_SCHEDULER = 1 } lig_params_role;
typedef enum lig_params_techniques {
    LIG_PARAMS_ALL = 0, /* one interested node: relocate the row; several: replicate it */
    LIG_PARAMS_REPLICATION_ONLY = 1,
    LIG_PARAMS_RELOCATION_ONLY = 2
} lig_params_techniques;
typedef enum lig_params_optimizer_kind {
    LIG_PARAMS_ADD = 0, /* push adds */
    LIG_PARAMS_SGD = 1, /* push passes a gradient, also for the optimizers below */
    LIG_PARAMS_ADAGRAD = 2,
    LIG_PARAMS_ROWWISE_ADAGRAD = 3,
    LIG_PARAMS_ADAM = 4 /* rows are relocated, never replicated: the state is not a sum */
} lig_params_optimizer_kind;
typedef enum lig_params_init_kind {
    LIG_PARAMS_ZERO = 0,
    LIG_PARAMS_CONSTANT = 1, /* a */
    LIG_PARAMS_UNIFORM = 2,  /* a <= x < b */
    LIG_PARAMS_NORMAL = 3    /* mean a, standard deviation b */
} lig_params_init_kind;

typedef struct lig_params_optimizer {
    uint32_t kind; /* float32, float64, bfloat16 rows only, except ADD */
    uint32_t reserved;
    double lr, eps, beta1, beta2, weight_decay; /* Adam: the step number is stored with each row */
} lig_params_optimizer;

/* Depends only on seed, table, key and element, not on nodes or order. */
typedef struct lig_params_init {
    uint32_t kind;
    uint32_t reserved;
    double a, b;
    uint64_t seed;
} lig_params_init;

typedef struct lig_params_table {
    const char *name;   /* NULL: "values"; names are unique */
    uint64_t key_count; /* hashed keys: the maximum number in use */
    uint32_t length;    /* elements per row, 1 .. LIG_PARAMS_LENGTH_MAX; 0: see `lengths` */
    uint32_t reserved;
    const uint32_t *lengths; /* one per key; dense keys only */
    lig_params_optimizer optimizer;
    lig_params_init init;
} lig_params_table;

/* flags */
#define LIG_PARAMS_HAS_SCHEDULER 1u  /* a scheduler runs the rendezvous; otherwise node 0 does */
#define LIG_PARAMS_HASHED 2u         /* any keys; without this flag 0 .. sum of key_count - 1, table after table */
#define LIG_PARAMS_TRUSTED_FABRIC 4u /* like LIG_MESH_TRUSTED_FABRIC */
#define LIG_PARAMS_ANY_DEVICE 8u     /* like LIG_MESH_ANY_DEVICE */

/* Like lig_mesh_exchange_fn; `all` is by rank. */
typedef lig_status (*lig_params_exchange_fn)(void *context, const void *mine, size_t bytes, void *all, size_t count);

/* Initialised by LIG_PARAMS_OPTIONS_INIT, borrowed until open returns. Tables, dtype, techniques
 * and counts must be the same on all nodes: LIG_E_MISMATCH names the difference. */
typedef struct lig_params_options {
    uint32_t role;
    uint32_t rank; /* UINT32_MAX: assigned by the rendezvous */
    uint32_t node_count;
    uint32_t worker_count; /* per node */
    const lig_params_table *tables;
    uint32_t table_count;
    uint32_t dtype;      /* float32, float64, bfloat16, int32, int64; for all tables */
    uint32_t techniques; /* lig_params_techniques */
    uint32_t flags;
    const char *address;   /* of the rendezvous, "host:port"; a single node needs none */
    const char *transport; /* "shm", "tcp", "inproc", "ucx"; NULL or "auto" */
    const char *host;      /* the address of this host as seen by the other nodes */
    const void *secret;
    size_t secret_bytes;
    int64_t timeout_ns;  /* of open, and of calls without a timeout argument; 0: 60 s */
    int64_t liveness_ns; /* 0: 10 s */
    int64_t spin_ns;     /* 0: 20 us; LIG_FOREVER: sleep at once */
    int64_t round_ns;    /* minimum time between sync rounds, a fifth of it while many rows are
                          * outstanding; 0: 1 ms. No round runs when there is nothing to do */
    lig_params_exchange_fn exchange;
    void *exchange_context;
    /* NULL, or polled ten times a second by open and by every call that waits, on its thread and
     * without locks: 0 ends that call with LIG_E_CLOSED. Must stay valid until lig_params_close. */
    int (*patience)(void *context);
    void *patience_context;
    uint32_t batch_threads, unused; /* threads for large batches; 0: one per processor, at most 8 */
    uint64_t reserved[5];
} lig_params_options;

#define LIG_PARAMS_OPTIONS_INIT                                                                                        \
    {0, UINT32_MAX, 1, 1, 0, 0, LIG_FLOAT32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

/* Joins the job: returns when all nodes are connected. A row starts at its home (key % node_count)
 * with the value that its table's init gives. */
LIG_API lig_status lig_params_open(lig_params **params, const lig_params_options *options);

/* Waits for all nodes, then leaves; the process that runs the rendezvous (scheduler or node 0) serves until all have
 * left. Workers that are not finalized count as finalized. May be called again after LIG_E_TIMEOUT. */
LIG_API lig_status lig_params_shutdown(lig_params *params, int64_t timeout_ns);
/* Frees the node; if shutdown was not called, leaves without waiting. All workers must be closed. NULL is valid. */
LIG_API void lig_params_close(lig_params *params);

LIG_API uint32_t lig_params_rank(const lig_params *params);
LIG_API uint32_t lig_params_node_count(const lig_params *params);
LIG_API uint64_t lig_params_key_count(const lig_params *params);
/* The first key of a table; LIG_E_NOTFOUND lists the tables. */
LIG_API lig_status lig_params_offset(const lig_params *params, const char *table, int64_t *key);
/* Elements of a key's row; 0 for an invalid key. */
LIG_API uint32_t lig_params_length(const lig_params *params, int64_t key);
/* Elements of all rows together, as pull fills and push takes them. Rejects the same keys as they do. */
LIG_API lig_status lig_params_lengths(const lig_params *params, const int64_t *keys, size_t count, uint64_t *elements);

/* The learning rate of this node's pushes from now on; table NULL: all tables. */
LIG_API lig_status lig_params_set_lr(lig_params *params, const char *table, double lr);
LIG_API lig_status lig_params_get_lr(const lig_params *params, const char *table, double *lr);

/* Collective: one thread per node calls it. */
LIG_API lig_status lig_params_barrier(lig_params *params, int64_t timeout_ns);

/* Collective: every node calls. Writes one model to the store at `uri`: per table one tensor [keys, length] under the
 * table's name (rows of unequal length: one flat tensor and "<table>.lengths"), optimizer state as "<table>.<state>",
 * hashed keys as "<table>.keys". Replaces an existing model of that name in the same commit. If it fails on one node
 * it fails on all, with the same message, and the existing model stays. Blocks of rows (about 4 MiB) that the store
 * already has are not written again. No worker may push meanwhile. Load accepts a save from any number of nodes, or
 * any model with such tensors; tables, lengths, optimizer states and dtype must agree (LIG_E_MISMATCH, nothing is
 * changed). */
LIG_API lig_status lig_params_save(lig_params *params, const char *uri, const char *model, int64_t timeout_ns);
LIG_API lig_status lig_params_load(lig_params *params, const char *uri, const char *model, int64_t timeout_ns);

typedef struct lig_params_stats {
    uint64_t pulls, pushes, sets;    /* keys accessed by workers of this node */
    uint64_t local, replica, shared; /* of these: in a row owned here; in a replica; read from a
                                      * peer's memory */
    uint64_t remote;                 /* of these: by message */
    uint64_t intents;                /* keys signalled */
    uint64_t relocations_in, relocations_out, replications, drops;
    uint64_t forwarded; /* requests for keys that had been relocated */
    uint64_t rounds, bytes_sent, bytes_received;
    uint64_t rows_owned, rows_copied; /* now */
    uint64_t samples;
    uint64_t reserved[8];
} lig_params_stats;
LIG_API lig_status lig_params_stats_get(lig_params *params, lig_params_stats *stats);
LIG_API lig_status lig_params_stats_reset(lig_params *params);
/* --- sampling --- */

/* The values are fixed. */
typedef enum lig_params_scheme {
    LIG_PARAMS_NAIVE = 0,       /* drawn at prepare, pulled like any key */
    LIG_PARAMS_PRELOC = 1,      /* the same, with an intent */
    LIG_PARAMS_POOL = 2,        /* drawn from a pool whose keys are relocated together and used `reuse` times */
    LIG_PARAMS_SAMPLE_LOCAL = 3 /* drawn at pull among local keys; among all keys if too few are local */
} lig_params_scheme;
typedef enum lig_params_distribution {
    LIG_PARAMS_SAMPLE_UNIFORM = 0,
    LIG_PARAMS_SAMPLE_LOG_UNIFORM = 1, /* p(min + i) ~ log((i + 2) / (i + 1)) */
    LIG_PARAMS_SAMPLE_WEIGHTS = 2
} lig_params_distribution;

typedef struct lig_params_sampling {
    uint32_t scheme, distribution;
    int64_t min, max;      /* keys min .. max - 1; dense keys only */
    const double *weights; /* max - min weights, finite, not negative, not all 0; borrowed during
                            * the call */
    uint32_t with_replacement;
    uint32_t pool_size, reuse; /* 0: 250, 1 */
    uint32_t reserved;
    uint64_t seed;
} lig_params_sampling;

/* Call it before the first prepare_sample, with the same arguments on all nodes. */
LIG_API lig_status lig_params_enable_sampling(lig_params *params, const lig_params_sampling *sampling);

/* --- workers --- */

/* `id` 0 .. worker_count - 1, each opened at most once per node. */
LIG_API lig_status lig_params_worker_open(lig_params_worker **worker, lig_params *params, uint32_t id);
/* Ends the worker's intents, waits for its tickets, flushes, and waits for all other workers to finalize. */
LIG_API lig_status lig_params_worker_finalize(lig_params_worker *worker, int64_t timeout_ns);
LIG_API void lig_params_worker_close(lig_params_worker *worker);

/* Rows are contiguous, in the order of keys; `elements` is the size of `values` and must be the sum of the rows'
 * lengths. Keys may be in any order, repeated, or none. All arguments are checked before any access. Local rows are
 * accessed at once; if all are local, *ticket is LIG_PARAMS_LOCAL. A pull reads rows of other nodes on this host
 * from their memory; if nothing else is left, *ticket is LIG_PARAMS_SHARED. Otherwise `keys` is no longer used after
 * the call, `values` of a pull is borrowed until lig_params_wait has returned its result, and `values` of push and
 * set is copied. A worker may have 1024 tickets and 64 MiB of rows, or one longer row, outstanding; further calls,
 * and the rest of a larger one, block. A call waits, for a few milliseconds at most, for rows that are being
 * relocated to this node because of an intent. */
LIG_API lig_status lig_params_pull(lig_params_worker *worker, const int64_t *keys, size_t count, void *values,
                                   uint64_t elements, int64_t *ticket);
LIG_API lig_status lig_params_push(lig_params_worker *worker, const int64_t *keys, size_t count, const void *values,
                                   uint64_t elements, int64_t *ticket);
LIG_API lig_status lig_params_set(lig_params_worker *worker, const int64_t *keys, size_t count, const void *values,
                                  uint64_t elements, int64_t *ticket);
/* Gradients of an embedding's rows: row places[i] of `values` belongs to keys[i]. Rows without a key are ignored. */
typedef struct lig_params_gradients {
    const int64_t *keys; /* of rows of one length */
    size_t count;
    const int64_t *places; /* NULL: i */
    const void *values;    /* in the rows' type */
    uint64_t elements;     /* of values */
} lig_params_gradients;
/* Pushes the sum of the gradients of each key, added in the order of keys: the optimizer takes one step per key. */
LIG_API lig_status lig_params_push_sums(lig_params_worker *worker, const lig_params_gradients *gradients,
                                        int64_t *ticket);
/* *local is 0 and nothing is filled if some key is not local or is relocated meanwhile. Sends nothing. */
LIG_API lig_status lig_params_pull_if_local(lig_params_worker *worker, const int64_t *keys, size_t count, void *values,
                                            uint64_t elements, int *local);

/* Rows together with their optimizer's state, for a program that applies the steps to copies of the rows and writes
 * them back. Rows follow each other in both arrays. One node only (LIG_E_UNSUPPORTED). */
typedef struct lig_params_rows {
    const int64_t *keys;
    size_t count;
    void *values; /* get fills, set reads; likewise state */
    uint64_t elements;
    void *state; /* float64 for rows of float64, otherwise float32. Adagrad: sum[length]; rowwise: sum[1]; Adam:
                    mean[length], square[length], step[1] */
    uint64_t state_elements;
} lig_params_rows;
LIG_API lig_status lig_params_get_rows(lig_params_worker *worker, const lig_params_rows *rows);
LIG_API lig_status lig_params_set_rows(lig_params_worker *worker, const lig_params_rows *rows);
/* Elements of state of a key's row; also 0 for an invalid key. */
LIG_API uint64_t lig_params_state_length(const lig_params *params, int64_t key);

/* LIG_E_TIMEOUT: the access continues. Waiting again for a completed ticket returns LIG_OK. */
LIG_API lig_status lig_params_wait(lig_params_worker *worker, int64_t ticket, int64_t timeout_ns);
LIG_API lig_status lig_params_wait_all(lig_params_worker *worker, int64_t timeout_ns);
LIG_API int lig_params_done(lig_params_worker *worker, int64_t ticket);

/* This worker will access the keys while start <= its clock < end (0: start + 1). If a key has several intents, the
 * latest end applies. Never blocks; an intent that has already ended is ignored. */
LIG_API lig_status lig_params_intent(lig_params_worker *worker, const int64_t *keys, size_t count, int64_t start,
                                     int64_t end);
/* The new clock, and the current clock; -1 with an error text in a forked child, which has no workers. */
LIG_API int64_t lig_params_advance_clock(lig_params_worker *worker);
LIG_API int64_t lig_params_current_clock(const lig_params_worker *worker);

/* Prepares a sample of `count` keys to be used while start <= clock < end. pull_sample returns the next `count` of
 * them, keys and rows; several calls may use up one sample. `values` must have room for that many rows, which have
 * one length in the whole range. Without replacement no key occurs twice in one sample. A used-up sample is finished
 * automatically. */
LIG_API lig_status lig_params_prepare_sample(lig_params_worker *worker, uint64_t count, int64_t start, int64_t end,
                                             int64_t *sample);
LIG_API lig_status lig_params_pull_sample(lig_params_worker *worker, int64_t sample, int64_t *keys, size_t count,
                                          void *values, int64_t *ticket);
LIG_API lig_status lig_params_finish_sample(lig_params_worker *worker, int64_t sample);

/* wait_sync: everything this node has pushed has reached the owners, and all updates sent to it
 * have been applied. flush: everything this worker has pushed is in the owner's row and in every
 * replica. Both end even while others keep pushing. barrier: all workers of all nodes;
 * LIG_E_INVALID if one of them finalizes, or its node shuts down, instead. */
LIG_API lig_status lig_params_wait_sync(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_flush(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_worker_barrier(lig_params_worker *worker, int64_t timeout_ns);
/* For loading initial values: begin_setup is a barrier; end_setup returns when all writes are
 * applied everywhere, and resets the statistics. */
LIG_API lig_status lig_params_begin_setup(lig_params_worker *worker, int64_t timeout_ns);
LIG_API lig_status lig_params_end_setup(lig_params_worker *worker, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
