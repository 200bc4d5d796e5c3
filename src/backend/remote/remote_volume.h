/* A volume on a storage service: the state that all threads and handles of a process share for one
 * place, and an open handle. The members of its table are implemented in the files of this
 * folder. */
#ifndef LIGI_REMOTE_VOLUME_H
#define LIGI_REMOTE_VOLUME_H

#include "backend/remote/format/remote_state.h"
#include "backend/remote/storage_engine.h"
#include "base/error.h"

#include <pthread.h>
#include <sys/types.h>

#define LIGI_REMOTE_LIST_MAX 1000 /* S3 returns no more at a time */

/* The time windows of the protocol; options of the URI, in seconds there. */
typedef struct ligi_remote_windows {
    int64_t timeout_ns; /* a request that is not answered */
    int64_t grace_ns;   /* between the end of a pack in the catalog and its removal */
    int64_t fresh_ns;   /* how old a view of the log's end may be for a commit */
    int64_t keep_ns;    /* how long entries of the log are kept at least */
    int64_t ttl_ns;     /* how long pins, claims and locks outlive a dead process */
} ligi_remote_windows;

/* A lease that the keeper renews: a pin, the claim of a writer, a lock. */
typedef struct ligi_remote_lease {
    struct ligi_remote_lease *next, **link;
    lig_status (*renew)(void *thing, int64_t ttl_ns);
    void *thing;
    int64_t renewed_ns; /* CLOCK_BOOTTIME before the last renewal that succeeded */
    int64_t until_ns;   /* date from which it is no longer renewed */
    int busy;           /* the keeper is renewing it */
    int lost;
} ligi_remote_lease;

/* A pack that this process writes or has claimed. */
typedef struct ligi_remote_claim {
    struct ligi_remote_claim *next, **link;
    uint64_t id;
    ligi_remote_lease *lease; /* of a pack that this process writes; NULL otherwise */
    int named; /* a commit of another process has named it, or may have, since it was claimed */
} ligi_remote_claim;

typedef struct ligi_remote_turn { /* a thread that waits to change the catalog */
    struct ligi_remote_turn *next;
    pthread_t thread;
    int given;
} ligi_remote_turn;

typedef struct ligi_remote_cache ligi_remote_cache;

typedef struct ligi_remote_volume {
    const ligi_engine_ops *ops;
    void *engine;
    ligi_engine_limits limits;
    ligi_remote_windows windows;
    char *name; /* for error texts: the URI without its options */
    uint8_t id[LIGI_REMOTE_ID_BYTES];
    int read_only;
    ligi_remote_cache *cache; /* NULL: none */

    pthread_mutex_t lock;   /* guards all below */
    pthread_cond_t changed; /* CLOCK_MONOTONIC: any of it */

    size_t handles; /* without one, the engine is closed */
    int moving;     /* a thread opens or closes the engine */

    ligi_remote_state *state; /* the latest known; NULL before the first refresh */
    int64_t seen_ns;          /* ligi_log_end of that version */
    ligi_failure damage;      /* the state lacks what is damaged: nothing is committed */
    uint64_t unsettled;       /* a commit of this version may still arrive; 0: none */
    int refreshing;
    uint64_t refresh_begun, refresh_ended;
    ligi_failure refresh_failure; /* of the last one that ended */

    int turn_taken;
    pthread_t turn_owner;
    ligi_remote_turn *turns; /* in order of arrival */

    ligi_remote_claim *claims;
    ligi_remote_lease *leases;
    struct ligi_remote_name *names; /* locked by this process */

    int keeper_started, keeper_stop;
    pthread_t keeper;
    int checkpoint_wanted, sweep_wanted;
    uint64_t checkpointed_bytes; /* the state's log_bytes at the last checkpoint of this process */
    int64_t sweep_ns;            /* CLOCK_MONOTONIC of the next one by time; 0: none */
    int64_t drafts_ns;    /* time of the last search for leftovers of dead writers; 0: never */
    ligi_item_map *swept; /* condemned packs that this process found deleted, as in a state */
    struct {              /* a listing of packs that pack_next walks through */
        uint64_t ids[LIGI_REMOTE_LIST_MAX];
        size_t at, count;
    } listing;
} ligi_remote_volume;

typedef struct ligi_remote { /* a handle */
    ligi_remote_volume *volume;
    int read_only;
    pid_t pid;
} ligi_remote;

/* LIG_E_CLOSED in a forked child. */
lig_status ligi_remote_usable(const ligi_remote *self);
lig_status ligi_remote_writable(const ligi_remote *self);

/* Opens a handle on the place that `config` (the URI without "scheme:") names. */
lig_status ligi_remote_open(const ligi_engine_ops *ops, const char *config, void **self);
void ligi_remote_close(void *self);
extern const lig_volume_ops ligi_remote_volume_ops;
/* The options of every remote volume, for `ligament info`. */
extern const lig_backend_option ligi_remote_shown_options[];

/* A clock that continues while the machine is suspended. */
int64_t ligi_remote_boot_ns(void);

#endif
