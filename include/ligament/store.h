/* Ligament: the store, which holds models by name.
 *
 * A model is a named, immutable batch of tensors with metrics, tags and a JSON text. Saves are atomic, even in a crash:
 * saving writes one new immutable pack, then commits once. URIs: "file:///dir" or a plain path, "mem:" (private),
 * "mem:NAME" (shared in the process), "ligament://host:port" (served, serve.h), or the scheme of a plugin that has a
 * volume. Options follow in the query: `mode=r|w|a` (default a) and the backend's (see `ligament info`).
 *   mode=r   writes nothing, not even a lock; fails if there is no store
 *   mode=w   creates a new store; LIG_E_EXISTS if one exists
 *   mode=a   creates the store if it does not exist
 *
 * A lig_store is **shared**: any thread may use it. In a forked child its calls return LIG_E_CLOSED and close
 * only frees memory. Calls that take a model's name also accept an alias. */
#ifndef LIGAMENT_STORE_H
#define LIGAMENT_STORE_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_store lig_store;
LIG_API lig_status lig_store_open(lig_store **store, const char *uri);
/* Waits for background saves; an uncommitted lig_save ends with LIG_E_CLOSED. Views and refs stay valid. */
LIG_API void lig_store_close(lig_store *store);

/* The URI without its options; borrowed from the store. */
LIG_API const char *lig_store_uri(const lig_store *store);

/* --- descriptions of models --- */

typedef struct lig_metric {
    const char *name;
    double value;
} lig_metric;

typedef struct lig_tag {
    const char *name, *value;
} lig_tag;

typedef struct lig_stored_tensor {
    lig_tensor tensor;       /* data is NULL, or points into a view (lig_store_map) */
    uint64_t owner;          /* id of the model whose save wrote the bytes */
    uint64_t pack, offset;   /* location of the bytes, or of the first box; pack 0: inline in the catalog */
    uint64_t fingerprint[2]; /* equal tensors of one store, in equal boxes, have equal fingerprints */
    int64_t tied;            /* index of the tensor that it shares its memory with, -1 for none */
    uint64_t boxes;          /* number of boxes it is stored as (part.h); 1: as a whole */
} lig_stored_tensor;

/* A read-only description, freed by lig_model_destroy. `tensors` is NULL if the call omits them. */
typedef struct lig_model {
    uint64_t id, parent;            /* parent 0: none */
    const char *name, *parent_name; /* parent_name: current; as recorded if the parent was retired */
    int64_t created_ns;             /* since 1970 */
    uint64_t bytes, own_bytes;
    size_t tensor_count, metric_count, tag_count;
    const lig_stored_tensor *tensors;
    const lig_metric *metrics;
    const lig_tag *tags;
    const char *meta;      /* JSON, "" for none */
    const char *structure; /* how a binding builds its tree from the tensors, "" for none; opaque to the library */
} lig_model;

LIG_API lig_status lig_store_model(lig_store *store, const char *model, lig_model **out);
/* The model with this id, regardless of its current name; LIG_E_NOTFOUND if it was replaced or retired. */
LIG_API lig_status lig_store_model_id(lig_store *store, uint64_t id, lig_model **out);
LIG_API void lig_model_destroy(lig_model *model);

typedef struct lig_query {
    uint32_t struct_bytes; /* set by LIG_QUERY_INIT */
    uint32_t flags;
    const char *name;    /* pattern with * ? [..]; NULL: all */
    const lig_tag *tags; /* all must be present */
    size_t tag_count;
    const char *order; /* "created", "name", "bytes" or a metric's name; descending with a leading '-'. NULL: created */
    size_t limit;      /* 0: no limit; models that lack the metric come last */
} lig_query;
#define LIG_QUERY_INIT {sizeof(lig_query), 0, NULL, NULL, 0, NULL, 0}

/* The models that match (NULL: all), without their tensors and structure. Returns *models (lig_models_destroy). */
LIG_API lig_status lig_store_models(lig_store *store, const lig_query *query, lig_model ***models, size_t *count);
LIG_API void lig_models_destroy(lig_model **models, size_t count);

/* --- save --- */

#define LIG_SAVE_REPLACE 1u /* replaces a model of that name in the same commit; its aliases refer to the new one */

typedef struct lig_save_options {
    uint32_t struct_bytes; /* set by LIG_SAVE_INIT */
    uint32_t flags;
    const char *parent; /* NULL: none */
    const lig_metric *metrics;
    size_t metric_count;
    const lig_tag *tags;
    size_t tag_count;
    const char *meta, *structure;   /* NULL: "" */
    const struct lig_graph *graphs; /* at most 8, of different kinds, which a search compares */
    size_t graph_count;
    const struct lig_match *match; /* NULL: none; its model is the parent if none is given */
    const struct lig_box *boxes;   /* with `part`: see part.h */
    struct lig_part **part;        /* NULL: save a model; otherwise save a part of one */
    struct lig_ref **ref;          /* NULL, or set to a ref to the saved model (ref.h); not for a part */
    struct lig_model **model;      /* NULL, or set to its description; not for a part */
} lig_save_options;
#define LIG_SAVE_INIT                                                                                                  \
    {sizeof(lig_save_options), 0, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL}

/* Saves `count` tensors as one model; on return it is durable. Tensors with equal memory (same pointer, dtype,
 * shape) are stored once and marked as tied. A tensor whose bytes equal those of a tensor of the parent or the match
 * or, from 64 KiB up, of any stored tensor is not written: the new model refers to it. `options` may be NULL. With
 * `ref` in the options, *ref is set when the save has succeeded (lig_ref_release), for an asynchronous one before its
 * ticket is done: it refers to the saved model even if that was replaced meanwhile. If its packs cannot be pinned, it
 * behaves as in a read-only store. `model` returns only the description (lig_model_destroy) and pins nothing. */
LIG_API lig_status lig_store_save(lig_store *store, const char *model, const lig_tensor *tensors, size_t count,
                                  const lig_save_options *options);

/* The same in the background: tensors are borrowed until the ticket has ended, tensor i only until the ticket's
 * progress is greater than i. Names, shapes and options are copied. */
LIG_API lig_status lig_store_save_start(lig_store *store, const char *model, const lig_tensor *tensors, size_t count,
                                        const lig_save_options *options, lig_ticket **ticket);

/* The same one tensor at a time. `begin` takes descriptions and starts the work, `offer` passes the memory of
 * tensor 0, 1, 2, ... without waiting, `commit` returns the ticket after all were offered (LIG_E_INVALID if some are
 * missing; the lig_save continues), `abort` undoes. Both end the lig_save. lig_save_progress is lig_ticket_progress
 * for it. `data` of a description is never read: if it is not NULL, it only identifies tied tensors (equal data, dtype,
 * shape and strides), and what is offered for the later one is ignored. */
typedef struct lig_save lig_save;
LIG_API lig_status lig_save_begin(lig_save **save, lig_store *store, const char *model, const lig_tensor *tensors,
                                  size_t count, const lig_save_options *options);
LIG_API lig_status lig_save_offer(lig_save *save, const void *data, const int64_t *strides);
LIG_API lig_status lig_save_progress(lig_save *save, uint64_t seen, int64_t timeout_ns, uint64_t *done);
LIG_API lig_status lig_save_commit(lig_save *save, lig_ticket **ticket);
LIG_API void lig_save_abort(lig_save *save);

/* --- load --- */

/* Reads `count` tensors of `model` into tensors[i].data (fills). Names, dtypes and shapes are checked first; every
 * block's checksum is verified; after LIG_E_IO or LIG_E_CORRUPT the contents are undefined. */
LIG_API lig_status lig_store_load(lig_store *store, const char *model, const lig_tensor *tensors, size_t count);

typedef struct lig_slice { /* elements start, start + step, ... : `count` of them; step is not 0 */
    int64_t start, step, count;
} lig_slice;

typedef struct lig_read {
    const char *name;        /* the stored tensor; NULL: into.name */
    lig_tensor into;         /* its shape is that of the slice */
    const lig_slice *slices; /* one for each dimension of the stored tensor; NULL: all of it */
} lig_read;

#define LIG_READ_UNVERIFIED 1u /* does not verify checksums */

/* Reads slices of tensors. A slice reads only the blocks it touches. */
LIG_API lig_status lig_store_read(lig_store *store, const char *model, const lig_read *reads, size_t count,
                                  uint32_t flags);

/* Maps a model's tensors without a copy and sets tensors[i].data of the view's model. The view stays valid after
 * retire, compact and lig_store_close. Blocks are verified unless LIG_READ_UNVERIFIED. */
#define LIG_VIEW_PRIVATE 2u /* writable, copy on write; otherwise read-only */
typedef struct lig_view lig_view;
LIG_API lig_status lig_store_map(lig_store *store, const char *model, uint32_t flags, lig_view **view);
LIG_API const lig_model *lig_view_model(const lig_view *view);
LIG_API void lig_view_destroy(lig_view *view);

/* --- update and remove --- */

typedef struct lig_update {
    uint32_t struct_bytes; /* set by LIG_UPDATE_INIT */
    uint32_t flags;
    const lig_metric *metrics; /* added or replaced by name */
    size_t metric_count;
    const lig_tag *tags; /* likewise; value NULL removes */
    size_t tag_count;
    const char *meta; /* NULL: unchanged */
    const char *name; /* NULL: unchanged; LIG_E_EXISTS if it is in use */
} lig_update;
#define LIG_UPDATE_INIT {sizeof(lig_update), 0, NULL, 0, NULL, 0, NULL, NULL}

LIG_API lig_status lig_store_update(lig_store *store, const char *model, const lig_update *update);

/* Makes `alias` refer to `model`, atomically, even if it referred to another before; model NULL removes the alias. */
LIG_API lig_status lig_store_alias(lig_store *store, const char *alias, const char *model);

/* Alias number `index` in no particular order; LIG_E_NOTFOUND past the last. Returns strings (lig_text_destroy). */
LIG_API lig_status lig_store_alias_at(lig_store *store, size_t index, char **alias, char **model);
LIG_API void lig_text_destroy(char *text);

/* Removes a model and the aliases that refer to it; bytes that no model uses are freed. Servers may keep it for a while
 * (lig_store_restore in serve.h). */
LIG_API lig_status lig_store_retire(lig_store *store, const char *model);

/* --- locks --- */

/* An advisory lock on `name`, for example for writing a training run and its checkpoints; saves do not check it. One
 * process at a time holds a name: LIG_E_BUSY names the process, its host and the time. A process may lock a name
 * several times; it holds the name until the last release or until it ends for any reason. A stopped process holds
 * it, a forked child does not. A lock may outlive the store's handle. LIG_E_DENIED for a store that is open for
 * reading, LIG_E_UNSUPPORTED if the volume has no locks. */
typedef struct lig_lock lig_lock;
LIG_API lig_status lig_store_lock(lig_store *store, const char *name, lig_lock **lock);
/* NULL is valid. In a forked child it only frees memory. */
LIG_API void lig_lock_release(lig_lock *lock);

/* --- maintenance --- */

typedef struct lig_report {                 /* freed by lig_report_destroy */
    uint64_t models, tensors, packs, bytes; /* checked */
    uint64_t freed_bytes, repaired;
    uint64_t leftover_bytes; /* packs that no model uses: harmless, removed by the next open or compact */
    size_t problem_count;
    const char *const *problems; /* one message each */
} lig_report;
LIG_API void lig_report_destroy(lig_report *report);

#define LIG_CHECK_REPAIR 1u /* repairs what can be derived: counts, leftovers, a lost catalog */

/* Reads everything and compares it with its checksums and records. Returns LIG_OK even if there are problems: see the
 * report. */
LIG_API lig_status lig_store_check(lig_store *store, uint32_t flags, lig_report **report);

/* Removes leftovers of dead writers and packs without live tensors, and moves the live tensors of packs that are more
 * than half unused to new packs. Packs pinned by a match or a ref are left alone. */
LIG_API lig_status lig_store_compact(lig_store *store, lig_report **report);

typedef struct lig_store_stats {
    uint64_t models, tensors, packs;
    uint64_t bytes;        /* of all models, without sharing */
    uint64_t stored_bytes; /* on the medium, including the catalog */
    uint64_t version;      /* increases with every commit */
} lig_store_stats;
LIG_API lig_status lig_store_stat(lig_store *store, lig_store_stats *stats);

/* A human-readable description of how the store does I/O ("io_uring, O_DIRECT"); fills text. */
LIG_API lig_status lig_store_describe(lig_store *store, char *text, size_t text_bytes);

/* Copies only a model that is missing in `to`, or older there, or has other metrics, tags or meta there; it is then
 * replaced. Otherwise LIG_E_EXISTS. */
#define LIG_COPY_NEWER 0x100u
/* Copies one model with its metrics, tags and texts; `new_name` NULL keeps the name. flags: LIG_COPY_NEWER,
 * LIG_SAVE_REPLACE. */
LIG_API lig_status lig_store_copy(lig_store *from, const char *model, lig_store *to, const char *new_name,
                                  uint32_t flags);

/* --- history ------------------------------------------------------------------------------------------------ */

/* Freed by lig_lineage_destroy. Models are without their tensors. */
typedef struct lig_lineage {
    lig_model **ancestors; /* the parent first, then its parent, ... as far as they still exist */
    lig_model **children;  /* oldest first */
    size_t ancestor_count, child_count;
} lig_lineage;
LIG_API lig_status lig_store_lineage(lig_store *store, const char *model, lig_lineage **lineage);
LIG_API void lig_lineage_destroy(lig_lineage *lineage);

enum lig_change {
    LIG_CHANGE_NONE = 0,
    LIG_CHANGE_BYTES = 1,
    LIG_CHANGE_SHAPE = 2,
    LIG_CHANGE_REMOVED = 3,
    LIG_CHANGE_ADDED = 4
};

typedef struct lig_difference {
    const char *name;
    int32_t change; /* enum lig_change; SHAPE: a different shape or dtype, regardless of the bytes */
    uint32_t reserved;
    const lig_stored_tensor *a, *b; /* NULL if the model does not have it */
} lig_difference;

/* Freed by lig_diff_destroy. Lists the tensors of a in their order, then those that only b has. */
typedef struct lig_diff {
    const lig_model *a, *b;
    const lig_difference *tensors;
    size_t count;
    size_t counts[5];  /* of each enum lig_change */
    uint64_t bytes[5]; /* likewise: those of b, or of a where b has none */
} lig_diff;
/* Compares fingerprints, without reading tensors. The fingerprint of a tensor in boxes depends on the boxes: if those
 * differ (a different number of ranks saved it), the bytes are read and compared. */
LIG_API lig_status lig_store_diff(lig_store *store, const char *a, const char *b, lig_diff **diff);
LIG_API void lig_diff_destroy(lig_diff *diff);

/* When operations and their phases began and ended: begin, end, ... in ns of a monotonic clock; the latest 65,536
 * pairs of each name. For a served store they are the server's, except load and read. Returns *stamps
 * (lig_time_stamps_destroy). */
LIG_API lig_status lig_store_time_stamps(lig_store *store, const char *name, int64_t **stamps, size_t *count);
LIG_API void lig_time_stamps_destroy(int64_t *stamps);
LIG_API lig_status lig_store_clear_time_stamps(lig_store *store, const char *name); /* NULL: all */
/* Name number `index`: find, load, save, retire, then lookup, read, write, sync, commit; NULL past the last. */
LIG_API const char *lig_store_time_stamp_name(size_t index);

#ifdef __cplusplus
}
#endif

#include <ligament/find.h>
#include <ligament/part.h>
#include <ligament/ref.h>
#include <ligament/watch.h>
#endif
