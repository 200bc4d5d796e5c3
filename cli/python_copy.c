#include "python_copy.h"

#include "python.h"

#include <stdlib.h>
#include <string.h>

typedef struct passing { /* what is passed on */
    const cli_call *call;
    const char *target;
    size_t source_count;
    const char **words;
    size_t count;
} passing;

int cli_copy_needs_python(const cli_call *call)
{
    for (size_t i = 0; i < call->word_count; i++)
        if (cli_needs_python(call->words[i]))
            return 1;
    return cli_has(call, "dcp");
}

/* --- what can be copied ---------------------------------------------------------------------- */

static lig_status check_options(const cli_call *call, const char *foreign)
{
    static const char *const folders[] = {"folder", "shard"};
    uint64_t limit;
    for (size_t i = 0; i < 2; i++)
        if (cli_has(call, folders[i]))
            return lig_fail(LIG_E_INVALID,
                            "--%s writes .safetensors files, but '%s' has another "
                            "format (copy the model into a store first)",
                            folders[i], foreign);
    if (cli_has(call, "incremental"))
        return lig_fail(LIG_E_INVALID,
                        "--incremental copies models between stores, but '%s' is a "
                        "file",
                        foreign);
    return cli_number(call, "limit", 1, UINT64_MAX, &limit);
}

/* Files become models of a store. */
static lig_status check_import(const passing *self)
{
    const cli_call *call = self->call;
    cli_place to;
    for (size_t i = 0; i < self->source_count; i++)
        if (!cli_needs_python(call->words[i]))
            return lig_fail(LIG_E_INVALID,
                            "'%s' cannot be copied together with formats that need "
                            "Python (use two commands)",
                            call->words[i]);
    LIG_TRY(cli_place_parse(&to, self->target));
    lig_status status = LIG_OK;
    if (to.kind != CLI_STORE)
        status = cli_refuse_foreign(call->words[0]);
    else if (self->source_count > 1 && to.name != NULL && !cli_ends_with(to.name, "/"))
        status = lig_fail(LIG_E_INVALID,
                          "cannot copy several models to one name, '%s' (a name "
                          "that ends in '/' is used as a prefix)",
                          to.name);
    else if (cli_has(call, "dcp"))
        status =
            lig_fail(LIG_E_INVALID, "--dcp writes a directory, but '%s' is a store", self->target);
    cli_place_fini(&to);
    return status;
}

/* A model of a store becomes a file. */
static lig_status check_export(const passing *self)
{
    if (self->source_count > 1)
        return lig_fail(LIG_E_INVALID, "cannot write several models to one file, '%s'",
                        self->target);
    if (cli_has(self->call, "tag") || cli_has(self->call, "metric"))
        return lig_fail(LIG_E_INVALID,
                        "tags and metrics can be added only to models of a store, "
                        "but '%s' is a file",
                        self->target);
    int has_suffix = cli_needs_python(self->target) && !cli_folder_holds(self->target, ".metadata");
    if (cli_has(self->call, "dcp") &&
        (has_suffix || strchr(self->target, '#') != NULL ||
         cli_ends_with(self->target, ".safetensors") || cli_ends_with(self->target, ".npz")))
        return lig_fail(LIG_E_INVALID, "--dcp writes a directory, but '%s' is not a directory name",
                        self->target);
    return LIG_OK;
}

/* --- the command line ------------------------------------------------------------------------ */

static lig_status add(passing *self, const char *option, const char *value)
{
    char *text;
    LIG_TRY(value ? cli_format(&text, "--%s=%s", option, value)
                  : cli_format(&text, "--%s", option));
    self->words[self->count++] = text;
    return LIG_OK;
}

static lig_status add_pairs(passing *self, const char *option)
{
    lig_tag *pairs;
    size_t count;
    LIG_TRY(cli_tags(self->call, option, &pairs, &count));
    for (size_t i = 0; i < count; i++) {
        char *text;
        LIG_TRY(cli_format(&text, "--%s=%s=%s", option, pairs[i].name, pairs[i].value));
        self->words[self->count++] = text;
    }
    free(pairs);
    return LIG_OK;
}

static lig_status add_metrics(passing *self)
{
    lig_metric *metrics;
    size_t count;
    LIG_TRY(cli_metrics(self->call, "metric", &metrics, &count));
    for (size_t i = 0; i < count; i++) {
        char *text;
        LIG_TRY(cli_format(&text, "--metric=%s=%.17g", metrics[i].name, metrics[i].value));
        self->words[self->count++] = text;
    }
    free(metrics);
    return LIG_OK;
}

static lig_status add_options(passing *self)
{
    static const char *const plain[] = {"replace", "dcp"}, *const valued[] = {"part", "strip",
                                                                              "like", "limit"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (cli_has(self->call, plain[i]))
            LIG_TRY(add(self, plain[i], NULL));
    for (size_t i = 0; i < sizeof valued / sizeof *valued; i++)
        if (cli_has(self->call, valued[i]))
            LIG_TRY(add(self, valued[i], cli_value(self->call, valued[i])));
    LIG_TRY(add_pairs(self, "tag"));
    LIG_TRY(add_pairs(self, "rename"));
    LIG_TRY(add_metrics(self));
    return self->call->json ? add(self, "json", NULL) : LIG_OK;
}

/* The one model that the source denotes, under its own name. */
static lig_status add_model(passing *self)
{
    cli_place place;
    lig_store *store;
    char **names = NULL, *text;
    size_t count = 0;
    LIG_TRY(cli_place_parse(&place, self->call->words[0]));
    lig_status status = place.kind == CLI_STORE ? cli_place_open(&place, "r", &store)
                                                : cli_refuse_foreign(place.uri);
    if (status == LIG_OK) {
        status = cli_place_names(&place, store, "created", &names, &count);
        lig_store_close(store);
    }
    if (status == LIG_OK && count != 1)
        status = lig_fail(LIG_E_INVALID, "'%s' holds one model, but %zu were selected",
                          self->target, count);
    if (status == LIG_OK)
        status = cli_format(&text, "%s#%s", place.uri, names[0]);
    if (status == LIG_OK)
        self->words[self->count++] = text;
    cli_names_destroy(names, count);
    cli_place_fini(&place);
    return status;
}

static lig_status make_words(passing *self, int into_store)
{
    const cli_call *call = self->call;
    LIG_TRY(add_options(self));
    self->words[self->count++] = "--";
    if (!into_store)
        LIG_TRY(add_model(self));
    for (size_t i = into_store ? 0 : call->word_count - 1; i < call->word_count; i++)
        self->words[self->count++] = call->words[i];
    return LIG_OK;
}

lig_status cli_copy_by_python(const cli_call *call)
{
    passing self = {.call = call,
                    .target = call->words[call->word_count - 1],
                    .source_count = call->word_count - 1};
    size_t foreign = 0; /* the first source that needs Python */
    while (foreign < self.source_count && !cli_needs_python(call->words[foreign]))
        foreign++;
    int into_store = !cli_needs_python(self.target) && foreign < self.source_count;
    LIG_TRY(check_options(call, into_store ? call->words[foreign] : self.target));
    LIG_TRY(into_store ? check_import(&self) : check_export(&self));
    LIG_TRY(cli_alloc(&self.words, call->word_count + call->given_count + 2, sizeof *self.words));
    LIG_TRY(make_words(&self, into_store));
    return cli_run_python(self.words, self.count);
}
