#include "base/error.h"
#include "store/load/read_ranges.h"
#include "store/load/resolved_model.h"
#include "store/save/save.h"

#include <stdlib.h>
#include <string.h>

/* The tensors of one store as the source of a save into another. */
typedef struct copying {
    lig_store *to;
    const char *name;
    uint32_t flags;
    ligi_fetch fetch;
} copying;

static lig_status fill(void *context, size_t index, uint64_t offset, uint64_t bytes, void *out)
{
    copying *self = context;
    LIG_TRY(ligi_fetch_add(&self->fetch, index, offset, bytes, out, NULL));
    return ligi_fetch_run(&self->fetch);
}

/* Ties come with the stored model: tied tensors get the same address here, which is never read. */
static lig_status describe(const ligi_model *model, lig_tensor **out)
{
    size_t count = model->manifest.tensor_count;
    lig_tensor *tensors;
    LIG_TRY(ligi_calloc(&tensors, count, sizeof *tensors, "a copy"));
    for (size_t i = 0; i < count; i++) {
        const lig_stored_tensor *stored = &model->manifest.tensors[i];
        tensors[i] = stored->tensor;
        tensors[i].data = &tensors[stored->tied >= 0 ? (size_t)stored->tied : i];
    }
    *out = tensors;
    return LIG_OK;
}

/* The parent is kept by name; its id is that of the model of this name in the destination, if there
 * is one. */
static lig_status find_parent(lig_store *to, const char *name, uint64_t *id)
{
    ligi_catalog_view view;
    *id = 0;
    if (name[0] == '\0' || to->remote) /* a server looks it up itself */
        return LIG_OK;
    LIG_TRY(ligi_catalog_view_begin(to, &view));
    lig_status status = ligi_catalog_view_name(&view, name, id);
    ligi_catalog_view_end(&view);
    return status;
}

static lig_status copy_model(void *context, const lig_ref *ref, int *gone)
{
    copying *self = context;
    const ligi_model *model = ref->model;
    const ligi_about *about = &model->record.about;
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = self->flags & ~LIG_COPY_NEWER;
    options.metrics = about->metrics;
    options.metric_count = about->metric_count;
    options.tags = about->tags;
    options.tag_count = about->tag_count;
    options.meta = about->meta;
    options.structure = model->manifest.structure;
    self->fetch = (ligi_fetch){
        .store = ref->store, .model = model, .verify = 1, .gone = gone, .maps = &ref->maps};
    ligi_source source = {.fill = fill, .context = self};
    lig_tensor *tensors;
    LIG_TRY(describe(model, &tensors));
    ligi_plan plan = {0};
    ligi_plan_input input = {self->name ? self->name : about->name,
                             tensors,
                             model->manifest.tensor_count,
                             &options,
                             0,
                             model->manifest.places,
                             model->manifest.shown_count};
    lig_status status = ligi_save_prepare(self->to, &input, 0, &plan);
    if (status == LIG_OK) {
        plan.copied = 1;
        plan.flags |= self->flags & LIG_COPY_NEWER;
        plan.about.created_ns = about->created_ns;
        plan.about.parent_name = about->parent_name;
        ligi_put_bytes(&plan.graphs, model->manifest.graphs, model->manifest.graph_bytes);
        status = find_parent(self->to, about->parent_name, &plan.about.parent);
    }
    if (status == LIG_OK)
        status = ligi_save_run(self->to, &plan, &source);
    ligi_plan_fini(&plan);
    ligi_fetch_fini(&self->fetch);
    free(tensors);
    return status;
}

/* --- incremental copies --- */

static int same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static int same_notes(const lig_model *there, const ligi_about *here)
{
    if (there->metric_count != here->metric_count || there->tag_count != here->tag_count ||
        !same_text(there->meta, here->meta))
        return 0;
    for (size_t i = 0; i < here->metric_count; i++)
        if (!same_text(there->metrics[i].name, here->metrics[i].name) ||
            memcmp(&there->metrics[i].value, &here->metrics[i].value, sizeof(double)) != 0)
            return 0;
    for (size_t i = 0; i < here->tag_count; i++)
        if (!same_text(there->tags[i].name, here->tags[i].name) ||
            !same_text(there->tags[i].value, here->tags[i].value))
            return 0;
    return 1;
}

/* A copy keeps its model's creation time, to the nanosecond, so that it is recognised without
 * comparing bytes: fingerprints differ between stores. */
static lig_status check_newer(const copying *self, const ligi_model *model)
{
    const ligi_about *about = &model->record.about;
    const char *name = self->name ? self->name : about->name;
    lig_model *there;
    lig_status status = lig_store_model(self->to, name, &there);

    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    int newer = there->created_ns > about->created_ns;
    int copied = there->created_ns == about->created_ns && there->bytes == model->record.bytes &&
                 same_notes(there, about);
    lig_model_destroy(there);
    if (newer || copied)
        return lig_fail(LIG_E_EXISTS, "model '%s' in %s is %s", name, self->to->uri,
                        newer ? "newer" : "up to date");
    return LIG_OK;
}

/* What check_newer let through replaces the older model, if there is one. */
static lig_status copy_if_newer(void *context, const lig_ref *ref, int *gone)
{
    copying *self = context;
    if (self->flags & LIG_COPY_NEWER) {
        LIG_TRY(check_newer(self, ref->model));
        self->flags = LIG_COPY_NEWER | LIG_SAVE_REPLACE;
    }
    return copy_model(self, ref, gone);
}

lig_status lig_store_copy(lig_store *from, const char *model, lig_store *to, const char *new_name,
                          uint32_t flags)
{
    LIG_TRY(ligi_store_usable(from));
    LIG_TRY(ligi_store_writable(to));
    copying self = {.to = to, .name = new_name, .flags = flags};
    return ligi_ref_with(from, model, LIGI_REF_HELD, copy_if_newer, &self);
}

lig_status lig_ref_copy(const lig_ref *ref, lig_store *to, const char *new_name, uint32_t flags)
{
    LIG_TRY(ligi_ref_usable(ref));
    LIG_TRY(ligi_store_writable(to));
    copying self = {.to = to, .name = new_name, .flags = flags};
    int gone = 0;
    lig_status status = copy_if_newer(&self, ref, &gone);
    return gone ? ligi_ref_lost(ref) : status;
}
