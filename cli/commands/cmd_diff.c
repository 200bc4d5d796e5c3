#include "cli.h"
#include "formats/json.h"
#include "models/model_changes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As cmp(1) and diff(1). */
enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 };

/* By enum lig_change. */
static const char *const words[] = {"same", "changed", "reshaped", "removed", "added"};
enum { CHANGES = sizeof words / sizeof words[0] };

static const lig_tensor *tensor_of(const cli_change *one)
{
    return one->b != NULL ? one->b : one->a;
}

/* --- table ----------------------------------------------------------------------------------- */

static void shape_cell(const cli_change *one, char *text, size_t text_bytes)
{
    char before[LIG_NDIM_MAX * 22], after[LIG_NDIM_MAX * 22];
    if (one->change != LIG_CHANGE_SHAPE) {
        cli_shape_text(tensor_of(one), text, text_bytes);
        return;
    }
    cli_shape_text(one->a, before, sizeof before);
    cli_shape_text(one->b, after, sizeof after);
    snprintf(text, text_bytes, "%s %s -> %s %s", lig_dtype_name(one->a->dtype), before,
             lig_dtype_name(one->b->dtype), after);
}

static lig_status print_table(const cli_changes *changes, int all)
{
    static const cli_column columns[] = {
        {"TENSOR", 0, 1}, {"CHANGE", 0, 0}, {"RELATIVE", 1, 0}, {"SHAPE", 0, 1}, {"SIZE", 1, 0}};
    cli_table *table;
    lig_status status = LIG_OK;
    size_t rows = 0;
    LIG_TRY(cli_table_create(&table, columns, 5));
    for (size_t i = 0; i < changes->count && status == LIG_OK; i++) {
        const cli_change *one = &changes->tensors[i];
        char shape[2 * LIG_NDIM_MAX * 22 + 64], size[24], relative[32] = "";
        if (one->change == LIG_CHANGE_NONE && !all)
            continue;
        shape_cell(one, shape, sizeof shape);
        cli_size_text(tensor_of(one)->bytes, size, sizeof size);
        if (one->change == LIG_CHANGE_BYTES)
            snprintf(relative, sizeof relative, "%.3g", one->relative);
        status = cli_table_add(
            table, (const char *[]){one->name, words[one->change], relative, shape, size});
        rows++;
    }
    if (status == LIG_OK && rows > 0)
        cli_table_print(table, stdout);
    cli_table_destroy(table);
    return status;
}

static void print_sums(const cli_changes *changes)
{
    const char *comma = "";
    for (int i = 0; i < CHANGES; i++) {
        char size[24];
        if (changes->counts[i] == 0)
            continue;
        cli_size_text(changes->bytes[i], size, sizeof size);
        printf("%s%zu %s (%s)", comma, changes->counts[i], words[i], size);
        comma = ", ";
    }
    putchar('\n');
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void print_json(const cli_changes *changes)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_bool(&writer, "equal", !cli_changes_any(changes));
    for (int i = 0; i < CHANGES; i++) {
        cli_json_open(&writer, words[i], '[');
        for (size_t j = 0; j < changes->count; j++)
            if (changes->tensors[j].change == i)
                cli_json_put_text(&writer, NULL, changes->tensors[j].name);
        cli_json_close(&writer, ']');
    }
    cli_json_open(&writer, "relative", '{');
    for (size_t j = 0; j < changes->count; j++)
        if (changes->tensors[j].change == LIG_CHANGE_BYTES)
            cli_json_put_double(&writer, changes->tensors[j].name, changes->tensors[j].relative);
    cli_json_close(&writer, '}');
    cli_json_open(&writer, "bytes", '{');
    for (int i = 0; i < CHANGES; i++)
        cli_json_put_u64(&writer, words[i], changes->bytes[i]);
    cli_json_close(&writer, '}');
    cli_json_close(&writer, '}');
}

/* --- two models ------------------------------------------------------------------------------ */

/* The second word as a model of the first one's store, if it can be; LIG_E_NOTFOUND otherwise. */
static lig_status resolve_same_store(cli_side *b, const cli_side *a, const cli_place *place,
                                     const char *word)
{
    size_t bytes = strlen(place->uri);
    if (a->store == NULL)
        return LIG_E_NOTFOUND;
    if (strncmp(word, place->uri, bytes) == 0 && word[bytes] == '#')
        return cli_side_resolve(b, a->store, word + bytes + 1);
    return cli_side_resolve(b, a->store, word);
}

static lig_status open_other(cli_side *b, const cli_place *place, const char *word)
{
    cli_place other;
    LIG_TRY(cli_place_parse(&other, word));
    lig_status status = LIG_OK;
    if (other.kind == CLI_STORE && other.name == NULL) { /* the same name in another store */
        if (place->name == NULL || cli_place_open(&other, "r", &b->store) != LIG_OK)
            status = lig_fail(LIG_E_NOTFOUND,
                              "'%s' is neither a model of '%s' nor a store or file that can be "
                              "read",
                              word, place->uri);
        else
            status = cli_side_resolve(b, b->store, place->name);
    } else {
        status = cli_side_open(b, &other);
    }
    cli_place_fini(&other);
    return status;
}

static lig_status open_sides(cli_side *a, cli_side *b, const cli_place *place, const char *word)
{
    LIG_TRY(cli_side_open(a, place));
    lig_status status = resolve_same_store(b, a, place, word);
    if (status != LIG_E_NOTFOUND)
        return status;
    *b = (cli_side){0};
    return open_other(b, place, word);
}

static lig_status compare_models(const cli_call *call, const cli_place *place, int *different)
{
    cli_side a = {0}, b = {0};
    cli_changes changes;
    lig_status status = open_sides(&a, &b, place, call->words[1]);
    if (status == LIG_OK)
        status = cli_changes_find(&changes, &a, &b);
    if (status == LIG_OK) {
        *different = cli_changes_any(&changes);
        if (call->json)
            print_json(&changes);
        else
            status = print_table(&changes, cli_has(call, "all"));
        if (status == LIG_OK && !call->json)
            print_sums(&changes);
        cli_changes_fini(&changes);
    }
    cli_side_close(&b, a.store);
    cli_side_close(&a, NULL);
    return status;
}

/* --- two stores ------------------------------------------------------------------------------ */

typedef struct stores {
    const cli_call *call;
    lig_store *a, *b;
    char **a_names, **b_names; /* sorted */
    size_t a_count, b_count;
    cli_table *table;
    cli_json_writer *writer;
    size_t counts[CHANGES];
} stores;

static lig_status tell_model(stores *self, const char *name, int change, const cli_changes *changes)
{
    char tensors[24] = "", relative[32] = "";
    double most = 0;
    self->counts[change]++;
    for (size_t i = 0; changes != NULL && i < changes->count; i++)
        most = fmax(most, changes->tensors[i].relative);
    if (self->writer != NULL) {
        cli_json_open(self->writer, NULL, '{');
        cli_json_put_text(self->writer, "name", name);
        cli_json_put_text(self->writer, "change", words[change]);
        if (change == LIG_CHANGE_BYTES)
            cli_json_put_double(self->writer, "relative", most);
        cli_json_close(self->writer, '}');
        return LIG_OK;
    }
    if (change == LIG_CHANGE_NONE && !cli_has(self->call, "all"))
        return LIG_OK;
    if (change == LIG_CHANGE_BYTES) {
        snprintf(tensors, sizeof tensors, "%zu of %zu",
                 changes->count - changes->counts[LIG_CHANGE_NONE], changes->count);
        snprintf(relative, sizeof relative, "%.3g", most);
    }
    return cli_table_add(self->table, (const char *[]){name, words[change], tensors, relative});
}

static lig_status compare_named(stores *self, const char *name)
{
    cli_side a = {0}, b = {0};
    cli_changes changes;
    lig_status status = cli_side_resolve(&a, self->a, name);
    if (status == LIG_OK)
        status = cli_side_resolve(&b, self->b, name);
    if (status == LIG_OK)
        status = cli_changes_find(&changes, &a, &b);
    if (status == LIG_OK) {
        status = tell_model(
            self, name, cli_changes_any(&changes) ? LIG_CHANGE_BYTES : LIG_CHANGE_NONE, &changes);
        cli_changes_fini(&changes);
    }
    cli_side_close(&b, self->b);
    cli_side_close(&a, self->a);
    return status;
}

static lig_status compare_names(stores *self)
{
    size_t i = 0, j = 0;
    while (i < self->a_count || j < self->b_count) {
        int order = i == self->a_count   ? 1
                    : j == self->b_count ? -1
                                         : strcmp(self->a_names[i], self->b_names[j]);
        if (order == 0)
            LIG_TRY(compare_named(self, self->a_names[i]));
        else
            LIG_TRY(order < 0 ? tell_model(self, self->a_names[i], LIG_CHANGE_REMOVED, NULL)
                              : tell_model(self, self->b_names[j], LIG_CHANGE_ADDED, NULL));
        i += order <= 0;
        j += order >= 0;
    }
    return LIG_OK;
}

static int is_different(const stores *self)
{
    return self->counts[LIG_CHANGE_BYTES] > 0 || self->counts[LIG_CHANGE_REMOVED] > 0 ||
           self->counts[LIG_CHANGE_ADDED] > 0;
}

static lig_status print_stores(stores *self)
{
    static const cli_column columns[] = {
        {"MODEL", 0, 1}, {"CHANGE", 0, 0}, {"TENSORS", 1, 0}, {"RELATIVE", 1, 0}};
    cli_json_writer writer = {.file = stdout};
    const char *comma = "";
    LIG_TRY(cli_table_create(&self->table, columns, 4));
    self->writer = self->call->json ? &writer : NULL;
    if (self->writer != NULL)
        cli_json_open(&writer, NULL, '[');
    lig_status status = compare_names(self);
    if (self->writer != NULL) {
        cli_json_close(&writer, ']');
    } else if (status == LIG_OK) {
        if (is_different(self) || cli_has(self->call, "all"))
            cli_table_print(self->table, stdout);
        for (int i = 0; i < CHANGES; i++)
            if (self->counts[i] > 0) {
                printf("%s%zu %s", comma, self->counts[i], words[i]);
                comma = ", ";
            }
        putchar('\n');
    }
    cli_table_destroy(self->table);
    return status;
}

static lig_status compare_stores(const cli_call *call, const cli_place *a, const cli_place *b,
                                 int *different)
{
    stores self = {.call = call};
    lig_status status = cli_place_open(a, "r", &self.a);
    if (status == LIG_OK)
        status = cli_place_open(b, "r", &self.b);
    if (status == LIG_OK)
        status = cli_place_names(a, self.a, "name", &self.a_names, &self.a_count);
    if (status == LIG_OK)
        status = cli_place_names(b, self.b, "name", &self.b_names, &self.b_count);
    if (status == LIG_OK)
        status = print_stores(&self);
    *different = is_different(&self);
    cli_names_destroy(self.a_names, self.a_count);
    cli_names_destroy(self.b_names, self.b_count);
    lig_store_close(self.b);
    lig_store_close(self.a);
    return status;
}

/* --- command --------------------------------------------------------------------------------- */

static int run_places(cli_call *call, const cli_place *a)
{
    cli_place b;
    int different = 0;
    lig_status status;
    if (a->kind != CLI_STORE || a->name != NULL) {
        status = compare_models(call, a, &different);
    } else {
        status = cli_place_parse(&b, call->words[1]);
        if (status == LIG_OK && (b.kind != CLI_STORE || b.name != NULL)) {
            cli_place_fini(&b);
            return cli_misused(call, "'%s' does not name a model: use STORE#NAME", call->words[0]);
        }
        if (status == LIG_OK) {
            status = compare_stores(call, a, &b, &different);
            cli_place_fini(&b);
        }
    }
    if (status == LIG_OK)
        return different ? DIFFERENT : SAME;
    cli_failed();
    return TROUBLE;
}

static int run(cli_call *call)
{
    cli_place a;
    if (cli_place_parse(&a, call->words[0]) != LIG_OK) {
        cli_failed();
        return TROUBLE;
    }
    int status = run_places(call, &a);
    cli_place_fini(&a);
    return status;
}

static const cli_flag flags[] = {
    {"all", 'a', NULL, "also list equal tensors and models"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_diff = {
    .name = "diff",
    .usage = "STORE#NAME|FILE NAME|STORE[#NAME]|FILE [options] | STORE STORE",
    .summary = "Compares two models, in stores or files, or two stores",
    .details =
        "The second model is a NAME in the first one's store, STORE#NAME, a STORE (the same name\n"
        "in it), or a file. RELATIVE is the size of the change: |b - a| / |a|, Euclidean. Only\n"
        "tensors are compared, not metrics or tags. Models of one store are compared by\n"
        "fingerprint, and only the tensors that changed are read.\n"
        "Exit status: 0 (equal), 1 (different), 2 (failure or wrong usage).",
    .flags = flags,
    .word_min = 2,
    .word_max = 2,
    .run = run,
};
