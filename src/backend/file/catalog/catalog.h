/* The catalog of a file volume: the log of commits, and the index made from it
 * (docs/decisions/0008). One for each store in a process, however often the volume is opened.
 * Everything here is **shared**. */
#ifndef LIGI_CATALOG_H
#define LIGI_CATALOG_H

#include <ligament/backend.h>

#include <lmdb.h>
#include <pthread.h>
#include <sys/types.h>

typedef struct ligi_file_catalog ligi_file_catalog;

typedef struct ligi_file_catalog_place {
    int folder_fd;
    int index_fd; /* the folder of the index; for a shared store (sharing.h), of head and index */
    const char *place;
    uint64_t map_bytes; /* address space of the index, at first */
    uint64_t log_bytes; /* a checkpoint is made when the log has grown by this, or doubled */
    int64_t wait_ns;    /* for another process that holds the write lock */
    int sync;           /* commits are synced if one of the openers requires it */
    int apart;          /* shares no state with other handles of this process */
} ligi_file_catalog_place;

/* Creates an empty catalog if there is none; upgrades one of format 1. LIG_E_CORRUPT when log and
 * checkpoints are damaged; LIG_E_BUSY when the store becomes one of several hosts. Closed by
 * ligi_file_catalog_close, not at all in a forked child. NULL is valid there. */
lig_status ligi_file_catalog_open(ligi_file_catalog **catalog,
                                  const ligi_file_catalog_place *place);
void ligi_file_catalog_close(ligi_file_catalog *catalog);

lig_status ligi_file_catalog_begin(ligi_file_catalog *catalog, void **snapshot, uint64_t *version);

/* The volume's members (backend.h). */
lig_status ligi_file_catalog_lock(ligi_file_catalog *catalog, int64_t timeout_ns);
void ligi_file_catalog_unlock(ligi_file_catalog *catalog);
/* The same when this thread holds the lock. */
void ligi_file_catalog_unlock_mine(ligi_file_catalog *catalog);
lig_status ligi_file_catalog_commit(ligi_file_catalog *catalog, const lig_catalog_edit *edit);
lig_status ligi_file_catalog_sync(ligi_file_catalog *catalog, lig_catalog_pending *pending);
lig_status ligi_file_catalog_settle(ligi_file_catalog *catalog);
/* The same unless the write lock is held: LIG_E_TIMEOUT. */
lig_status ligi_file_catalog_adopt(ligi_file_catalog *catalog);

/* Describes who holds the write lock; "" if no process does. */
void ligi_file_catalog_holder(ligi_file_catalog *catalog, char *text, size_t text_bytes);

#endif
