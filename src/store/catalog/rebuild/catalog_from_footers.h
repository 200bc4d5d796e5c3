/* The catalog derived from the packs' footers: for a reader without a catalog, and for
 * rebuilding a lost one. */
#ifndef LIGI_CATALOG_FROM_FOOTERS_H
#define LIGI_CATALOG_FROM_FOOTERS_H

#include "store/format/packfile.h"

/* Keys and values in byte order; immutable and counted. */
typedef struct ligi_footers ligi_footers;

struct ligi_volume;

typedef struct ligi_footers_options {
    const void *uuid; /* packs of other stores are skipped; NULL: the first pack decides */
    int keep_older;   /* of models with equal names, the older ones become NAME~ID; otherwise they
                       * are omitted */
} ligi_footers_options;

/* Reads the footers of all packs, except those that `before` (may be NULL) already has. If
 * nothing changed, *out is `before` with one more reference. Damaged packs are skipped and
 * logged. */
lig_status ligi_footers_read(struct ligi_volume *volume, ligi_footers *before,
                             const ligi_footers_options *options, ligi_footers **out);
void ligi_footers_hold(ligi_footers *footers);
void ligi_footers_drop(ligi_footers *footers);

/* 0 if there was no pack to read it from. */
int ligi_footers_header(const ligi_footers *footers, ligi_pack_header *header);
uint64_t ligi_footers_version(const ligi_footers *footers);
/* The first item whose key is >= `key`; 0 at the end. Items are valid as long as the table. */
int ligi_footers_seek(const ligi_footers *footers, const void *key, size_t key_bytes,
                      lig_catalog_item *item);
size_t ligi_footers_count(const ligi_footers *footers);
lig_catalog_item ligi_footers_item(const ligi_footers *footers, size_t index);
/* Greater than every model id in it. */
uint64_t ligi_footers_next_id(const ligi_footers *footers);

#endif
