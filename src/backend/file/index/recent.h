/* The last commits, as one process has read them from the log. The index is written for many
 * commits at once; until then a snapshot shows these above it.
 *
 * On top of an index that stands anywhere between `after` and `at` they give the catalog at `at`.
 * Counted: any number of snapshots may hold one, and nobody changes it meanwhile. No I/O. */
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

/* Without commits, behind `at`. Let go of with ligi_recent_drop. */
lig_status ligi_recent_create(const ligi_clog_position *at, uint32_t epoch, ligi_recent **made);
ligi_recent *ligi_recent_hold(ligi_recent *recent);
/* NULL is fine. */
void ligi_recent_drop(ligi_recent *recent);

/* Adds the record that lies at `at` and follows the last one. *recent becomes another one when
 * somebody else holds it; after a failure it is what it was. */
lig_status ligi_recent_add(ligi_recent **recent, const uint8_t *record,
                           const ligi_clog_header *header, const ligi_clog_position *at);

/* 1 when the index stands between `after` and `at`, in the same history. */
int ligi_recent_fits(const ligi_recent *recent, const ligi_clog_position *index);
/* Forgets the commits that this index has, which fits. */
lig_status ligi_recent_trim(ligi_recent **recent, const ligi_clog_position *index);

/* The first item whose key is >= `key` in byte order; NULL at the end. */
const ligi_recent_item *ligi_recent_seek(const ligi_recent *recent, const void *key,
                                         size_t key_bytes);
/* The one with this key; NULL when no commit has touched it. */
const ligi_recent_item *ligi_recent_get(const ligi_recent *recent, const void *key,
                                        size_t key_bytes);

/* The order of keys in the catalog. */
int ligi_recent_compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes);

#endif
