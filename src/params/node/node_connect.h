/* How the nodes of a job come together and part. */
#ifndef LIGI_NODE_CONNECT_H
#define LIGI_NODE_CONNECT_H

#include "params/state/node_state.h"

/* Opens the endpoint, joins the group, makes the tables, meets the others. What it has made when it
 * fails, ligi_node_part and close undo. */
lig_status ligi_node_gather(lig_params *node, const lig_params_options *options);
/* Ends links and leaves the group, without waiting. */
void ligi_node_part(lig_params *node);
void ligi_node_free_peers(lig_params *node);

/* params_open.c */
lig_status ligi_node_make_tables(lig_params *node, const lig_params_options *options,
                                 const ligi_region_source *source);

/* node_receive.c: what the hooks bring. */
lig_status ligi_posts_head(ligi_peer *peer, const ligi_arrival *arrival, ligi_landing *landing);
void ligi_posts_arrived(ligi_peer *peer);
void ligi_posts_sent(lig_params *node, void *token);
void ligi_parcels_fini(lig_params *node);

#endif
