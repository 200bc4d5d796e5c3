/* Connects the nodes of a job, and handles the loss of one. */
#ifndef LIGI_NODE_CONNECT_H
#define LIGI_NODE_CONNECT_H

#include "params/state/node.h"

/* Opens the endpoint, joins the group, creates the tables, connects to the other nodes. After a
 * failure ligi_node_leave and close release what was created. */
lig_status ligi_node_connect(lig_params *node, const lig_params_options *options);

#endif
