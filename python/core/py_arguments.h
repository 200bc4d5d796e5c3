/* Arguments of methods as arrays that the library takes. */
#ifndef LIGAMENT_PY_ARGUMENTS_H
#define LIGAMENT_PY_ARGUMENTS_H

#include "py_core.h"

/* A dict of metrics or tags as an array, freed by PyMem_Free; texts in it are borrowed from the
 * dict. NULL with an exception. */
lig_metric *ligi_py_metrics_of(const ligi_py_state *state, PyObject *dict, size_t *count);
lig_tag *ligi_py_tags_of(const ligi_py_state *state, PyObject *dict, size_t *count);
/* None gives NULL. 0, or -1 with an exception. */
int ligi_py_optional_text(const ligi_py_state *state, PyObject *object, const char *what,
                          const char **text);

/* A sequence of whole numbers as an array for PyMem_Free; NULL with an exception. */
uint64_t *ligi_py_keys(const ligi_py_state *state, PyObject *keys, const char *what, size_t *count);

#endif
