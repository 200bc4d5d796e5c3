/* The backend "evostore": what EvoStore's library is to TMCI, a set of tensors that are saved and
 * loaded by their numbers. A set's name is the model's number, a tensor's "LID", or "LID@OWNER" to
 * load it from its owner. */
#include "evostore.h"

#include <stdlib.h>

#include <ligament/plugin.h>

static lig_status backend_save(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    (void)self;
    uint64_t *lids = calloc(count + 1, sizeof *lids);
    char *end;
    if (lids == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        lids[i] = strtoull(tensors[i].name, &end, 10);
    lig_status status = ligi_evo_save(strtoull(set, &end, 10), lids, tensors, count);
    free(lids);
    return status;
}

static lig_status backend_load(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    (void)self;
    uint64_t *lids = calloc(2 * count + 1, sizeof *lids), *owners = lids + count;
    char *end;
    if (lids == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
    uint64_t hint = strtoull(set, &end, 10);
    for (size_t i = 0; i < count; i++) {
        lids[i] = strtoull(tensors[i].name, &end, 10);
        owners[i] = *end == '@' ? strtoull(end + 1, &end, 10) : hint;
    }
    lig_status status = ligi_evo_load(hint, lids, owners, tensors, count);
    free(lids);
    return status;
}

LIG_REGISTER_BACKEND(evostore, .save = backend_save, .load = backend_load)
