/* All paths are derived from the library's location, so a wheel, an install prefix and a moved
 * directory give consistent answers. */
#include "cli.h"
#include "formats/json.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct layout {
    char library[PATH_MAX]; /* the library file */
    char lib[PATH_MAX];     /* its directory */
    char include[PATH_MAX + 32];
    char cmake[PATH_MAX + 32];
} layout;

/* The headers are next to lib/, or in the source tree that contains the build directory or
 * python/ligament. */
static int find_include(layout *where)
{
    static const char *const places[] = {"../include", "../../../include"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char folder[PATH_MAX + 32], header[2 * PATH_MAX];
        snprintf(folder, sizeof folder, "%s/%s", where->lib, places[i]);
        snprintf(header, sizeof header, "%s/ligament/ligament.h", folder);
        if (access(header, R_OK) == 0 && realpath(folder, where->include) != NULL)
            return 1;
    }
    where->include[0] = '\0';
    return 0;
}

static lig_status find_layout(layout *where)
{
    Dl_info info;
    char copy[PATH_MAX];
    /* The path is that of the loaded library. */
    const char *inside = lig_version();
    if (dladdr(inside, &info) == 0 || info.dli_fname == NULL ||
        realpath(info.dli_fname, where->library) == NULL)
        return lig_fail(LIG_E_NOTFOUND, "cannot determine the location of the library");
    memcpy(copy, where->library, sizeof copy);
    snprintf(where->lib, sizeof where->lib, "%s", dirname(copy));
    find_include(where);
    snprintf(where->cmake, sizeof where->cmake, "%s/cmake/ligament", where->lib);
    if (access(where->cmake, R_OK) != 0)
        where->cmake[0] = '\0';
    return LIG_OK;
}

/* --- flags for compilers
 * ---------------------------------------------------------------------------- */

/* Quoted as a word of a shell command line. */
static void put_word(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr(" \t\n\"'\\$`()<>|&;*?[]{}!#~", *text) != NULL)
            putc('\\', file);
        putc(*text, file);
    }
}

static void put_cflags(FILE *file, const layout *where)
{
    fputs("-I", file);
    put_word(file, where->include);
}

static void put_libs(FILE *file, const layout *where)
{
    fputs("-L", file);
    put_word(file, where->lib);
    fputs(" -Wl,-rpath,", file);
    put_word(file, where->lib);
    fputs(" -lligament", file);
}

static void put_cmakedir(FILE *file, const layout *where)
{
    fputs(where->cmake, file);
}

static const struct {
    const char *name;
    void (*put)(FILE *file, const layout *where);
} answers[] = {{"cflags", put_cflags}, {"libs", put_libs}, {"cmakedir", put_cmakedir}};

#define ANSWER_COUNT (sizeof answers / sizeof *answers)

static lig_status missing(const char *what, const layout *where)
{
    return lig_fail(LIG_E_NOTFOUND,
                    "the %s are not installed next to '%s' (install them with 'cmake --install')",
                    what, where->library);
}

static lig_status put_flags_json(const cli_call *call, const layout *where)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        cli_text text;
        if (!cli_has(call, answers[i].name))
            continue;
        LIG_TRY(cli_text_open(&text));
        answers[i].put(text.file, where);
        LIG_TRY(cli_text_close(&text, LIG_OK));
        cli_json_put_text(&writer, answers[i].name, text.data);
        free(text.data);
    }
    cli_json_close(&writer, '}');
    return LIG_OK;
}

static lig_status print_flags(const cli_call *call, const layout *where)
{
    const char *between = "";
    if (cli_has(call, "cflags") && where->include[0] == '\0')
        return missing("headers", where);
    if (cli_has(call, "cmakedir") && where->cmake[0] == '\0')
        return missing("CMake files", where);
    if (call->json)
        return put_flags_json(call, where);
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        if (!cli_has(call, answers[i].name))
            continue;
        fputs(between, stdout);
        answers[i].put(stdout, where);
        between = " ";
    }
    putchar('\n');
    return LIG_OK;
}

/* --- plugins
 * ------------------------------------------------------------------------------------------ */

static void put_backends(cli_json_writer *writer)
{
    const char *name;
    cli_json_open(writer, "backends", '[');
    for (size_t i = 0; (name = lig_backend_name(i)) != NULL; i++) {
        const lig_backend_ops *ops = lig_backend_find(name);
        cli_json_open(writer, NULL, '{');
        cli_json_put_text(writer, "name", name);
        cli_json_put_bool(writer, "store", ops->volume != NULL);
        cli_json_put_bool(writer, "device_memory", (ops->flags & LIG_BACKEND_DEVICE) != 0);
        cli_json_open(writer, "options", '[');
        for (const lig_backend_option *o = ops->options; o != NULL && o->name != NULL; o++) {
            cli_json_open(writer, NULL, '{');
            cli_json_put_text(writer, "name", o->name);
            cli_json_put_text(writer, "kind", o->kind);
            cli_json_put_text(writer, "default", o->fallback);
            cli_json_put_text(writer, "help", o->help);
            cli_json_close(writer, '}');
        }
        cli_json_close(writer, ']');
        cli_json_close(writer, '}');
    }
    cli_json_close(writer, ']');
}

static lig_status add_options(cli_table *table, const char *name, const lig_backend_ops *ops)
{
    const lig_backend_option *option = ops->options;
    const char *what = ops->volume != NULL ? "supports stores" : "supports save and load only";
    LIG_TRY(cli_table_add(table, (const char *[]){name, "", "", "", what}));
    for (; option != NULL && option->name != NULL; option++)
        LIG_TRY(cli_table_add(table,
                              (const char *[]){"", option->name, option->kind ? option->kind : "",
                                               option->fallback ? option->fallback : "",
                                               option->help ? option->help : ""}));
    return LIG_OK;
}

static lig_status print_backends(void)
{
    static const cli_column columns[] = {
        {"BACKEND", 0, 0}, {"OPTION", 0, 0}, {"KIND", 0, 0}, {"DEFAULT", 0, 0}, {"", 0, 1}};
    cli_table *table;
    const char *name;
    lig_status status = LIG_OK;
    LIG_TRY(cli_table_create(&table, columns, 5));
    for (size_t i = 0; status == LIG_OK && (name = lig_backend_name(i)) != NULL; i++)
        status = add_options(table, name, lig_backend_find(name));
    return cli_table_end(table, status);
}

/* Prints the transport and, if it cannot be used, why; returns 1 if it can. */
static int describe_transport(const char *name, char *text, size_t text_bytes)
{
    char reason[512];
    int usable = lig_transport_check(name) == LIG_OK;
    snprintf(reason, sizeof reason, "%s", usable ? "" : lig_error_text());
    const char *help = lig_transport_help(name);
    if (usable || help[0] == '\0')
        snprintf(text, text_bytes, "%s", usable ? help : reason);
    else
        snprintf(text, text_bytes, "%s (not usable: %s)", help, reason);
    return usable;
}

static void put_transports(cli_json_writer *writer)
{
    lig_transport_option option;
    char about[1024];
    const char *name;

    cli_json_open(writer, "transports", '[');
    for (size_t i = 0; (name = lig_transport_name(i)) != NULL; i++) {
        int usable = describe_transport(name, about, sizeof about);
        cli_json_open(writer, NULL, '{');
        cli_json_put_text(writer, "name", name);
        cli_json_put_bool(writer, "usable", usable);
        cli_json_put_text(writer, "about", about);
        cli_json_open(writer, "options", '[');
        for (size_t at = 0; lig_transport_option_get(name, at, &option); at++) {
            cli_json_open(writer, NULL, '{');
            cli_json_put_text(writer, "name", option.name);
            cli_json_put_text(writer, "kind", option.kind);
            cli_json_put_text(writer, "default", option.fallback);
            cli_json_put_text(writer, "help", option.help);
            cli_json_close(writer, '}');
        }
        cli_json_close(writer, ']');
        cli_json_close(writer, '}');
    }
    cli_json_close(writer, ']');
}

static lig_status add_transport(cli_table *table, const char *name)
{
    lig_transport_option option;
    char about[1024];

    describe_transport(name, about, sizeof about);
    LIG_TRY(cli_table_add(table, (const char *[]){name, "", "", "", about}));
    for (size_t at = 0; lig_transport_option_get(name, at, &option); at++)
        LIG_TRY(cli_table_add(
            table, (const char *[]){"", option.name, option.kind, option.fallback, option.help}));
    return LIG_OK;
}

static lig_status print_transports(void)
{
    static const cli_column columns[] = {
        {"TRANSPORT", 0, 0}, {"OPTION", 0, 0}, {"KIND", 0, 0}, {"DEFAULT", 0, 0}, {"", 0, 1}};
    cli_table *table;
    const char *name;
    lig_status status = LIG_OK;

    LIG_TRY(cli_table_create(&table, columns, 5));
    for (size_t i = 0; status == LIG_OK && (name = lig_transport_name(i)) != NULL; i++)
        status = add_transport(table, name);
    return cli_table_end(table, status);
}

/* --- one store
 * ------------------------------------------------------------------------------------------ */

typedef struct place_facts {
    char path[512];
    lig_store_stats stats;
} place_facts;

static lig_status look_at(const cli_call *call, place_facts *facts)
{
    cli_place place;
    lig_store *store;
    LIG_TRY(cli_place_parse(&place, call->words[0]));
    lig_status status = cli_place_refuse_name(call, &place);
    if (status == LIG_OK)
        status = cli_place_open(&place, "r", &store);
    cli_place_fini(&place);
    LIG_TRY(status);
    status = lig_store_stat(store, &facts->stats);
    if (status == LIG_OK)
        status = lig_store_describe(store, facts->path, sizeof facts->path);
    lig_store_close(store);
    return status;
}

static void put_store(cli_json_writer *writer, const char *word, const place_facts *facts)
{
    cli_json_open(writer, "store", '{');
    cli_json_put_text(writer, "uri", word);
    cli_json_put_text(writer, "io", facts->path);
    cli_json_put_u64(writer, "models", facts->stats.models);
    cli_json_put_u64(writer, "tensors", facts->stats.tensors);
    cli_json_put_u64(writer, "packs", facts->stats.packs);
    cli_json_put_u64(writer, "bytes", facts->stats.bytes);
    cli_json_put_u64(writer, "stored_bytes", facts->stats.stored_bytes);
    cli_json_put_u64(writer, "version", facts->stats.version);
    cli_json_close(writer, '}');
}

static void print_store(const char *word, const place_facts *facts)
{
    char bytes[24], stored[24];
    cli_size_text(facts->stats.bytes, bytes, sizeof bytes);
    cli_size_text(facts->stats.stored_bytes, stored, sizeof stored);
    fputs("\nstore     ", stdout);
    cli_put_escaped(stdout, word);
    printf("\nholds     %llu models, %llu tensors, %s; %s in %llu pack%s\nio        ",
           (unsigned long long)facts->stats.models, (unsigned long long)facts->stats.tensors, bytes,
           stored, (unsigned long long)facts->stats.packs, facts->stats.packs == 1 ? "" : "s");
    cli_put_escaped(stdout, facts->path);
    putchar('\n');
}

/* --- the command ----------------------------------------------------------------------------- */

static lig_status print_all(const cli_call *call, const layout *where)
{
    place_facts facts;
    int store = call->word_count > 0;
    if (store)
        LIG_TRY(look_at(call, &facts));
    if (call->json) {
        cli_json_writer writer = {.file = stdout};
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "version", lig_version());
        cli_json_put_text(&writer, "library", where->library);
        cli_json_put_text(&writer, "include", where->include[0] ? where->include : NULL);
        cli_json_put_text(&writer, "cmakedir", where->cmake[0] ? where->cmake : NULL);
        cli_json_put_text(&writer, "hash", lig_hash_kind());
        put_backends(&writer);
        put_transports(&writer);
        if (store)
            put_store(&writer, call->words[0], &facts);
        cli_json_close(&writer, '}');
        return LIG_OK;
    }
    printf("ligament  %s\nlibrary   ", lig_version());
    cli_put_escaped(stdout, where->library);
    printf("\nhash      XXH3, %s\n", lig_hash_kind());
    if (store)
        print_store(call->words[0], &facts);
    putchar('\n');
    LIG_TRY(print_backends());
    putchar('\n');
    return print_transports();
}

static int run(cli_call *call)
{
    int flags = cli_has(call, "cflags") || cli_has(call, "libs") || cli_has(call, "cmakedir");
    layout where;
    if (flags && call->word_count > 0)
        return cli_misused(call, "--cflags, --libs and --cmakedir cannot be combined with a store");
    lig_status status = find_layout(&where);
    if (status == LIG_OK)
        status = flags ? print_flags(call, &where) : print_all(call, &where);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flag_table[] = {
    {"cflags", 0, NULL, "print the compiler flags for the headers"},
    {"libs", 0, NULL, "print the linker flags for the library"},
    {"cmakedir", 0, NULL, "print the directory for CMake's ligament_DIR"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_info = {
    .name = "info",
    .usage = "[STORE] [options]",
    .summary =
        "Shows the version, backends, transports and their options, or how a store performs I/O",
    .flags = flag_table,
    .word_min = 0,
    .word_max = 1,
    .run = run,
};
