/* Ligament: backends, which store tensors.
 *
 * A backend has two levels. Every backend saves and loads *sets* of tensors (open, save, load, close; the rest is
 * optional). A backend that also has a *volume* (packs of bytes and a small transactional catalog) can hold a store
 * (store.h). This header contains the tables that a plugin fills and the calls that use a backend by name; plugin.h
 * turns a table into a shared library.
 *
 * Threads: the library calls one instance (one `self`) from one thread at a time, except for the volume's members,
 * which are shared: any thread may call them at any time. It calls from the thread that called the library, or from a
 * library thread for an asynchronous save. Calls may block. */
#ifndef LIGAMENT_BACKEND_H
#define LIGAMENT_BACKEND_H

#include <ligament/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- volumes --- */

#define LIG_BLOCK_BYTES (UINT64_C(1) << 20) /* checksums are per block of a tensor */

/* Host memory that does not change before the next pack_put has succeeded, or the pack is sealed or closed. */
#define LIG_PIECE_KEPT 1u

/* Bytes to be written to a pack. `data` is borrowed for the call, with LIG_PIECE_KEPT for longer. If `hashes` is not
 * NULL, the volume fills hashes[i] with the keyed hash (lig_hash_block) of the piece's i-th block of LIG_BLOCK_BYTES;
 * a volume that copies anyway hashes while the bytes are in the cache. */
typedef struct lig_piece {
    const void *data;
    uint64_t bytes;
    uint64_t offset; /* in the pack; pieces are in ascending order and do not overlap; gaps are filled with zeros */
    uint64_t *hashes;
    uint16_t memory; /* lig_memory of `data` */
    uint16_t reserved[3];
    int32_t device;
    uint32_t flags;
} lig_piece;

/* Bytes to be read from a pack into `data` (filled). If `hashes` is not NULL, every block of the range is compared
 * with hashes[i] after it was read; `offset` is then the start of a block of the tensor, and the last block may be
 * short only at the tensor's end. */
typedef struct lig_range {
    void *data;
    uint64_t bytes;
    uint64_t offset;
    const uint64_t *hashes;
    uint16_t memory;
    uint16_t reserved[3];
    int32_t device;
    uint32_t flags;
} lig_range;

typedef struct lig_mapping {
    void *base; /* the pack's first byte; page aligned */
    uint64_t bytes;
    void *handle; /* for the volume */
} lig_mapping;

#define LIG_MAP_PRIVATE 1u /* writable, copy on write; otherwise read-only */

/* One change of a catalog; value NULL deletes. Keys are 1 to 64 bytes. All pointers are borrowed. */
typedef struct lig_catalog_op {
    const void *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
} lig_catalog_op;

typedef struct lig_catalog_item { /* borrowed from the snapshot until it ends */
    const void *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
} lig_catalog_item;

/* An event of a commit, for lig_store_watch. The store defines the bytes; the volume stores them, in order. */
typedef struct lig_catalog_event {
    const void *data; /* borrowed */
    size_t bytes;
} lig_catalog_event;

/* Commits of one caller that are not durable yet; version 0: none. Filled by catalog_commit, cleared by catalog_sync,
 * which must be called before any of them is reported as done. */
typedef struct lig_catalog_pending {
    uint64_t version; /* of the last of them */
    uint64_t first;   /* for the volume: the start of the time in which they may have been lost */
    void *held;       /* for the volume: resources for the sync */
} lig_catalog_pending;

#define LIG_EDIT_FREES 1u /* the edit frees space: on a full disk it may use space that is reserved for this */

/* One commit. With LIG_EDIT_FREES and without ops and events it changes nothing: on a full disk, a volume that logs its
 * commits then frees what the log does not need. */
typedef struct lig_catalog_edit {
    uint64_t version; /* the version of the catalog that the edit is based on */
    const lig_catalog_op *ops;
    size_t op_count;
    const lig_catalog_event *events;
    size_t event_count;
    uint32_t flags;
    uint32_t reserved;
    const uint64_t *packs; /* the packs whose use this commit changes and that are still used after it */
    size_t pack_count;
    lig_catalog_pending *pending; /* NULL: durable on return; otherwise catalog_sync may make it durable later */
} lig_catalog_edit;

/* Called for each event, oldest first; a non-zero result ends the visit. `date_ns` is the time of the commit (since
 * 1970, by the committer's clock). `data` is borrowed for the call. */
typedef int (*lig_catalog_visit)(void *context, uint64_t version, int64_t date_ns, const void *data, size_t bytes);

/* Called for each problem that is found. `event` (may be NULL) is an event of the damaged commit. All pointers are
 * borrowed. */
typedef lig_status (*lig_catalog_problem)(void *context, const char *text, const void *event, size_t event_bytes);

#define LIG_VOLUME_READ_ONLY 1u  /* nothing may be written through this handle */
#define LIG_VOLUME_NO_CATALOG 2u /* the catalog cannot be read here: a reader uses the packs' footers */
#define LIG_VOLUME_NO_HOLD 8u    /* a mapping becomes invalid if another host removes the pack */
#define LIG_VOLUME_NO_INLINE 4u  /* small saves also become packs, for readers that cannot read the catalog */

/* All members are required unless a comment says otherwise. All are **shared**. A pack is immutable once sealed and
 * never appended to. */
typedef struct lig_volume_ops {
    uint32_t struct_bytes; /* sizeof(lig_volume_ops) */
    uint32_t reserved;

    uint32_t (*flags)(void *self);

    /* A line for `ligament info`: how the volume does I/O, and what is unavailable. */
    void (*describe)(void *self, char *text, size_t text_bytes);

    /* Starts a pack of about `bytes` bytes (a hint). `secret` (LIG_SECRET_BYTES, borrowed until close) keys the
     * hashes. Nothing is visible before seal. */
    lig_status (*pack_create)(void *self, uint64_t bytes, const void *secret, void **pack);
    lig_status (*pack_put)(void *pack, const lig_piece *piece);
    /* Makes all bytes durable, then visible under a new id. The writer holds the pack until pack_close: it cannot be
     * claimed before. */
    lig_status (*pack_seal)(void *pack, uint64_t *id);
    /* Ends writing or claiming; a pack that was not sealed is discarded. NULL is valid. */
    void (*pack_close)(void *pack);

    lig_status (*pack_size)(void *self, uint64_t id, uint64_t *bytes);
    /* Fills `count` ranges, which ascend and do not overlap. On LIG_E_CORRUPT *bad is the index of a range that
     * does not match its hashes; after an error the contents are undefined. */
    lig_status (*pack_read)(void *self, uint64_t id, const void *secret, const lig_range *ranges, size_t count,
                            size_t *bad);
    /* May be NULL. A hint: bytes [from, to) were just loaded and will probably be loaded again. Returns immediately. */
    void (*pack_warm)(void *self, uint64_t id, uint64_t from, uint64_t to);
    /* The mapping stays readable after pack_remove, until unmap. */
    lig_status (*pack_map)(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping);
    void (*pack_unmap)(void *self, lig_mapping *mapping);
    /* Claims a sealed pack: LIG_E_BUSY while its writer holds it. For removing leftovers. */
    lig_status (*pack_claim)(void *self, uint64_t id, void **pack);
    /* LIG_E_BUSY while it is pinned. */
    lig_status (*pack_remove)(void *self, uint64_t id);
    /* The smallest id that is greater than `after`; LIG_E_NOTFOUND at the end. Start with 0, which is never an id. */
    lig_status (*pack_next)(void *self, uint64_t after, uint64_t *id);

    /* Protects packs from removal until unpin (NULL is valid), `expires_ns` (since 1970) or the end of this process.
     * Other processes see the pin as soon as the call returns; a crash of the machine ends it. LIG_E_DENIED for a
     * read-only handle. */
    lig_status (*pin)(void *self, const uint64_t *packs, size_t count, int64_t expires_ns, void **pin);
    void (*unpin)(void *pin);

    /* A consistent view of the catalog. `version` increases with every commit; an empty catalog has version 0. */
    lig_status (*catalog_begin)(void *self, void **snapshot, uint64_t *version);
    void (*catalog_end)(void *snapshot);
    /* The item with this key; LIG_E_NOTFOUND, without an error text, if there is none. */
    lig_status (*catalog_get)(void *snapshot, const void *key, size_t key_bytes, lig_catalog_item *item);
    /* The first item whose key is >= `key` in byte order; LIG_E_NOTFOUND at the end. */
    lig_status (*catalog_seek)(void *snapshot, const void *key, size_t key_bytes, lig_catalog_item *item);
    /* Applies all ops durably, or none, and stores the events: LIG_E_BUSY if the version is no longer edit->version.
     * After LIG_E_IO the outcome may be unknown: the error text says so, and the next snapshot shows the outcome.
     * After any other failure nothing was applied. */
    lig_status (*catalog_commit)(void *self, const lig_catalog_edit *edit);
    /* Optional, both or none (NULL). After LIG_OK only this thread can change the catalog, until its next
     * catalog_commit (regardless of its outcome) or catalog_unlock: an edit made from a snapshot that was begun
     * meanwhile is not refused with LIG_E_BUSY. If several hosts write, this applies only to the processes of one
     * host: be prepared to retry the edit. LIG_E_TIMEOUT names the process that holds the lock. */
    lig_status (*catalog_lock)(void *self, int64_t timeout_ns);
    void (*catalog_unlock)(void *self);
    /* After it returns LIG_OK, new snapshots include every commit made before the call, even those of processes that
     * were killed during a commit. Nothing is removed based on a snapshot that is older than such a call. May wait
     * for a commit of another process. */
    lig_status (*catalog_settle)(void *self);

    /* Visits the events of all commits after version `since`. LIG_E_NOTFOUND, with an error text, if the volume no
     * longer has all of them, or if the catalog never had version `since`. */
    lig_status (*catalog_events)(void *self, uint64_t since, lig_catalog_visit visit, void *context);
    /* Waits until there is a commit after version `since`, by this or another process; LIG_E_TIMEOUT. */
    lig_status (*catalog_wait)(void *self, uint64_t since, int64_t timeout_ns);

    /* Optional (NULL: nothing to verify). Reads all files of the catalog. `repair`: if anything is damaged, the
     * readable part becomes the new catalog. */
    lig_status (*catalog_verify)(void *self, int repair, lig_catalog_problem problem, void *context);

    /* Optional, both or none (NULL): lig_store_lock. One process at a time holds `name`, until its last unlock (NULL
     * is valid) or until it ends. LIG_E_BUSY names the process and its host. */
    lig_status (*lock)(void *self, const char *name, void **lock);
    void (*unlock)(void *lock);

    /* Optional (NULL: a pack is not a file). A descriptor of the pack's file, open for reading only; the caller closes
     * it. It stays readable after pack_remove. */
    lig_status (*pack_descriptor)(void *self, uint64_t id, int *descriptor);

    /* Optional (if NULL, so is edit->pending). Makes the pending commits durable, all with one sync, and clears
     * `pending` regardless of the outcome. After LIG_E_IO the outcome of each of them may be unknown, as after
     * catalog_commit. A snapshot that shows a pending commit makes it durable, too. */
    lig_status (*catalog_sync)(void *self, lig_catalog_pending *pending);
} lig_volume_ops;

/* --- the table of a plugin --- */

/* The backend accepts tensors, and pieces and ranges of its volume, in device memory. Otherwise they are staged
 * through host memory. */
#define LIG_BACKEND_DEVICE 1u

typedef struct lig_backend_option { /* one key of a built-in backend's URI query */
    const char *name, *kind, *fallback, *help;
} lig_backend_option;

/* Members that are NULL have the default given in the comment. Tensors passed to a plugin are contiguous, have been
 * checked (lig_tensors_check) and are borrowed for the call. Report errors with lig_fail: the text reaches the user. */
typedef struct lig_backend_ops {
    uint32_t flags;
    uint32_t reserved;
    lig_status (*open)(void **self, const char *config); /* default: self is NULL */
    lig_status (*save)(void *self, const char *set, const lig_tensor *tensors, size_t count);
    lig_status (*load)(void *self, const char *set, const lig_tensor *tensors, size_t count);
    void (*close)(void *self); /* default: nothing to free */
    /* Fills `set` with the name of set number `index`; LIG_E_NOTFOUND past the last; default: UNSUPPORTED. */
    lig_status (*list)(void *self, size_t index, char *set, size_t set_bytes);
    lig_status (*drop)(void *self, const char *set); /* default: UNSUPPORTED */
    /* Reads bytes [offset, offset + bytes) of one tensor; default: the whole tensor is loaded. */
    lig_status (*read_range)(void *self, const char *set, const lig_tensor *tensor, uint64_t offset, uint64_t bytes,
                             void *data);
    /* Saves a set one tensor at a time: begin (names and shapes of all, data NULL), put each, commit; abort instead of
     * commit undoes. All four or none; default: the library gathers pointers and calls save once. */
    lig_status (*begin)(void *self, const char *set, const lig_tensor *tensors, size_t count, void **stream);
    lig_status (*put)(void *stream, size_t index, const lig_tensor *tensor);
    lig_status (*commit)(void *stream);
    void (*abort)(void *stream);
    const lig_volume_ops *volume;      /* default: none, so no store */
    const lig_backend_option *options; /* ends with a NULL name; default: the library does not interpret the config */
} lig_backend_ops;

/* --- using a backend by name --- */

typedef struct lig_backend lig_backend;

/* Opens backend `name` (built in, or loaded by lig_plugin_load). `config` is passed to the backend unchanged; for
 * built-in ones it is a path with options, as after "name:" in a URI. NULL means "". */
LIG_API lig_status lig_backend_open(lig_backend **backend, const char *name, const char *config);
LIG_API void lig_backend_close(lig_backend *backend);

/* Checks the tensors, packs strided ones, stages device memory if the backend needs it, then calls the backend. */
LIG_API lig_status lig_backend_save(lig_backend *backend, const char *set, const lig_tensor *tensors, size_t count);
LIG_API lig_status lig_backend_load(lig_backend *backend, const char *set, const lig_tensor *tensors, size_t count);
LIG_API lig_status lig_backend_list(lig_backend *backend, size_t index, char *set, size_t set_bytes);
LIG_API lig_status lig_backend_drop(lig_backend *backend, const char *set);

/* The name of backend number `index`, in order of registration; NULL past the last. */
LIG_API const char *lig_backend_name(size_t index);

/* The table of a known backend, NULL if there is none. For `ligament info` and for tests. */
LIG_API const lig_backend_ops *lig_backend_find(const char *name);

/* Loads a shared library and registers its backends. If `name` is not NULL, fills *name with the name of the first
 * (static storage). Loading the same file again is valid; another file with a name in use is LIG_E_EXISTS. Libraries
 * are never unloaded. */
LIG_API lig_status lig_plugin_load(const char *path, const char **name);

#ifdef __cplusplus
}
#endif
#endif
