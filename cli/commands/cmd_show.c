#include "batch.h"
#include "formats/plain_values.h"
#include "output/summary.h"

#include <stdlib.h>
#include <string.h>

/* --- table ----------------------------------------------------------------------------------- */

static void line(const char *title, const char *text)
{
    printf("%-9s ", title);
    cli_put_escaped(stdout, text);
    putchar('\n');
}

/* A long meta, such as the history of a run, is cut between two characters. */
static void print_meta(const char *text)
{
    enum { SHOWN = 400 };
    size_t bytes = strlen(text), end = bytes;
    if (bytes > SHOWN)
        for (end = SHOWN; ((unsigned char)text[end] & 0xc0) == 0x80;)
            end--;
    char shown[SHOWN + 1];
    snprintf(shown, sizeof shown, "%.*s", (int)end, text);
    printf("%-9s ", "meta");
    cli_put_escaped(stdout, shown);
    if (end < bytes)
        printf("... and %zu more bytes (--json prints all)", bytes - end);
    putchar('\n');
}

static void print_pairs(const lig_model *model)
{
    for (size_t i = 0; i < model->metric_count; i++) {
        printf("%-9s ", i == 0 ? "metrics" : "");
        cli_put_escaped(stdout, model->metrics[i].name);
        printf(" = %.10g\n", model->metrics[i].value);
    }
    for (size_t i = 0; i < model->tag_count; i++) {
        printf("%-9s ", i == 0 ? "tags" : "");
        cli_put_escaped(stdout, model->tags[i].name);
        fputs(" = ", stdout);
        cli_put_escaped(stdout, model->tags[i].value);
        putchar('\n');
    }
}

enum { VALUES_SHOWN = 16, VALUE_COLUMNS = 60 };

static void print_value(void *context, const char *path, const char *json)
{
    size_t *count = context;
    if ((*count)++ >= VALUES_SHOWN)
        return;
    printf("%-9s ", *count == 1 ? "values" : "");
    cli_put_escaped(stdout, path);
    fputs(" = ", stdout);
    cli_put_cut(stdout, json, VALUE_COLUMNS);
    putchar('\n');
}

static lig_status print_values(const lig_model *model)
{
    size_t count = 0;
    LIG_TRY(cli_plain_values(model->structure, &(cli_plain_visit){print_value, &count}));
    if (count > VALUES_SHOWN)
        printf("%-9s and %zu more (--json prints all)\n", "", count - VALUES_SHOWN);
    return LIG_OK;
}

static void print_head(const lig_model *model)
{
    char text[64], size[24];
    line("name", model->name);
    if (model->id != 0) {
        snprintf(text, sizeof text, "%016llx", (unsigned long long)model->id);
        line("id", text);
    }
    if (model->parent_name != NULL && model->parent_name[0] != '\0')
        line("parent", model->parent_name);
    if (model->created_ns != 0) {
        cli_date_text(model->created_ns, text, sizeof text);
        line("created", text);
    }
    cli_size_text(model->bytes, size, sizeof size);
    snprintf(text, sizeof text, "%zu, %s (%llu bytes)", model->tensor_count, size,
             (unsigned long long)model->bytes);
    line("tensors", text);
    if (model->own_bytes != model->bytes) {
        cli_size_text(model->own_bytes, size, sizeof size);
        line("own", size);
    }
    print_pairs(model);
    if (model->meta != NULL && model->meta[0] != '\0')
        print_meta(model->meta);
}

/* Long lineages are truncated. */
static void print_names(const char *title, lig_model *const *models, size_t count,
                        const char *between)
{
    enum { SHOWN = 8 };
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        if (i == 0)
            printf("%-9s ", title);
        else
            fputs(between, stdout);
        cli_put_escaped(stdout, models[i]->name);
    }
    if (count > SHOWN)
        printf(" and %zu more", count - SHOWN);
    if (count > 0)
        putchar('\n');
}

static void print_lineage(const lig_lineage *lineage)
{
    if (lineage->ancestor_count > 1)
        print_names("lineage", lineage->ancestors, lineage->ancestor_count, " < ");
    print_names("children", lineage->children, lineage->child_count, ", ");
}

static lig_status print_tensors(const lig_model *model)
{
    static const cli_column columns[] = {
        {"TENSOR", 0, 1}, {"DTYPE", 0, 0}, {"SHAPE", 0, 1}, {"SIZE", 1, 0}, {"TIED", 0, 1}};
    cli_table *table;
    lig_status status = LIG_OK;
    size_t ties = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        ties += model->tensors[i].tied >= 0;
    LIG_TRY(cli_table_create(&table, columns, ties > 0 ? 5 : 4));
    for (size_t i = 0; i < model->tensor_count && status == LIG_OK; i++) {
        const lig_stored_tensor *stored = &model->tensors[i];
        char shape[LIG_NDIM_MAX * 22], size[24];
        cli_shape_text(&stored->tensor, shape, sizeof shape);
        cli_size_text(stored->tensor.bytes, size, sizeof size);
        const char *tied = stored->tied >= 0 && (size_t)stored->tied < model->tensor_count
                               ? model->tensors[stored->tied].tensor.name
                               : "";
        status = cli_table_add(table, (const char *[]){stored->tensor.name,
                                                       lig_dtype_name(stored->tensor.dtype), shape,
                                                       size, tied});
    }
    if (status == LIG_OK && model->tensor_count > 0) {
        putchar('\n');
        cli_table_print(table, stdout);
    }
    cli_table_destroy(table);
    return status;
}

/* --- JSON ------------------------------------------------------------------------------------  */

static void put_names(cli_json_writer *writer, const char *key, lig_model *const *models,
                      size_t count)
{
    cli_json_open(writer, key, '[');
    for (size_t i = 0; i < count; i++)
        cli_json_put_text(writer, NULL, models[i]->name);
    cli_json_close(writer, ']');
}

static void put_value(void *context, const char *path, const char *json)
{
    cli_json_put_raw(context, path, json);
}

static lig_status put_json(cli_json_writer *writer, const lig_model *model,
                           const lig_lineage *lineage)
{
    cli_json_open(writer, NULL, '{');
    cli_put_model(writer, model);
    cli_json_open(writer, "values", '{');
    LIG_TRY(cli_plain_values(model->structure, &(cli_plain_visit){put_value, writer}));
    cli_json_close(writer, '}');
    if (lineage != NULL) {
        put_names(writer, "ancestors", lineage->ancestors, lineage->ancestor_count);
        put_names(writer, "children", lineage->children, lineage->child_count);
    }
    cli_json_open(writer, "tensors", '[');
    for (size_t i = 0; i < model->tensor_count; i++) {
        const lig_stored_tensor *stored = &model->tensors[i];
        int tied = stored->tied >= 0 && (size_t)stored->tied < model->tensor_count;
        cli_json_open(writer, NULL, '{');
        cli_put_tensor_json(writer, &stored->tensor);
        cli_json_put_u64(writer, "owner", stored->owner);
        cli_json_put_text(writer, "tied", tied ? model->tensors[stored->tied].tensor.name : NULL);
        cli_json_close(writer, '}');
    }
    cli_json_close(writer, ']');
    cli_json_close(writer, '}');
    return LIG_OK;
}

/* `lineage` is NULL for a model that is not in a store. */
static lig_status show_model(const lig_model *model, const lig_lineage *lineage,
                             cli_json_writer *writer, size_t index)
{
    if (writer != NULL)
        return put_json(writer, model, lineage);
    if (index > 0)
        putchar('\n');
    print_head(model);
    LIG_TRY(print_values(model));
    if (lineage != NULL)
        print_lineage(lineage);
    return print_tensors(model);
}

static lig_status show_stored(lig_store *store, const char *name, cli_json_writer *writer,
                              size_t index)
{
    lig_ref *ref;
    lig_lineage *lineage;
    LIG_TRY(lig_store_resolve(store, name, &ref));
    lig_status status = lig_ref_lineage(ref, &lineage);
    if (status == LIG_OK) {
        status = show_model(lig_ref_model(ref), lineage, writer, index);
        lig_lineage_destroy(lineage);
    }
    lig_ref_release(ref);
    return status;
}

static lig_status show_store(const cli_place *place, cli_json_writer *writer, size_t *index)
{
    lig_store *store;
    char **names;
    size_t count;
    LIG_TRY(cli_place_open(place, "r", &store));
    lig_status status = place->name == NULL ? cli_summary(store, writer, (*index)++)
                                            : cli_place_names(place, store, "name", &names, &count);
    if (status != LIG_OK || place->name == NULL)
        goto close_store;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = show_stored(store, names[i], writer, (*index)++);
    cli_names_destroy(names, count);
close_store:
    lig_store_close(store);
    return status;
}

/* A file of another format is shown like a model that is in no store. */
static lig_status show_file(const cli_place *place, cli_json_writer *writer, size_t *index)
{
    cli_batch batch;
    lig_stored_tensor *tensors;
    LIG_TRY(cli_batch_from_file(&batch, place));
    lig_status status = cli_alloc(&tensors, batch.count, sizeof *tensors);
    if (status == LIG_OK) {
        lig_model model = {.name = place->uri, .parent_name = "", .tensors = tensors};
        for (size_t i = 0; i < batch.count; i++)
            tensors[i] = (lig_stored_tensor){.tensor = batch.tensors[i], .tied = -1};
        model.tensor_count = batch.count;
        model.bytes = model.own_bytes = cli_batch_bytes(&batch);
        model.metrics = batch.metrics;
        model.metric_count = batch.metric_count;
        model.tags = batch.tags;
        model.tag_count = batch.tag_count;
        model.structure = batch.structure != NULL ? batch.structure : "";
        model.meta = batch.meta != NULL ? batch.meta : "";
        status = show_model(&model, NULL, writer, (*index)++);
        free(tensors);
    }
    cli_batch_fini(&batch);
    return status;
}

static lig_status show_all(const cli_call *call, cli_json_writer *writer)
{
    size_t index = 0;
    for (size_t i = 0; i < call->word_count; i++) {
        cli_place place;
        LIG_TRY(cli_place_parse(&place, call->words[i]));
        lig_status status =
            (place.kind == CLI_STORE ? show_store : show_file)(&place, writer, &index);
        cli_place_fini(&place);
        LIG_TRY(status);
    }
    return LIG_OK;
}

/* JSON output is complete or absent. */
static lig_status show_json(const cli_call *call)
{
    cli_text text;
    LIG_TRY(cli_text_open(&text));
    cli_json_writer writer = {.file = text.file};
    cli_json_open(&writer, NULL, '[');
    lig_status status = show_all(call, &writer);
    cli_json_close(&writer, ']');
    LIG_TRY(cli_text_close(&text, status));
    fwrite(text.data, 1, text.bytes, stdout);
    free(text.data);
    return LIG_OK;
}

static int run(cli_call *call)
{
    lig_status status = call->json ? show_json(call) : show_all(call, NULL);
    return status == LIG_OK ? 0 : cli_failed();
}

const cli_command cli_cmd_show = {
    .name = "show",
    .usage = "STORE#NAME... | STORE | FILE.safetensors | FILE.npz",
    .summary = "Shows a model, its plain values and its tensors, or a summary of a store",
    .details = "A pattern (STORE#run/*) selects several models. --json prints an array with one "
               "object each.",
    .word_min = 1,
    .word_max = SIZE_MAX,
    .run = run,
};
