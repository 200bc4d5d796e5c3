#include "cli.h"
#include "formats/json.h"

static void tell(const cli_call *call, const char *name)
{
    cli_json_writer writer = {.file = stdout};
    if (call->json) {
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "model", name);
        cli_json_close(&writer, '}');
        return;
    }
    fputs("restored ", stdout);
    cli_put_escaped(stdout, name);
    putchar('\n');
}

static lig_status restore(const cli_call *call, const cli_place *place, lig_store *store)
{
    const char *as = cli_value(call, "as");
    if (place->name == NULL)
        return cli_wrong(call, lig_fail(LIG_E_INVALID, "'%s' does not name a model: use '%s#NAME'",
                                        place->uri, place->uri));
    LIG_TRY(lig_store_restore(store, place->name, as));
    tell(call, as ? as : place->name);
    return LIG_OK;
}

static int run(cli_call *call)
{
    return cli_run_on_store(call, "x", restore);
}

static const cli_flag flags[] = {
    {"as", 0, "NAME", "restore it under a different name, for example if its own is in use"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_restore = {
    .name = "restore",
    .usage = "STORE#NAME [options]",
    .summary = "Restores a model that was removed",
    .details =
        "A server keeps removed models for the time given by `ligament serve --undelete`.\n"
        "If several models of this name were removed, the most recently removed one is restored.\n"
        "Its aliases are not restored.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
