/* ligament._core: what its files share. One file, one part: each has an init hook that py_core.c
 * calls once per module and that adds its types and functions. Only <ligament/...> is included
 * here; no framework is known here. */
#ifndef LIGAMENT_PY_CORE_H
#define LIGAMENT_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ligament/ligament.h>

/* The state of the module; every pointer is a strong reference or NULL. */
typedef struct ligi_py_state {
    PyObject *errors;   /* dict: int(lig_status) -> exception class; set by errors.py */
    PyObject *readers;  /* dict: type -> Reader; how tensors of exactly that type are read without
                           Python code */
    PyObject *describe; /* callable(object, writable) -> object that a Batch can read; for all other
                           types */
    PyTypeObject *reader_type, *batch_type, *memory_type, *model_type;
    PyTypeObject *ticket_type, *store_type, *checkpoint_type;
    PyTypeObject *graph_type, *match_type, *part_type, *ref_type, *params_worker_type;
} ligi_py_state;

/* The state behind the module, or behind an instance of one of the module's types. */
ligi_py_state *ligi_py_state_of(PyObject *module_or_instance);

/* Raises the exception of `status` with this thread's error text; returns NULL. Call it on the
 * thread that failed, with the GIL. An exception that is already set, by a signal that
 * interrupted the call, is kept. */
PyObject *ligi_py_raise(const ligi_py_state *state, lig_status status);
/* None for LIG_OK; otherwise, or if an exception is set, the same. */
PyObject *ligi_py_none(const ligi_py_state *state, lig_status status);

/* The value of a call that runs without the GIL. */
#define LIGI_PY_UNLOCKED(call)                                                                     \
    __extension__({                                                                                \
        PyThreadState *ligi_unlocked = PyEval_SaveThread();                                        \
        __typeof__(call) ligi_value = (call);                                                      \
        PyEval_RestoreThread(ligi_unlocked);                                                       \
        ligi_value;                                                                                \
    })

/* Raises `status` with the given text; returns NULL. With a NULL state it is a RuntimeError. */
PyObject *ligi_py_fail(const ligi_py_state *state, lig_status status, const char *format, ...)
    LIG_PRINTF(3, 4);

/* Makes a heap type of the module and adds it to it; 0, or -1 with an exception. A strong reference
 * to the type is put into *out (may be NULL). */
int ligi_py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out);
/* The end of a tp_dealloc: frees the instance, and lets go of its type. */
void ligi_py_free(PyObject *instance);

/* Waits come in slices of this length, so that Ctrl-C is heard. */
#define LIGI_PY_SLICE_NS INT64_C(100000000)
static inline int64_t ligi_py_slice(int64_t left)
{
    return left < 0 || left > LIGI_PY_SLICE_NS ? LIGI_PY_SLICE_NS : left;
}

/* UTF-8 of a str without NUL bytes, borrowed from it; `what` names it in error messages. NULL
 * with an exception. */
const char *ligi_py_text(const ligi_py_state *state, PyObject *object, const char *what);

/* A whole number of 64 bits; -1 with an exception. */
int64_t ligi_py_whole(const ligi_py_state *state, PyObject *number);

/* Sets an item of a new list, which takes the reference; without an item (NULL) or on failure the
 * list is dropped: *list becomes NULL. */
void ligi_py_put_item(PyObject **list, size_t index, PyObject *item);

/* Numbers as ints; NULL with an exception. */
PyObject *ligi_py_i64_tuple(const int64_t *numbers, size_t count);
PyObject *ligi_py_i64_list(const int64_t *numbers, size_t count);
PyObject *ligi_py_u64_list(const uint64_t *numbers, size_t count);

/* Seconds (a float, or None: for ever) to nanoseconds; -2 with an exception. */
int64_t ligi_py_timeout(const ligi_py_state *state, PyObject *seconds);
/* Milliseconds likewise. */
int64_t ligi_py_milliseconds(const ligi_py_state *state, PyObject *timeout);

/* --- tensors (py_tensor.c) ------------------------------------------------------------------ */

/* How tensors of one type are read without Python code; each is a strong reference, or None. */
typedef struct ligi_py_reader {
    PyObject_HEAD
    PyObject *dtypes;     /* dict: the framework's dtype -> lig_dtype */
    PyObject *address;    /* callable(tensor) -> int, or None: by the buffer protocol */
    PyObject *mutable;    /* the same for memory that will be written */
    PyObject *contiguous; /* callable(tensor) -> bool */
    PyObject *strides;    /* callable(tensor) -> tuple, in elements */
    PyObject *odd;        /* callable(tensor) -> bool: the bytes are not the values */
    PyObject *plain;      /* name of an attribute that is true for host memory */
    PyObject *count;      /* callable(tensor) -> int, its elements */
    PyObject *written;    /* callable([tensor]): it was written behind its back */
    PyObject *exchange;   /* capsule with a faster way to all of that, or None */
    PyObject *dtype, *shape;
} ligi_py_reader;

typedef struct ligi_py_batch { /* what a call of the library takes; keeps every object alive whose
                                  memory it names */
    PyObject_HEAD
    lig_tensor *tensors;
    size_t count;
    int64_t *numbers; /* shapes and strides, one after the other */
    size_t number_count, number_room;
    PyObject *names;    /* tuple of str; the C strings are borrowed from it */
    PyObject *holders;  /* list: holders[i] owns the memory of tensor i */
    Py_buffer *buffers; /* NULL, or one for each tensor; .obj is NULL where none is held */
    int writable;
    int on_device; /* tensors in device memory are described as such */
} ligi_py_batch;

/* Batch.__init__ (py_tensor.c reads the objects; py_batch.c has the rest of the type). */
int ligi_py_batch_init(PyObject *batch, PyObject *args, PyObject *kwargs);

/* --- tensors by DLPack's table (py_exchange.c) ---------------------------------------------- */

struct dlpack_exchange;
struct dlpack_tensor;

/* The table of the tensors of one type; NULL if the framework has none with `describe`. */
const struct dlpack_exchange *ligi_py_exchange(const ligi_py_reader *how);
/* 1: described, a tensor with values one after another that are its bytes, in memory of any device;
 * 0: unusual, or unknown. No exception. */
int ligi_py_exchange_read(const ligi_py_reader *how, PyObject *object, struct dlpack_tensor *tensor,
                          uint32_t *dtype, uint64_t *count);

/* --- one flat tensor (py_flat.c) ------------------------------------------------------------ */

/* Elements one after another in host memory, which `holder` keeps, or in a copy. */
typedef struct ligi_py_flat {
    void *data;
    uint64_t count;
    uint32_t dtype;
    int has_buffer;
    Py_buffer buffer;
    PyObject *holder, *tensor; /* strong */
    PyObject *written;         /* borrowed: notified of changes to the tensor */
    void *packed;
} ligi_py_flat;

/* Reads a tensor fast; one with gaps is packed, and refused where it is to be written. 0, or -1
 * with an exception that calls it `name`. */
int ligi_py_flat_read(const ligi_py_state *state, PyObject *object, const char *name, int writable,
                      ligi_py_flat *flat);
/* The same for int64 numbers, which may also be in a list or a tuple, or be one number. */
int ligi_py_flat_keys(const ligi_py_state *state, PyObject *object, const char *name,
                      ligi_py_flat *flat);
/* Tells the framework that the memory was written; 0, or -1 with an exception. */
int ligi_py_flat_written(const ligi_py_flat *flat);
/* An object that keeps the memory of a flat that was read by reference; NULL with an exception. */
PyObject *ligi_py_flat_keep(const ligi_py_flat *flat);
void ligi_py_flat_drop(ligi_py_flat *flat);

/* --- memory (py_memory.c) ------------------------------------------------------------------- */

/* Memory that Python objects and DLPack capsules share; the last one drops it, on any thread, with
 * or without the GIL. A `drop` that may block releases the GIL itself: its region must then be held
 * by objects only, not by capsules. */
typedef struct ligi_py_region ligi_py_region;
ligi_py_region *ligi_py_region_create(void *handle, void (*drop)(void *handle));
void ligi_py_region_hold(ligi_py_region *region);
void ligi_py_region_drop(ligi_py_region *region);

/* A Memory over [data, data + bytes) of the region, which it holds. */
PyObject *ligi_py_memory_new(const ligi_py_state *state, ligi_py_region *region, void *data,
                             uint64_t bytes, int readonly);

/* The same in the memory of a CUDA device: it has no buffer, only DLPack. */
PyObject *ligi_py_memory_on(const ligi_py_state *state, ligi_py_region *region, void *data,
                            uint64_t bytes, int32_t device);

/* The bytes of a Memory, NULL with an exception when the object is none. */
void *ligi_py_memory_data(const ligi_py_state *state, PyObject *memory, uint64_t *bytes);

/* --- models and tickets (py_model.c, py_ticket.c) ------------------------------------------- */

/* A Model over a description that the region keeps alive (taken over, also on failure). `view`: its
 * tensors have data; `readonly` tells whether that may be written. */
PyObject *ligi_py_model_new(const ligi_py_state *state, const lig_model *model,
                            ligi_py_region *region, int view, int readonly);

/* A Ticket (taken over, also on failure) that keeps `store` and `batch` (may be NULL) alive until
 * it is done. `saved` (from malloc, taken over likewise) is where the save puts its model. */
PyObject *ligi_py_ticket_new(const ligi_py_state *state, lig_ticket *ticket, lig_model **saved,
                             PyObject *store, PyObject *batch);

/* The hooks: 0, or -1 with an exception. They add with PyModule_AddFunctions,
 * PyModule_AddObjectRef, ligi_py_add_type. */
int ligi_py_tensor_init(PyObject *module);
int ligi_py_batch_type_init(PyObject *module);
int ligi_py_memory_init(PyObject *module);
int ligi_py_exchange_init(PyObject *module);
int ligi_py_model_init(PyObject *module);
int ligi_py_ticket_init(PyObject *module);
int ligi_py_store_init(PyObject *module);
int ligi_py_lock_init(PyObject *module);
int ligi_py_watch_init(PyObject *module);
int ligi_py_checkpoint_init(PyObject *module);
int ligi_py_graph_init(PyObject *module);
int ligi_py_find_init(PyObject *module);
int ligi_py_part_init(PyObject *module);
int ligi_py_ref_init(PyObject *module);
int ligi_py_pipe_init(PyObject *module);
int ligi_py_mesh_init(PyObject *module);
int ligi_py_params_init(PyObject *module);

#endif
