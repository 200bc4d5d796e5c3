#include "cli.h"
#include "formats/json.h"

static void print(const cli_call *call, const lig_report *report)
{
    cli_json_writer writer = {.file = stdout};
    char size[24];
    if (!call->json) {
        cli_size_text(report->freed_bytes, size, sizeof size);
        printf("%s freed\n", size);
        return;
    }
    cli_json_open(&writer, NULL, '{');
    cli_json_put_u64(&writer, "freed_bytes", report->freed_bytes);
    cli_json_put_u64(&writer, "packs", report->packs);
    cli_json_close(&writer, '}');
}

static lig_status compact(const cli_call *call, const cli_place *place, lig_store *store)
{
    lig_report *report;
    LIG_TRY(cli_place_refuse_name(call, place));
    LIG_TRY(lig_store_compact(store, &report));
    print(call, report);
    lig_report_destroy(report);
    return LIG_OK;
}

static int run(cli_call *call)
{
    return cli_run_on_store(call, "x", compact);
}

const cli_command cli_cmd_compact = {
    .name = "compact",
    .usage = "STORE",
    .summary = "Frees space that no model uses",
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
