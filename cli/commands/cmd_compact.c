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

static lig_status compact(const cli_call *call, const cli_place *place)
{
    lig_store *store;
    lig_report *report;
    LIG_TRY(cli_place_open(place, "x", &store));
    lig_status status = lig_store_compact(store, &report);
    if (status == LIG_OK) {
        print(call, report);
        lig_report_destroy(report);
    }
    lig_store_close(store);
    return status;
}

static int run(cli_call *call)
{
    cli_place place;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK)
        status = compact(call, &place);
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

const cli_command cli_cmd_compact = {
    .name = "compact",
    .usage = "STORE",
    .summary = "Frees space that no model uses",
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
