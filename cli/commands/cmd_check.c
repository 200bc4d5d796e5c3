#include "cli.h"
#include "formats/json.h"

static void put_json(const lig_report *report)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_u64(&writer, "models", report->models);
    cli_json_put_u64(&writer, "tensors", report->tensors);
    cli_json_put_u64(&writer, "packs", report->packs);
    cli_json_put_u64(&writer, "bytes", report->bytes);
    cli_json_put_u64(&writer, "repaired", report->repaired);
    cli_json_put_u64(&writer, "freed_bytes", report->freed_bytes);
    cli_json_put_u64(&writer, "leftover_bytes", report->leftover_bytes);
    cli_json_open(&writer, "problems", '[');
    for (size_t i = 0; i < report->problem_count; i++)
        cli_json_put_text(&writer, NULL, report->problems[i]);
    cli_json_close(&writer, ']');
    cli_json_close(&writer, '}');
}

static void put_count(uint64_t count, const char *what, const char *then)
{
    printf("%llu %s%s%s", (unsigned long long)count, what, count == 1 ? "" : "s", then);
}

static void print(const lig_report *report)
{
    char size[24];
    for (size_t i = 0; i < report->problem_count; i++) {
        fputs("problem: ", stdout);
        cli_put_escaped(stdout, report->problems[i]);
        putchar('\n');
    }
    cli_size_text(report->bytes, size, sizeof size);
    put_count(report->models, "model", ", ");
    put_count(report->tensors, "tensor", ", ");
    put_count(report->packs, "pack", ", ");
    printf("%s read: ", size);
    put_count(report->problem_count, "problem", "");
    if (report->repaired > 0)
        printf(", %llu repaired", (unsigned long long)report->repaired);
    putchar('\n');
}

static int show_progress(void *context, uint64_t done, uint64_t total)
{
    cli_bar *bar = context;
    bar->total = total;
    cli_bar_add(bar, done - bar->done);
    return 0;
}

static lig_status check(const cli_call *call, const cli_place *place, size_t *left)
{
    int repair = cli_has(call, "repair");
    lig_store *store;
    lig_report *report;
    LIG_TRY(cli_place_open(place, repair ? "x" : "r", &store));
    cli_bar bar;
    cli_bar_start(&bar, call, "checking", 0);
    lig_status status = lig_store_check_progress(store, repair ? LIG_CHECK_REPAIR : 0,
                                                 &(lig_progress){show_progress, &bar}, &report);
    cli_bar_end(&bar);
    if (status == LIG_OK) {
        call->json ? put_json(report) : print(report);
        *left = report->problem_count > report->repaired
                    ? report->problem_count - (size_t)report->repaired
                    : 0;
        lig_report_destroy(report);
    }
    lig_store_close(store);
    return status;
}

static int run(cli_call *call)
{
    cli_place place;
    size_t left = 0;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK)
        status = cli_place_refuse_name(call, &place);
    if (status == LIG_OK)
        status = check(call, &place, &left);
    if (status == LIG_OK && left > 0)
        status = lig_fail(LIG_E_CORRUPT, "'%s' has %zu problem%s%s", place.uri, left,
                          left > 1 ? "s" : "",
                          cli_has(call, "repair") ? " that cannot be repaired"
                                                  : "; --repair repairs what it can");
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"repair", 'r', NULL, "repair counts, remove leftover files, rebuild a lost catalog"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_check = {
    .name = "check",
    .usage = "STORE [options]",
    .summary = "Verifies a store against its checksums and records",
    .details = "Exits with 1 if problems remain.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
