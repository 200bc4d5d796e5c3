/* The last commits, as one process has read them from the log. The index is written for many
 * commits at once; until then a snapshot shows these above it.
 *
 * Applied to an index at any version between `after` and `at`, they give the catalog at `at`.
 * Reference-counted: any number of snapshots may hold one, and it does not change meanwhile. No
 * I/O. */
#ifndef LIGI_RECENT_H
#define LIGI_RECENT_H

#include "backend/file/log/file_log.h"

#include <stdatomic.h>

typedef struct ligi_recent_record ligi_recent_record;

typedef struct ligi_recent_item { /* borrowed from the record */
    const uint8_t *key, *value;   /* value NULL: the key was erased */
    size_t key_bytes, value_bytes;
} ligi_recent_item;

typedef struct ligi_recent {
    atomic_uint users;
    uint64_t after; /* the version before the first record */
    ligi_clog_position at;
    uint32_t epoch; /* of the head: a later one may lack these commits */
    uint64_t bytes; /* of all records */
    ligi_recent_record **records;
    size_t record_count, record_capacity;
    ligi_recent_item *items; /* by key; of each key the last one */
    size_t item_count, item_capacity;
} ligi_recent;

/* Creates an empty list after `at`. Released with ligi_recent_drop. */
lig_status ligi_recent_create(const ligi_clog_position *at, uint32_t epoch, ligi_recent **made);
ligi_recent *ligi_recent_hold(ligi_recent *recent);
/* NULL is valid. */
void ligi_recent_drop(ligi_recent *recent);

/* Adds the record at `at`, which follows the last one. *recent is replaced by a copy if others hold
 * it; on failure it is unchanged. */
lig_status ligi_recent_add(ligi_recent **recent, const uint8_t *record,
                           const ligi_clog_header *header, const ligi_clog_position *at);

/* 1 if the version of the index is between `after` and `at`, in the same history. */
int ligi_recent_fits(const ligi_recent *recent, const ligi_clog_position *index);
/* Drops the commits that this index, which must match, already has. */
lig_status ligi_recent_trim(ligi_recent **recent, const ligi_clog_position *index);

/* The first item whose key is >= `key` in byte order; NULL at the end. */
const ligi_recent_item *ligi_recent_seek(const ligi_recent *recent, const void *key,
                                         size_t key_bytes);
/* The one with this key; NULL if no commit has changed it. */
const ligi_recent_item *ligi_recent_get(const ligi_recent *recent, const void *key,
                                        size_t key_bytes);

/* The order of keys in the catalog. */
int ligi_recent_compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes);

#endif
