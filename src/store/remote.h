/* The interface between the store's calls and a store that another process serves.
 *
 * A lig_store whose `remote` is set has no catalog. Calls that read or change the
 * catalog go through this table; all others (load, read, map, diff, copy, graphs, watch, locks) run
 * the same code as on a local store, over refs that `resolve` makes and over the volume, which
 * reads packs through the server. src/store/serve/README.md lists which call is which. The table is
 * filled by src/store/serve/client; the rooms below know only this header. */
#ifndef LIGI_REMOTE_H
#define LIGI_REMOTE_H

#include <ligament/store.h>

struct ligi_layers;
struct ligi_plan;
struct ligi_source;

/* The model to look up: by name or, if that is NULL, by id. */
typedef struct ligi_model_key {
    const char *name;
    uint64_t id;
    uint64_t parent; /* for a lineage by id: the model itself may have been removed */
} ligi_model_key;

/* An object that the server keeps for this client until it is released or the connection ends: the
 * model of a ref, a match, a part. */
typedef struct ligi_lease {
    uint64_t session; /* the connection, counted by the client */
    uint64_t number;  /* 0: nothing */
} ligi_lease;

/* A save that the server has accepted and that waits for its tensors. */
typedef struct ligi_remote_save {
    void (*abort)(struct ligi_remote_save *save); /* and frees it */
} ligi_remote_save;

/* Arguments have passed the checks that a local store makes first. Everything is **shared**. */
typedef struct ligi_remote_ops {
    /* The server holds the model until `release`, regardless of the flags (LIGI_REF_*). */
    lig_status (*resolve)(lig_store *store, const ligi_model_key *key, int flags, lig_ref **ref);
    /* Does not wait. Any thread; also after the connection was lost. */
    void (*release)(lig_store *store, ligi_lease lease);

    lig_status (*models)(lig_store *store, const lig_query *query, lig_model ***models,
                         size_t *count);
    lig_status (*lineage)(lig_store *store, const ligi_model_key *key, lig_lineage **lineage);
    lig_status (*stat)(lig_store *store, lig_store_stats *stats);
    lig_status (*alias_at)(lig_store *store, size_t index, char **alias, char **model);
    /* `like` names the query model; NULL: `asking` is its graph. */
    lig_status (*find)(lig_store *store, const struct ligi_layers *asking, const char *like,
                       const lig_find_options *options, lig_match ***matches, size_t *count);

    lig_status (*update)(lig_store *store, const char *model, const lig_update *update);
    lig_status (*alias)(lig_store *store, const char *alias, const char *model);
    /* `now`: the model cannot be restored. */
    lig_status (*retire)(lig_store *store, const char *model, int now);
    lig_status (*restore)(lig_store *store, const char *model, const char *as);
    lig_status (*check)(lig_store *store, uint32_t flags, const lig_progress *progress,
                        lig_report **report);
    lig_status (*compact)(lig_store *store, lig_report **report);
    lig_status (*time_stamps)(lig_store *store, const char *name, int64_t **stamps, size_t *count);
    lig_status (*clear_time_stamps)(lig_store *store, const char *name);
    lig_status (*shutdown_server)(lig_store *store);

    /* Asks whether the plan may be saved and sets plan->begun. A save on its caller's thread does
     * not need this: save_run begins it. `in_parts`: as in ligi_source. */
    lig_status (*save_begin)(lig_store *store, struct ligi_plan *plan, int in_parts);
    /* ligi_save_run. */
    lig_status (*save_run)(lig_store *store, struct ligi_plan *plan,
                           const struct ligi_source *source);
    lig_status (*join)(lig_store *store, const char *model, const lig_part_data *parts,
                       size_t count, const lig_save_options *options);
} ligi_remote_ops;

#endif
