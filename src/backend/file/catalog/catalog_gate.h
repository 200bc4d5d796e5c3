/* The catalog's log and index, and the gate for its transactions: LMDB can move its map, and be
 * opened again, only while this process has no transaction. For the sources of the catalog. */
#ifndef LIGI_CATALOG_GATE_H
#define LIGI_CATALOG_GATE_H

#include "backend/file/catalog/catalog.h"
#include "backend/file/entry.h"
#include "backend/file/log/file_log.h"

struct ligi_file_catalog {
    MDB_env *env; /* the index; NULL if it could not be opened again */
    MDB_dbi dbi;
    char *place;
    int folder_fd;
    int index_fd;      /* the folder of the index: the store, or one of this host (sharing.h) */
    int index_lock_fd; /* holds the locks of LMDB's environment; -1: not open */
    int apart;         /* stays alone as the first user */
    ligi_file_log log;
    uint64_t map_bytes;
    uint64_t log_bytes;      /* of log, after which a checkpoint is made */
    int64_t wait_ns;         /* for the write lock */
    uint64_t tight;          /* under LIGI_HEAD_WRITE: log.keep when a checkpoint was last tried on
                              * a full disk; 0: never */
    uint64_t index_kept;     /* under LIGI_HEAD_WRITE: the index has blocks up to there */
    uint64_t index_stored;   /* likewise: what it had on the disk then */
    ligi_entry_id head_file; /* the files that the names referred to when they were opened */
    ligi_entry_id index_file;

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    unsigned active; /* transactions of this process */
    int alone;       /* a thread has, or waits for, exclusive access */
    uint64_t *held;  /* ids of packs that this process writes or claims */
    size_t held_count, held_capacity;
    ligi_clog_position events; /* where the last read of events ended */
    int64_t adopted_ns;        /* when a wait for events last checked for commits of killed
                                * processes */
};

/* Around every transaction. Entering waits while another thread has exclusive access: LIG_E_BUSY
 * after 20 s. If the environment could not be opened again, entering tries that once more. */
lig_status ligi_file_catalog_enter(ligi_file_catalog *catalog);
void ligi_file_catalog_leave(void *catalog);

/* Grows the map after `reason`, outside of a transaction: MDB_MAP_RESIZED (another process has
 * grown the file) or MDB_MAP_FULL (the map is doubled). After MDB_PANIC the environment is opened
 * again: when it cannot write a meta page, LMDB refuses all further transactions. The index is then
 * as it was before that write. */
lig_status ligi_file_catalog_adapt_map(ligi_file_catalog *catalog, int reason);

#endif
