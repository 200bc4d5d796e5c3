#include "formats/graphs_json.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPHS_MAX = 8, HASH_DIGITS = 2 * LIG_SIGNATURE_HASH_BYTES };

static void put_graph(cli_json_writer *writer, const lig_graph *graph)
{
    cli_json_open(writer, NULL, '{');
    cli_json_put_text(writer, "kind", graph->kind);
    cli_json_open(writer, "layers", '[');
    for (size_t i = 0; i < graph->layer_count; i++) {
        const unsigned char *hash = graph->layers[i].signature;
        char digits[HASH_DIGITS + 1];
        for (size_t j = 0; j < LIG_SIGNATURE_HASH_BYTES; j++)
            snprintf(digits + 2 * j, 3, "%02x", hash[j]);
        cli_json_put_text(writer, NULL, graph->layers[i].name);
        cli_json_put_text(writer, NULL, digits);
    }
    cli_json_close(writer, ']');
    cli_json_open(writer, "calls", '[');
    for (size_t i = 0; i < graph->call_count; i++) {
        const lig_call *call = &graph->calls[i];
        cli_json_open(writer, NULL, '[');
        cli_json_put_u64(writer, NULL, call->layer);
        for (uint32_t j = 0; j < call->input_count; j++) {
            cli_json_put_u64(writer, NULL, call->inputs[j].call);
            cli_json_put_u64(writer, NULL, call->inputs[j].output);
        }
        cli_json_close(writer, ']');
    }
    cli_json_close(writer, ']');
    cli_json_close(writer, '}');
}

void cli_graphs_put(cli_json_writer *writer, const lig_graph *graphs, size_t count)
{
    cli_json_open(writer, NULL, '[');
    for (size_t i = 0; i < count; i++)
        put_graph(writer, &graphs[i]);
    cli_json_close(writer, ']');
}

/* --- reading -------------------------------------------------------------------------------- */

static lig_status corrupt(void)
{
    return lig_fail(LIG_E_CORRUPT, "invalid graphs in __metadata__ (ligament.graphs)");
}

static lig_status allocate(cli_graphs *graphs, void *out, size_t count, size_t size)
{
    LIG_TRY(cli_alloc(out, count, size));
    memcpy(&graphs->memory[graphs->memory_count++], out, sizeof *graphs->memory);
    return LIG_OK;
}

static int to_hash(const char *digits, unsigned char *hash)
{
    if (strlen(digits) != HASH_DIGITS || strspn(digits, "0123456789abcdef") != HASH_DIGITS)
        return 0;
    for (size_t i = 0; i < LIG_SIGNATURE_HASH_BYTES; i++) {
        char two[3] = {digits[2 * i], digits[2 * i + 1], '\0'};
        hash[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return 1;
}

static lig_status take_layers(cli_graphs *graphs, lig_graph *graph, const cli_json_value *list)
{
    lig_layer *layers;
    unsigned char *hashes;
    if (list == NULL || list->kind != CLI_JSON_ARRAY || list->count % 2 != 0)
        return corrupt();
    graph->layer_count = list->count / 2;
    LIG_TRY(allocate(graphs, &layers, graph->layer_count, sizeof *layers));
    LIG_TRY(allocate(graphs, &hashes, graph->layer_count, LIG_SIGNATURE_HASH_BYTES));
    graph->layers = layers;
    const cli_json_value *at = cli_json_first(list);
    for (size_t i = 0; i < graph->layer_count; i++) {
        const cli_json_value *hash = cli_json_next(list, at);
        unsigned char *bytes = hashes + i * LIG_SIGNATURE_HASH_BYTES;
        if (at->kind != CLI_JSON_STRING || hash->kind != CLI_JSON_STRING ||
            !to_hash(hash->text, bytes))
            return corrupt();
        layers[i] = (lig_layer){at->text, bytes, LIG_SIGNATURE_HASHED};
        at = cli_json_next(list, hash);
    }
    return LIG_OK;
}

static lig_status to_u32(const cli_json_value *value, uint32_t *out)
{
    uint64_t number;
    if (cli_json_to_u64(value, "a number", &number) != LIG_OK || number > UINT32_MAX)
        return corrupt();
    *out = (uint32_t)number;
    return LIG_OK;
}

/* Indexes are checked against `graph`, whose counts are known. */
static lig_status take_call(const lig_graph *graph, const cli_json_value *list, lig_call *call,
                            lig_input *inputs)
{
    if (list->kind != CLI_JSON_ARRAY || list->count % 2 != 1)
        return corrupt();
    const cli_json_value *at = cli_json_first(list);
    LIG_TRY(to_u32(at, &call->layer));
    if (call->layer >= graph->layer_count)
        return corrupt();
    call->input_count = list->count / 2;
    call->inputs = inputs;
    for (uint32_t i = 0; i < call->input_count; i++) {
        at = cli_json_next(list, at);
        LIG_TRY(to_u32(at, &inputs[i].call));
        at = cli_json_next(list, at);
        LIG_TRY(to_u32(at, &inputs[i].output));
        if (inputs[i].call >= graph->call_count)
            return corrupt();
    }
    return LIG_OK;
}

static lig_status take_calls(cli_graphs *graphs, lig_graph *graph, const cli_json_value *list)
{
    lig_call *calls;
    lig_input *inputs;
    if (list == NULL || list->kind != CLI_JSON_ARRAY)
        return corrupt();
    LIG_TRY(allocate(graphs, &calls, list->count, sizeof *calls));
    LIG_TRY(allocate(graphs, &inputs, list->span, sizeof *inputs)); /* more than there can be */
    graph->calls = calls;
    graph->call_count = list->count;
    const cli_json_value *at = cli_json_first(list);
    for (size_t i = 0; i < graph->call_count; i++, at = cli_json_next(list, at)) {
        LIG_TRY(take_call(graph, at, &calls[i], inputs));
        inputs += calls[i].input_count;
    }
    return LIG_OK;
}

static lig_status take_graphs(cli_graphs *graphs)
{
    const cli_json_value *root = cli_json_root(graphs->json);
    if (root->kind != CLI_JSON_ARRAY || root->count > GRAPHS_MAX)
        return corrupt();
    LIG_TRY(cli_alloc(&graphs->graphs, root->count, sizeof *graphs->graphs));
    LIG_TRY(cli_alloc(&graphs->memory, 4 * (size_t)root->count, sizeof *graphs->memory));
    for (const cli_json_value *at = cli_json_first(root); at != NULL;
         at = cli_json_next(root, at)) {
        lig_graph *graph = &graphs->graphs[graphs->count++];
        if (cli_json_to_text(cli_json_member(at, "kind"), "kind", &graph->kind) != LIG_OK)
            return corrupt();
        LIG_TRY(take_layers(graphs, graph, cli_json_member(at, "layers")));
        LIG_TRY(take_calls(graphs, graph, cli_json_member(at, "calls")));
    }
    return LIG_OK;
}

lig_status cli_graphs_parse(cli_graphs *graphs, const char *text)
{
    *graphs = (cli_graphs){0};
    lig_status status = cli_json_parse_copy(text, &graphs->json);
    status = status == LIG_OK ? take_graphs(graphs) : corrupt();
    if (status != LIG_OK)
        cli_graphs_fini(graphs);
    return status;
}

void cli_graphs_fini(cli_graphs *graphs)
{
    for (size_t i = 0; i < graphs->memory_count; i++)
        free(graphs->memory[i]);
    free(graphs->memory);
    free(graphs->graphs);
    cli_json_destroy(graphs->json);
    *graphs = (cli_graphs){0};
}
