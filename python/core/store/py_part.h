/* What py_part.c and py_save.c share. */
#ifndef LIGAMENT_PY_PART_H
#define LIGAMENT_PY_PART_H

#include "store/py_store.h"

typedef struct ligi_py_part { /* what a save is going to make a part of, then the part */
    PyObject_HEAD
    lig_box *boxes;
    int64_t *numbers; /* shapes and starts, one after the other */
    size_t count;
    lig_part *part; /* NULL: not yet, or closed */
} ligi_py_part;

/* Sets boxes and part of the options for a batch: 0, or -1 with an exception. None leaves them as
 * they are. */
int ligi_py_part_options(const ligi_py_state *state, PyObject *object, const ligi_py_batch *batch,
                         lig_save_options *options);

/* (flags, parent, metrics, tags, meta, structure, graphs, match, part): borrowed from the tuple,
 * apart from three arrays that ligi_py_options_fini frees. `batch` NULL: without a part. */
int ligi_py_options_init(const ligi_py_state *state, PyObject *tuple, const ligi_py_batch *batch,
                         lig_save_options *options);
void ligi_py_options_fini(lig_save_options *options);

/* The result of a save: the Model, ownership taken; None for a part; NULL if `result` (ownership
 * taken) is NULL. */
PyObject *ligi_py_saved(const ligi_py_state *state, PyObject *result, lig_model *model);

/* A method of Store. */
PyObject *ligi_py_store_join(PyObject *store, PyObject *args);

#endif
