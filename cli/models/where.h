/* A condition on models, as in `ligament ls --where 'val_acc > 0.9 and tag.run = a'`.
 *
 *     condition  = test { ("and" | "or") test }      "and" binds tighter than "or"
 *     test       = "not" test | "(" condition ")" | FIELD [ operator VALUE ]
 *     operator   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "~"
 *
 * FIELD is name, parent, created, bytes, own_bytes, tensors, tag.NAME, metric.NAME, or just a
 * metric's name. A FIELD without an operator is true if the model has it. "~" matches a pattern
 * with * ? [..].
 * Names and values may be quoted with ' or ". A model that lacks a field fails every comparison
 * with it. */
#ifndef CLI_WHERE_H
#define CLI_WHERE_H

#include <ligament/ligament.h>

typedef struct cli_where cli_where;

/* LIG_E_INVALID with the position of what is wrong. Returns *where (cli_where_destroy). */
lig_status cli_where_parse(const char *text, cli_where **where);
void cli_where_destroy(cli_where *where);

int cli_where_holds(const cli_where *where, const lig_model *model);

/* The metrics and tags that the condition mentions, in order: 1 and the name, which is borrowed,
 * or 0 past the last. */
int cli_where_mentions(const cli_where *where, size_t index, int *is_tag, const char **name);

#endif
