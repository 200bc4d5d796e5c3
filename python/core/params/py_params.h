/* ligament._core.Params and ParamsWorker: what their files share. */
#ifndef LIGAMENT_PY_PARAMS_H
#define LIGAMENT_PY_PARAMS_H

#include "mesh/py_mesh.h"

#include <ligament/params.h>

/* A node, or the scheduler. Calls come from any thread. `users` counts those inside the library and
 * the open workers (the GIL guards it); after close the last of them frees the handle. */
typedef struct ligi_py_params {
    PyObject_HEAD
    lig_params *params;
    Py_ssize_t users;
    int closing;
    struct ligi_py_params_worker *workers; /* the open ones; the GIL guards the list */
    int alone;                             /* one node: no call waits for anybody */
    uint32_t dtype, element_bytes;
    uint32_t sample_length; /* of rows that can be sampled; 0: sampling is not enabled */
} ligi_py_params;

/* Made by Python's subclass, opened by Params.attach. It belongs to one thread at a time: `busy` is
 * set while a call is inside, also where the GIL is not held. */
typedef struct ligi_py_params_worker {
    PyObject_HEAD
    lig_params_worker *worker;
    ligi_py_params *owner;      /* strong; NULL before attach */
    const ligi_py_state *state; /* a subclass of Python has none by its type */
    PyObject *ticket, *local;   /* callable(number, worker) -> Ticket; the Ticket -1 */
    PyObject *kept;             /* dict: number -> what holds the memory that a pull fills */
    int busy, closing;
    unsigned long thread;               /* whose call is inside, while busy */
    struct ligi_py_params_worker *next; /* of the owner's */
} ligi_py_params_worker;

lig_params *ligi_py_params_enter(PyObject *object);
void ligi_py_params_leave(PyObject *object);

/* Params.attach: opens a worker. */
PyObject *ligi_py_params_attach(PyObject *object, PyObject *args);

/* The library's handle for one call, or NULL with ClosedError or BusyError; each needs a leave. */
lig_params_worker *ligi_py_worker_enter(PyObject *object);
void ligi_py_worker_leave(PyObject *object);

/* Arguments of a fast call by position or name; those past `needed` may be missing, and are NULL
 * then. 0, or -1 with TypeError. */
typedef struct ligi_py_call {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *names;
} ligi_py_call;
int ligi_py_arguments(const ligi_py_call *call, const char *const *names, int needed,
                      PyObject **out);

/* Waits for a ticket; an exception may be set afterwards. Objects kept for the ticket are
 * released when it has ended. */
lig_status ligi_py_worker_await(PyObject *object, int64_t ticket, int64_t left);

/* Methods that move rows (py_params_rows.c). */
#define LIGI_PY_FAST PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names
PyObject *ligi_py_worker_pull(LIGI_PY_FAST);
PyObject *ligi_py_worker_push(LIGI_PY_FAST);
PyObject *ligi_py_worker_set(LIGI_PY_FAST);
PyObject *ligi_py_worker_push_sums(LIGI_PY_FAST);
PyObject *ligi_py_worker_get_rows(LIGI_PY_FAST);
PyObject *ligi_py_worker_set_rows(LIGI_PY_FAST);
PyObject *ligi_py_worker_pull_if_local(LIGI_PY_FAST);
PyObject *ligi_py_worker_pull_sample(LIGI_PY_FAST);
PyObject *ligi_py_worker_intent(LIGI_PY_FAST);
PyObject *ligi_py_worker_elements(PyObject *object, PyObject *keys);

int ligi_py_params_worker_init(PyObject *module);
int ligi_py_device_rows_init(PyObject *module);

#endif
