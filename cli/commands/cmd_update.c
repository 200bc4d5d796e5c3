/* tag, metric and rename: what lig_store_update changes. */
#include "cli.h"
#include "formats/json.h"

#include <stdlib.h>

/* --- output ---------------------------------------------------------------------------------- */

static void print_model(const lig_model *model)
{
    cli_put_escaped(stdout, model->name);
    putchar('\n');
    for (size_t i = 0; i < model->metric_count; i++) {
        fputs("  metric  ", stdout);
        cli_put_escaped(stdout, model->metrics[i].name);
        printf(" = %.10g\n", model->metrics[i].value);
    }
    for (size_t i = 0; i < model->tag_count; i++) {
        fputs("  tag     ", stdout);
        cli_put_escaped(stdout, model->tags[i].name);
        fputs(" = ", stdout);
        cli_put_escaped(stdout, model->tags[i].value);
        putchar('\n');
    }
}

static lig_status tell(lig_store *store, const char *name, cli_json_writer *writer)
{
    lig_model *model;
    LIG_TRY(lig_store_model(store, name, &model));
    if (writer != NULL) {
        cli_json_open(writer, NULL, '{');
        cli_put_model(writer, model);
        cli_json_close(writer, '}');
    } else {
        print_model(model);
    }
    lig_model_destroy(model);
    return LIG_OK;
}

/* --- the models of a place ------------------------------------------------------------------- */

static int changes(const lig_update *update)
{
    return update->tag_count > 0 || update->metric_count > 0 || update->name != NULL;
}

static lig_status update_each(lig_store *store, char **names, size_t count,
                              const lig_update *update, cli_json_writer *writer)
{
    for (size_t i = 0; i < count; i++) {
        if (changes(update))
            LIG_TRY(lig_store_update(store, names[i], update));
        LIG_TRY(tell(store, update->name != NULL ? update->name : names[i], writer));
    }
    return LIG_OK;
}

static lig_status update_place(const cli_call *call, const cli_place *place,
                               const lig_update *update)
{
    cli_json_writer writer = {.file = stdout};
    lig_store *store;
    char **names;
    size_t count;
    LIG_TRY(cli_place_open(place, changes(update) ? "x" : "r", &store));
    lig_status status = cli_place_names(place, store, "name", &names, &count);
    if (status != LIG_OK)
        goto close_store;
    if (update->name != NULL && count > 1) {
        status = lig_fail(LIG_E_INVALID, "'%s' matches %zu models: rename one at a time",
                          place->name, count);
    } else {
        if (call->json)
            cli_json_open(&writer, NULL, '[');
        status = update_each(store, names, count, update, call->json ? &writer : NULL);
        if (call->json)
            cli_json_close(&writer, ']');
    }
    cli_names_destroy(names, count);
close_store:
    lig_store_close(store);
    return status;
}

static int update_word(const cli_call *call, const lig_update *update)
{
    cli_place place;
    if (cli_place_parse(&place, call->words[0]) != LIG_OK)
        return cli_failed();
    if (place.kind != CLI_STORE || place.name == NULL) {
        cli_place_fini(&place);
        return cli_misused(call, "'%s' does not name a model: use STORE#NAME", call->words[0]);
    }
    lig_status status = update_place(call, &place, update);
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

/* --- commands -------------------------------------------------------------------------------- */

/* The words after the model and the values of --remove, which have no value. */
static lig_status read_tags(const cli_call *call, lig_tag **tags, size_t *count)
{
    lig_tag *list;
    const char *text;
    LIG_TRY(cli_alloc(&list, call->word_count + call->given_count, sizeof *list));
    lig_status status = cli_pairs(call, 1, list);
    *count = call->word_count - 1;
    for (size_t at = 0; (text = cli_value_next(call, "remove", &at)) != NULL;)
        list[(*count)++] = (lig_tag){text, NULL};
    if (status != LIG_OK)
        free(list);
    else
        *tags = list;
    return status;
}

static int run_tag(cli_call *call)
{
    lig_update update = LIG_UPDATE_INIT;
    lig_tag *tags;
    if (read_tags(call, &tags, &update.tag_count) != LIG_OK)
        return cli_failed();
    update.tags = tags;
    int status = update_word(call, &update);
    free(tags);
    return status;
}

static lig_status read_metrics(const cli_call *call, lig_metric **metrics)
{
    lig_tag *pairs;
    LIG_TRY(cli_alloc(&pairs, call->word_count, sizeof *pairs));
    lig_status status = cli_pairs(call, 1, pairs);
    if (status == LIG_OK)
        status = cli_numbers(call, pairs, call->word_count - 1, metrics);
    free(pairs);
    return status;
}

static int run_metric(cli_call *call)
{
    lig_update update = LIG_UPDATE_INIT;
    lig_metric *metrics;
    if (read_metrics(call, &metrics) != LIG_OK)
        return cli_failed();
    update.metrics = metrics;
    update.metric_count = call->word_count - 1;
    int status = update_word(call, &update);
    free(metrics);
    return status;
}

static int run_rename(cli_call *call)
{
    lig_update update = LIG_UPDATE_INIT;
    update.name = call->words[1];
    return update_word(call, &update);
}

static const cli_flag tag_flags[] = {
    {"remove", 'd', "NAME", "remove this tag; may be repeated"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_tag = {
    .name = "tag",
    .usage = "STORE#NAME [TAG=VALUE...] [options]",
    .summary = "Adds, changes or removes tags of models",
    .details =
        "A pattern (STORE#run/*) selects several models. Without TAG=VALUE, prints the tags.",
    .flags = tag_flags,
    .word_min = 1,
    .word_max = SIZE_MAX,
    .run = run_tag,
};

const cli_command cli_cmd_metric = {
    .name = "metric",
    .usage = "STORE#NAME [METRIC=NUMBER...]",
    .summary = "Adds or changes metrics of models",
    .details = "A pattern (STORE#run/*) selects several models. Without METRIC=NUMBER, prints the "
               "metrics.",
    .word_min = 1,
    .word_max = SIZE_MAX,
    .run = run_metric,
};

const cli_command cli_cmd_rename = {
    .name = "rename",
    .usage = "STORE#NAME NEW-NAME",
    .summary = "Renames a model",
    .details = "Aliases, children and shared tensors continue to refer to the renamed model.",
    .word_min = 2,
    .word_max = 2,
    .run = run_rename,
};
