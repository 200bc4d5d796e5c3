#include "cli.h"
#include "formats/json.h"

#include <string.h>

typedef struct removal {
    const cli_call *call;
    cli_json_writer *writer;
    lig_store *store;
} removal;

static void tell(const removal *self, const char *name, int alias)
{
    int dry = cli_has(self->call, "dry-run");
    if (self->writer != NULL) {
        cli_json_open(self->writer, NULL, '{');
        cli_json_put_text(self->writer, alias ? "alias" : "model", name);
        cli_json_put_bool(self->writer, "removed", !dry);
        cli_json_close(self->writer, '}');
        return;
    }
    fputs(dry ? "would remove " : "removed ", stdout);
    fputs(alias ? "alias " : "", stdout);
    cli_put_escaped(stdout, name);
    putchar('\n');
}

typedef struct alias_search {
    const char *name;
    int found;
} alias_search;

static lig_status compare_alias(void *context, const char *alias, const char *model)
{
    alias_search *search = context;
    (void)model;
    search->found |= strcmp(alias, search->name) == 0;
    return LIG_OK;
}

static lig_status is_alias(lig_store *store, const char *name, int *alias)
{
    alias_search search = {.name = name};
    lig_model *model;
    lig_status status = lig_store_model(store, name, &model);
    if (status == LIG_E_CORRUPT) { /* a damaged model can be removed */
        LIG_TRY(cli_each_alias(store, compare_alias, &search));
        *alias = search.found;
        return LIG_OK;
    }
    LIG_TRY(status);
    *alias = strcmp(model->name, name) != 0;
    lig_model_destroy(model);
    return LIG_OK;
}

/* An alias is only a name: removing it leaves the model it refers to. */
static lig_status remove_one(const removal *self, const char *name)
{
    int now = cli_has(self->call, "now"), dry = cli_has(self->call, "dry-run"), alias;
    LIG_TRY(is_alias(self->store, name, &alias));
    if (alias && !dry)
        LIG_TRY(lig_store_alias(self->store, name, NULL));
    else if (!dry)
        LIG_TRY(now ? lig_store_retire_now(self->store, name)
                    : lig_store_retire(self->store, name));
    tell(self, name, alias);
    return LIG_OK;
}

static lig_status remove_all(removal *self, const cli_place *place)
{
    char **names;
    size_t count;
    if (place->name == NULL)
        return cli_wrong(
            self->call,
            lig_fail(LIG_E_INVALID,
                     "'%s' does not name a model: use '%s#NAME', or '%s#*' for all models",
                     place->uri, place->uri, place->uri));
    LIG_TRY(cli_place_open(place, cli_has(self->call, "dry-run") ? "r" : "x", &self->store));
    lig_status status = cli_place_names(place, self->store, "name", &names, &count);
    if (status == LIG_E_NOTFOUND && cli_has(self->call, "now") && !cli_has(self->call, "dry-run")) {
        status = lig_store_retire_now(self->store, place->name); /* one that was removed before */
        if (status == LIG_OK)
            tell(self, place->name, 0);
    } else if (status == LIG_OK) {
        for (size_t i = 0; i < count && status == LIG_OK; i++)
            status = remove_one(self, names[i]);
        cli_names_destroy(names, count);
    }
    lig_store_close(self->store);
    return status;
}

static int run(cli_call *call)
{
    cli_json_writer writer = {.file = stdout};
    removal self = {.call = call, .writer = call->json ? &writer : NULL};
    lig_status status = LIG_OK;
    if (call->json)
        cli_json_open(&writer, NULL, '[');
    for (size_t i = 0; i < call->word_count && status == LIG_OK; i++) {
        cli_place place;
        status = cli_place_parse(&place, call->words[i]);
        if (status == LIG_OK)
            status = remove_all(&self, &place);
        cli_place_fini(&place);
    }
    if (call->json)
        cli_json_close(&writer, ']');
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"dry-run", 'n', NULL, "only print what would be removed"},
    {"now", 0, NULL, "free the space at once, even if the server keeps removed models"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_rm = {
    .name = "rm",
    .usage = "STORE#NAME... [options]",
    .summary = "Removes models or aliases",
    .details =
        "Frees space that no other model uses. Removing an alias does not remove its model.\n"
        "A server with --undelete keeps removed models for some time: see `ligament restore`.",
    .flags = flags,
    .word_min = 1,
    .word_max = SIZE_MAX,
    .run = run,
};
