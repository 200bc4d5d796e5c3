#include "cli.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

static void metrics_text(const lig_model *model, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < model->metric_count && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s=%.6g", i > 0 ? " " : "",
                                 model->metrics[i].name, model->metrics[i].value);
}

static lig_status add_model(cli_table *table, const lig_model *model)
{
    char tensors[24], size[24], date[32], metrics[1024];
    snprintf(tensors, sizeof tensors, "%zu", model->tensor_count);
    cli_size_text(model->bytes, size, sizeof size);
    cli_date_text(model->created_ns, date, sizeof date);
    metrics_text(model, metrics, sizeof metrics);
    const char *cells[] = {model->name, tensors, size, date, metrics};
    return cli_table_add(table, cells);
}

/* Called for each alias: adds a row to the table or a member to the JSON object. */
static lig_status each_alias(lig_store *store, cli_table *table, cli_json_writer *writer)
{
    char *alias, *model, *text;
    lig_status status = LIG_OK;
    for (size_t i = 0; status == LIG_OK; i++) {
        status = lig_store_alias_at(store, i, &alias, &model);
        if (status != LIG_OK)
            break;
        if (writer != NULL) {
            cli_json_put_text(writer, alias, model);
        } else if ((status = cli_format(&text, "%s -> %s", alias, model)) == LIG_OK) {
            status = cli_table_add(table, (const char *[]){text, "", "", "", ""});
            free(text);
        }
        lig_text_destroy(alias);
        lig_text_destroy(model);
    }
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

static lig_status print_table(lig_store *store, const cli_place *place, lig_model **models,
                              size_t count)
{
    static const cli_column columns[] = {
        {"NAME", 0, 1}, {"TENSORS", 1, 0}, {"SIZE", 1, 0}, {"CREATED", 0, 0}, {"METRICS", 0, 1}};
    cli_table *table;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, columns, 5));
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = add_model(table, models[i]);
    if (status == LIG_OK && place->name == NULL)
        status = each_alias(store, table, NULL);
    if (status == LIG_OK)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}

static lig_status print_json(lig_store *store, lig_model **models, size_t count)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_text(&writer, "store", lig_store_uri(store));
    cli_json_open(&writer, "models", '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(&writer, NULL, '{');
        cli_put_model(&writer, models[i]);
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
    cli_json_open(&writer, "aliases", '{');
    lig_status status = each_alias(store, NULL, &writer);
    cli_json_close(&writer, '}');
    cli_json_close(&writer, '}');
    return status;
}

static lig_status list(const cli_call *call, const cli_place *place, lig_store *store)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model **models, *named;
    lig_tag *tags;
    size_t count;
    uint64_t limit = 0;
    LIG_TRY(cli_number(call, "limit", 1, UINT32_MAX, &limit));
    LIG_TRY(cli_tags(call, "tag", &tags, &query.tag_count));
    lig_status status = cli_place_model(place, store, &named);
    query.tags = tags;
    query.name = named != NULL ? named->name : place->name;
    query.order = cli_value(call, "order");
    query.limit = limit;
    if (status == LIG_OK)
        status = lig_store_models(store, &query, &models, &count);
    lig_model_destroy(named);
    free(tags);
    LIG_TRY(status);
    status =
        call->json ? print_json(store, models, count) : print_table(store, place, models, count);
    lig_models_destroy(models, count);
    return status;
}

static lig_status add_run(cli_table *table, const cli_run *run)
{
    char checkpoints[24], step[24], date[32];
    snprintf(checkpoints, sizeof checkpoints, "%zu", run->checkpoints);
    snprintf(step, sizeof step, "%llu", (unsigned long long)run->step);
    cli_date_text(run->created_ns, date, sizeof date);
    return cli_table_add(table, (const char *[]){run->name, checkpoints, step, date});
}

static lig_status print_runs(const cli_run *runs, size_t count)
{
    static const cli_column columns[] = {
        {"RUN", 0, 1}, {"CHECKPOINTS", 1, 0}, {"LATEST", 1, 0}, {"SAVED", 0, 0}};
    cli_table *table;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, columns, 4));
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = add_run(table, &runs[i]);
    if (status == LIG_OK)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}

static void print_runs_json(lig_store *store, const cli_run *runs, size_t count)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_text(&writer, "store", lig_store_uri(store));
    cli_json_open(&writer, "runs", '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "run", runs[i].name);
        cli_json_put_u64(&writer, "checkpoints", runs[i].checkpoints);
        cli_json_put_u64(&writer, "step", runs[i].step);
        cli_json_put_text(&writer, "latest", runs[i].latest);
        cli_json_put_i64(&writer, "created_ns", runs[i].created_ns);
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
    cli_json_close(&writer, '}');
}

static lig_status list_runs(const cli_call *call, lig_store *store)
{
    cli_run *runs;
    size_t count;
    lig_status status = LIG_OK;
    LIG_TRY(cli_runs(store, &runs, &count));
    if (call->json)
        print_runs_json(store, runs, count);
    else
        status = print_runs(runs, count);
    cli_runs_destroy(runs, count);
    return status;
}

static int run(cli_call *call)
{
    cli_place place;
    lig_store *store;
    int runs = cli_has(call, "runs");
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK && runs && place.name != NULL) {
        cli_place_fini(&place);
        return cli_misused(call, "--runs works on whole stores: remove the part after '#'");
    }
    if (status == LIG_OK)
        status = cli_place_open(&place, "r", &store);
    if (status == LIG_OK) {
        status = runs ? list_runs(call, store) : list(call, &place, store);
        lig_store_close(store);
    }
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"order", 'o', "KEY",
     "created, name, bytes or a metric; a leading '-' sorts in descending order"},
    {"limit", 'n', "N", "show only the first N"},
    {"tag", 't', "NAME=VALUE", "only models with this tag; may be repeated"},
    {"runs", 'r', NULL, "list training runs instead: number of checkpoints and the latest of each"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_ls = {
    .name = "ls",
    .usage = "STORE[#PATTERN] [options]",
    .summary = "Lists the models of a store",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
