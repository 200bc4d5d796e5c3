/* Functions shared by the exported functions and the backend of the same library. */
#ifndef LIGI_EVOSTORE_H
#define LIGI_EVOSTORE_H

#include <ligament/evostore.h>
#include <ligament/tensor.h>

/* Save and Load as EvoStore's fork of TMCI calls them: with shapes and dtypes. `hint` is a model
 * that probably has the tensors. */
lig_status ligi_evo_save(uint64_t id, const uint64_t *lids, const lig_tensor *tensors,
                         size_t count);
lig_status ligi_evo_load(uint64_t hint, const uint64_t *lids, const uint64_t *owners,
                         const lig_tensor *tensors, size_t count);

#endif
