/* Whether a model is stored inline in the catalog or in a pack. Pure. */
#ifndef LIGI_INLINE_OR_PACK_H
#define LIGI_INLINE_OR_PACK_H

#include "store/save/save_plan.h"

/* 1 if the volume accepts inline models and the manifest is small enough. */
int ligi_inline_allowed(const ligi_plan *plan, uint32_t volume_flags);
/* 1 while that many new bytes may be inline; the tensor that exceeds the limit starts a pack. */
int ligi_inline_fits(uint64_t new_bytes);

#endif
