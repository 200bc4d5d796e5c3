/* What py_store.c and py_save.c share. */
#ifndef LIGAMENT_PY_STORE_H
#define LIGAMENT_PY_STORE_H

#include "py_core.h"

typedef struct ligi_py_store {
    PyObject_HEAD lig_store *store;
    size_t users; /* calls inside; changed with the GIL held */
    int closing;
} ligi_py_store;

/* The library's handle, counted as in use until finish; NULL with ClosedError. Closing meanwhile
 * waits for nobody: the last call out closes. */
lig_store *ligi_py_store_enter(ligi_py_store *self);
/* Ends a call: None, or NULL with the exception of `status`. */
PyObject *ligi_py_store_finish(ligi_py_store *self, lig_status status);

/* Arguments; what they return is freed by PyMem_Free, texts in it are borrowed from the dict. NULL
 * with an exception. */
lig_metric *ligi_py_metrics_of(const ligi_py_state *state, PyObject *dict, size_t *count);
lig_tag *ligi_py_tags_of(const ligi_py_state *state, PyObject *dict, size_t *count);
/* None gives NULL. 0, or -1 with an exception. */
int ligi_py_optional_text(const ligi_py_state *state, PyObject *object, const char *what,
                          const char **text);

/* Methods of Store (py_save.c). */
PyObject *ligi_py_store_save(PyObject *store, PyObject *args);
PyObject *ligi_py_store_save_start(PyObject *store, PyObject *args);
PyObject *ligi_py_store_save_copy(PyObject *store, PyObject *args);

#endif
