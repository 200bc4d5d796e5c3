/* The names that the sources of one `cp` have in the destination: models of two sources must not
 * replace each other. */
#ifndef CLI_COPIED_NAMES_H
#define CLI_COPIED_NAMES_H

#include "cli.h"

/* Embedded; begins as {0}. */
typedef struct cli_copied_names {
    char **names; /* those of earlier sources are sorted */
    size_t count, room, earlier;
} cli_copied_names;

/* The names that follow are of another source. */
void cli_copied_names_next(cli_copied_names *self);
/* LIG_E_EXISTS if a model of an earlier source has the name. */
lig_status cli_copied_names_add(cli_copied_names *self, const char *name);
void cli_copied_names_fini(cli_copied_names *self);

#endif
