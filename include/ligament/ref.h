/* Ligament: one version of a model, resolved once. Part of store.h.
 *
 * A name can stand for another model at any moment: another process replaces or retires it. A call that takes a name
 * resolves it once and sees one version. A caller that needs several calls (the description, then some of the
 * tensors, then others) resolves the name to a lig_ref, and all calls on that ref see the same version.
 *
 *     lig_ref *ref;
 *     LIG_TRY(lig_store_resolve(store, "resnet/7", &ref));
 *     ... lig_ref_model(ref)->tensors, lig_ref_read(ref, ...), lig_ref_read(ref, ...) ...
 *     lig_ref_release(ref);
 *
 * What a ref names stays readable until it is released or its process ends, whatever others save, retire or compact
 * meanwhile:
 *   - in a writable store its packs are pinned, and removed at release when no model names them any more;
 *   - in a read-only store, which cannot pin, they are mapped, and a pack that is removed is read from its mapping;
 *   - a small model that lies in the catalog is copied when it is resolved.
 * Only on a network file system that is open for reading can neither be done: there a call on a model that was
 * replaced or retired fails with LIG_E_NOTFOUND. Calls by name start again in that case.
 *
 * A ref outlives lig_store_close, as a view does. It is **shared**: any thread may use it, but nobody may release it
 * while a call on it runs. In a forked child its calls return LIG_E_CLOSED and release frees memory only. */
#ifndef LIGAMENT_REF_H
#define LIGAMENT_REF_H

#include <ligament/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_ref lig_ref;

/* The model that a name or alias stands for now. Returns *ref (lig_ref_release or lig_ref_detach). */
LIG_API lig_status lig_store_resolve(lig_store *store, const char *model, lig_ref **ref);
/* The model with this id (lig_model.id), whatever its name is now; LIG_E_NOTFOUND when it was replaced or retired. */
LIG_API lig_status lig_store_resolve_id(lig_store *store, uint64_t id, lig_ref **ref);

/* Releases the ref. NULL is fine. */
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
/* Two models of one store; LIG_E_INVALID for those of two: fingerprints differ from store to store. */
LIG_API lig_status lig_ref_diff(const lig_ref *a, const lig_ref *b, lig_diff **diff);

#ifdef __cplusplus
}
#endif
#endif
