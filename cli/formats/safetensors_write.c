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

#define ELEMENT_BYTES_MAX 16u

/* Fills the offset of each tensor. Holes are not allowed, so wide elements come first: each tensor
 * is then aligned to its elements. */
static void place_tensors(const cli_batch *batch, uint64_t *begins)
{
    uint64_t at = 0;
    for (uint32_t width = ELEMENT_BYTES_MAX; width > 0; width /= 2)
        for (size_t i = 0; i < batch->count; i++)
            if (lig_dtype_bytes(batch->tensors[i].dtype) == width) {
                begins[i] = at;
                at += batch->tensors[i].bytes;
            }
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
static lig_status put_header(const cli_batch *batch, const uint64_t *begins, cli_outfile *out)
{
    cli_text text;
    LIG_TRY(cli_text_open(&text));
    cli_json_writer writer = {.file = text.file, .compact = 1};
    cli_json_open(&writer, NULL, '{');
    put_metadata(&writer, batch);
    for (size_t i = 0; i < batch->count; i++)
        put_entry(&writer, &batch->tensors[i], begins[i]);
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
    uint64_t *begins;
    LIG_TRY(check_names(batch));
    LIG_TRY(cli_alloc(&begins, batch->count, sizeof *begins));
    place_tensors(batch, begins);
    lig_status status = put_header(batch, begins, out);
    free(begins);
    for (uint32_t width = ELEMENT_BYTES_MAX; width > 0; width /= 2)
        for (size_t i = 0; status == LIG_OK && i < batch->count; i++)
            if (lig_dtype_bytes(batch->tensors[i].dtype) == width)
                status = cli_put_tensor(out, &batch->tensors[i]);
    return status;
}
