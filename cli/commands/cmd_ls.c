#include "cli.h"
#include "formats/json.h"
#include "models/known_names.h"
#include "models/where.h"

#include <stdlib.h>
#include <string.h>

static const cli_column columns[] = {{"NAME", 0, CLI_FIT_SHRINK},  {"PARENT", 0, CLI_FIT_SHRINK},
                                     {"TENSORS", 1, CLI_FIT_DROP}, {"SIZE", 1, CLI_FIT_NEVER},
                                     {"OWN", 1, CLI_FIT_NEVER},    {"CREATED", 0, CLI_FIT_DROP},
                                     {"TAGS", 0, CLI_FIT_SHRINK},  {"METRICS", 0, CLI_FIT_SHRINK}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static lig_status add_model(cli_table *table, const lig_model *model)
{
    char tensors[24], size[24], own[24], date[32], tags[1024], metrics[1024];
    snprintf(tensors, sizeof tensors, "%zu", model->tensor_count);
    cli_size_text(model->bytes, size, sizeof size);
    cli_size_text(model->own_bytes, own, sizeof own);
    cli_date_text(model->created_ns, date, sizeof date);
    cli_tags_text(model, tags, sizeof tags);
    cli_metrics_text(model, metrics, sizeof metrics);
    const char *cells[COLUMNS] = {model->name, model->parent_name, tensors, size, own, date, tags,
                                  metrics};
    return cli_table_add(table, cells);
}

static int is_listed(lig_model **models, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(models[i]->name, name) == 0)
            return 1;
    return 0;
}

static lig_status add_alias(cli_table *table, const char *alias, const char *model)
{
    char *text;
    LIG_TRY(cli_format(&text, "%s -> %s", alias, model));
    lig_status status =
        cli_table_add(table, (const char *[COLUMNS]){text, "", "", "", "", "", "", ""});
    free(text);
    return status;
}

typedef struct listing {
    cli_table *table;
    lig_model **models;
    size_t count;
} listing;

static lig_status add_if_listed(void *context, const char *alias, const char *model)
{
    const listing *self = context;
    return is_listed(self->models, self->count, model) ? add_alias(self->table, alias, model)
                                                       : LIG_OK;
}

static lig_status put_alias(void *writer, const char *alias, const char *model)
{
    cli_json_put_text(writer, alias, model);
    return LIG_OK;
}

static lig_status print_nothing(lig_store *store, const cli_place *place)
{
    lig_store_stats stats;
    LIG_TRY(lig_store_stat(store, &stats));
    if (stats.models == 0)
        fprintf(stderr, "ligament: '%s' contains no models\n", place->uri);
    else
        fprintf(stderr, "ligament: none of the %llu models of '%s' matches\n",
                (unsigned long long)stats.models, place->uri);
    return LIG_OK;
}

static lig_status print_table(lig_store *store, const cli_place *place, lig_model **models,
                              size_t count)
{
    cli_table *table;
    lig_status status = LIG_OK;
    if (count == 0)
        return print_nothing(store, place);
    LIG_TRY(cli_table_create(&table, columns, COLUMNS));
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = add_model(table, models[i]);
    if (status == LIG_OK && place->name == NULL)
        status = cli_each_alias(store, add_if_listed, &(listing){table, models, count});
    return cli_table_end(table, status);
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
    lig_status status = cli_each_alias(store, put_alias, &writer);
    cli_json_close(&writer, '}');
    cli_json_close(&writer, '}');
    return status;
}

/* --- selection ------------------------------------------------------------------------------- */

/* The models of the query that satisfy --where come first; *count becomes their number. */
static void filter(const cli_where *where, uint64_t limit, lig_model **models, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count && (limit == 0 || kept < limit); i++) {
        lig_model *model = models[i];
        if (where != NULL && !cli_where_holds(where, model))
            continue;
        models[i] = models[kept];
        models[kept++] = model;
    }
    *count = kept;
}

/* A metric or tag that no model of the store has is a mistake, not an empty result. */
static lig_status check_names(const cli_place *place, lig_store *store, const cli_where *where,
                              const char *order)
{
    cli_known known;
    const char *name;
    int is_tag;
    lig_status status = LIG_OK;
    LIG_TRY(cli_known_read(&known, store));
    for (size_t i = 0; where != NULL && status == LIG_OK; i++) {
        if (!cli_where_mentions(where, i, &is_tag, &name))
            break;
        status = cli_known_check(&known, is_tag, name, place->uri);
    }
    order = order != NULL && order[0] == '-' ? order + 1 : order;
    if (status == LIG_OK && order != NULL && strcmp(order, "created") != 0 &&
        strcmp(order, "name") != 0 && strcmp(order, "bytes") != 0)
        status = cli_known_check(&known, 0, order, place->uri);
    cli_known_fini(&known);
    return status;
}

static lig_status query_models(const cli_call *call, const cli_place *place, lig_store *store,
                               lig_model ***models, size_t *count)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model *named;
    lig_tag *tags;
    LIG_TRY(cli_tags(call, "tag", &tags, &query.tag_count));
    lig_status status = cli_place_model(place, store, &named);
    query.tags = tags;
    query.name = named != NULL ? named->name : place->name;
    query.order = cli_value(call, "order");
    if (status == LIG_OK)
        status = lig_store_models(store, &query, models, count);
    lig_model_destroy(named);
    free(tags);
    return status;
}

static lig_status list_where(const cli_call *call, const cli_place *place, lig_store *store,
                             const cli_where *where)
{
    lig_model **models;
    size_t count, shown;
    uint64_t limit = 0;
    LIG_TRY(cli_number(call, "limit", 1, UINT32_MAX, &limit));
    if (where != NULL || cli_has(call, "order"))
        LIG_TRY(check_names(place, store, where, cli_value(call, "order")));
    LIG_TRY(query_models(call, place, store, &models, &count));
    shown = count;
    filter(where, limit, models, &shown);
    lig_status status =
        call->json ? print_json(store, models, shown) : print_table(store, place, models, shown);
    lig_models_destroy(models, count);
    return status;
}

static lig_status list(const cli_call *call, const cli_place *place, lig_store *store)
{
    const char *text = cli_value(call, "where");
    cli_where *where = NULL;
    lig_status status = text != NULL ? cli_where_parse(text, &where) : LIG_OK;
    if (status != LIG_OK)
        return cli_wrong(call, status);
    status = list_where(call, place, store, where);
    cli_where_destroy(where);
    return status;
}

/* --- training runs --------------------------------------------------------------------------- */

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
    static const cli_column run_columns[] = {
        {"RUN", 0, 1}, {"CHECKPOINTS", 1, 0}, {"LATEST", 1, 0}, {"SAVED", 0, 0}};
    cli_table *table;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, run_columns, 4));
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = add_run(table, &runs[i]);
    return cli_table_end(table, status);
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
    {"where", 'w', "CONDITION",
     "only models that satisfy a condition: 'val_acc>0.9 and tag.run=a'"},
    {"runs", 'r', NULL, "list training runs instead: number of checkpoints and the latest of each"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_ls = {
    .name = "ls",
    .usage = "STORE[#PATTERN] [options]",
    .summary = "Lists the models of a store",
    .details =
        "SIZE is the size of all tensors of a model. OWN is the part that the model does not\n"
        "share with earlier models. A condition compares metrics (by name), tag.NAME, name,\n"
        "parent, created, bytes, own_bytes and tensors with = != < <= > >= and ~ (a pattern);\n"
        "'and', 'or', 'not' and parentheses combine comparisons. A field without a comparison\n"
        "selects the models that have it. A metric or tag that no model in the store has is an\n"
        "error.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
