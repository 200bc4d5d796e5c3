/* The catalog of a remote volume at one version: the contents of the log so far, and the decisions
 * that follow from them. Pure: no I/O, no clock. States are immutable and **shared**. */
#ifndef LIGI_REMOTE_STATE_H
#define LIGI_REMOTE_STATE_H

#include "backend/item_map.h"
#include "backend/remote/format/remote_record.h"

#include <stdatomic.h>

typedef struct ligi_remote_state {
    ligi_item_map *items; /* NULL: none; first, for ligi_item_snapshot_get */
    atomic_size_t refs;
    uint64_t version, chain;
    ligi_item_map *condemned; /* pack (8 bytes, big-endian) -> when (8 bytes, big-endian) */
    uint64_t log_bytes;       /* of the records since the last checkpoint that this state was built
                               * from */
} ligi_remote_state;

/* Version 0 of the store with this id. ligi_remote_state_release. */
lig_status ligi_remote_state_create(const uint8_t id[16], ligi_remote_state **state);
ligi_remote_state *ligi_remote_state_hold(ligi_remote_state *state); /* returns it */
void ligi_remote_state_release(ligi_remote_state *state);            /* NULL is valid */

/* The state after the record, which must be that of version + 1 and follow the chain; a record with
 * LIGI_REMOTE_RESTART follows anything. LIG_E_CORRUPT otherwise. Damaged items are left out; a
 * record that ligi_remote_record_get accepted has none. */
lig_status ligi_remote_state_apply(const ligi_remote_state *state, const ligi_remote_record *record,
                                   ligi_remote_state **next);

/* --- the removal protocol --- */

/* 1, and when, if the pack is condemned: it is never used again. */
int ligi_remote_condemned(const ligi_remote_state *state, uint64_t pack, int64_t *when_ns);
/* The index of the first pack of an edit that is condemned; `count` if none is: then a commit that
 * follows this state may name them. */
size_t ligi_remote_first_condemned(const ligi_remote_state *state, const uint64_t *packs,
                                   size_t count);
/* Fills `packs` with condemned packs > `after`, ascending, that were condemned at or before
 * `until_ns`; returns their number, at most `capacity`. */
size_t ligi_remote_due(const ligi_remote_state *state, uint64_t after, int64_t until_ns,
                       uint64_t *packs, size_t capacity);

#endif
