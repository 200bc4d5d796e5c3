#include "base/error.h"
#include "store/catalog/model_graphs.h"
#include "store/find/find.h"

#include <stdlib.h>
#include <string.h>

/* The graphs of a model, and the bytes that their names lie in. */
typedef struct kept {
    ligi_graphs graphs;
    void *bytes;
} kept;

static lig_status keep_graphs(const ligi_catalog_view *view, uint64_t id, kept *self)
{
    const void *bytes;
    size_t size;
    LIG_TRY(ligi_graphs_bytes(view, id, &bytes, &size));
    if (!bytes)
        return LIG_OK;
    LIG_TRY(ligi_alloc(&self->bytes, size, "a graph"));
    memcpy(self->bytes, bytes, size);
    return ligi_graphs_get(self->bytes, size, &self->graphs);
}

static lig_status read_graphs(lig_store *store, const char *model, kept *self)
{
    ligi_catalog_view view;
    uint64_t id = 0;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = ligi_catalog_view_name(&view, model, &id);
    if (status == LIG_OK && id == 0)
        status = ligi_catalog_view_alias(&view, model, &id);
    if (status == LIG_OK && id == 0)
        status = lig_fail(LIG_E_NOTFOUND, "there is no model '%s' in %s", model, store->uri);
    if (status == LIG_OK)
        status = keep_graphs(&view, id, self);
    ligi_catalog_view_end(&view);
    if (status == LIG_OK && self->graphs.count == 0)
        status =
            lig_fail(LIG_E_INVALID,
                     "model '%s' was saved without a graph, by which models are found; save it "
                     "with one: graph=ligament.Graph.of(model, args), or graphs of "
                     "lig_save_options",
                     model);
    return status;
}

static lig_status find_others(lig_store *store, const char *model, const ligi_layers *asking,
                              const lig_find_options *options, lig_match ***matches, size_t *count)
{
    lig_find_options asked = LIG_FIND_INIT;
    if (options)
        asked = *options;
    const char **names = NULL;
    LIG_TRY(ligi_calloc(&names, asked.exclude_count + 1, sizeof *names, "a search"));
    for (size_t i = 0; i < asked.exclude_count; i++)
        names[i] = asked.exclude[i];
    names[asked.exclude_count++] = model;
    asked.exclude = names;
    lig_status status = ligi_find_layers(store, asking, &asked, matches, count);
    free(names);
    return status;
}

lig_status lig_store_find_like(lig_store *store, const char *model, const lig_find_options *options,
                               lig_match ***matches, size_t *count)
{
    kept self = {0};
    LIG_TRY(ligi_store_usable(store));
    int64_t begin = ligi_now_ns();
    lig_status status = read_graphs(store, model, &self);
    if (status == LIG_OK)
        status = find_others(store, model, &self.graphs.graphs[0], options, matches, count);
    ligi_graphs_fini(&self.graphs);
    free(self.bytes);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_FIND, begin);
    return status;
}
