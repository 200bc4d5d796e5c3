/* An engine gives access to a storage service that others operate (S3, RADOS): the functions that a
 * remote volume needs.
 *
 * The volume over it (remote.h) has the catalog's index, the commit and removal protocols, hashes,
 * the local cache and the options that all engines share. An engine only moves bytes, numbers
 * commits, records who uses a pack, and knows the service's time. A new
 * service implements this table and inherits the rest (docs/decisions/0011).
 *
 * An engine is a separate shared object, `libligament_<scheme>.so`, which exports the table as
 * `lig_engine_entry`. It cannot see our hidden symbols: the functions of the library that it needs
 * are in ligi_engine_host.
 *
 * Rules for every function:
 * - **shared**: any thread may call at any time, except that one writer (object_create) is used by
 *   one thread at a time; object_renew and pin_renew are called by a thread of the volume.
 * - It may block, but never forever: retries with back-off end after the option `timeout=`, with
 *   LIG_E_TIMEOUT or LIG_E_IO and an error text that names the service and the object.
 * - Statuses mean the same everywhere: LIG_E_NOTFOUND: it does not exist; LIG_E_DENIED: the
 *   credentials do not permit it; LIG_E_LIMIT: no space or quota. The engine retries and repeats
 *   requests; its result is final.
 * - An error text comes with every failure (host->fail), except where a comment says otherwise.
 * - All times are in ns. `ttl_ns` counts from the call. */
#ifndef LIGI_STORAGE_ENGINE_H
#define LIGI_STORAGE_ENGINE_H

#include "base/uri/option.h"

#include <ligament/backend.h>

#define LIGI_ENGINE_ABI 1
#define LIGI_ENGINE_MARKER_MAX 4096 /* bytes of a marker */
#define LIGI_RECORD_ID_BYTES 16

/* --- what the library does for engines --- */

typedef struct ligi_engine_host {
    uint32_t abi, size;
    lig_status (*fail)(lig_status status, const char *format, ...) LIG_PRINTF(2, 3); /* lig_fail */
    const char *(*error_text)(void); /* lig_error_text: of the calling thread */
    /* ligi_log: one line; `level` is a lig_log_level. */
    void (*log)(int level, const char *format, ...) LIG_PRINTF(2, 3);
    lig_status (*random)(void *bytes, size_t count); /* from the system's source */
    /* A credential that a program set with lig_credential_set: copies the value and a NUL into
     * `value`. LIG_E_NOTFOUND, without an error text, if it set none. Names: "s3.access_key",
     * "s3.secret_key", "s3.session_token", "s3.region", "rados.key", ... */
    lig_status (*credential)(const char *name, char *value, size_t value_bytes);
} ligi_engine_host;

/* --- opening --- */

typedef struct ligi_engine_place { /* borrowed during open */
    const ligi_uri *uri; /* the engine interprets its place; its options are already parsed */
    const void *options; /* the struct of config_bytes that ops->options filled */
    int read_only;       /* mode=r: nothing will be written, created or pinned */
    int64_t timeout_ns;  /* option timeout=: after this an unanswered request fails */
} ligi_engine_place;

typedef struct ligi_engine_limits {
    uint64_t record_bytes_max; /* of one commit */
    uint64_t range_bytes;      /* the best size of one read, a multiple of LIG_BLOCK_BYTES */
    uint32_t reads;            /* of that size in flight */
    uint32_t log_entries_max;  /* the log is trimmed to this many; 0: any number */
} ligi_engine_limits;

/* --- objects: immutable bytes under a number --- */

typedef enum ligi_object_kind { LIGI_OBJECT_PACK, LIGI_OBJECT_CHECKPOINT } ligi_object_kind;

typedef struct ligi_object {
    ligi_object_kind kind;
    uint64_t id; /* of a pack; the version of a checkpoint */
} ligi_object;

typedef struct ligi_object_range { /* to be read into `data`, which is host memory */
    void *data;
    uint64_t offset, bytes;
} ligi_object_range;

/* Called on the thread that called object_read, in any order, when range `index` is complete: the
 * volume verifies it while others are in flight. A failure ends the read with this status. */
typedef lig_status (*ligi_object_arrived)(void *context, size_t index);

/* --- the log of commits --- */

/* The caller's knowledge of the end of the log. */
typedef struct ligi_log_end {
    uint64_t version; /* the last commit */
    int64_t seen_ns;  /* CLOCK_REALTIME before sending the request that showed that it was the last;
                      * 0: never */
} ligi_log_end;

/* `record` is borrowed for the call; its first LIGI_RECORD_ID_BYTES are its id. A damaged entry is
 * visited too, with the bytes that could be read, possibly none: it must not hide later entries. */
typedef lig_status (*ligi_log_visit)(void *context, uint64_t version, const void *record,
                                     size_t bytes);

/* --- the table --- */

typedef struct ligi_engine_ops {
    uint32_t abi;  /* LIGI_ENGINE_ABI */
    uint32_t size; /* sizeof(ligi_engine_ops) */
    const char *scheme;
    const char *help;           /* one line, for `ligament info` */
    const ligi_option *options; /* of its URIs, besides those of every remote volume (remote.h) */
    size_t option_count;
    size_t config_bytes; /* of the struct that the options fill */

    /* Connects: wrong credentials, a missing bucket or pool and an unreachable service are reported
     * here. Does not create a store. */
    lig_status (*open)(const ligi_engine_host *host, const ligi_engine_place *place, void **self);
    /* All writers, pins and locks have ended before. In a forked child (`forked`) frees memory and
     * closes descriptors, and changes nothing that the parent or the service can see. */
    void (*close)(void *self, int forked);
    void (*limits)(void *self, ligi_engine_limits *limits);
    void (*describe)(void *self, char *text, size_t text_bytes); /* a line for `ligament info` */
    /* The service's clock (since 1970), as far as it is known; CLOCK_REALTIME if the service has
     * none. */
    lig_status (*now)(void *self, int64_t *now_ns);

    /* The marker makes a place a store: it is written once, with put-if-absent (LIG_E_EXISTS), and
     * everything else is created with it or later. Before it, an engine may probe the service and
     * refuse (LIG_E_UNSUPPORTED). */
    lig_status (*marker_put)(void *self, const void *marker, size_t bytes);
    /* Fills at most LIGI_ENGINE_MARKER_MAX bytes. LIG_E_NOTFOUND, without an error text, if there
     * is no store here. */
    lig_status (*marker_get)(void *self, void *marker, size_t *bytes);

    /* --- log --- */

    /* Adds commit number end->version + 1, durably, unless it exists: LIG_E_BUSY, without an error
     * text, if it does. Retries as needed, and recognises its own record by its id. LIG_E_IO: the
     * outcome is unknown, even after looking the record up; any other failure: nothing was or will
     * be added.
     *
     * Fence, for services where only an existing entry prevents a second one with its number (S3):
     * a removed entry does not stop a writer that was suspended. So every attempt reads
     * CLOCK_REALTIME once; the same reading signs the request, and if it is more than `fresh_ns`
     * after end->seen_ns, or before it by as much, the result is LIG_E_BUSY without a request.
     * Entries are kept long enough (log_trim) that a number that was free within `fresh_ns` and the
     * lifetime of a signature was never used. An engine that compares and sets in one operation
     * (RADOS) ignores seen_ns and fresh_ns. */
    lig_status (*log_append)(void *self, const ligi_log_end *end, int64_t fresh_ns,
                             const void *record, size_t bytes);
    /* Visits the commits after end->version, in order and without a gap, up to the last; none is
     * LIG_OK. LIG_E_NOTFOUND, without an error text: end->version + 1 was removed (a checkpoint is
     * needed), or there was never a version end->version. If end->seen_ns is less than `fresh_ns`
     * ago, an engine may regard a missing entry end->version + 1 as the end of the log; otherwise
     * it verifies that there is no later entry. */
    lig_status (*log_read)(void *self, const ligi_log_end *end, int64_t fresh_ns,
                           ligi_log_visit visit, void *context);
    /* Returns when there may be a commit after `since`, and at the latest after timeout_ns: LIG_OK
     * in both cases; the caller then reads the log. Polls if the service has no notifications. */
    lig_status (*log_wait)(void *self, uint64_t since, int64_t timeout_ns);
    /* Removes entries with numbers < `before`, the oldest first as far as possible. An engine with
     * the fence keeps those that are younger than keep_ns by the service's clock. Any of them may
     * remain, also with gaps: closing a store waits for this call, so it runs for a few seconds
     * only. */
    lig_status (*log_trim)(void *self, uint64_t before, int64_t keep_ns);
    /* The checkpoint of `version` is sealed: from now on checkpoint_newest may return it. Several
     * processes may publish the same version, whose contents are equal. */
    lig_status (*checkpoint_publish)(void *self, uint64_t version);
    /* The newest published checkpoint whose version is < `before` (UINT64_MAX at first; less when
     * that one is damaged). LIG_E_NOTFOUND, without an error text. */
    lig_status (*checkpoint_newest)(void *self, uint64_t before, uint64_t *version);

    /* --- objects --- */

    /* Starts an object of about `bytes` bytes (0: unknown). A pack's number is claimed for the
     * writer at once, for ttl_ns unless renewed: others see it (pack_held). LIG_E_EXISTS, without
     * an error text, if a pack with this number exists or is being written: ids are random and
     * never reused. A checkpoint with this number may exist: it is replaced at seal. */
    lig_status (*object_create)(void *self, ligi_object object, uint64_t bytes, int64_t ttl_ns,
                                void **writer);
    /* Room for the next bytes: memory of the engine (page aligned, at least 1 MiB), which the
     * caller fills. Waits while too many pushes are in flight. Returns the same room until push. */
    lig_status (*object_room)(void *writer, void **memory, uint64_t *bytes);
    /* Appends the first `bytes` bytes of the room to the object: they are sent in the background.
     * All but the last push of an object fill their room. A failure of an earlier push is reported
     * by the next call. */
    lig_status (*object_push)(void *writer, uint64_t bytes);
    /* All bytes durable, then visible as one object. */
    lig_status (*object_seal)(void *writer);
    /* The claim of a pack's number lasts ttl_ns from now on. LIG_E_NOTFOUND: the claim is lost. */
    lig_status (*object_renew)(void *writer, int64_t ttl_ns);
    /* Ends the writer and its claim; an object that was not sealed is discarded. `forked`: frees
     * memory only. NULL is valid. */
    void (*object_close)(void *writer, int forked);

    lig_status (*object_size)(void *self, ligi_object object, uint64_t *bytes);
    /* Fills `count` ranges, several in flight; they ascend and lie within the object: LIG_E_CORRUPT
     * if it is shorter. `arrived` may be NULL. */
    lig_status (*object_read)(void *self, ligi_object object, const ligi_object_range *ranges,
                              size_t count, ligi_object_arrived arrived, void *context);
    /* Fills at most `capacity` numbers of sealed objects that are > `after`, ascending; *count <
     * capacity means that there are no more. A pack whose removal was interrupted is listed until
     * object_remove has ended. */
    lig_status (*object_list)(void *self, ligi_object_kind kind, uint64_t after, uint64_t *ids,
                              size_t capacity, size_t *count);
    /* Removes objects; results[i] is LIG_OK (also if it did not exist) or why not, without an error
     * text. A pack: LIG_E_BUSY while it is pinned; pins are checked after the call began. The claim
     * of its writer is not checked, and is removed too. */
    lig_status (*object_remove)(void *self, ligi_object_kind kind, const uint64_t *ids,
                                size_t count, lig_status *results);

    /* LIG_E_BUSY while the claim of a sealed pack's writer lasts: it has not closed it, and may be
     * about to commit. Claims of dead writers end by time. LIG_E_NOTFOUND if there is no such pack.
     */
    lig_status (*pack_held)(void *self, uint64_t id);
    /* Removes leftovers of objects that were never sealed (parts, stripes, claims) and whose claim
     * has expired. A writer that was only suspended cannot seal after that. *more: there is more
     * than one call should remove. */
    lig_status (*drafts_remove)(void *self, int *more);

    /* --- pins --- */

    /* Protects packs from object_remove until unpin or ttl_ns: seen by every later object_remove
     * once this returns. LIG_E_DENIED if these credentials cannot write. A pack that does not exist
     * is no failure, and is not created. */
    lig_status (*pin)(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns, void **pin);
    lig_status (*pin_renew)(void *pin, int64_t ttl_ns);
    void (*unpin)(void *pin, int forked); /* NULL is valid */
    /* Sets pinned[i] to 1 if the pack is pinned, otherwise to 0. */
    lig_status (*pinned)(void *self, const uint64_t *packs, size_t count, uint8_t *pinned);

    /* --- locks by name; all NULL if the service has none --- */

    /* One holder at a time until unlock or ttl_ns. LIG_E_BUSY: the text names the holder. `holder`
     * (process and host) is shown to others. */
    lig_status (*lock)(void *self, const char *name, const char *holder, int64_t ttl_ns,
                       void **lock);
    lig_status (*lock_renew)(void *lock, int64_t ttl_ns);
    void (*unlock)(void *lock, int forked); /* NULL is valid */
} ligi_engine_ops;

#endif
