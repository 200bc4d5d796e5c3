/* What a save may refer to instead of writing it: tensors of the parent, of a match and, from
 * LIGI_FINGERPRINT_MIN_BYTES up, any stored one. Told by fingerprint alone: no stored byte is read.
 *
 * Whatever is handed out here stays until ligi_shares_close: its pack is pinned first, and only
 * then is the catalog asked whether the pack is still there. So a save may let go of a tensor's
 * memory as soon as it was found. */
#ifndef LIGI_DEDUP_SOURCES_H
#define LIGI_DEDUP_SOURCES_H

#include "store/catalog/catalog_view.h"
#include "store/catalog/fingerprint_index.h"
#include "store/load/model.h"

typedef struct ligi_shares ligi_shares;

lig_status ligi_shares_open(ligi_shares **out, lig_store *store);
void ligi_shares_close(ligi_shares *shares);
/* Likewise, and removes packs that lost their last model while they were held here. */
void ligi_shares_end(ligi_shares *shares);

/* Adds a model's tensors. Packs that the catalog does not name any more are passed over, unless
 * somebody else's pin holds them until `held_ns` (since 1970). */
lig_status ligi_shares_add(ligi_shares *shares, const ligi_model *model, int64_t held_ns);
/* After the last add. */
lig_status ligi_shares_seal(ligi_shares *shares);

/* 1 when a tensor of that size may be stored already; without a look at the catalog. */
int ligi_shares_may(const ligi_shares *shares, uint64_t bytes);
/* 1 when its first block is worth hashing. */
int ligi_shares_size(const ligi_shares *shares, const ligi_catalog_view *view, uint64_t bytes);
/* 1 when the others are, too. */
int ligi_shares_begin(const ligi_shares *shares, const ligi_catalog_view *view, uint64_t first,
                      uint64_t bytes);
/* Where a tensor lies whose blocks have these hashes. found->owner is 0 when there is none; with an
 * owner and pack 0 it lies inline in another model, which may go: the bytes are few, and are
 * written again, but the owner stays the same. */
lig_status ligi_shares_find(ligi_shares *shares, const ligi_catalog_view *view,
                            const uint64_t *hashes, uint64_t bytes, ligi_fingerprint_entry *found);

#endif
