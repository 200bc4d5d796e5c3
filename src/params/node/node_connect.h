/* Connects the nodes of a job. When one is lost the job ends, since its rows exist only in the last
 * snapshot. */
#ifndef LIGI_NODE_CONNECT_H
#define LIGI_NODE_CONNECT_H

#include "params/state/node.h"

/* Opens the endpoint, joins the group, creates the tables, connects to the other nodes. After a
 * failure close releases what was created. */
lig_status ligi_node_connect(lig_params *node, const lig_params_options *options);

extern const ligi_session_ops ligi_node_session; /* the context is the node */

#endif
