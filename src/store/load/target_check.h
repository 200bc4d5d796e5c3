/* Whether the caller's tensors fit a stored model: names, dtypes, shapes and slices, all compared
 * before the first byte is read. */
#ifndef LIGI_TARGET_CHECK_H
#define LIGI_TARGET_CHECK_H

#include "store/load/model.h"

typedef struct ligi_target {
    const lig_tensor *tensors; /* load */
    const lig_read *reads;     /* or read */
    size_t count;
    uint32_t flags;
    int exact; /* the model must not have other tensors */
} ligi_target;

static inline const lig_tensor *ligi_target_into(const ligi_target *self, size_t i)
{
    return self->reads ? &self->reads[i].into : &self->tensors[i];
}

static inline const char *ligi_target_name(const ligi_target *self, size_t i)
{
    return self->reads && self->reads[i].name ? self->reads[i].name
                                              : ligi_target_into(self, i)->name;
}

/* Fills indexes[target->count] with the positions of the tensors in the model. LIG_E_MISMATCH names
 * the first tensor that does not fit; LIG_E_NOTFOUND if it is missing and `reads` is set. */
lig_status ligi_target_check(const ligi_target *target, const ligi_model *model, size_t *indexes);

#endif
