/* Where a model is: URI#name, a plain path, or a file of another format. */
#include "cli.h"
#include "python.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Distinguishes a URI from a path as the library does: at least two characters before the colon. */
static int has_scheme(const char *text)
{
    size_t i = 0;
    if (!isalpha((unsigned char)text[0]))
        return 0;
    while (isalnum((unsigned char)text[i]) || (text[i] != '\0' && strchr("+._-", text[i]) != NULL))
        i++;
    return i >= 2 && text[i] == ':';
}

static lig_status take_folder(cli_place *place)
{
    char index[8192], *file;
    if (cli_sharded_index(place->uri, index, sizeof index)) {
        place->kind = CLI_SHARDED;
    } else if (cli_folder_holds(place->uri, "model.safetensors") &&
               !cli_folder_holds(place->uri, "ligament")) {
        LIG_TRY(cli_format(&file, "%s/model.safetensors", place->uri));
        free(place->uri);
        place->uri = file;
        place->kind = CLI_SAFETENSORS;
        place->in_folder = 1;
    }
    return LIG_OK;
}

/* "folder/" names the same place as "folder". */
static void drop_end_slashes(char *path)
{
    for (size_t bytes = strlen(path); bytes > 1 && path[bytes - 1] == '/'; bytes--)
        path[bytes - 1] = '\0';
}

static lig_status take_kind(cli_place *place)
{
    struct stat info;
    const char *text = place->uri;
    if (has_scheme(text))
        return LIG_OK;
    if (cli_needs_python(text)) /* an existing store of such a name takes precedence */
        return cli_refuse_foreign(text);
    if (stat(text, &info) == 0 && S_ISDIR(info.st_mode))
        return take_folder(place);
    if (cli_is_sharded_index(text))
        place->kind = CLI_SHARDED;
    else if (cli_ends_with(text, ".safetensors"))
        place->kind = CLI_SAFETENSORS;
    else if (cli_ends_with(text, ".npz"))
        place->kind = CLI_NPZ;
    return LIG_OK;
}

lig_status cli_place_parse(cli_place *place, const char *text)
{
    const char *hash = strchr(text, '#');
    size_t bytes = hash != NULL ? (size_t)(hash - text) : strlen(text);
    *place = (cli_place){.kind = CLI_STORE};
    if (bytes == 0)
        return lig_fail(LIG_E_INVALID, "'%s' does not name a store: expected URI#name", text);
    if (hash != NULL && hash[1] == '\0')
        return lig_fail(LIG_E_INVALID, "'%s' has an empty name after '#'", text);
    LIG_TRY(cli_format(&place->uri, "%.*s", (int)bytes, text));
    if (!has_scheme(place->uri))
        drop_end_slashes(place->uri);
    lig_status status = hash == NULL ? take_kind(place) : cli_format(&place->name, "%s", hash + 1);
    if (status != LIG_OK)
        cli_place_fini(place);
    return status;
}

lig_status cli_place_refuse_name(const cli_call *call, const cli_place *place)
{
    if (place->name == NULL)
        return LIG_OK;
    return cli_wrong(call, lig_fail(LIG_E_INVALID, "%s works on whole stores: remove '#%s'",
                                    call->command->name, place->name));
}

void cli_place_fini(cli_place *place)
{
    free(place->uri);
    free(place->name);
    *place = (cli_place){0};
}

/* The query of a path follows its last '?', if the rest looks like key=value. */
static const char *find_query(const char *uri)
{
    const char *mark = has_scheme(uri) ? strchr(uri, '?') : strrchr(uri, '?');
    if (mark == NULL || has_scheme(uri))
        return mark;
    const char *equals = strchr(mark, '=');
    return equals != NULL && equals > mark + 1 ? mark : NULL;
}

static lig_status open_with(const cli_place *place, const char *mode, lig_store **store)
{
    char *uri;
    LIG_TRY(cli_format(&uri, "%s%cmode=%s", place->uri, find_query(place->uri) != NULL ? '&' : '?',
                       mode));
    lig_status status = lig_store_open(store, uri);
    free(uri);
    return status;
}

lig_status cli_place_open(const cli_place *place, const char *mode, lig_store **store)
{
    const char *query = find_query(place->uri);
    lig_store *probe;
    if (place->kind != CLI_STORE)
        return lig_fail(LIG_E_INVALID, "'%s' is a file, but a store is required", place->uri);
    if (query != NULL && (strstr(query, "?mode=") != NULL || strstr(query, "&mode=") != NULL))
        return lig_store_open(store, place->uri);
    if (strcmp(mode, "x") != 0)
        return open_with(place, mode, store);
    LIG_TRY(open_with(place, "r", &probe));
    lig_store_close(probe);
    return open_with(place, "a", store);
}

int cli_run_on_store(const cli_call *call, const char *mode, cli_store_command *command)
{
    cli_place place;
    lig_store *store;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK)
        status = cli_place_open(&place, mode, &store);
    if (status == LIG_OK) {
        status = command(call, &place, store);
        lig_store_close(store);
    }
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

lig_status cli_each_alias(lig_store *store, cli_alias_visit *visit, void *context)
{
    char *alias, *model;
    for (size_t i = 0;; i++) {
        lig_status status = lig_store_alias_at(store, i, &alias, &model);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        status = visit(context, alias, model);
        lig_text_destroy(alias);
        lig_text_destroy(model);
        LIG_TRY(status);
    }
}

void cli_names_destroy(char **names, size_t count)
{
    for (size_t i = 0; names != NULL && i < count; i++)
        free(names[i]);
    free(names);
}

static lig_status copy_names(lig_model *const *models, size_t count, char ***names)
{
    char **list;
    LIG_TRY(cli_alloc(&list, count, sizeof *list));
    for (size_t i = 0; i < count; i++) {
        lig_status status = cli_format(&list[i], "%s", models[i]->name);
        if (status != LIG_OK) {
            cli_names_destroy(list, i);
            return status;
        }
    }
    *names = list;
    return LIG_OK;
}

static lig_status matching_names(lig_store *store, const char *pattern, const char *order,
                                 char ***names, size_t *count)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model **models;
    query.name = pattern;
    query.order = order;
    LIG_TRY(lig_store_models(store, &query, &models, count));
    lig_status status = copy_names(models, *count, names);
    lig_models_destroy(models, *count);
    return status;
}

lig_status cli_place_model(const cli_place *place, lig_store *store, lig_model **model)
{
    *model = NULL;
    if (place->name == NULL)
        return LIG_OK;
    char *name;
    LIG_TRY(cli_checkpoint_name(store, place->name, &name));
    /* A name may contain pattern characters: an exact match takes precedence. */
    lig_status status = lig_store_model(store, name, model);
    free(name);
    return status == LIG_E_NOTFOUND && strpbrk(place->name, "*?[") != NULL ? LIG_OK : status;
}

lig_status cli_place_names(const cli_place *place, lig_store *store, const char *order,
                           char ***names, size_t *count)
{
    lig_model *model;
    lig_status named = cli_place_model(place, store, &model);
    if (named != LIG_E_CORRUPT) /* the name of a damaged model is one, too */
        LIG_TRY(named);
    if (model != NULL || named != LIG_OK) {
        lig_model_destroy(model);
        char **one;
        LIG_TRY(cli_alloc(&one, 1, sizeof *one));
        lig_status status = cli_checkpoint_name(store, place->name, one);
        if (status != LIG_OK) {
            free(one);
            return status;
        }
        *names = one;
        *count = 1;
        return LIG_OK;
    }
    LIG_TRY(matching_names(store, place->name, order, names, count));
    if (*count > 0 || place->name == NULL)
        return LIG_OK;
    cli_names_destroy(*names, 0);
    return lig_fail(LIG_E_NOTFOUND, "no model in '%s' matches '%s'", place->uri, place->name);
}
