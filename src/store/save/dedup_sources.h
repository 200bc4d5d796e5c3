/* Tensors that a save may refer to instead of writing them: those of the parent, of a match and,
 * from LIGI_FINGERPRINT_MIN_BYTES up, any stored tensor. They are compared by fingerprint: no
 * stored byte is read.
 *
 * Every tensor returned here remains stored until ligi_shares_close: its pack is pinned first, and
 * only then is the catalog checked for the pack. So a save may release a tensor's memory as soon as
 * it was found. */
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

/* Adds a model's tensors. Packs that are no longer in the catalog are skipped, unless another
 * pin protects them until `held_ns` (since 1970). */
lig_status ligi_shares_add(ligi_shares *shares, const ligi_model *model, int64_t held_ns);
/* After the last add. */
lig_status ligi_shares_seal(ligi_shares *shares);

/* 1 if a tensor of that size may already be stored; does not read the catalog. */
int ligi_shares_may(const ligi_shares *shares, uint64_t bytes);
/* 1 if its first block should be hashed. */
int ligi_shares_size(const ligi_shares *shares, const ligi_catalog_view *view, uint64_t bytes);
/* 1 if the other blocks should be hashed too. */
int ligi_shares_begin(const ligi_shares *shares, const ligi_catalog_view *view, uint64_t first,
                      uint64_t bytes);
/* The location of a tensor whose blocks have these hashes. found->owner is 0 if there is none;
 * with an owner and pack 0 it is inline in another model, which may be removed: the few bytes
 * are written again, but the owner stays the same. */
lig_status ligi_shares_find(ligi_shares *shares, const ligi_catalog_view *view,
                            const uint64_t *hashes, uint64_t bytes, ligi_fingerprint_entry *found);

#endif
