#include "batch.h"
#include "output/tree_drawing.h"

#include <stdlib.h>
#include <string.h>

typedef lig_status draw_fn(const cli_tree *tree, const char *title, FILE *file);

static lig_status draw_dot(const cli_tree *tree, const char *title, FILE *file)
{
    (void)title;
    return cli_tree_dot(tree, file);
}

static const struct {
    const char *flag;
    draw_fn *draw;
} drawings[] = {{"svg", cli_tree_svg}, {"html", cli_tree_html}, {"dot", draw_dot}};
enum { DRAWINGS = sizeof drawings / sizeof drawings[0] };

static lig_status draw_to(const cli_tree *tree, const char *title, draw_fn *draw, const char *path)
{
    cli_text text;
    if (strcmp(path, "-") == 0)
        return draw(tree, title, stdout);
    LIG_TRY(cli_text_open(&text));
    LIG_TRY(cli_text_close(&text, draw(tree, title, text.file)));
    lig_status status = cli_outfile_write(path, text.data, text.bytes, 1);
    free(text.data);
    return status;
}

static void print_json(const cli_tree *tree)
{
    cli_json_writer writer = {.file = stdout};
    cli_json_open(&writer, NULL, '[');
    for (size_t i = 0; i < tree->count; i++) {
        const cli_tree_row *row = &tree->rows[i];
        cli_json_open(&writer, NULL, '{');
        cli_put_model(&writer, row->model);
        if (row->parent != CLI_NO_ROW)
            cli_json_put_u64(&writer, "parent_row", row->parent);
        cli_json_put_bool(&writer, "parent_removed", row->orphan);
        cli_json_close(&writer, '}');
    }
    cli_json_close(&writer, ']');
}

static lig_status print_tree(const cli_call *call, const cli_place *place, lig_store *store)
{
    cli_tree tree;
    int drawn = 0;
    LIG_TRY(cli_tree_read(&tree, place, store));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < DRAWINGS && status == LIG_OK; i++) {
        const char *path = cli_value(call, drawings[i].flag);
        drawn |= path != NULL;
        if (path != NULL)
            status = draw_to(&tree, call->words[0], drawings[i].draw, path);
    }
    if (status == LIG_OK && call->json)
        print_json(&tree);
    else if (status == LIG_OK && !drawn && tree.count == 0)
        fprintf(stderr, "ligament: '%s' contains no models\n", place->uri);
    else if (status == LIG_OK && !drawn)
        status = cli_tree_text(&tree, stdout);
    cli_tree_fini(&tree);
    return status;
}

static int run(cli_call *call)
{
    return cli_run_on_store(call, "r", print_tree);
}

static const cli_flag flags[] = {
    {"svg", 0, "FILE", "write an SVG drawing ('-' is standard output)"},
    {"html", 0, "FILE", "write an HTML page"},
    {"dot", 0, "FILE", "write a graph for Graphviz"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_tree = {
    .name = "tree",
    .usage = "STORE[#NAME] [options]",
    .summary = "Shows which model was derived from which",
    .details = "A name or pattern restricts the tree to matching models, their ancestors and\n"
               "descendants. A model marked with an arrow is the only child of the one above it.\n"
               "Aliases are shown in brackets. A model whose parent was removed is a root.\n"
               "Existing files are replaced.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
