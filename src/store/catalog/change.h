/* A change of the catalog, gathered in memory; commit.h commits it. */
#ifndef LIGI_CHANGE_H
#define LIGI_CHANGE_H

#include "store/catalog/catalog_view.h"
#include "store/catalog/fingerprint_index.h"
#include "store/catalog/search_index.h"

typedef struct ligi_count {
    uint64_t pack;
    ligi_pack_record record;
    int unknown; /* not in the catalog yet */
    void *claim; /* while it is removed */
} ligi_count;

typedef struct ligi_change_op {
    size_t key, key_bytes, value, value_bytes; /* offsets in `bytes`; value SIZE_MAX: erase */
} ligi_change_op;

typedef struct ligi_change_event_place {
    size_t at, bytes; /* in `bytes` of the change */
} ligi_change_event_place;

typedef struct ligi_change {
    lig_store *store;
    const ligi_catalog_view *view;
    ligi_writer bytes, value; /* `value`: room for the value that is being made */
    ligi_change_op *ops;
    size_t count, capacity;
    ligi_count *counts;
    size_t count_count, count_capacity;
    ligi_search_index_edits index;        /* applied together, before the commit */
    ligi_fingerprint_entry *fingerprints; /* likewise */
    size_t fingerprint_count, fingerprint_capacity;
    ligi_change_event_place *events;
    size_t event_count, event_capacity;
    uint32_t flags; /* of lig_catalog_edit */
    void **claims;  /* of packs that the catalog no longer contained, held until the change has
                     * ended */
    size_t claim_count, claim_capacity;
} ligi_change;

/* Puts change->value under the key. */
lig_status ligi_change_put(ligi_change *change, const ligi_catalog_key *key);
lig_status ligi_change_erase(ligi_change *change, const ligi_catalog_key *key);
/* Adds the record's uses to the packs' counts (sign 1) or subtracts them (sign -1). The record's
 * own pack has `bytes` if it is new; the caller holds a pin of any other pack that is not in the
 * catalog. */
lig_status ligi_change_uses(ligi_change *change, const ligi_record *record, int sign,
                            uint64_t bytes);
/* Records bytes for sharing by later saves. */
lig_status ligi_change_fingerprint(ligi_change *change, const ligi_fingerprint_entry *fingerprint);
/* Puts the record, and its name. */
lig_status ligi_change_model(ligi_change *change, const ligi_record *record);
/* Puts a model's graphs (as ligi_graphs_put writes them) and its index entries. */
lig_status ligi_change_graphs(ligi_change *change, const ligi_about *about, const void *graphs,
                              size_t bytes);
/* Erases a model: record, name (unless keep_name), inline data; subtracts its uses. Its aliases are
 * removed, or refer to `successor` if that is not 0. */
lig_status ligi_change_remove(ligi_change *change, const ligi_record *record, int keep_name,
                              uint64_t successor);

/* The same for a model that is kept until a date (retired_models.h): its uses remain. */
lig_status ligi_change_hide(ligi_change *change, const ligi_record *record, int64_t until_ns);

/* Adds an event for watchers (enum lig_event_kind); `other` may be NULL. */
lig_status ligi_change_event(ligi_change *change, int32_t kind, uint64_t model, const char *name,
                             const char *other);

/* Before the commit: puts the gathered counts, fingerprints and index entries. */
lig_status ligi_change_finish(ligi_change *change);
void ligi_change_fini(ligi_change *change);

#endif
