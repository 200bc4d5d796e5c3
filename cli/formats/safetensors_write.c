#include "batch.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

static const char *dtype_name(uint32_t dtype)
{
    for (const cli_safetensors_dtype *known = cli_safetensors_dtypes(); known->name != NULL;
         known++)
        if (known->dtype == dtype)
            return known->name;
    return NULL;
}

static lig_status check_names(const cli_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const lig_tensor *tensor = &batch->tensors[i];
        if (dtype_name(tensor->dtype) == NULL)
            return lig_fail(LIG_E_UNSUPPORTED,
                            "tensor '%.200s' has dtype %s, which .safetensors does not support",
                            tensor->name, lig_dtype_name(tensor->dtype));
        if (tensor->dtype == LIG_FLOAT4_E2M1FN_X2 && tensor->ndim == 0)
            return lig_fail(
                LIG_E_UNSUPPORTED,
                "tensor '%.200s': .safetensors does not support 0-dimensional 4-bit tensors",
                tensor->name);
        if (strcmp(tensor->name, "__metadata__") == 0)
            return lig_fail(LIG_E_UNSUPPORTED,
                            "'__metadata__' is not a valid tensor name in .safetensors");
    }
    return LIG_OK;
}

typedef struct slot {
    size_t index;
    uint32_t element_bytes;
    uint64_t begin;
} slot;

static int by_alignment(const void *a, const void *b)
{
    const slot *left = a, *right = b;
    if (left->element_bytes != right->element_bytes)
        return left->element_bytes > right->element_bytes ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static int by_index(const void *a, const void *b)
{
    const slot *left = a, *right = b;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Holes are not allowed, so wide elements come first: each tensor is then aligned to its
 * elements. */
static lig_status place_tensors(const cli_batch *batch, slot **slots)
{
    slot *order;
    uint64_t at = 0;
    LIG_TRY(cli_alloc(&order, batch->count, sizeof *order));
    for (size_t i = 0; i < batch->count; i++)
        order[i] = (slot){i, lig_dtype_bytes(batch->tensors[i].dtype), 0};
    qsort(order, batch->count, sizeof *order, by_alignment);
    for (size_t i = 0; i < batch->count; i++) {
        order[i].begin = at;
        at += batch->tensors[order[i].index].bytes;
    }
    *slots = order;
    return LIG_OK;
}

/* Writes JSON as the text of a member: values of __metadata__ are strings. */
static void put_inner(cli_json_writer *writer, const char *key, const cli_batch *batch,
                      void (*put)(cli_json_writer *, const cli_batch *))
{
    cli_text text;
    if (cli_text_open(&text) != LIG_OK)
        return;
    cli_json_writer inner = {.file = text.file, .compact = 1};
    put(&inner, batch);
    if (cli_text_close(&text, LIG_OK) == LIG_OK)
        cli_json_put_text(writer, key, text.data);
    free(text.data);
}

static void put_metrics(cli_json_writer *writer, const cli_batch *batch)
{
    cli_json_open(writer, NULL, '{');
    for (size_t i = 0; i < batch->metric_count; i++)
        cli_json_put_double(writer, batch->metrics[i].name, batch->metrics[i].value);
    cli_json_close(writer, '}');
}

static void put_graphs(cli_json_writer *writer, const cli_batch *batch)
{
    cli_graphs_put(writer, batch->graphs, batch->graph_count);
}

static void put_metadata(cli_json_writer *writer, const cli_batch *batch)
{
    if (batch->tag_count == 0 && batch->metric_count == 0 && batch->meta == NULL &&
        batch->structure == NULL && batch->graph_count == 0)
        return;
    cli_json_open(writer, "__metadata__", '{');
    for (size_t i = 0; i < batch->tag_count; i++)
        cli_json_put_text(writer, batch->tags[i].name, batch->tags[i].value);
    if (batch->metric_count > 0)
        put_inner(writer, CLI_METRICS_KEY, batch, put_metrics);
    if (batch->graph_count > 0)
        put_inner(writer, CLI_GRAPHS_KEY, batch, put_graphs);
    if (batch->meta != NULL)
        cli_json_put_text(writer, CLI_META_KEY, batch->meta);
    if (batch->structure != NULL)
        cli_json_put_text(writer, CLI_STRUCTURE_KEY, batch->structure);
    cli_json_close(writer, '}');
}

static void put_entry(cli_json_writer *writer, const lig_tensor *tensor, uint64_t begin)
{
    cli_json_open(writer, tensor->name, '{');
    cli_json_put_text(writer, "dtype", dtype_name(tensor->dtype));
    cli_json_open(writer, "shape", '[');
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        int doubled = tensor->dtype == LIG_FLOAT4_E2M1FN_X2 && d + 1 == tensor->ndim;
        cli_json_put_i64(writer, NULL, doubled ? tensor->shape[d] * 2 : tensor->shape[d]);
    }
    cli_json_close(writer, ']');
    cli_json_open(writer, "data_offsets", '[');
    cli_json_put_u64(writer, NULL, begin);
    cli_json_put_u64(writer, NULL, begin + tensor->bytes);
    cli_json_close(writer, ']');
    cli_json_close(writer, '}');
}

/* Tensors are listed in the batch's order, regardless of their offset, so that a reader can
 * restore it. */
static lig_status put_header(const cli_batch *batch, const slot *slots, cli_outfile *out)
{
    cli_text text;
    LIG_TRY(cli_text_open(&text));
    cli_json_writer writer = {.file = text.file, .compact = 1};
    cli_json_open(&writer, NULL, '{');
    put_metadata(&writer, batch);
    for (size_t i = 0; i < batch->count; i++)
        put_entry(&writer, &batch->tensors[i], slots[i].begin);
    cli_json_close(&writer, '}');
    while (ftell(text.file) % 64 != 56) /* the data then starts at a multiple of 64 */
        putc(' ', text.file);
    LIG_TRY(cli_text_close(&text, LIG_OK));
    lig_status status = LIG_OK;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)text.bytes >> (8 * i));
    if (text.bytes > CLI_SAFETENSORS_HEADER_MAX)
        status = lig_fail(
            LIG_E_LIMIT, "header of %zu tensors is larger than the 100 MB that .safetensors allows",
            batch->count);
    if (status == LIG_OK)
        status = cli_outfile_put(out, length, sizeof length);
    if (status == LIG_OK)
        status = cli_outfile_put(out, text.data, text.bytes);
    free(text.data);
    return status;
}

lig_status cli_safetensors_write(const cli_batch *batch, cli_outfile *out)
{
    slot *slots;
    LIG_TRY(check_names(batch));
    LIG_TRY(place_tensors(batch, &slots));
    qsort(slots, batch->count, sizeof *slots, by_index);
    lig_status status = put_header(batch, slots, out);
    qsort(slots, batch->count, sizeof *slots, by_alignment);
    for (size_t i = 0; status == LIG_OK && i < batch->count; i++)
        status = cli_put_tensor(out, &batch->tensors[slots[i].index]);
    free(slots);
    return status;
}
