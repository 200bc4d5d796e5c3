/* The contents of a store, in a few lines. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include "cli.h"

/* Prints it, or writes a JSON object if `writer` is not NULL. `index`: how many summaries or models
 * were printed before. */
lig_status cli_summary(lig_store *store, struct cli_json_writer *writer, size_t index);

#endif
