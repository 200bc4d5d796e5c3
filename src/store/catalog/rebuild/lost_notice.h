/* Notices: losses of the catalog that cannot be derived from its data, kept in it until a repair
 * has reported them. */
#ifndef LIGI_LOST_NOTICE_H
#define LIGI_LOST_NOTICE_H

#include "store/catalog/rebuild/catalog_from_footers.h"

#define LIGI_NOTICE_BYTES 512

/* A message about what is lost with a catalog that had reached `version` (0: unknown) and was
 * rebuilt from `footers` (NULL: there were no packs). */
void ligi_notice_lost(const ligi_footers *footers, const void *secret, uint64_t version,
                      char text[LIGI_NOTICE_BYTES]);

/* Fills `value` with the notice, which is stored under *key. */
void ligi_notice_put(ligi_writer *value, ligi_catalog_key *key, const char *text,
                     const void *secret);
/* *text is valid as long as the item. */
lig_status ligi_notice_get(const lig_catalog_item *item, const void *secret, const char **text);

#endif
