/* The contents of the index, an LMDB database built from the log (docs/decisions/0008).
 *
 * Key 0x00 "version": the version it has reached, 8 bytes, little-endian. 0x00 "tail": the position
 * behind it in the log. 0x00 "bound": which log, which start of the machine. The item with key K is
 * stored under 0x01 K: the value and a byte 0, or a reference to a large value and a byte 1. */
#ifndef LIGI_INDEX_ITEMS_H
#define LIGI_INDEX_ITEMS_H

#include "backend/file/log/file_log.h"
#include "backend/file/log/log_checkpoint.h"

#include <lmdb.h>

#define LIGI_MDB_INLINE_BYTES 1024 /* larger values are references */

typedef struct ligi_mdb_txn { /* a transaction that is filled */
    MDB_txn *txn;
    MDB_dbi dbi;
    ligi_clog_position at; /* what it has reached */
    int number;            /* LMDB's first refusal */
    uint64_t applied;      /* records */
} ligi_mdb_txn;

/* Fills *at; version 0 when the database is empty. LIG_E_CORRUPT. */
lig_status ligi_mdb_position(MDB_txn *txn, MDB_dbi dbi, ligi_clog_position *at);
/* Puts index->at; the result is LMDB's. */
int ligi_mdb_position_put(const ligi_mdb_txn *index);

/* The size of the records of commits that erase all items, or 8 MiB: a larger store has
 * checkpoints, and frees space with the next one. */
uint64_t ligi_mdb_erase_bytes(const ligi_mdb_txn *index);

/* 1 if the database was built from this log since the machine was started. */
int ligi_mdb_bound(MDB_txn *txn, MDB_dbi dbi, const uint8_t id[16]);
int ligi_mdb_bind(const ligi_mdb_txn *index, const uint8_t id[16]);

/* Applies a record, as a ligi_clog_visit with a ligi_mdb_txn. On LIG_E_IO index->number is LMDB's
 * refusal. */
lig_status ligi_mdb_apply(void *index, const uint8_t *record, const ligi_clog_header *header,
                          const ligi_clog_position *at);
/* One item of the record that begins at `at`; the result is LMDB's. */
int ligi_mdb_apply_item(ligi_mdb_txn *index, const ligi_clog_item *item, uint64_t version,
                        const ligi_clog_position *at);
/* Puts an item of a checkpoint, as a ligi_checkpoint_visit with a ligi_mdb_fill: into a database
 * that has no greater key. */
typedef struct ligi_mdb_fill {
    ligi_mdb_txn *index;
    uint64_t checkpoint;
} ligi_mdb_fill;
lig_status ligi_mdb_fill_item(void *fill, const ligi_checkpoint_item *item);

/* A value as stored in the index, or in the log. */
typedef struct ligi_mdb_value_read {
    const void *key; /* whose it is */
    size_t key_bytes;
    const void *data; /* filled: borrowed from `stored`, or ... */
    size_t bytes;
    void *owned; /* ... read from the log, for free(); otherwise NULL */
    int damaged; /* it differs from the stored value: the log is damaged */
} ligi_mdb_value_read;

/* LIG_E_BUSY if it belongs to a version that is no longer kept. */
lig_status ligi_mdb_value(ligi_file_log *log, MDB_val stored, ligi_mdb_value_read *value);
/* The version that put a stored value, where it is known. */
uint64_t ligi_mdb_value_version(MDB_val stored);

#endif
