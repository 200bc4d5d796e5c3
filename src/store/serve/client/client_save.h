/* Saves into a served store: the client describes the plan, and the server requests the data it
 * lacks. */
#ifndef LIGI_CLIENT_SAVE_H
#define LIGI_CLIENT_SAVE_H

#include "store/handle.h"
#include "store/save/save_source.h"

/* Members of ligi_remote_ops. */
lig_status ligi_client_save_begin(lig_store *store, ligi_plan *plan, int in_parts);
lig_status ligi_client_save_run(lig_store *store, ligi_plan *plan, const ligi_source *source);
lig_status ligi_client_join(lig_store *store, const char *model, const lig_part_data *parts,
                            size_t count, const lig_save_options *options);

#endif
