/* Snapshots of an LMDB environment, and how keys and versions are stored in it. */
#ifndef LIGI_CATALOG_SNAPSHOT_H
#define LIGI_CATALOG_SNAPSHOT_H

#include "backend/file/catalog/catalog.h"
#include "backend/file/log/file_log.h"

/* A view of the environment, or of a copy of it (catalog_copy.h). */
typedef struct ligi_file_snapshot {
    MDB_txn *txn;
    MDB_dbi dbi;
    pid_t pid;
    void (*ended)(void *owner); /* after the transaction is gone */
    void *owner;
    ligi_file_log *log;   /* that holds large values; NULL: the catalog of format 1 */
    pthread_mutex_t lock; /* guards all below */
    MDB_cursor *cursor;   /* NULL before the first seek */
    void **values;        /* large ones that were read, freed at the end */
    size_t value_count, value_capacity;
} ligi_file_snapshot;

typedef struct ligi_file_snapshot_source {
    MDB_txn *txn; /* taken over, also on failure */
    MDB_dbi dbi;
    ligi_file_log *log;         /* NULL: the catalog of format 1 */
    void (*ended)(void *owner); /* called after the transaction is gone */
    void *owner;
} ligi_file_snapshot_source;

lig_status ligi_file_snapshot_create(const ligi_file_snapshot_source *source, void **snapshot,
                                     uint64_t *version);
void ligi_file_catalog_end(void *snapshot);
lig_status ligi_file_catalog_get(void *snapshot, const void *key, size_t key_bytes,
                                 lig_catalog_item *item);
lig_status ligi_file_catalog_seek(void *snapshot, const void *key, size_t key_bytes,
                                  lig_catalog_item *item);

/* Fills `stored` with the key as stored in the file. */
#define LIGI_KEY_BYTES_MAX 64
lig_status ligi_file_catalog_key(const void *key, size_t key_bytes,
                                 uint8_t stored[LIGI_KEY_BYTES_MAX + 1], MDB_val *out);
/* What the catalog cannot hold. */
lig_status ligi_file_catalog_check_ops(const lig_catalog_edit *edit);
/* The version as this transaction sees it. */
lig_status ligi_file_catalog_version(MDB_txn *txn, MDB_dbi dbi, uint64_t *version);
void ligi_file_catalog_version_key(MDB_val *key);

/* Converts LMDB's error number to a status and an error text: "<place>: the catalog <what>:
 * ...". */
lig_status ligi_mdb_fail(int number, const char *place, const char *what);

#endif
