#include "output/tree_drawing.h"

#include <stdlib.h>

/* The text before a name. `open[lane]`: more siblings follow in the lane to the right. */
static void put_branches(FILE *file, const cli_tree_row *row, char *open)
{
    int branch = row->parent != CLI_NO_ROW && !row->only;
    size_t bars = row->lane - (size_t)branch;
    for (size_t i = 0; i < bars; i++)
        fputs(open[i] ? "│  " : "   ", file);
    if (branch) {
        fputs(row->last ? "└─ " : "├─ ", file);
        open[bars] = (char)!row->last;
    } else if (row->only) {
        fputs("↓ ", file);
    }
    open[row->lane] = 0;
}

static lig_status name_cell(const cli_tree_row *row, char *open, char **cell)
{
    cli_text text;
    LIG_TRY(cli_text_open(&text));
    FILE *file = text.file;
    put_branches(file, row, open);
    fputs(row->model->name, file);
    if (row->aliases[0] != '\0')
        fprintf(file, " [%s]", row->aliases);
    if (row->orphan)
        fprintf(file, " (parent %s removed)", row->model->parent_name);
    LIG_TRY(cli_text_close(&text, LIG_OK));
    *cell = text.data;
    return LIG_OK;
}

static lig_status add_row(cli_table *table, const cli_tree_row *row, char *open)
{
    char size[24], own[24], date[32], metrics[1024], *name;
    LIG_TRY(name_cell(row, open, &name));
    cli_size_text(row->model->bytes, size, sizeof size);
    cli_size_text(row->model->own_bytes, own, sizeof own);
    cli_date_text(row->model->created_ns, date, sizeof date);
    cli_metrics_text(row->model, metrics, sizeof metrics);
    lig_status status = cli_table_add(table, (const char *[]){name, size, own, date, metrics});
    free(name);
    return status;
}

lig_status cli_tree_text(const cli_tree *tree, FILE *file)
{
    static const cli_column columns[] = {
        {"MODEL", 0, 1}, {"SIZE", 1, 0}, {"OWN", 1, 0}, {"CREATED", 0, 0}, {"METRICS", 0, 1}};
    cli_table *table;
    char *open;
    LIG_TRY(cli_alloc(&open, tree->count + 1, 1));
    lig_status status = cli_table_create(&table, columns, 5);
    if (status == LIG_OK) {
        for (size_t i = 0; i < tree->count && status == LIG_OK; i++)
            status = add_row(table, &tree->rows[i], open);
        if (status == LIG_OK)
            cli_table_print(table, file);
        cli_table_destroy(table);
    }
    free(open);
    return status;
}
