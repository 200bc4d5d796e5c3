/* Searches through a server. */
#ifndef LIGI_CLIENT_FIND_H
#define LIGI_CLIENT_FIND_H

#include "store/handle.h"
#include "store/search/layer_graph.h"

/* A member of ligi_remote_ops. */
lig_status ligi_client_find(lig_store *store, const ligi_layers *asking, const char *like,
                            const lig_find_options *options, lig_match ***matches, size_t *count);

#endif
