/* Models and tensors as JSON, the same in every command. */
#include "cli.h"
#include "formats/json.h"

#include <stdlib.h>

static void put_maps(cli_json_writer *writer, const lig_model *model)
{
    cli_json_open(writer, "metrics", '{');
    for (size_t i = 0; i < model->metric_count; i++)
        cli_json_put_double(writer, model->metrics[i].name, model->metrics[i].value);
    cli_json_close(writer, '}');
    cli_json_open(writer, "tags", '{');
    for (size_t i = 0; i < model->tag_count; i++)
        cli_json_put_text(writer, model->tags[i].name, model->tags[i].value);
    cli_json_close(writer, '}');
}

/* Meta saved by Python is JSON and written verbatim; plain text from C is written as a string. */
static void put_meta(cli_json_writer *writer, const char *meta)
{
    cli_json *json = NULL;
    if (meta != NULL && cli_json_parse_copy(meta, &json) == LIG_OK)
        cli_json_put_raw(writer, "meta", meta);
    else
        cli_json_put_text(writer, "meta", meta != NULL && meta[0] != '\0' ? meta : NULL);
    cli_json_destroy(json);
}

void cli_put_model(cli_json_writer *writer, const lig_model *model)
{
    cli_json_put_text(writer, "name", model->name);
    cli_json_put_u64(writer, "id", model->id);
    cli_json_put_text(writer, "parent",
                      model->parent_name != NULL && model->parent_name[0] ? model->parent_name
                                                                          : NULL);
    cli_json_put_i64(writer, "created_ns", model->created_ns);
    cli_json_put_u64(writer, "bytes", model->bytes);
    cli_json_put_u64(writer, "own_bytes", model->own_bytes);
    cli_json_put_u64(writer, "tensor_count", model->tensor_count);
    put_maps(writer, model);
    put_meta(writer, model->meta);
}

void cli_put_tensor_json(cli_json_writer *writer, const lig_tensor *tensor)
{
    cli_json_put_text(writer, "name", tensor->name);
    cli_json_put_text(writer, "dtype", lig_dtype_name(tensor->dtype));
    cli_json_open(writer, "shape", '[');
    for (uint32_t i = 0; i < tensor->ndim; i++)
        cli_json_put_i64(writer, NULL, tensor->shape[i]);
    cli_json_close(writer, ']');
    cli_json_put_u64(writer, "bytes", tensor->bytes);
}
