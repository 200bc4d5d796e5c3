#include "store/search/layer_graph.h"

#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* --- memory --- */

typedef struct sizes {
    uint32_t layers, calls, inputs;
} sizes;

/* All arrays in one block; the graph's pointers are const for other code, so the writable ones are
 * returned in `parts`. */
typedef struct arrays {
    ligi_hash128 *signatures;
    uint64_t *bytes;
    ligi_call *calls;
    ligi_input *inputs;
} arrays;

static lig_status allocate(ligi_layers *layers, sizes size, arrays *parts)
{
    size_t bytes =
        (size_t)size.layers * (sizeof(ligi_hash128) + sizeof(uint64_t) + sizeof(char *)) +
        (size_t)size.calls * (sizeof(ligi_hash128) + sizeof(ligi_call)) +
        (size_t)size.inputs * sizeof(ligi_input);
    char *at = NULL;
    LIG_TRY(ligi_calloc(&at, 1, bytes, "a graph"));
    layers->memory = at;
    parts->signatures = (ligi_hash128 *)(void *)at;
    layers->keys = parts->signatures + size.layers;
    parts->bytes = (uint64_t *)(void *)(layers->keys + size.calls);
    layers->names = (const char **)(void *)(parts->bytes + size.layers);
    parts->calls = (ligi_call *)(void *)(layers->names + size.layers);
    parts->inputs = (ligi_input *)(void *)(parts->calls + size.calls);
    layers->graph = (ligi_layer_graph){size.layers,  size.calls,   size.inputs,  parts->signatures,
                                       parts->bytes, parts->calls, parts->inputs};
    return LIG_OK;
}

void ligi_layers_fini(ligi_layers *layers)
{
    free(layers->memory);
    *layers = (ligi_layers){0};
}

/* --- from a caller --- */

static lig_status check_sizes(const lig_graph *graph, sizes *size)
{
    if (graph->kind == NULL || strlen(graph->kind) > LIGI_KIND_BYTES_MAX)
        return lig_fail(LIG_E_INVALID, "the kind of a graph can have at most %d bytes",
                        LIGI_KIND_BYTES_MAX);
    if (graph->layer_count > LIGI_LAYERS_MAX || graph->call_count > LIGI_LAYERS_MAX)
        return lig_fail(LIG_E_LIMIT, "a graph can have at most %u layers and calls",
                        LIGI_LAYERS_MAX);
    uint64_t inputs = 0;
    for (size_t i = 0; i < graph->call_count; i++) {
        const lig_call *call = &graph->calls[i];
        if (call->layer >= graph->layer_count)
            return lig_fail(LIG_E_INVALID,
                            "call %zu of a graph refers to layer %u, but there are %zu layers", i,
                            call->layer, graph->layer_count);
        for (uint32_t j = 0; j < call->input_count; j++)
            if (call->inputs[j].call >= graph->call_count)
                return lig_fail(
                    LIG_E_INVALID, "layer '%s' has an input from call %u, but there are %zu calls",
                    graph->layers[call->layer].name, call->inputs[j].call, graph->call_count);
        inputs += call->input_count;
    }
    if (inputs > LIGI_LAYERS_MAX)
        return lig_fail(LIG_E_LIMIT, "a graph can have at most %u edges", LIGI_LAYERS_MAX);
    *size = (sizes){(uint32_t)graph->layer_count, (uint32_t)graph->call_count, (uint32_t)inputs};
    return LIG_OK;
}

static lig_status take_layers(ligi_layers *layers, const lig_graph *graph, arrays *parts)
{
    for (size_t i = 0; i < graph->layer_count; i++) {
        const lig_layer *layer = &graph->layers[i];
        if (layer->name == NULL || layer->name[0] == '\0')
            return lig_fail(LIG_E_INVALID, "layer %zu of a graph has no name", i);
        size_t bytes = strlen(layer->name);
        if (bytes > LIG_NAME_BYTES_MAX || !ligi_utf8_valid(layer->name, bytes))
            return lig_fail(
                LIG_E_INVALID,
                "the name of layer %zu of a graph is not valid UTF-8 or longer than %d bytes", i,
                LIG_NAME_BYTES_MAX);
        layers->names[i] = layer->name;
        if (layer->signature_bytes == LIG_SIGNATURE_HASHED)
            memcpy(&parts->signatures[i], layer->signature, LIG_SIGNATURE_HASH_BYTES);
        else
            parts->signatures[i] = ligi_hash128_plain(layer->signature, layer->signature_bytes);
    }
    return LIG_OK;
}

/* Dependants of each call as a chain of edges: out[call] is the first edge, next[edge] the one
 * after, to[edge] the dependant. */
typedef struct edges {
    uint32_t *out, *next, *to, *missing, *place, *queue;
} edges;

static lig_status edges_make(const lig_graph *graph, sizes size, edges *e)
{
    LIG_TRY(ligi_calloc(&e->out, 4 * (size_t)size.calls + 2 * (size_t)size.inputs, sizeof(uint32_t),
                        "a graph's edges"));
    e->missing = e->out + size.calls;
    e->place = e->missing + size.calls;
    e->queue = e->place + size.calls;
    e->next = e->queue + size.calls;
    e->to = e->next + size.inputs;
    memset(e->out, 0xff, size.calls * sizeof *e->out);
    uint32_t edge = size.inputs;
    for (uint32_t i = size.calls;
         i-- > 0;) { /* backwards, so that chains run in the caller's order */
        const lig_call *call = &graph->calls[i];
        e->missing[i] = call->input_count;
        for (uint32_t j = call->input_count; j-- > 0;) {
            uint32_t from = call->inputs[j].call;
            e->to[--edge] = i;
            e->next[edge] = e->out[from];
            e->out[from] = edge;
        }
    }
    return LIG_OK;
}

/* Kahn's order, ties in the caller's order. Fills queue with calls in order and place with their
 * positions. */
static lig_status sort_calls(const lig_graph *graph, sizes size, edges *e)
{
    uint32_t tail = 0;
    for (uint32_t i = 0; i < size.calls; i++)
        if (e->missing[i] == 0)
            e->queue[tail++] = i;
    for (uint32_t head = 0; head < tail; head++) {
        uint32_t call = e->queue[head];
        e->place[call] = head;
        for (uint32_t edge = e->out[call]; edge != UINT32_MAX; edge = e->next[edge])
            if (--e->missing[e->to[edge]] == 0)
                e->queue[tail++] = e->to[edge];
    }
    if (tail == size.calls)
        return LIG_OK;
    uint32_t stuck = 0;
    while (e->missing[stuck] == 0)
        stuck++;
    return lig_fail(LIG_E_INVALID, "the graph has a cycle through or before layer '%s'",
                    graph->layers[graph->calls[stuck].layer].name);
}

static void take_calls(const lig_graph *graph, sizes size, const edges *e, arrays *parts)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < size.calls; i++) {
        const lig_call *call = &graph->calls[e->queue[i]];
        parts->calls[i] = (ligi_call){call->layer, used, call->input_count};
        for (uint32_t j = 0; j < call->input_count; j++)
            parts->inputs[used++] =
                (ligi_input){e->place[call->inputs[j].call], call->inputs[j].output};
    }
}

lig_status ligi_layers_index(const ligi_layers *layers, ligi_map *index)
{
    LIG_TRY(ligi_map_reserve(index, layers->graph.layer_count));
    for (uint32_t i = 0; i < layers->graph.layer_count; i++) {
        lig_status status =
            ligi_map_insert(index, layers->names[i], strlen(layers->names[i]), i, NULL);
        if (status == LIG_E_EXISTS)
            return lig_fail(LIG_E_INVALID, "two layers of a graph are named '%s'",
                            layers->names[i]);
        LIG_TRY(status);
    }
    return LIG_OK;
}

uint32_t ligi_layer_of(const ligi_map *index, const char *tensor)
{
    uint64_t layer;
    for (size_t bytes = strlen(tensor); bytes > 0; bytes--) {
        int border = tensor[bytes] == '\0' || tensor[bytes] == '.' || tensor[bytes] == '/';
        if (border && ligi_map_find(index, tensor, bytes, &layer))
            return (uint32_t)layer;
    }
    return LIGI_NO_CALL;
}

static lig_status weigh_layers(const ligi_layers *layers, const lig_tensor *tensors, size_t count,
                               uint64_t *bytes)
{
    ligi_map index = {0};
    lig_status status = ligi_layers_index(layers, &index);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        uint32_t layer = ligi_layer_of(&index, tensors[i].name);
        if (layer != LIGI_NO_CALL)
            bytes[layer] += tensors[i].bytes;
    }
    ligi_map_fini(&index);
    return status;
}

lig_status ligi_layers_make(ligi_layers *layers, const lig_graph *graph, const lig_tensor *tensors,
                            size_t count)
{
    sizes size;
    arrays parts;
    edges e = {0};
    LIG_TRY(check_sizes(graph, &size));
    LIG_TRY(allocate(layers, size, &parts));
    layers->kind = graph->kind;
    LIG_TRY(take_layers(layers, graph, &parts));
    LIG_TRY(edges_make(graph, size, &e));
    lig_status status = sort_calls(graph, size, &e);
    if (status == LIG_OK)
        take_calls(graph, size, &e, &parts);
    free(e.out);
    LIG_TRY(status);
    LIG_TRY(ligi_prefix_check(&layers->graph));
    LIG_TRY(weigh_layers(layers, tensors, count, parts.bytes));
    return ligi_prefix_keys(&layers->graph, layers->keys);
}

/* --- in files --- */

void ligi_layers_put(ligi_writer *writer, const ligi_layers *layers)
{
    const ligi_layer_graph *graph = &layers->graph;
    ligi_put_text(writer, layers->kind);
    ligi_put_varint(writer, graph->layer_count);
    ligi_put_varint(writer, graph->call_count);
    ligi_put_varint(writer, graph->input_count);
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        ligi_put_text(writer, layers->names[i]);
        ligi_put_u64(writer, graph->signatures[i].low);
        ligi_put_u64(writer, graph->signatures[i].high);
        ligi_put_varint(writer, graph->layer_bytes[i]);
    }
    for (uint32_t i = 0; i < graph->call_count; i++) {
        const ligi_call *call = &graph->calls[i];
        ligi_put_varint(writer, call->layer);
        ligi_put_varint(writer, call->input_count);
        for (uint32_t j = 0; j < call->input_count; j++) {
            const ligi_input *input = &graph->inputs[call->input_first + j];
            ligi_put_varint(writer, i - input->call);
            ligi_put_varint(writer, input->output);
        }
    }
}

static void get_calls(ligi_reader *reader, const ligi_layer_graph *graph, arrays *parts)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < graph->call_count && !reader->failed; i++) {
        uint64_t layer = ligi_get_varint(reader), count = ligi_get_varint(reader);
        if (layer >= graph->layer_count || count > graph->input_count - used) {
            reader->failed = 1;
            return;
        }
        parts->calls[i] = (ligi_call){(uint32_t)layer, (uint32_t)used, (uint32_t)count};
        for (uint64_t j = 0; j < count; j++) {
            uint64_t back = ligi_get_varint(reader), output = ligi_get_varint(reader);
            if (back == 0 || back > i || output > UINT32_MAX) {
                reader->failed = 1;
                return;
            }
            parts->inputs[used++] = (ligi_input){i - (uint32_t)back, (uint32_t)output};
        }
    }
    reader->failed |= used != graph->input_count;
}

static lig_status not_a_graph(void)
{
    return lig_fail(LIG_E_CORRUPT, "invalid stored graph");
}

lig_status ligi_layers_get(ligi_reader *reader, ligi_layers *layers)
{
    arrays parts;
    layers->kind = ligi_get_text(reader, LIGI_KIND_BYTES_MAX);
    uint64_t count[3];
    static const size_t least[] = {19, 2, 2}; /* bytes that each takes at least */
    for (int i = 0; i < 3; i++) {
        count[i] = ligi_get_count(reader, least[i]);
        if (reader->failed || count[i] > LIGI_LAYERS_MAX)
            return not_a_graph();
    }
    LIG_TRY(allocate(layers, (sizes){(uint32_t)count[0], (uint32_t)count[1], (uint32_t)count[2]},
                     &parts));
    for (uint32_t i = 0; i < count[0]; i++) {
        layers->names[i] = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
        parts.signatures[i].low = ligi_get_u64(reader);
        parts.signatures[i].high = ligi_get_u64(reader);
        parts.bytes[i] = ligi_get_varint(reader);
    }
    get_calls(reader, &layers->graph, &parts);
    if (reader->failed || ligi_prefix_check(&layers->graph) != LIG_OK)
        return not_a_graph();
    return ligi_prefix_keys(&layers->graph, layers->keys);
}

/* --- keys for the index --- */

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(ligi_hash128));
}

/* One hash for all calls of a layer: a layer counts when all of them are in the prefix. */
static lig_status hash_calls(const ligi_layers *layers, ligi_hash128 *keys)
{
    const ligi_layer_graph *graph = &layers->graph;
    uint32_t *next = NULL, *first = NULL;
    ligi_hash128 *calls = NULL;
    lig_status status = ligi_calloc(&next, (size_t)graph->call_count + graph->layer_count,
                                    sizeof *next, "a graph's layers");
    if (status == LIG_OK)
        status = ligi_calloc(&calls, graph->call_count, sizeof *calls, "a graph's calls");
    if (status != LIG_OK)
        goto free_arrays;
    first = next + graph->call_count;
    memset(first, 0xff, graph->layer_count * sizeof *first);
    for (uint32_t i = graph->call_count; i-- > 0;) {
        next[i] = first[graph->calls[i].layer];
        first[graph->calls[i].layer] = i;
    }
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        size_t count = 0;
        for (uint32_t call = first[i]; call != LIGI_NO_CALL; call = next[call])
            calls[count++] = layers->keys[call];
        qsort(calls, count, sizeof *calls, compare_keys);
        keys[i] = ligi_hash128_plain(calls, count * sizeof *calls);
    }
free_arrays:
    free(next);
    free(calls);
    return status;
}

lig_status ligi_layers_keys(const ligi_layers *layers, ligi_hash128 *keys)
{
    uint32_t count = layers->graph.layer_count;
    LIG_TRY(hash_calls(layers, keys));
    ligi_hash128 *plain = NULL;
    LIG_TRY(ligi_calloc(&plain, count, sizeof *plain, "a graph's keys"));
    memcpy(plain, keys, count * sizeof *plain);
    ligi_map seen = {0};
    lig_status status = ligi_map_reserve(&seen, count);
    ligi_hash128 kind = ligi_hash128_plain(layers->kind, strlen(layers->kind));
    for (uint32_t i = 0; i < count && status == LIG_OK; i++) {
        ligi_hash128 text[3] = {plain[i], kind, {0, 0}};
        while (ligi_map_find(&seen, &keys[i], sizeof *keys, NULL) || text[2].low == 0) {
            text[2].low++; /* the ordinal among layers with equal signatures */
            keys[i] = ligi_hash128_plain(text, sizeof text);
        }
        status = ligi_map_insert(&seen, &keys[i], sizeof *keys, i, NULL);
    }
    ligi_map_fini(&seen);
    free(plain);
    return status;
}
