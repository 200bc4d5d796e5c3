#include "cli.h"
#include "formats/json.h"
#include "models/known_names.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 10, MOST = 100000 };

static const lig_metric *metric_of(const lig_model *model, const char *name)
{
    for (size_t i = 0; name != NULL && i < model->metric_count; i++)
        if (strcmp(model->metrics[i].name, name) == 0)
            return &model->metrics[i];
    return NULL;
}

/* --- table --------------------------------------------------------------------------------- */

static lig_status print_table(lig_match *const *matches, size_t count, const char *metric)
{
    static const cli_column columns[] = {
        {"MODEL", 0, 1}, {"LAYERS", 1, 0}, {"TENSORS", 1, 0}, {"SHARED", 1, 0}, {"METRIC", 1, 0}};
    cli_table *table;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, columns, metric != NULL ? 5 : 4));
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        char layers[24], tensors[24], size[24], value[32] = "";
        const lig_metric *one = metric_of(matches[i]->model, metric);
        snprintf(layers, sizeof layers, "%zu", matches[i]->layer_count);
        snprintf(tensors, sizeof tensors, "%zu", matches[i]->tensor_count);
        cli_size_text(matches[i]->bytes, size, sizeof size);
        if (one != NULL)
            snprintf(value, sizeof value, "%.6g", one->value);
        status = cli_table_add(
            table, (const char *[]){matches[i]->model->name, layers, tensors, size, value});
    }
    if (status == LIG_OK && count > 0)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}

/* --- JSON ---------------------------------------------------------------------------- */

static void print_json(lig_match *const *matches, size_t count)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(&writer, NULL, '{');
        cli_put_model(&writer, matches[i]->model);
        cli_json_put_u64(&writer, "shared_layers", matches[i]->layer_count);
        cli_json_put_u64(&writer, "shared_bytes", matches[i]->bytes);
        cli_json_open(&writer, "shared_tensors", '{');
        for (size_t j = 0; j < matches[i]->tensor_count; j++) {
            const lig_matched_tensor *one = &matches[i]->tensors[j];
            cli_json_put_text(&writer, one->name,
                              matches[i]->model->tensors[one->stored].tensor.name);
        }
        cli_json_close(&writer, '}');
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
}

/* A metric or tag that no model of the store has is a mistake, not an empty result. */
static lig_status check_names(const cli_place *place, lig_store *store, const char *metric,
                              const lig_find_options *options)
{
    cli_known known;
    lig_status status = LIG_OK;
    LIG_TRY(cli_known_read(&known, store));
    if (metric != NULL)
        status = cli_known_check(&known, 0, metric, place->uri);
    for (size_t i = 0; i < options->tag_count && status == LIG_OK; i++)
        status = cli_known_check(&known, 1, options->tags[i].name, place->uri);
    cli_known_fini(&known);
    return status;
}

static void tell_empty(const char *name)
{
    fputs("ligament: no other selected model shares a layer with '", stderr);
    cli_put_escaped(stderr, name);
    fputs("'\n", stderr);
}

static lig_status find(const cli_call *call, const cli_place *place,
                       const lig_find_options *options)
{
    lig_store *store;
    lig_match **matches = NULL;
    size_t count = 0;
    const char *metric = options->prefer ? options->prefer + (options->prefer[0] == '-') : NULL;
    LIG_TRY(cli_place_open(place, "r", &store));
    char *name = NULL;
    lig_status status = cli_checkpoint_name(store, place->name, &name);
    if (status == LIG_OK && (metric != NULL || options->tag_count > 0))
        status = check_names(place, store, metric, options);
    if (status == LIG_OK)
        status = lig_store_find_like(store, name, options, &matches, &count);
    if (status == LIG_OK) {
        if (call->json)
            print_json(matches, count);
        else
            status = print_table(matches, count, metric);
        lig_matches_destroy(matches, count);
        if (status == LIG_OK && count == 0)
            tell_empty(name);
    }
    free(name);
    lig_store_close(store);
    return status;
}

static int run(cli_call *call)
{
    cli_place place;
    lig_find_options options = LIG_FIND_INIT;
    lig_tag *tags = NULL;
    uint64_t limit = SHOWN;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK && (place.kind != CLI_STORE || place.name == NULL)) {
        cli_place_fini(&place);
        return cli_misused(call, "'%s' does not name a model: use STORE#NAME", call->words[0]);
    }
    if (status == LIG_OK)
        status = cli_number(call, "limit", 1, MOST, &limit);
    if (status == LIG_OK)
        status = cli_tags(call, "tag", &tags, &options.tag_count);
    options.tags = tags;
    options.limit = (size_t)limit;
    options.prefer = cli_value(call, "prefer");
    if (status == LIG_OK)
        status = find(call, &place, &options);
    free(tags);
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"limit", 'n', "N", "show only the best N (10)"},
    {"prefer", 'p', "METRIC",
     "metric that breaks ties: higher is better, lower with a leading '-'"},
    {"tag", 't', "NAME=VALUE", "only models with this tag; may be repeated"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_find = {
    .name = "find",
    .usage = "STORE#NAME [options]",
    .summary = "Finds the models that share the most layers with a given model",
    .details =
        "A layer is shared if it and all layers before it are equal. Results are ordered by the\n"
        "number of shared layers, then by shared bytes, the metric, and creation time (newest "
        "first).",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
