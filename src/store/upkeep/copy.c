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

/* The parent is kept by name; its id is that of the same name over there, if there is one. */
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
    options.flags = self->flags;
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

lig_status lig_store_copy(lig_store *from, const char *model, lig_store *to, const char *new_name,
                          uint32_t flags)
{
    LIG_TRY(ligi_store_usable(from));
    LIG_TRY(ligi_store_writable(to));
    copying self = {.to = to, .name = new_name, .flags = flags};
    return ligi_ref_with(from, model, LIGI_REF_HELD, copy_model, &self);
}

lig_status lig_ref_copy(const lig_ref *ref, lig_store *to, const char *new_name, uint32_t flags)
{
    LIG_TRY(ligi_ref_usable(ref));
    LIG_TRY(ligi_store_writable(to));
    copying self = {.to = to, .name = new_name, .flags = flags};
    int gone = 0;
    lig_status status = copy_model(&self, ref, &gone);
    return gone ? ligi_ref_lost(ref) : status;
}
