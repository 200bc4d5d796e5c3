/* Whether a model is stored inline in the catalog or in a pack. Pure. */
#ifndef LIGI_INLINE_OR_PACK_H
#define LIGI_INLINE_OR_PACK_H

#include "store/save/save_plan.h"

/* 1 if the volume takes inline models and the manifest is small enough for it. */
int ligi_inline_allowed(const ligi_plan *plan, uint32_t volume_flags);
/* 1 while so many new bytes may be inline; with the tensor that exceeds it a pack is begun. */
int ligi_inline_fits(uint64_t new_bytes);

#endif
