/* ligament._core.Mesh: what its files share. */
#ifndef LIGAMENT_PY_MESH_H
#define LIGAMENT_PY_MESH_H

#include "py_arguments.h"
#include "py_core.h"

#include <ligament/mesh.h>

/* Calls come from any thread. `users` counts those inside the library (the GIL guards it); after
 * close the last of them frees the handle. */
typedef struct ligi_py_mesh {
    PyObject_HEAD
    lig_mesh *mesh;
    PyObject *registered; /* (worker, key) -> Batch: landing places. Never changed, only replaced:
                             views keep the one they were made with. */
    Py_ssize_t users;
    int closing;
    uint32_t worker_count;
} ligi_py_mesh;

/* The library's handle for one call, or NULL with ClosedError; each needs a leave. */
lig_mesh *ligi_py_mesh_enter(PyObject *object);
void ligi_py_mesh_leave(PyObject *object);
/* Leaves: None, or NULL with the status or the exception that is set already. */
PyObject *ligi_py_mesh_finish(PyObject *object, lig_status status);

/* A wait in slices, between enter and leave. An exception may be set after it; it ends early when
 * another thread closes the mesh. */
lig_status ligi_py_sliced(PyObject *object, lig_status (*call)(lig_mesh *, int64_t), int64_t left);

/* Raises LIG_E_TIMEOUT with the library's error text and the total waiting time. */
PyObject *ligi_py_late(const ligi_py_state *state, int64_t timeout_ns);

/* A CUDA stream, or None: none is given. */
typedef struct ligi_py_stream {
    int given;
    void *stream;
} ligi_py_stream;

/* For "O&". */
static inline int ligi_py_to_stream(PyObject *object, void *out)
{
    ligi_py_stream *on = out;
    on->given = object != Py_None;
    on->stream = on->given ? PyLong_AsVoidPtr(object) : NULL;
    return !PyErr_Occurred();
}

/* The Batch that it is, or NULL with TypeError. */
ligi_py_batch *ligi_py_batch_of(PyObject *object, PyObject *batch);

/* Methods of servers (py_mesh_server.c). */
PyObject *ligi_py_mesh_get_batch(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_respond(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_respond_rows(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_refuse(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_settle(PyObject *object, PyObject *timeout);
PyObject *ligi_py_mesh_register(PyObject *object, PyObject *args);

/* Memory for tensors (py_mesh_memory.c). */
PyObject *ligi_py_mesh_empty(PyObject *object, PyObject *number);
PyObject *ligi_py_mesh_empty_on(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_flag(PyObject *object, PyObject *args);
PyObject *ligi_py_mesh_flag_map(PyObject *object, PyObject *args);

#endif
