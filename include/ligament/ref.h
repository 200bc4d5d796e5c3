/* Ligament: one version of a model, resolved once. Part of store.h.
 *
 * Another process can replace or retire a model at any time. A call that takes a name resolves it once and sees one
 * version. A caller that needs several calls (the description, then some of the tensors, then others) resolves the
 * name to a lig_ref, and all calls on that ref see the same version.
 *
 *     lig_ref *ref;
 *     LIG_TRY(lig_store_resolve(store, "resnet/7", &ref));
 *     ... lig_ref_model(ref)->tensors, lig_ref_read(ref, ...), lig_ref_read(ref, ...) ...
 *     lig_ref_release(ref);
 *
 * The version stays readable until the ref is released or its process ends, regardless of what others save, retire or
 * compact meanwhile:
 *   - in a writable store its packs are pinned, and removed at release if no model uses them any more;
 *   - in a read-only store, which cannot pin, they are mapped, and a pack that is removed is read from its mapping;
 *   - a small model that is stored in the catalog is copied when it is resolved.
 * A read-only store on a network file system or a storage service can do neither: there a call on a model that was
 * replaced or retired fails with LIG_E_NOTFOUND once its packs are removed. Calls by name look up the name again.
 *
 * A ref stays valid after lig_store_close, as a view does. It is **shared**: any thread may use it, but it must not be
 * released while a call on it runs. In a forked child its calls return LIG_E_CLOSED and release only frees memory. */
#ifndef LIGAMENT_REF_H
#define LIGAMENT_REF_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_ref lig_ref;

/* The model that a name or alias currently refers to. Returns *ref (lig_ref_release or lig_ref_detach). */
LIG_API lig_status lig_store_resolve(lig_store *store, const char *model, lig_ref **ref);
/* The model with this id (lig_model.id), regardless of its current name; LIG_E_NOTFOUND if it was replaced or
 * retired. */
LIG_API lig_status lig_store_resolve_id(lig_store *store, uint64_t id, lig_ref **ref);

/* Releases the ref. NULL is valid. */
LIG_API void lig_ref_release(lig_ref *ref);
/* Releases the ref and returns its description (lig_model_destroy). */
LIG_API lig_model *lig_ref_detach(lig_ref *ref);

/* The description, with its tensors; borrowed from the ref. */
LIG_API const lig_model *lig_ref_model(const lig_ref *ref);

/* Like the calls of store.h that take a name. */
LIG_API lig_status lig_ref_load(const lig_ref *ref, const lig_tensor *tensors, size_t count);
LIG_API lig_status lig_ref_read(const lig_ref *ref, const lig_read *reads, size_t count, uint32_t flags);
LIG_API lig_status lig_ref_map(const lig_ref *ref, uint32_t flags, lig_view **view);
LIG_API lig_status lig_ref_copy(const lig_ref *ref, lig_store *to, const char *new_name, uint32_t flags);
LIG_API lig_status lig_ref_lineage(const lig_ref *ref, lig_lineage **lineage);
/* Both models must be in one store, otherwise LIG_E_INVALID: fingerprints differ between stores. */
LIG_API lig_status lig_ref_diff(const lig_ref *a, const lig_ref *b, lig_diff **diff);

#ifdef __cplusplus
}
#endif
#endif
