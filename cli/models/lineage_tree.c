/* Parents are found by id, which survives a rename. Chains can be long, so nothing here recurses;
 * damaged records can form a cycle, whose models become roots. */
#include "models/lineage_tree.h"

#include <stdlib.h>
#include <string.h>

typedef struct family { /* of one model; indexes into the list of models */
    size_t parent, first_child, last_child, next_sibling, children;
    int shown, placed, visited;
} family;

typedef struct forest {
    lig_model **models;
    size_t count;
    size_t *by_id; /* indexes sorted by id */
    family *families;
} forest;

static int compare_ids(const void *a, const void *b, void *context)
{
    lig_model **models = context;
    uint64_t left = models[*(const size_t *)a]->id, right = models[*(const size_t *)b]->id;
    return left < right ? -1 : left > right;
}

static size_t find_id(const forest *self, uint64_t id)
{
    size_t low = 0, high = self->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->models[self->by_id[middle]]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < self->count && self->models[self->by_id[low]]->id == id ? self->by_id[low]
                                                                         : CLI_NO_ROW;
}

static void find_parents(forest *self)
{
    for (size_t i = 0; i < self->count; i++)
        self->by_id[i] = i;
    qsort_r(self->by_id, self->count, sizeof *self->by_id, compare_ids, self->models);
    for (size_t i = 0; i < self->count; i++)
        self->families[i] =
            (family){.parent = self->models[i]->parent != 0 ? find_id(self, self->models[i]->parent)
                                                            : CLI_NO_ROW,
                     .first_child = CLI_NO_ROW,
                     .last_child = CLI_NO_ROW,
                     .next_sibling = CLI_NO_ROW};
}

/* --- which models ---------------------------------------------------------------------------- */

static void show_ancestors(forest *self, size_t at)
{
    while (at != CLI_NO_ROW && !self->families[at].visited) {
        self->families[at].visited = 1;
        self->families[at].shown = 1;
        at = self->families[at].parent;
    }
}

/* Marks models whose chain of parents leads to one of `chosen`. Every model is visited at most
 * twice: the answer of a chain is kept in all its members. */
static void show_descendants(forest *self, const char *chosen)
{
    enum { UNKNOWN, YES, NO };
    for (size_t i = 0; i < self->count; i++)
        self->families[i].placed = chosen[i] ? YES : UNKNOWN;
    for (size_t i = 0; i < self->count; i++) {
        size_t end = i;
        while (end != CLI_NO_ROW && self->families[end].placed == UNKNOWN) {
            self->families[end].placed = NO; /* also ends a cycle */
            end = self->families[end].parent;
        }
        if (end == CLI_NO_ROW || self->families[end].placed != YES)
            continue;
        for (size_t at = i; at != end; at = self->families[at].parent)
            self->families[at].placed = YES;
    }
    for (size_t i = 0; i < self->count; i++) {
        self->families[i].shown |= self->families[i].placed == YES;
        self->families[i].placed = self->families[i].visited = 0;
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static lig_status choose(forest *self, const cli_place *place, lig_store *store)
{
    char **names, *chosen = NULL, *name;
    size_t name_count;
    LIG_TRY(cli_place_names(place, store, "name", &names, &name_count));
    lig_status status = cli_alloc(&chosen, self->count, 1);
    if (status == LIG_OK && name_count == 1) { /* may be an alias */
        lig_model *model;
        status = lig_store_model(store, names[0], &model);
        if (status == LIG_OK && (status = cli_format(&name, "%s", model->name)) == LIG_OK) {
            free(names[0]);
            names[0] = name;
        }
        if (status == LIG_OK)
            lig_model_destroy(model);
    }
    if (status == LIG_OK) {
        qsort(names, name_count, sizeof *names, compare_texts);
        for (size_t i = 0; i < self->count; i++) {
            const char *one = self->models[i]->name;
            chosen[i] = bsearch(&one, names, name_count, sizeof *names, compare_texts) != NULL;
            if (chosen[i])
                show_ancestors(self, i);
        }
        show_descendants(self, chosen);
    }
    free(chosen);
    cli_names_destroy(names, name_count);
    return status;
}

/* --- rows ------------------------------------------------------------------------------------ */

static void link_children(forest *self)
{
    for (size_t i = 0; i < self->count; i++) {
        family *one = &self->families[i];
        if (!one->shown || one->parent == CLI_NO_ROW || one->parent == i)
            continue;
        family *parent = &self->families[one->parent];
        if (parent->last_child == CLI_NO_ROW)
            parent->first_child = i;
        else
            self->families[parent->last_child].next_sibling = i;
        parent->last_child = i;
        parent->children++;
    }
}

static void add_row(cli_tree *tree, const forest *self, size_t at, size_t parent_row)
{
    const family *one = &self->families[at];
    int is_root = parent_row == CLI_NO_ROW;
    int only = !is_root && self->families[one->parent].children == 1;
    tree->rows[tree->count++] = (cli_tree_row){
        .model = self->models[at],
        .parent = parent_row,
        .lane = is_root ? 0 : tree->rows[parent_row].lane + !only,
        .only = only,
        .last = one->next_sibling == CLI_NO_ROW,
        .orphan = is_root && self->models[at]->parent != 0,
    };
}

/* Preorder from one root, with the row of each model in `row_of`. */
static void add_rows(cli_tree *tree, forest *self, size_t root, size_t *row_of)
{
    size_t at = root, parent_row = CLI_NO_ROW;
    for (;;) {
        self->families[at].placed = 1;
        row_of[at] = tree->count;
        add_row(tree, self, at, parent_row);
        size_t child = self->families[at].first_child;
        if (child != CLI_NO_ROW && !self->families[child].placed) {
            parent_row = row_of[at];
            at = child;
            continue;
        }
        while (at != root && self->families[at].next_sibling == CLI_NO_ROW)
            at = self->families[at].parent;
        if (at == root)
            return;
        parent_row = row_of[self->families[at].parent];
        at = self->families[at].next_sibling;
    }
}

static lig_status make_rows(cli_tree *tree, forest *self)
{
    size_t *row_of;
    LIG_TRY(cli_alloc(&tree->rows, self->count, sizeof *tree->rows));
    LIG_TRY(cli_alloc(&row_of, self->count, sizeof *row_of));
    link_children(self);
    for (size_t i = 0; i < self->count; i++)
        if (self->families[i].shown &&
            (self->families[i].parent == CLI_NO_ROW || self->families[i].parent == i))
            add_rows(tree, self, i, row_of);
    for (size_t i = 0; i < self->count; i++) /* the rest are cycles */
        if (self->families[i].shown && !self->families[i].placed) {
            tree->rows[tree->count++] =
                (cli_tree_row){.model = self->models[i], .parent = CLI_NO_ROW, .last = 1};
            self->families[i].placed = 1;
        }
    free(row_of);
    return LIG_OK;
}

static lig_status add_alias(cli_tree_row *row, const char *alias)
{
    char *text;
    LIG_TRY(cli_format(&text, "%s%s%s", row->aliases, row->aliases[0] ? ", " : "", alias));
    free(row->aliases);
    row->aliases = text;
    return LIG_OK;
}

static lig_status add_to_rows(void *context, const char *alias, const char *model)
{
    const cli_tree *tree = context;
    for (size_t i = 0; i < tree->count; i++)
        if (strcmp(tree->rows[i].model->name, model) == 0)
            LIG_TRY(add_alias(&tree->rows[i], alias));
    return LIG_OK;
}

static lig_status read_aliases(cli_tree *tree, lig_store *store)
{
    for (size_t i = 0; i < tree->count; i++)
        LIG_TRY(cli_format(&tree->rows[i].aliases, "%s", ""));
    return cli_each_alias(store, add_to_rows, tree);
}

static lig_status build(cli_tree *tree, forest *self, const cli_place *place, lig_store *store)
{
    LIG_TRY(cli_alloc(&self->by_id, self->count, sizeof *self->by_id));
    LIG_TRY(cli_alloc(&self->families, self->count, sizeof *self->families));
    find_parents(self);
    if (place->name != NULL)
        LIG_TRY(choose(self, place, store));
    else
        for (size_t i = 0; i < self->count; i++)
            self->families[i].shown = 1;
    LIG_TRY(make_rows(tree, self));
    return read_aliases(tree, store);
}

lig_status cli_tree_read(cli_tree *tree, const cli_place *place, lig_store *store)
{
    *tree = (cli_tree){0};
    LIG_TRY(lig_store_models(store, NULL, &tree->models, &tree->model_count));
    forest self = {.models = tree->models, .count = tree->model_count};
    lig_status status = build(tree, &self, place, store);
    free(self.by_id);
    free(self.families);
    if (status != LIG_OK)
        cli_tree_fini(tree);
    return status;
}

void cli_tree_fini(cli_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        free(tree->rows[i].aliases);
    free(tree->rows);
    lig_models_destroy(tree->models, tree->model_count);
    *tree = (cli_tree){0};
}
