/* Whether tensors of two models hold the same bytes: for those whose fingerprints are not
 * comparable, because they are split into different boxes. */
#ifndef LIGI_COMPARE_TENSORS_H
#define LIGI_COMPARE_TENSORS_H

#include "store/format/manifest.h"

#define LIGI_COMPARE_WINDOW_BYTES (UINT64_C(32) << 20)

/* Tensors of `shown`, of equal dtype and shape. */
typedef struct ligi_pair {
    size_t a, b;
    int differ; /* filled */
} ligi_pair;

/* 1 if both are split into equal boxes, so that their fingerprints are comparable. */
int ligi_compare_same_boxes(const ligi_manifest *a, size_t in_a, const ligi_manifest *b,
                            size_t in_b);

/* Reads both tensors of each pair up to the first difference, at most `window_bytes` (at least one
 * element) of either model at a time, and fills pairs[i].differ. */
lig_status ligi_compare_tensors(const lig_ref *a, const lig_ref *b, ligi_pair *pairs, size_t count,
                                uint64_t window_bytes);

#endif
