/* The locations of bytes that a later save may refer to: table 7 of the catalog
 * (docs/formats.md). */
#ifndef LIGI_FINGERPRINT_INDEX_H
#define LIGI_FINGERPRINT_INDEX_H

#include "base/hash.h"
#include "store/format/record.h"

/* Smaller tensors are shared with a parent or a match only, and are not in the table. */
#define LIGI_FINGERPRINT_MIN_BYTES (UINT64_C(64) << 10)

typedef struct ligi_fingerprint_entry {
    uint64_t first; /* hash of the first block */
    ligi_hash128 print;
    uint64_t bytes;
    uint64_t pack, offset, owner;
} ligi_fingerprint_entry;

/* Of a tensor of `bytes` bytes whose blocks have these hashes. */
ligi_hash128 ligi_fingerprint(const void *secret, const uint64_t *hashes, uint64_t bytes);

/* first, print and bytes are set. */
ligi_catalog_key ligi_fingerprint_key(const ligi_fingerprint_entry *fingerprint);
/* The common prefix of the keys of all tensors with this first block: first and bytes are set. */
ligi_catalog_key ligi_fingerprint_prefix(const ligi_fingerprint_entry *fingerprint);

void ligi_fingerprint_put(ligi_writer *writer, const ligi_fingerprint_entry *fingerprint,
                          const void *secret);
/* `first` is not in the value and is unchanged. */
lig_status ligi_fingerprint_get(const lig_catalog_item *item, const void *secret,
                                ligi_fingerprint_entry *fingerprint);

/* Tensor `index` of a manifest. 0 if the table has no such tensors: tied, small, inline. */
int ligi_fingerprint_of(const ligi_manifest *manifest, size_t index, const void *secret,
                        ligi_fingerprint_entry *fingerprint);

#endif
