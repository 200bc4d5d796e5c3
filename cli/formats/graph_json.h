/* A graph for the partitioner, from JSON. */
#ifndef CLI_GRAPH_JSON_H
#define CLI_GRAPH_JSON_H

#include <ligament/pipe.h>

#include "formats/json.h"

/* Owns the memory that `graph` points to. */
typedef struct cli_graph {
    lig_pipe_graph graph;
    cli_json *json;
    void *block[24]; /* arrays to be freed */
    size_t block_count;
} cli_graph;

/* Reads {"nodes": [{"name", "forward_ms", ...}], "edges": [[from, to], ...]} and the optional
 * members "edge_bytes", "edge_values", "groups", "apart", "ties". Missing values are 0, unknown
 * members are ignored. */
lig_status cli_graph_read(const char *path, cli_graph *out);
void cli_graph_fini(cli_graph *graph);

#endif
