#include "store/find/saved_graphs.h"

#include "base/error.h"
#include "store/catalog/model_graphs.h"
#include "store/load/resolved_model.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ligi_hash128) == LIG_SIGNATURE_HASH_BYTES, "a hashed signature");

/* What lig_ref_graphs returns a pointer into: `shown` comes first. Names point into `bytes`,
 * signatures into `graphs`. */
typedef struct saved_graphs {
    lig_graph shown[LIGI_GRAPHS_MAX];
    ligi_graphs graphs;
    void *bytes;
    void *arrays[LIGI_GRAPHS_MAX];
} saved_graphs;

static lig_status show(saved_graphs *self, size_t index)
{
    const ligi_layers *from = &self->graphs.graphs[index];
    const ligi_layer_graph *graph = &from->graph;
    size_t bytes = graph->layer_count * sizeof(lig_layer) + graph->call_count * sizeof(lig_call) +
                   graph->input_count * sizeof(lig_input);
    char *memory = NULL;
    LIG_TRY(ligi_calloc(&memory, 1, bytes, "a graph"));
    self->arrays[index] = memory;
    lig_layer *layers = (lig_layer *)(void *)memory;
    lig_call *calls = (lig_call *)(void *)(layers + graph->layer_count);
    lig_input *inputs = (lig_input *)(void *)(calls + graph->call_count);
    for (uint32_t i = 0; i < graph->layer_count; i++)
        layers[i] = (lig_layer){from->names[i], &graph->signatures[i], LIG_SIGNATURE_HASHED};
    for (uint32_t i = 0; i < graph->input_count; i++)
        inputs[i] = (lig_input){graph->inputs[i].call, graph->inputs[i].output};
    for (uint32_t i = 0; i < graph->call_count; i++)
        calls[i] = (lig_call){graph->calls[i].layer, graph->calls[i].input_count,
                              inputs + graph->calls[i].input_first};
    self->shown[index] =
        (lig_graph){from->kind, layers, calls, graph->layer_count, graph->call_count};
    return LIG_OK;
}

static lig_status fill(saved_graphs *self, const void *bytes, size_t size)
{
    LIG_TRY(ligi_alloc(&self->bytes, size, "a graph"));
    memcpy(self->bytes, bytes, size);
    LIG_TRY(ligi_graphs_get(self->bytes, size, &self->graphs));
    for (size_t i = 0; i < self->graphs.count; i++)
        LIG_TRY(show(self, i));
    return LIG_OK;
}

lig_status ligi_graphs_show(const void *bytes, size_t size, lig_graph **graphs, size_t *count)
{
    saved_graphs *self = NULL;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "graphs"));
    lig_status status = size > 0 ? fill(self, bytes, size) : LIG_OK;
    if (status != LIG_OK) {
        lig_graphs_destroy(self->shown);
        return status;
    }
    *graphs = self->shown;
    *count = self->graphs.count;
    return LIG_OK;
}

lig_status lig_ref_graphs(const lig_ref *ref, lig_graph **graphs, size_t *count)
{
    LIG_TRY(ligi_ref_usable(ref));
    const ligi_manifest *manifest = &ref->model->manifest;
    return ligi_graphs_show(manifest->graphs, manifest->graph_bytes, graphs, count);
}

void lig_graphs_destroy(lig_graph *graphs)
{
    saved_graphs *self = (saved_graphs *)(void *)graphs;
    if (self == NULL)
        return;
    ligi_graphs_fini(&self->graphs);
    free(self->bytes);
    for (size_t i = 0; i < LIGI_GRAPHS_MAX; i++)
        free(self->arrays[i]);
    free(self);
}
