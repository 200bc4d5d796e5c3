/* The tables of a node; the public calls that open and close it are in params.h. */
#ifndef LIGI_PARAMS_OPEN_H
#define LIGI_PARAMS_OPEN_H

#include "params/node/node_connect.h"

lig_status ligi_node_make_tables(lig_params *node, const lig_params_options *options,
                                 const ligi_region_source *source);

#endif
