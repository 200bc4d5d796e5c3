/* Serialised graphs, presented as public structs. */
#ifndef LIGI_SAVED_GRAPHS_H
#define LIGI_SAVED_GRAPHS_H

#include <ligament/store.h>

/* Parses a copy of bytes that ligi_graphs_put wrote; LIG_E_CORRUPT if they are invalid. Signatures
 * are hashed. lig_graphs_destroy. */
lig_status ligi_graphs_show(const void *bytes, size_t size, lig_graph **graphs, size_t *count);

#endif
