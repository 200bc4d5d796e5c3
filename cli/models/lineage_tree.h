/* The models of a store as a forest, by parent. Rows are in preorder, siblings by age. An only
 * child stays in the lane of its parent, so that a chain of checkpoints is one straight line;
 * siblings begin a lane to the right. */
#ifndef CLI_LINEAGE_TREE_H
#define CLI_LINEAGE_TREE_H

#include "cli.h"

#define CLI_NO_ROW SIZE_MAX

typedef struct cli_tree_row {
    const lig_model *model;
    size_t parent; /* index of a row; CLI_NO_ROW for a root */
    size_t lane;
    int only;      /* the only child of its parent */
    int last;      /* the last child of its parent */
    int orphan;    /* the parent was removed or replaced; model->parent_name was its name */
    char *aliases; /* "prod, best"; "" for none */
} cli_tree_row;

typedef struct cli_tree { /* embedded */
    cli_tree_row *rows;
    size_t count;
    lig_model **models;
    size_t model_count;
} cli_tree;

/* All models, or if the place has a name or pattern: those it denotes with their ancestors and
 * descendants. */
lig_status cli_tree_read(cli_tree *tree, const cli_place *place, lig_store *store);
void cli_tree_fini(cli_tree *tree);

#endif
