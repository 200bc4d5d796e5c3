/* A lineage tree as text, SVG, HTML or DOT. */
#ifndef CLI_TREE_DRAWING_H
#define CLI_TREE_DRAWING_H

#include "models/lineage_tree.h"

/* A table whose first column is the tree. "↓" marks the only child of the model above it. */
lig_status cli_tree_text(const cli_tree *tree, FILE *file);
/* One row for each model: lanes, name, a bar with the size and what the model wrote itself,
 * metrics and tags. `title` is escaped. */
lig_status cli_tree_svg(const cli_tree *tree, const char *title, FILE *file);
/* The same as a page without scripts. */
lig_status cli_tree_html(const cli_tree *tree, const char *title, FILE *file);
/* A digraph for Graphviz. */
lig_status cli_tree_dot(const cli_tree *tree, FILE *file);

#endif
