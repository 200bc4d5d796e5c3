#include "batch.h"

#include <stdlib.h>
#include <string.h>

/* 1 if `prefix` is the whole name or is followed by '.' or '/'; *rest is what follows it. */
static int is_below(const char *name, const char *prefix, const char **rest)
{
    size_t bytes = strlen(prefix);
    int ends = bytes > 0 && strchr("./", prefix[bytes - 1]) != NULL;
    if (bytes == 0 || strncmp(name, prefix, bytes) != 0)
        return 0;
    *rest = name + bytes;
    return ends || **rest == '\0' || **rest == '.' || **rest == '/';
}

/* "model, optimizer": what precedes the first '.' or '/' of each name. */
static void list_parts(const cli_batch *batch, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < batch->count && used < text_bytes; i++) {
        const char *name = batch->tensors[i].name;
        size_t bytes = strcspn(name, "./"), j = 0;
        while (j < i && !(strncmp(batch->tensors[j].name, name, bytes) == 0 &&
                          strcspn(batch->tensors[j].name, "./") == bytes))
            j++;
        if (j == i)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%.*s", used > 0 ? ", " : "",
                                     (int)bytes, name);
    }
}

static lig_status take_part(cli_batch *batch, const char *part)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        lig_tensor tensor = batch->tensors[i];
        const char *rest;
        if (!is_below(tensor.name, part, &rest))
            continue;
        rest += *rest == '.' || *rest == '/';
        if (*rest != '\0') /* a tensor that is itself the part keeps its name */
            tensor.name = rest;
        batch->tensors[kept++] = tensor;
    }
    if (kept == 0) {
        char parts[512];
        list_parts(batch, parts, sizeof parts);
        return lig_fail(LIG_E_NOTFOUND, "the model has no part '%s' (parts: %s)", part, parts);
    }
    batch->count = kept;
    return LIG_OK;
}

static lig_status strip_prefix(cli_batch *batch, const char *prefix)
{
    size_t bytes = strlen(prefix), found = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const char *name = batch->tensors[i].name;
        if (strncmp(name, prefix, bytes) != 0 || name[bytes] == '\0')
            continue;
        batch->tensors[i].name = name + bytes;
        found++;
    }
    return found > 0 ? LIG_OK : lig_fail(LIG_E_NOTFOUND, "no tensor name begins with '%s'", prefix);
}

/* Replaces *name by the first renaming that fits, and counts its use. */
static lig_status rename_one(cli_batch *batch, const char **name, const cli_renaming *renaming,
                             size_t *used)
{
    for (size_t i = 0; i < renaming->rename_count; i++) {
        const lig_tag *rename = &renaming->renames[i];
        const char *rest;
        char *text, *made;
        if (!is_below(*name, rename->name, &rest))
            continue;
        LIG_TRY(cli_format(&text, "%s%s", rename->value, rest));
        lig_status status = cli_batch_text(batch, text, strlen(text), &made);
        free(text);
        LIG_TRY(status);
        *name = made;
        used[i]++;
        return LIG_OK;
    }
    return LIG_OK;
}

static lig_status rename_all(cli_batch *batch, const cli_renaming *renaming)
{
    size_t *used;
    lig_status status = LIG_OK;
    LIG_TRY(cli_alloc(&used, renaming->rename_count, sizeof *used));
    for (size_t i = 0; i < batch->count && status == LIG_OK; i++)
        status = rename_one(batch, &batch->tensors[i].name, renaming, used);
    for (size_t i = 0; i < renaming->rename_count && status == LIG_OK; i++)
        if (used[i] == 0)
            status = lig_fail(LIG_E_NOTFOUND, "no tensor is named '%s' or is below it",
                              renaming->renames[i].name);
    free(used);
    return status;
}

/* --- graphs ---------------------------------------------------------------------------------- */

typedef struct graph_parts { /* a copy that is changed; the batch owns the memory */
    lig_layer *layers;
    lig_call *calls;
    uint32_t *layer_at, *call_at; /* new indexes; UINT32_MAX: left out */
    size_t *used;
} graph_parts;

static lig_status make_parts(cli_batch *batch, const lig_graph *graph, size_t renames,
                             graph_parts *parts)
{
    char *memory[5];
    size_t sizes[5] = {graph->layer_count * sizeof(lig_layer), graph->call_count * sizeof(lig_call),
                       graph->layer_count * sizeof(uint32_t), graph->call_count * sizeof(uint32_t),
                       (renames + 1) * sizeof(size_t)};
    for (int i = 0; i < 5; i++) {
        static const char nothing[1];
        LIG_TRY(cli_batch_text(batch, nothing, 0, &memory[i]));
        char *grown = realloc(memory[i], sizes[i] + 1);
        if (grown == NULL)
            return lig_fail(LIG_E_NOMEM, "out of memory for a graph");
        memset(grown, 0, sizes[i] + 1);
        batch->texts[batch->text_count - 1] = memory[i] = grown;
    }
    *parts = (graph_parts){(lig_layer *)(void *)memory[0], (lig_call *)(void *)memory[1],
                           (uint32_t *)(void *)memory[2], (uint32_t *)(void *)memory[3],
                           (size_t *)(void *)memory[4]};
    return LIG_OK;
}

static lig_status keep_layers(cli_batch *batch, const lig_graph *graph,
                              const cli_renaming *renaming, graph_parts *parts, size_t *kept)
{
    for (size_t i = 0; i < graph->layer_count; i++) {
        lig_layer layer = graph->layers[i];
        const char *rest = layer.name;
        parts->layer_at[i] = UINT32_MAX;
        if (renaming->part != NULL && !is_below(layer.name, renaming->part, &rest))
            continue;
        if (renaming->part != NULL)
            rest += *rest == '.' || *rest == '/';
        layer.name = *rest != '\0' ? rest : layer.name;
        size_t bytes = renaming->strip != NULL ? strlen(renaming->strip) : 0;
        if (bytes > 0 && strncmp(layer.name, renaming->strip, bytes) == 0 && layer.name[bytes])
            layer.name += bytes;
        LIG_TRY(rename_one(batch, &layer.name, renaming, parts->used));
        parts->layer_at[i] = (uint32_t)*kept;
        parts->layers[(*kept)++] = layer;
    }
    return LIG_OK;
}

/* Returns 0 if a kept call takes the output of a dropped one: the rest is not a complete graph.
 */
static int keep_calls(const lig_graph *graph, graph_parts *parts, size_t *kept)
{
    for (size_t i = 0; i < graph->call_count; i++) {
        int keep = parts->layer_at[graph->calls[i].layer] != UINT32_MAX;
        parts->call_at[i] = keep ? (uint32_t)(*kept)++ : UINT32_MAX;
    }
    for (size_t i = 0; i < graph->call_count; i++) {
        lig_call call = graph->calls[i];
        if (parts->call_at[i] == UINT32_MAX)
            continue;
        lig_input *inputs = (lig_input *)(uintptr_t)call.inputs; /* of this batch's own copy */
        for (uint32_t j = 0; j < call.input_count; j++) {
            uint32_t from = parts->call_at[inputs[j].call];
            if (from == UINT32_MAX)
                return 0;
            inputs[j].call = from;
        }
        call.layer = parts->layer_at[call.layer];
        parts->calls[parts->call_at[i]] = call;
    }
    return 1;
}

/* Graphs that remain are changed in place; the array and its inputs are the batch's. */
static lig_status rename_graphs(cli_batch *batch, const cli_renaming *renaming)
{
    lig_graph *graphs = (lig_graph *)(uintptr_t)batch->graphs;
    size_t remain = 0;
    for (size_t i = 0; i < batch->graph_count; i++) {
        graph_parts parts;
        size_t layers = 0, calls = 0;
        LIG_TRY(make_parts(batch, &graphs[i], renaming->rename_count, &parts));
        LIG_TRY(keep_layers(batch, &graphs[i], renaming, &parts, &layers));
        if (layers == 0 || !keep_calls(&graphs[i], &parts, &calls))
            continue;
        graphs[remain++] = (lig_graph){graphs[i].kind, parts.layers, parts.calls, layers, calls};
    }
    batch->graph_count = remain;
    return LIG_OK;
}

lig_status cli_batch_rename(cli_batch *batch, const cli_renaming *renaming)
{
    if (renaming->part == NULL && renaming->strip == NULL && renaming->rename_count == 0)
        return LIG_OK;
    if (renaming->part != NULL)
        LIG_TRY(take_part(batch, renaming->part));
    if (renaming->strip != NULL)
        LIG_TRY(strip_prefix(batch, renaming->strip));
    LIG_TRY(rename_all(batch, renaming));
    LIG_TRY(rename_graphs(batch, renaming));
    batch->structure = NULL;
    return lig_tensors_check(batch->tensors, batch->count);
}
