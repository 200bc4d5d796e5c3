/* The store's handle, for the files of this folder. */
#ifndef LIGI_HANDLE_H
#define LIGI_HANDLE_H

#include "store/format/record.h"
#include "store/remote.h"
#include "store/time_stamps.h"

#include <ligament/store.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* An open volume; counted, because views outlive the store. */
typedef struct ligi_volume {
    const lig_backend_ops *backend;
    const lig_volume_ops *ops;
    void *self;
    atomic_int holders;
} ligi_volume;

void ligi_volume_hold(ligi_volume *volume);
void ligi_volume_drop(ligi_volume *volume);

/* Called every LIGI_WAIT_SLICE_NS by calls that wait for other processes; non-zero ends the
 * wait. */
typedef struct ligi_interrupt {
    int (*hook)(void *context); /* NULL: never */
    void *context;
} ligi_interrupt;

#define LIGI_WAIT_SLICE_NS INT64_C(100000000)
#define LIGI_COMMIT_NS INT64_C(30000000000)

/* See quota.h. */
typedef struct ligi_quota {
    const char *prefix;
    uint64_t bytes;
} ligi_quota;

struct lig_store {
    pid_t pid;
    atomic_int closed;        /* lig_store_close was called: only refs and watches remain */
    ligi_interrupt interrupt; /* of calls on their callers' threads */
    int64_t commit_ns;        /* how long a commit waits for others */
    atomic_int holders;       /* its user, and the refs, which outlive lig_store_close */
    ligi_volume *volume;
    const ligi_remote_ops *remote; /* NULL: the catalog is read and written here */
    char *uri;
    char mode;      /* 'r', 'w' or 'a' */
    int by_footers; /* the catalog is built from the packs' footers, in memory */
    uint8_t uuid[LIGI_UUID_BYTES];
    uint8_t secret[LIG_SECRET_BYTES]; /* set at open, or with the first footer that is found */

    ligi_stamps stamps;
    struct ligi_once *once;       /* the served request being executed; NULL: none */
    lig_catalog_pending *pending; /* of a served request: takes its commit; or NULL */
    const char *scope; /* of a served request: models whose names do not begin like this do not
                        * exist for it; NULL: all do */
    const ligi_quota *quotas; /* of a server; borrowed, as long as the handle */
    size_t quota_count;
    int64_t undelete_ns; /* of a server: how long retired models are kept; 0: not at all */
    int keyless;         /* of a served store: the server has the key of the hashes and verifies */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t idle;
    uint64_t next_id, end_id;          /* reserved for this handle */
    size_t saving;                     /* saves in the background */
    struct ligi_open_save *open_saves; /* those that receive their tensors one by one */
    struct ligi_footers *footers;
    int secret_known; /* from the footers */
};

/* Another handle of the same open volume, which records its timestamps in `store` and is closed
 * before it, with lig_store_close. */
lig_status ligi_store_clone(lig_store *store, lig_store **out);

void ligi_store_hold(lig_store *store);
/* The last one destroys. */
void ligi_store_drop(lig_store *store);

/* LIG_E_CLOSED, with an error text that names what was waited for, if the wait must end. */
lig_status ligi_interrupt_check(const ligi_interrupt *interrupt, const char *what,
                                const lig_store *store);

/* 1 if the model of that name exists for the calls on this handle. */
int ligi_store_sees(const lig_store *store, const char *model);

/* Called first by every public call: LIG_E_CLOSED in a forked child. */
lig_status ligi_store_usable(const lig_store *store);
/* The same for calls that write. */
lig_status ligi_store_writable(const lig_store *store);

#endif
