/* The metrics and tags that the models of a store have, so that a mistyped name is reported with
 * the names there are. */
#ifndef CLI_KNOWN_NAMES_H
#define CLI_KNOWN_NAMES_H

#include <ligament/ligament.h>

typedef struct cli_known { /* embedded; both lists are sorted and without duplicates */
    const char **metrics, **tags;
    size_t metric_count, tag_count;
    lig_model **models; /* owns the names */
    size_t model_count;
} cli_known;

lig_status cli_known_read(cli_known *names, lig_store *store);
void cli_known_fini(cli_known *names);
/* LIG_E_NOTFOUND, with the known names, if no model has that metric or tag. A store without models
 * has nothing to compare with: LIG_OK. */
lig_status cli_known_check(const cli_known *names, int is_tag, const char *name, const char *uri);

#endif
