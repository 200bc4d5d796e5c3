/* The store's handle, for the files of this folder. */
#ifndef LIGI_HANDLE_H
#define LIGI_HANDLE_H

#include "store/catalog/footers.h"
#include "store/format/record.h"
#include "store/stamps.h"

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

struct lig_store {
    pid_t pid;
    atomic_int holders; /* its user, and the refs, which outlive lig_store_close */
    ligi_volume *volume;
    char *uri;
    char mode;      /* 'r', 'w' or 'a' */
    int by_footers; /* the catalog is made of the packs' footers, in memory */
    uint8_t uuid[LIGI_UUID_BYTES];
    uint8_t secret[LIG_SECRET_BYTES]; /* set at open, or with the first footer that is found */

    ligi_stamps stamps;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t idle;
    uint64_t next_id, end_id;          /* reserved for this handle */
    size_t saving;                     /* saves in the background */
    struct ligi_open_save *open_saves; /* those that are given their tensors one by one */
    ligi_footers *footers;
    int secret_known; /* from the footers */
};

void ligi_store_hold(lig_store *store);
void ligi_store_drop(lig_store *store);

/* Ends the saves that were begun and neither committed nor aborted. The lock is held. */
void ligi_save_async_end_open(lig_store *store);

/* What every public call asks first: LIG_E_CLOSED in a forked child. */
lig_status ligi_store_usable(const lig_store *store);
/* The same for calls that write. */
lig_status ligi_store_writable(const lig_store *store);

/* 1 to LIG_NAME_BYTES_MAX bytes of UTF-8. `what` is "model" or "alias". */
lig_status ligi_labels_check_name(const char *what, const char *name);

/* An id that no other model has. May commit. */
lig_status ligi_model_ids_take(lig_store *store, uint64_t *id);

/* Writes what lives in packs that are more than half dead into new ones; counts the packs that were
 * emptied and the bytes that were freed. */
lig_status ligi_compact_packs(lig_store *store, uint64_t *packs, uint64_t *bytes);

/* 1 when a snapshot names the pack or cannot be had. A hint: the commit of a killed process may not
 * show. */
int ligi_orphans_named(lig_store *store, uint64_t pack);
/* 1 when no commit names the pack, including those of killed processes; 0 when one does or the
 * catalog cannot be asked. The caller has claimed the pack, and 1 holds until that claim ends; the
 * thread has ended its snapshots. */
int ligi_orphans_unnamed(lig_store *store, uint64_t pack);

/* 1 when it is a whole pack of this store, named or not. */
int ligi_orphans_owned(lig_store *store, uint64_t pack);

/* Removes packs that the catalog does not name and nobody writes; counts them when the pointers are
 * not NULL. */
lig_status ligi_orphans_remove(lig_store *store, uint64_t *packs, uint64_t *bytes);
/* The same for one pack. */
void ligi_orphans_remove_pack(lig_store *store, uint64_t pack);

#endif
