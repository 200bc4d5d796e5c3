#include "cli.h"
#include "formats/json.h"

#include <string.h>

static lig_status put_alias(void *writer, const char *alias, const char *model)
{
    cli_json_put_text(writer, alias, model);
    return LIG_OK;
}

static lig_status add_alias(void *table, const char *alias, const char *model)
{
    return cli_table_add(table, (const char *[]){alias, model});
}

static lig_status list_json(lig_store *store)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    lig_status status = cli_each_alias(store, put_alias, &writer);
    cli_json_close(&writer, '}');
    return status;
}

static lig_status list(const cli_call *call, lig_store *store)
{
    static const cli_column columns[] = {{"ALIAS", 0, 1}, {"MODEL", 0, 1}};
    cli_table *table;
    if (call->json)
        return list_json(store);
    LIG_TRY(cli_table_create(&table, columns, 2));
    lig_status status = cli_each_alias(store, add_alias, table);
    return cli_table_end(table, status);
}

static void tell(const cli_call *call, const char *alias, const char *model)
{
    cli_json_writer writer = {.file = stdout};
    if (call->json) {
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "alias", alias);
        cli_json_put_text(&writer, "model", model);
        cli_json_close(&writer, '}');
        return;
    }
    fputs(model == NULL ? "removed alias " : "", stdout);
    cli_put_escaped(stdout, alias);
    if (model != NULL) {
        fputs(" -> ", stdout);
        cli_put_escaped(stdout, model);
    }
    putchar('\n');
}

static lig_status set_alias(const cli_call *call, const cli_place *place, lig_store *store)
{
    lig_model *model;
    LIG_TRY(cli_place_model(place, store, &model));
    if (model == NULL)
        return lig_fail(LIG_E_INVALID, "an alias names one model, but '%s' is a pattern",
                        place->name);
    lig_status status = lig_store_alias(store, call->words[1], model->name);
    if (status == LIG_OK)
        tell(call, call->words[1], model->name);
    lig_model_destroy(model);
    return status;
}

static lig_status remove_alias(const cli_call *call, const cli_place *place, lig_store *store)
{
    lig_model *model;
    LIG_TRY(lig_store_model(store, place->name, &model));
    int is_model = strcmp(model->name, place->name) == 0;
    lig_model_destroy(model);
    if (is_model)
        return lig_fail(LIG_E_INVALID, "'%s' is a model, not an alias (remove it with ligament rm)",
                        place->name);
    LIG_TRY(lig_store_alias(store, place->name, NULL));
    tell(call, place->name, NULL);
    return LIG_OK;
}

static int run(cli_call *call)
{
    cli_place place;
    lig_store *store;
    int removes = cli_has(call, "remove"), sets = call->word_count == 2;
    if (cli_place_parse(&place, call->words[0]) != LIG_OK)
        return cli_failed();
    const char *problem = removes && sets                 ? "--remove takes only STORE#ALIAS"
                          : removes && place.name == NULL ? "name the alias to remove: STORE#ALIAS"
                          : sets && place.name == NULL    ? "name the model: STORE#NAME ALIAS"
                          : !removes && !sets && place.name
                              ? "give the alias after the model: STORE#NAME ALIAS"
                              : NULL;
    if (problem != NULL) {
        cli_place_fini(&place);
        return cli_misused(call, "%s", problem);
    }
    lig_status status = cli_place_open(&place, removes || sets ? "x" : "r", &store);
    if (status == LIG_OK) {
        status = removes ? remove_alias(call, &place, store)
                 : sets  ? set_alias(call, &place, store)
                         : list(call, store);
        lig_store_close(store);
    }
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"remove", 'd', NULL, "remove the alias but not its model"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_alias = {
    .name = "alias",
    .usage = "STORE#NAME ALIAS | STORE#ALIAS --remove | STORE",
    .summary = "Gives a model a second name",
    .details =
        "An existing alias is moved to the new model atomically. STORE alone lists the aliases.\n"
        "Commands accept an alias wherever they accept the name of a model.",
    .flags = flags,
    .word_min = 1,
    .word_max = 2,
    .run = run,
};
