/* Ligament: checkpoints through any backend, by name. On a backend with a volume, a checkpoint opens a store
 * there and a set is a model of that store; on a backend without one, it calls the backend's save and load. A
 * handle belongs to one thread at a time. */
#ifndef LIGAMENT_CHECKPOINT_H
#define LIGAMENT_CHECKPOINT_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_checkpoint lig_checkpoint;

/* `backend` is the name of a built-in or loaded backend, and `config` is passed to it; any other text is a
 * store's URI or a path, and `config` is "" or further options of its query. NULL config means "". */
LIG_API lig_status lig_checkpoint_open(lig_checkpoint **checkpoint, const char *backend, const char *config);
LIG_API void lig_checkpoint_close(lig_checkpoint *checkpoint);

/* Saves the tensors as `set`, in the given order; replaces an existing set of that name. */
LIG_API lig_status lig_checkpoint_save(lig_checkpoint *checkpoint, const char *set, const lig_tensor *tensors,
                                       size_t count);

/* Fills the tensors from `set`. With a store every name, dtype and shape is checked first and the set may
 * contain no other tensors; without one the plugin checks. */
LIG_API lig_status lig_checkpoint_load(lig_checkpoint *checkpoint, const char *set, const lig_tensor *tensors,
                                       size_t count);

/* The same, but the set may contain other tensors too: for example an optimizer's, when only the model is
 * loaded. */
LIG_API lig_status lig_checkpoint_load_part(lig_checkpoint *checkpoint, const char *set, const lig_tensor *tensors,
                                            size_t count);

/* The description of `set`, including its tensors. LIG_E_UNSUPPORTED on a backend without a store. Returns
 * *model, to be freed with lig_model_destroy. */
LIG_API lig_status lig_checkpoint_model(lig_checkpoint *checkpoint, const char *set, lig_model **model);

/* Removes `set`. */
LIG_API lig_status lig_checkpoint_drop(lig_checkpoint *checkpoint, const char *set);

#ifdef __cplusplus
}
#endif
#endif
