#include "store/load/target_check.h"

#include "base/error.h"
#include "base/map.h"
#include "store/format/slice.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    const ligi_model *model;
    ligi_map names;
    int built;
} finder;

static lig_status build_names(finder *self)
{
    const ligi_manifest *manifest = &self->model->manifest;
    LIG_TRY(ligi_map_reserve(&self->names, manifest->shown_count));
    for (size_t i = 0; i < manifest->shown_count; i++) {
        const char *name = manifest->shown[i].tensor.name;
        lig_status status = ligi_map_insert(&self->names, name, strlen(name), i, NULL);
        if (status != LIG_E_EXISTS)
            LIG_TRY(status);
    }
    self->built = 1;
    return LIG_OK;
}

/* Most callers use the order of saving: then the guess is right and the table is never built. */
static lig_status find(finder *self, const char *name, size_t guess, size_t *index)
{
    const ligi_manifest *manifest = &self->model->manifest;
    if (guess < manifest->shown_count && strcmp(manifest->shown[guess].tensor.name, name) == 0) {
        *index = guess;
        return LIG_OK;
    }
    if (!self->built)
        LIG_TRY(build_names(self));
    uint64_t found;
    if (!ligi_map_find(&self->names, name, strlen(name), &found))
        return LIG_E_NOTFOUND;
    *index = (size_t)found;
    return LIG_OK;
}

static lig_status match(const ligi_target *self, const ligi_model *model, size_t *indexes)
{
    finder names = {.model = model};
    lig_status status = LIG_OK;
    for (size_t i = 0; i < self->count && status == LIG_OK; i++) {
        status = find(&names, ligi_target_name(self, i), i, &indexes[i]);
        if (status == LIG_E_NOTFOUND)
            status = lig_fail(self->reads ? LIG_E_NOTFOUND : LIG_E_MISMATCH,
                              "model '%s' has no tensor '%s'", model->record.about.name,
                              ligi_target_name(self, i));
        if (status != LIG_OK)
            break;
        const lig_tensor *stored = &model->manifest.shown[indexes[i]].tensor;
        status = ligi_slice_check(stored, ligi_target_into(self, i),
                                  self->reads ? self->reads[i].slices : NULL);
        if (status != LIG_OK)
            status = ligi_fail_again(status, "model '%s': %s", model->record.about.name,
                                     lig_error_text());
    }
    ligi_map_fini(&names.names);
    return status;
}

/* All of `indexes` exist and are distinct, so a model with more tensors has one that is not among
 * them. */
static lig_status check_extra(const ligi_target *self, const ligi_model *model,
                              const size_t *indexes)
{
    const ligi_manifest *manifest = &model->manifest;
    if (!self->exact || manifest->shown_count <= self->count)
        return LIG_OK;
    uint8_t *asked;
    LIG_TRY(ligi_calloc(&asked, manifest->shown_count, 1, "a load"));
    for (size_t i = 0; i < self->count; i++)
        asked[indexes[i]] = 1;
    size_t extra = 0;
    while (asked[extra])
        extra++;
    free(asked);
    return lig_fail(LIG_E_MISMATCH,
                    "model '%s' has %zu tensors, but %zu are requested; '%s' is extra",
                    model->record.about.name, manifest->shown_count, self->count,
                    manifest->shown[extra].tensor.name);
}

lig_status ligi_target_check(const ligi_target *target, const ligi_model *model, size_t *indexes)
{
    LIG_TRY(match(target, model, indexes));
    return check_extra(target, model, indexes);
}
