#include "cli.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* By enum lig_change. */
static const char *const words[] = {"same", "changed", "reshaped", "removed", "added"};
enum { CHANGES = sizeof words / sizeof words[0] };

static const lig_tensor *tensor_of(const lig_difference *one)
{
    return one->b != NULL ? &one->b->tensor : &one->a->tensor;
}

/* --- table ----------------------------------------------------------------------------------- */

static void shape_cell(const lig_difference *one, char *text, size_t text_bytes)
{
    char before[LIG_NDIM_MAX * 22], after[LIG_NDIM_MAX * 22];
    if (one->change != LIG_CHANGE_SHAPE) {
        cli_shape_text(tensor_of(one), text, text_bytes);
        return;
    }
    cli_shape_text(&one->a->tensor, before, sizeof before);
    cli_shape_text(&one->b->tensor, after, sizeof after);
    snprintf(text, text_bytes, "%s %s -> %s %s", lig_dtype_name(one->a->tensor.dtype), before,
             lig_dtype_name(one->b->tensor.dtype), after);
}

static lig_status print_table(const lig_diff *diff, int all)
{
    static const cli_column columns[] = {
        {"TENSOR", 0, 1}, {"CHANGE", 0, 0}, {"SHAPE", 0, 1}, {"SIZE", 1, 0}};
    cli_table *table;
    lig_status status = LIG_OK;
    size_t rows = 0;
    LIG_TRY(cli_table_create(&table, columns, 4));
    for (size_t i = 0; i < diff->count && status == LIG_OK; i++) {
        const lig_difference *one = &diff->tensors[i];
        char shape[2 * LIG_NDIM_MAX * 22 + 64], size[24];
        if (one->change == LIG_CHANGE_NONE && !all)
            continue;
        shape_cell(one, shape, sizeof shape);
        cli_size_text(tensor_of(one)->bytes, size, sizeof size);
        status = cli_table_add(table, (const char *[]){one->name, words[one->change], shape, size});
        rows++;
    }
    if (status == LIG_OK && rows > 0)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}

static void print_sums(const lig_diff *diff)
{
    const char *comma = "";
    for (int i = 0; i < CHANGES; i++) {
        char size[24];
        if (diff->counts[i] == 0)
            continue;
        cli_size_text(diff->bytes[i], size, sizeof size);
        printf("%s%zu %s (%s)", comma, diff->counts[i], words[i], size);
        comma = ", ";
    }
    putchar('\n');
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void print_json(const lig_diff *diff)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    for (int i = 0; i < CHANGES; i++) {
        cli_json_open(&writer, words[i], '[');
        for (size_t j = 0; j < diff->count; j++)
            if (diff->tensors[j].change == i)
                cli_json_put_text(&writer, NULL, diff->tensors[j].name);
        cli_json_close(&writer, ']');
    }
    cli_json_open(&writer, "bytes", '{');
    for (int i = 0; i < CHANGES; i++)
        cli_json_put_u64(&writer, words[i], diff->bytes[i]);
    cli_json_close(&writer, '}');
    cli_json_close(&writer, '}');
}

static lig_status diff_named(lig_store *store, const char *a, const char *b, lig_diff **diff)
{
    char *names[2] = {NULL, NULL};
    lig_status status = cli_checkpoint_name(store, a, &names[0]);
    if (status == LIG_OK)
        status = cli_checkpoint_name(store, b, &names[1]);
    if (status == LIG_OK)
        status = lig_store_diff(store, names[0], names[1], diff);
    free(names[0]);
    free(names[1]);
    return status;
}

static lig_status compare(const cli_call *call, const cli_place *a, const char *b)
{
    lig_store *store;
    lig_diff *diff;
    LIG_TRY(cli_place_open(a, "r", &store));
    lig_status status = diff_named(store, a->name, b, &diff);
    if (status == LIG_E_NOTFOUND && strchr(b, '#') != NULL) {
        status = lig_fail(LIG_E_NOTFOUND,
                          "'%s' is not in the same store as '%s': diff compares two models of one "
                          "store (copy it with ligament cp)",
                          b, a->uri);
    } else if (status == LIG_OK) {
        if (call->json)
            print_json(diff);
        else
            status = print_table(diff, cli_has(call, "all"));
        if (status == LIG_OK && !call->json)
            print_sums(diff);
        lig_diff_destroy(diff);
    }
    lig_store_close(store);
    return status;
}

/* The second model is a name in the same store, even if the store is repeated. */
static const char *second_name(const cli_call *call, const cli_place *a)
{
    const char *word = call->words[1];
    size_t bytes = strlen(a->uri);
    return strncmp(word, a->uri, bytes) == 0 && word[bytes] == '#' ? word + bytes + 1 : word;
}

static int run(cli_call *call)
{
    cli_place a;
    lig_status status = cli_place_parse(&a, call->words[0]);
    if (status == LIG_OK && (a.kind != CLI_STORE || a.name == NULL)) {
        cli_place_fini(&a);
        return cli_misused(call, "'%s' does not name a model: use STORE#NAME", call->words[0]);
    }
    if (status == LIG_OK)
        status = compare(call, &a, second_name(call, &a));
    cli_place_fini(&a);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"all", 'a', NULL, "include unchanged tensors"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_diff = {
    .name = "diff",
    .usage = "STORE#NAME NAME [options]",
    .summary = "Lists the tensors that differ between two models",
    .details = "Compares fingerprints. Tensor data is read only where different numbers of ranks "
               "saved the\n"
               "two models; their bytes are then compared.",
    .flags = flags,
    .word_min = 2,
    .word_max = 2,
    .run = run,
};
