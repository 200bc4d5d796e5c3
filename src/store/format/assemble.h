/* Assembles the tensors that users see from the stored boxes. Pure. */
#ifndef LIGI_ASSEMBLE_H
#define LIGI_ASSEMBLE_H

#include "store/format/manifest.h"

/* Fills shown, wholes and shown_count of a manifest whose tensors have been read. LIG_E_CORRUPT
 * unless consecutive boxes of one name make up a tensor. */
lig_status ligi_manifest_assemble(ligi_manifest *manifest);
/* After those of the stored tensors. Of several boxes: the keyed XXH3-128 of their fingerprints and
 * starts. */
void ligi_manifest_assemble_fingerprints(ligi_manifest *manifest, const void *secret);
/* Assembles tensor `index` of `shown` at `out` from its boxes, whose data is set. */
void ligi_assemble_copy(const ligi_manifest *manifest, size_t index, void *out);
/* The stored tensors behind tensor `index` of `shown`. */
ligi_whole ligi_manifest_whole(const ligi_manifest *manifest, size_t index);

#endif
