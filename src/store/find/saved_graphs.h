/* Graphs as bytes, shown as those of a caller. */
#ifndef LIGI_SAVED_GRAPHS_H
#define LIGI_SAVED_GRAPHS_H

#include <ligament/store.h>

/* From bytes that ligi_graphs_put wrote, which are copied; LIG_E_CORRUPT when they are not.
 * Signatures are hashed. lig_graphs_destroy. */
lig_status ligi_graphs_show(const void *bytes, size_t size, lig_graph **graphs, size_t *count);

#endif
