/* The catalog as the store sees it: models, names, aliases and counts in a consistent view. */
#ifndef LIGI_CATALOG_VIEW_H
#define LIGI_CATALOG_VIEW_H

#include "store/catalog/rebuild/catalog_from_footers.h"
#include "store/handle.h"

typedef struct ligi_catalog_view {
    lig_store *store;
    void *snapshot; /* the volume's, or NULL */
    ligi_footers *footers;
    uint64_t version;
} ligi_catalog_view;

/* Reading from a view ends with LIG_E_BUSY if another process has replaced a large value since
 * and the volume no longer keeps the old one. Callers that read many items start again with a
 * new view, up to this many times. */
#define LIGI_VIEW_TRIES 20

lig_status ligi_catalog_view_begin(lig_store *store, ligi_catalog_view *view);
void ligi_catalog_view_end(ligi_catalog_view *view);
/* The version that a view would show now. */
lig_status ligi_catalog_view_version(lig_store *store, uint64_t *version);
/* LIG_E_BUSY, without an error text, if the catalog is no longer at `version`. */
lig_status ligi_catalog_view_unchanged(lig_store *store, uint64_t version);

/* LIG_E_NOTFOUND, without an error text, if there is none. Items are valid until the view ends. */
lig_status ligi_catalog_view_get(const ligi_catalog_view *view, const ligi_catalog_key *key,
                                 lig_catalog_item *item);
lig_status ligi_catalog_view_seek(const ligi_catalog_view *view, const ligi_catalog_key *key,
                                  lig_catalog_item *item);

/* Walks one table: start with a zeroed cursor; 1 while there is an item, 0 at the end; *status
 * reports a failure. */
typedef struct ligi_walk {
    uint8_t key[65];
    size_t key_bytes;
} ligi_walk;
int ligi_catalog_view_next(const ligi_catalog_view *view, enum ligi_table table, ligi_walk *walk,
                           lig_catalog_item *item, lig_status *status);

/* The id of the model with exactly this name; 0 if there is none. */
lig_status ligi_catalog_view_name(const ligi_catalog_view *view, const char *name, uint64_t *id);
/* The id that an alias refers to; 0 if there is none. */
lig_status ligi_catalog_view_alias(const ligi_catalog_view *view, const char *alias, uint64_t *id);
/* The model of a name or alias: fills a zeroed record (strings are valid as long as the view).
 * LIG_E_NOTFOUND with an error text. */
lig_status ligi_catalog_view_find(const ligi_catalog_view *view, const char *name,
                                  ligi_record *record);
lig_status ligi_catalog_view_model(const ligi_catalog_view *view, uint64_t id, ligi_record *record);
lig_status ligi_catalog_view_header(const ligi_catalog_view *view, ligi_header *header);
lig_status ligi_catalog_view_pack(const ligi_catalog_view *view, uint64_t pack,
                                  ligi_pack_record *record);

#endif
