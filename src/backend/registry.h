/* The known backends: the built-in ones (builtin.def) and the plugins that were loaded, and access
 * to them without the checks and the staging of lig_backend_save. Everything here is **shared**. */
#ifndef LIGI_REGISTRY_H
#define LIGI_REGISTRY_H

#include <ligament/backend.h>

typedef struct ligi_builtin {
    const char *name;
    const lig_backend_ops *ops;
} ligi_builtin;

/* builtin.def expanded; ends with a NULL name. */
extern const ligi_builtin ligi_builtins[];

/* Opens an instance for a store. `config` is the part of a URI after "scheme:", including its
 * query; file and mem handle `mode=r|w|a` themselves (default a). Fills *ops and *self; ended by
 * ligi_backend_close_raw.
 *
 * Two rules for callers of ops->volume: a thread ends its own snapshots before it calls
 * catalog_commit (a catalog that has to grow waits for open snapshots, and fails with LIG_E_BUSY if
 * they do not end), and all packs, snapshots and mappings end before the instance is closed, except
 * that a mapping of file or mem may outlive it: pack_unmap is then called with self NULL. */
lig_status ligi_backend_open_raw(const char *scheme, const char *config,
                                 const lig_backend_ops **ops, void **self);
void ligi_backend_close_raw(const lig_backend_ops *ops, void *self);

/* Adds a loaded plugin; `name` and `ops` must stay valid until the process ends. LIG_E_EXISTS if
 * the name belongs to another table, LIG_OK if it belongs to this one. */
lig_status ligi_backend_register(const char *name, const lig_backend_ops *ops);

/* Converts the result of a plugin's call to a status with an error text, even if the plugin failed
 * without lig_fail (clear the text before the call), or returned a number that is not a status. */
lig_status ligi_backend_heard(const char *name, const char *call, lig_status status);

#endif
