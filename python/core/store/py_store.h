/* What py_store.c and py_save.c share. */
#ifndef LIGAMENT_PY_STORE_H
#define LIGAMENT_PY_STORE_H

#include "py_arguments.h"
#include "py_core.h"

typedef struct ligi_py_store {
    PyObject_HEAD
    lig_store *store;
    size_t users; /* calls inside; changed with the GIL held */
    int closing;
} ligi_py_store;

/* The library's handle, counted as in use until finish; NULL with ClosedError. Closing meanwhile
 * does not wait: the last call to end closes. */
lig_store *ligi_py_store_enter(ligi_py_store *self);
/* Leaves: None, or NULL with the exception of `status`. */
PyObject *ligi_py_store_finish(ligi_py_store *self, lig_status status);

/* Which model: by its name (borrowed from the object), or by its id where that is NULL. 0, or -1
 * with an exception. */
typedef struct ligi_py_version {
    const char *name;
    uint64_t id;
} ligi_py_version;
int ligi_py_version_of(const ligi_py_state *state, PyObject *object, ligi_py_version *version);
/* lig_store_resolve or lig_store_resolve_id. */
lig_status ligi_py_version_resolve(lig_store *store, const ligi_py_version *version, lig_ref **ref);

/* The interrupt hook of stores. Called without the GIL on the thread that called the library; what
 * a signal handler raised stays set there, and the call that is interrupted raises it. */
int ligi_py_check_signals(void *context);

/* A Model that owns its description (taken over, also on failure). */
PyObject *ligi_py_model_own(const ligi_py_state *state, lig_model *model);

/* Models whose descriptions the region holds. */
PyObject *ligi_py_models_list(const ligi_py_state *state, lig_model *const *models, size_t count,
                              ligi_py_region *region);

/* Methods of Store (py_ref.c, py_save.c). */
PyObject *ligi_py_store_resolve(PyObject *store, PyObject *which);
PyObject *ligi_py_store_save(PyObject *store, PyObject *args);
PyObject *ligi_py_store_save_start(PyObject *store, PyObject *args);
PyObject *ligi_py_store_save_copy(PyObject *store, PyObject *args);

#endif
