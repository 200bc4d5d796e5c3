/* What py_graph.c, py_find.c, py_history.c and py_save.c share. */
#ifndef LIGAMENT_PY_FIND_H
#define LIGAMENT_PY_FIND_H

#include "store/py_store.h"

/* The library's view of a Graph, borrowed from the object; NULL with TypeError. */
const lig_graph *ligi_py_graph_of(const ligi_py_state *state, PyObject *graph);

/* The library's match behind a Match, borrowed; NULL with TypeError, or with ClosedError after its
 * release. */
lig_match *ligi_py_match_of(const ligi_py_state *state, PyObject *match);

/* The same, and InvalidError when the match was found in another store. *region holds the match,
 * borrowed from the object. */
lig_match *ligi_py_match_in(ligi_py_store *store, PyObject *match, ligi_py_region **region);

/* Methods of Store (py_find.c). */
PyObject *ligi_py_store_find(PyObject *store, PyObject *args);

/* Methods of Store (py_history.c). */
PyObject *ligi_py_store_lineage(PyObject *store, PyObject *which);
PyObject *ligi_py_store_time_stamps(PyObject *store, PyObject *name);
PyObject *ligi_py_store_clear_time_stamps(PyObject *store, PyObject *name);

/* (same, changed, reshaped, removed, added, bytes) */
PyObject *ligi_py_diff_tuple(const lig_diff *diff);

#endif
