/* Connects the nodes of a job, and handles the loss of one. */
#ifndef LIGI_NODE_CONNECT_H
#define LIGI_NODE_CONNECT_H

#include "params/state/node_state.h"

/* Opens the endpoint, joins the group, makes the tables, meets the others. What it has made when it
 * fails, ligi_node_leave and close undo. */
lig_status ligi_node_connect(lig_params *node, const lig_params_options *options);

#endif
