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

/* Opens an instance: what a store does. `config` is what stands behind "scheme:" in a URI, its
 * query included; file and mem know `mode=r|w|a` themselves (default a). Fills *ops and *self;
 * ended by ligi_backend_close_raw.
 *
 * Two rules for whoever uses ops->volume: a thread ends its own snapshots before it calls
 * catalog_commit (a catalog that has to grow waits for open snapshots, and fails with LIG_E_BUSY
 * when they do not end), and all packs, snapshots and mappings end before the instance is closed,
 * except that a mapping of file or mem may outlive it: its pack_unmap takes self NULL then. */
lig_status ligi_backend_open_raw(const char *scheme, const char *config,
                                 const lig_backend_ops **ops, void **self);
void ligi_backend_close_raw(const lig_backend_ops *ops, void *self);

/* Adds a loaded plugin; `name` and `ops` stay where they are for ever. LIG_E_EXISTS when the name
 * belongs to another table, LIG_OK when it is this one. */
lig_status ligi_backend_register(const char *name, const lig_backend_ops *ops);

/* What a plugin's call returned, with a sentence: also when it failed without lig_fail (clear
 * before the call), or with a number that is no status. */
lig_status ligi_backend_heard(const char *name, const char *call, lig_status status);

#endif
