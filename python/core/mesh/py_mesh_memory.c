/* Memory that peers of a mesh can open. */
#include "mesh/py_mesh.h"

#include <ligament/mesh_flags.h>

static void drop_shared(void *data)
{
    lig_mesh_free(NULL, data); /* the mesh may be closed by now */
}

PyObject *ligi_py_mesh_empty(PyObject *object, PyObject *number)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    unsigned long long bytes = PyLong_AsUnsignedLongLong(number);
    lig_mesh *mesh = PyErr_Occurred() ? NULL : ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    void *data;
    lig_status status = LIGI_PY_UNLOCKED(lig_mesh_empty(mesh, bytes, &data));
    ligi_py_mesh_leave(object);
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    ligi_py_region *region = ligi_py_region_create(data, drop_shared);
    if (!region)
        return NULL;
    PyObject *memory = ligi_py_memory_new(state, region, data, bytes, 0);
    ligi_py_region_drop(region);
    return memory;
}

static void drop_hold(void *hold)
{
    lig_mesh_hold_drop(hold);
}

PyObject *ligi_py_mesh_empty_on(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    unsigned long long bytes;
    int device;
    if (!PyArg_ParseTuple(args, "Ki", &bytes, &device))
        return NULL;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    void *data;
    lig_mesh_hold *hold;
    lig_status status = LIGI_PY_UNLOCKED(lig_mesh_empty_on(mesh, device, bytes, &data, &hold));
    ligi_py_mesh_leave(object);
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    ligi_py_region *region = ligi_py_region_create(hold, drop_hold);
    if (!region)
        return NULL;
    PyObject *memory = ligi_py_memory_on(state, region, data, bytes, device);
    ligi_py_region_drop(region);
    return memory;
}

PyObject *ligi_py_mesh_flag(PyObject *object, PyObject *args)
{
    lig_mesh_flag_step step;
    unsigned long long stream, flag, sequence;
    if (!PyArg_ParseTuple(args, "IiKKK", &step.action, &step.device, &stream, &flag, &sequence))
        return NULL;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    step.flag = (int64_t *)(uintptr_t)flag;
    step.sequence = (int64_t *)(uintptr_t)sequence;
    return ligi_py_mesh_finish(
        object, LIGI_PY_UNLOCKED(lig_mesh_flag(mesh, &step, (void *)(uintptr_t)stream)));
}

static void drop_owner(void *owner)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

PyObject *ligi_py_mesh_flag_map(PyObject *object, PyObject *args)
{
    const ligi_py_state *state = ligi_py_state_of(object);
    int device;
    unsigned long long address, bytes;
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "iKKO", &device, &address, &bytes, &owner))
        return NULL;
    lig_mesh *mesh = ligi_py_mesh_enter(object);
    if (!mesh)
        return NULL;
    void *mapped;
    lig_status status =
        LIGI_PY_UNLOCKED(lig_mesh_flag_map(mesh, device, (void *)(uintptr_t)address, &mapped));
    ligi_py_mesh_leave(object);
    if (status != LIG_OK)
        return ligi_py_raise(state, status);
    Py_INCREF(owner);
    ligi_py_region *region = ligi_py_region_create(owner, drop_owner);
    if (!region)
        return NULL;
    PyObject *memory = ligi_py_memory_on(state, region, mapped, bytes, device);
    ligi_py_region_drop(region);
    return memory;
}
