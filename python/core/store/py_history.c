#include "store/py_find.h"

#include <string.h>

static PyObject *text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "backslashreplace");
}

/* --- lineage -------------------------------------------------------------------------------- */

static void drop_lineage(void *lineage)
{
    lig_lineage_destroy(lineage);
}

/* The model and its family, of one version. */
static lig_status find_family(lig_store *store, const ligi_py_version *version, lig_model **model,
                              lig_lineage **lineage)
{
    lig_ref *ref;
    LIG_TRY(ligi_py_version_resolve(store, version, &ref));
    lig_status status = lig_ref_lineage(ref, lineage);
    if (status == LIG_OK)
        *model = lig_ref_detach(ref);
    else
        lig_ref_release(ref);
    return status;
}

static PyObject *family_tuple(const ligi_py_state *state, lig_model *model, lig_lineage *lineage)
{
    PyObject *mine = ligi_py_model_own(state, model);
    ligi_py_region *region = ligi_py_region_create(lineage, drop_lineage);
    PyObject *ancestors = mine && region ? ligi_py_models_list(state, lineage->ancestors,
                                                               lineage->ancestor_count, region)
                                         : NULL;
    PyObject *children =
        ancestors ? ligi_py_models_list(state, lineage->children, lineage->child_count, region)
                  : NULL;
    PyObject *all = children ? PyTuple_Pack(3, mine, ancestors, children) : NULL;
    Py_XDECREF(mine);
    Py_XDECREF(ancestors);
    Py_XDECREF(children);
    if (region)
        ligi_py_region_drop(region);
    return all;
}

PyObject *ligi_py_store_lineage(PyObject *object, PyObject *which)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const ligi_py_state *state = ligi_py_state_of(object);
    ligi_py_version version;
    if (ligi_py_version_of(state, which, &version) < 0)
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    if (!store)
        return NULL;
    lig_model *model = NULL;
    lig_lineage *lineage = NULL;
    lig_status status = LIGI_PY_UNLOCKED(find_family(store, &version, &model, &lineage));
    PyObject *result = ligi_py_store_finish(self, status);
    Py_XDECREF(result);
    return result ? family_tuple(state, model, lineage) : NULL;
}

/* --- diff ----------------------------------------------------------------------------------- */

enum { CHANGES = 5 };

PyObject *ligi_py_diff_tuple(const lig_diff *diff)
{
    static const char *const names[CHANGES] = {"same", "changed", "reshaped", "removed", "added"};
    PyObject *result = PyTuple_New(CHANGES + 1), *bytes = PyDict_New();
    if (!result || !bytes || PyTuple_SetItem(result, CHANGES, bytes) < 0)
        goto fail;
    for (int i = 0; i < CHANGES; i++) {
        PyObject *list = PyList_New(0), *count = PyLong_FromUnsignedLongLong(diff->bytes[i]);
        int failed = !count || PyDict_SetItemString(bytes, names[i], count) < 0;
        Py_XDECREF(count);
        if (!list || PyTuple_SetItem(result, i, list) < 0 || failed)
            goto fail;
    }
    for (size_t i = 0; i < diff->count; i++) {
        PyObject *name = text(diff->tensors[i].name);
        int failed = !name || PyList_Append(PyTuple_GetItem(result, diff->tensors[i].change), name);
        Py_XDECREF(name);
        if (failed)
            goto fail;
    }
    return result;
fail:
    Py_XDECREF(result);
    return NULL;
}

/* --- time stamps ---------------------------------------------------------------------------- */

static int add_stamps(ligi_py_store *self, lig_store *store, const char *name, PyObject *dict)
{
    int64_t *stamps = NULL;
    size_t count = 0;
    lig_status status = lig_store_time_stamps(store, name, &stamps, &count);
    if (status != LIG_OK) {
        ligi_py_raise(ligi_py_state_of((PyObject *)self), status);
        return -1;
    }
    PyObject *list = ligi_py_i64_list(stamps, count);
    lig_time_stamps_destroy(stamps);
    int result = list ? PyDict_SetItemString(dict, name, list) : -1;
    Py_XDECREF(list);
    return result;
}

PyObject *ligi_py_store_time_stamps(PyObject *object, PyObject *given)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const char *name;
    if (ligi_py_optional_text(ligi_py_state_of(object), given, "the name of an operation", &name))
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    PyObject *dict = store ? PyDict_New() : NULL;
    int failed = !dict || (name && add_stamps(self, store, name, dict) < 0);
    for (size_t i = 0; !failed && !name && lig_store_time_stamp_name(i); i++)
        failed = add_stamps(self, store, lig_store_time_stamp_name(i), dict) < 0;
    if (store)
        Py_XDECREF(ligi_py_store_finish(self, LIG_OK));
    if (failed)
        Py_CLEAR(dict);
    return dict;
}

PyObject *ligi_py_store_clear_time_stamps(PyObject *object, PyObject *given)
{
    ligi_py_store *self = (ligi_py_store *)object;
    const char *name;
    if (ligi_py_optional_text(ligi_py_state_of(object), given, "the name of an operation", &name))
        return NULL;
    lig_store *store = ligi_py_store_enter(self);
    return store ? ligi_py_store_finish(self, lig_store_clear_time_stamps(store, name)) : NULL;
}
