/* Ligament: watching the changes of a store, interrupting a wait, and progress. Part of store.h.
 *
 *     lig_watch *watch;
 *     lig_event event;
 *     LIG_TRY(lig_store_watch(store, "resnet-?", LIG_WATCH_NOW, &watch));
 *     while (lig_watch_next(watch, LIG_FOREVER, &event) == LIG_OK)
 *         printf("%s\n", event.name);
 *     lig_watch_close(watch);
 *
 * Events are delivered in commit order, each once and without gaps, regardless of which process committed. The events
 * of one commit share a version and are consecutive; `more` is the number of those that follow. */
#ifndef LIGAMENT_WATCH_H
#define LIGAMENT_WATCH_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

enum lig_event_kind {
    LIG_EVENT_SAVED = 1,    /* a new model */
    LIG_EVENT_REPLACED = 2, /* a model replaced another of the same name */
    LIG_EVENT_RETIRED = 3,  /* a model was removed */
    LIG_EVENT_ALIAS = 4,    /* an alias now refers to `model`; model 0: it was removed */
    LIG_EVENT_UPDATED = 5   /* metrics, tags, meta or the name of a model changed */
};

typedef struct lig_event { /* strings are borrowed from the watch until its next call */
    uint64_t version;      /* of the store after the commit */
    int64_t date_ns;       /* time of the commit (since 1970, by the committer's clock) */
    uint64_t model;        /* id of the model */
    const char *name;      /* of the model, or the alias */
    const char *other;     /* UPDATED: the name before a rename; ALIAS: the name of the model; otherwise "" */
    int32_t kind;          /* enum lig_event_kind */
    uint32_t more;         /* events of the same commit that this watch has yet to deliver */
} lig_event;

/* Belongs to one thread at a time. Outlives lig_store_close, which ends its waits with LIG_E_CLOSED. */
typedef struct lig_watch lig_watch;

#define LIG_WATCH_NOW UINT64_MAX

/* Watches the commits after version `since`: that of an earlier event, lig_watch_since, lig_store_stats.version,
 * 0 for everything, or LIG_WATCH_NOW. `name` (borrowed; NULL: all) is a name or a pattern with * ? [..]; an event
 * matches by its name or its other name. LIG_E_NOTFOUND if `since` is too old for the store's history, or is not a
 * version of this store: list the models again. LIG_E_UNSUPPORTED if the volume keeps no events. Returns *watch
 * (lig_watch_close). */
LIG_API lig_status lig_store_watch(lig_store *store, const char *name, uint64_t since, lig_watch **watch);

/* Waits for the next event and fills it. LIG_E_TIMEOUT if there is none within `timeout_ns` (0: does not wait;
 * LIG_FOREVER: no limit); LIG_E_NOTFOUND if the watcher fell so far behind that events were dropped: list the models
 * again; LIG_E_CLOSED if the store was closed or the interrupt hook (lig_store_set_interrupt) ended the wait. */
LIG_API lig_status lig_watch_next(lig_watch *watch, int64_t timeout_ns, lig_event *event);

/* The version to pass as `since` to continue without losing an event: every event up to it was delivered. While a
 * commit is partly delivered (event.more is not 0) it is that of the previous commit, so that the events of the
 * current one are delivered again. */
LIG_API uint64_t lig_watch_since(const lig_watch *watch);

/* NULL is valid. */
LIG_API void lig_watch_close(lig_watch *watch);

/* --- interrupting a wait --- */

/* Calls on the store that wait for another process (to end its commit, or in lig_watch_next) call `hook` about every
 * 100 ms, on the thread that called the library, never on a library thread. If it returns non-zero, the call
 * ends with LIG_E_CLOSED and changes nothing. NULL, the default: the call waits until its deadline. The hook
 * must not call the library. Set it before other threads use the store. */
LIG_API void lig_store_set_interrupt(lig_store *store, int (*hook)(void *context), void *context);
/* lig_store_open with that hook from the start: a served store may take long to answer. */
LIG_API lig_status lig_store_open_interruptible(lig_store **store, const char *uri, int (*hook)(void *context),
                                                void *context);

/* Called between two reads, on the thread of the call, with the bytes read so far and the bytes of all models. A
 * non-zero result ends the call with LIG_E_CLOSED. */
typedef struct lig_progress {
    int (*hook)(void *context, uint64_t done, uint64_t total);
    void *context;
} lig_progress;

/* lig_store_check with progress; NULL: none. */
LIG_API lig_status lig_store_check_progress(lig_store *store, uint32_t flags, const lig_progress *progress,
                                            lig_report **report);

#ifdef __cplusplus
}
#endif
#endif
