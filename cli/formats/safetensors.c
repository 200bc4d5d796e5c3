/* Reads the header of a .safetensors file: eight bytes of length, JSON, then the tensors' bytes
 * without holes. Every value is checked against the file's size before use. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

typedef struct parse {
    cli_batch *batch;
    const char *path;
    const uint8_t *data; /* of the tensors */
    uint64_t data_bytes;
    int64_t *next_shape;
} parse;

static const cli_safetensors_dtype dtypes[] = {
    {"F32", LIG_FLOAT32},
    {"BF16", LIG_BFLOAT16},
    {"F16", LIG_FLOAT16},
    {"F64", LIG_FLOAT64},
    {"I64", LIG_INT64},
    {"I32", LIG_INT32},
    {"I16", LIG_INT16},
    {"I8", LIG_INT8},
    {"U8", LIG_UINT8},
    {"BOOL", LIG_BOOL},
    {"U16", LIG_UINT16},
    {"U32", LIG_UINT32},
    {"U64", LIG_UINT64},
    {"C64", LIG_COMPLEX64},
    {"F8_E4M3", LIG_FLOAT8_E4M3FN},
    {"F8_E5M2", LIG_FLOAT8_E5M2},
    {"F8_E8M0", LIG_FLOAT8_E8M0FNU},
    {"F8_E4M3FNUZ", LIG_FLOAT8_E4M3FNUZ},
    {"F8_E5M2FNUZ", LIG_FLOAT8_E5M2FNUZ},
    {"F4", LIG_FLOAT4_E2M1FN_X2},
    {NULL, LIG_DTYPE_NONE},
};

const cli_safetensors_dtype *cli_safetensors_dtypes(void)
{
    return dtypes;
}

static lig_status corrupt(const parse *self, const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "'%s' is not a valid safetensors file: %s", self->path, what);
}

static lig_status corrupt_tensor(const parse *self, const char *name, const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "'%s' is not a valid safetensors file: tensor '%.200s': %s",
                    self->path, name, what);
}

static lig_status take_dtype(const parse *self, const cli_json_value *entry, lig_tensor *tensor)
{
    const cli_json_value *dtype = cli_json_member(entry, "dtype");
    if (dtype == NULL || dtype->kind != CLI_JSON_STRING)
        return corrupt_tensor(self, tensor->name, "missing dtype");
    for (const cli_safetensors_dtype *known = dtypes; known->name != NULL; known++) {
        if (strcmp(known->name, dtype->text) == 0) {
            tensor->dtype = (uint16_t)known->dtype;
            return LIG_OK;
        }
    }
    return lig_fail(LIG_E_UNSUPPORTED, "'%s': tensor '%.200s' has unsupported dtype '%.40s'",
                    self->path, tensor->name, dtype->text);
}

static lig_status take_shape(parse *self, const cli_json_value *entry, lig_tensor *tensor)
{
    const cli_json_value *shape = cli_json_member(entry, "shape"), *at;
    if (shape == NULL || shape->kind != CLI_JSON_ARRAY)
        return corrupt_tensor(self, tensor->name, "missing shape");
    if (shape->count > LIG_NDIM_MAX)
        return lig_fail(LIG_E_LIMIT, "'%s': tensor '%.200s' has %u dimensions, the limit is %d",
                        self->path, tensor->name, shape->count, LIG_NDIM_MAX);
    tensor->shape = self->next_shape;
    tensor->ndim = shape->count;
    for (at = cli_json_first(shape); at != NULL; at = cli_json_next(shape, at)) {
        int64_t *size = self->next_shape++;
        if (cli_json_to_i64(at, "a dimension", size) != LIG_OK || *size < 0)
            return corrupt_tensor(self, tensor->name, "a dimension is not a non-negative integer");
    }
    /* F4 counts values, while our element is the byte that holds two of them. */
    if (tensor->dtype == LIG_FLOAT4_E2M1FN_X2) {
        if (tensor->ndim == 0 || self->next_shape[-1] % 2 != 0)
            return corrupt_tensor(self, tensor->name, "4-bit values do not fill whole bytes");
        self->next_shape[-1] /= 2;
    }
    return LIG_OK;
}

/* The number of bytes of the shape; a product that overflows cannot match the file. */
static int shape_bytes(const lig_tensor *tensor, uint64_t *bytes)
{
    uint64_t product = lig_dtype_bytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(product, (uint64_t)tensor->shape[i], &product))
            return 0;
    *bytes = product;
    return 1;
}

static lig_status take_offsets(const parse *self, const cli_json_value *entry, lig_tensor *tensor)
{
    const cli_json_value *offsets = cli_json_member(entry, "data_offsets");
    const cli_json_value *first = cli_json_first(offsets);
    uint64_t begin, end;
    if (offsets == NULL || offsets->kind != CLI_JSON_ARRAY || offsets->count != 2 ||
        cli_json_to_u64(first, "an offset", &begin) != LIG_OK ||
        cli_json_to_u64(cli_json_next(offsets, first), "an offset", &end) != LIG_OK)
        return corrupt_tensor(self, tensor->name, "data_offsets must be two integers");
    if (begin > end || end > self->data_bytes)
        return corrupt_tensor(self, tensor->name, "data outside the file");
    if (!shape_bytes(tensor, &tensor->bytes) || tensor->bytes != end - begin)
        return corrupt_tensor(self, tensor->name, "shape does not match the size of the data");
    tensor->data = (void *)(uintptr_t)(self->data + begin);
    return LIG_OK;
}

static int by_place(const void *a, const void *b)
{
    const lig_tensor *left = *(const lig_tensor *const *)a, *right = *(const lig_tensor *const *)b;
    if (left->data != right->data)
        return (uintptr_t)left->data < (uintptr_t)right->data ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* Every byte must belong to exactly one tensor. */
static lig_status check_cover(const parse *self)
{
    const cli_batch *batch = self->batch;
    const lig_tensor **order;
    const uint8_t *at = self->data;
    lig_status status = LIG_OK;
    LIG_TRY(cli_alloc(&order, batch->count, sizeof *order));
    for (size_t i = 0; i < batch->count; i++)
        order[i] = &batch->tensors[i];
    qsort(order, batch->count, sizeof *order, by_place);
    for (size_t i = 0; status == LIG_OK && i < batch->count; i++) {
        if ((const uint8_t *)order[i]->data != at)
            status = corrupt_tensor(self, order[i]->name, "data of tensors overlaps or has gaps");
        at += order[i]->bytes;
    }
    free(order);
    LIG_TRY(status);
    return at == self->data + self->data_bytes
               ? LIG_OK
               : corrupt(self, "unused bytes after the last tensor");
}

/* Metadata of files written by Ligament, in addition to plain tags. */
static lig_status take_metrics(cli_batch *batch, const cli_json_value *text)
{
    LIG_TRY(cli_json_parse_copy(text->text, &batch->metric_json));
    const cli_json_value *object = cli_json_root(batch->metric_json), *at;
    LIG_TRY(cli_alloc(&batch->metrics, object->count, sizeof *batch->metrics));
    for (at = cli_json_first(object); at != NULL; at = cli_json_next(object, at)) {
        lig_metric *metric = &batch->metrics[batch->metric_count];
        if (at->key == NULL)
            return lig_fail(LIG_E_INVALID, "metrics must be an object");
        LIG_TRY(cli_json_to_double(at, at->key, &metric->value));
        metric->name = at->key;
        batch->metric_count++;
    }
    return LIG_OK;
}

static lig_status take_graphs(cli_batch *batch, const char *text)
{
    LIG_TRY(cli_graphs_parse(&batch->parsed_graphs, text));
    batch->graphs = batch->parsed_graphs.graphs;
    batch->graph_count = batch->parsed_graphs.count;
    return LIG_OK;
}

static lig_status take_metadata(const parse *self, const cli_json_value *metadata)
{
    cli_batch *batch = self->batch;
    if (metadata == NULL)
        return LIG_OK;
    if (metadata->kind != CLI_JSON_OBJECT)
        return corrupt(self, "__metadata__ must be an object");
    LIG_TRY(cli_alloc(&batch->tags, metadata->count, sizeof *batch->tags));
    for (const cli_json_value *at = cli_json_first(metadata); at != NULL;
         at = cli_json_next(metadata, at)) {
        if (at->kind != CLI_JSON_STRING)
            return corrupt(self, "__metadata__ values must be strings");
        if (strcmp(at->key, CLI_METRICS_KEY) == 0 && batch->metric_json == NULL)
            LIG_TRY(take_metrics(batch, at));
        else if (strcmp(at->key, CLI_META_KEY) == 0)
            batch->meta = at->text;
        else if (strcmp(at->key, CLI_STRUCTURE_KEY) == 0)
            batch->structure = at->text;
        else if (strcmp(at->key, CLI_GRAPHS_KEY) == 0 && batch->graphs == NULL)
            LIG_TRY(take_graphs(batch, at->text));
        else
            batch->tags[batch->tag_count++] = (lig_tag){at->key, at->text};
    }
    return LIG_OK;
}

static lig_status take_tensors(parse *self, const cli_json_value *root)
{
    cli_batch *batch = self->batch;
    LIG_TRY(cli_alloc(&batch->tensors, root->count, sizeof *batch->tensors));
    /* A tensor cannot have more dimensions than its entry has values. */
    LIG_TRY(cli_alloc(&batch->shapes, root->span, sizeof *batch->shapes));
    self->next_shape = batch->shapes;
    for (const cli_json_value *at = cli_json_first(root); at != NULL;
         at = cli_json_next(root, at)) {
        lig_tensor *tensor = &batch->tensors[batch->count];
        if (strcmp(at->key, "__metadata__") == 0)
            continue;
        tensor->name = at->key;
        if (at->kind != CLI_JSON_OBJECT)
            return corrupt_tensor(self, tensor->name, "entry must be an object");
        LIG_TRY(take_dtype(self, at, tensor));
        LIG_TRY(take_shape(self, at, tensor));
        LIG_TRY(take_offsets(self, at, tensor));
        batch->count++;
    }
    return LIG_OK;
}

lig_status cli_safetensors_parse(cli_batch *batch, const char *path, const void *data, size_t bytes)
{
    parse self = {.batch = batch, .path = path};
    const uint8_t *in = data;
    uint64_t header_bytes = 0;
    char *header;
    if (bytes < 8)
        return corrupt(&self, "too short for a header");
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | in[i];
    if (header_bytes > CLI_SAFETENSORS_HEADER_MAX)
        return corrupt(&self, "header larger than 100 MB");
    if (header_bytes > bytes - 8)
        return corrupt(&self, "truncated header");
    self.data = in + 8 + header_bytes;
    self.data_bytes = bytes - 8 - header_bytes;
    LIG_TRY(cli_batch_text(batch, in + 8, header_bytes, &header));
    if (cli_json_parse(header, header_bytes, header_bytes / 2 + 64, &batch->json) != LIG_OK) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s", lig_error_text());
        return corrupt(&self, reason);
    }
    const cli_json_value *root = cli_json_root(batch->json);
    if (root->kind != CLI_JSON_OBJECT)
        return corrupt(&self, "header is not an object");
    LIG_TRY(take_tensors(&self, root));
    LIG_TRY(check_cover(&self));
    return take_metadata(&self, cli_json_member(root, "__metadata__"));
}
