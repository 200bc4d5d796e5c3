/* The graphs of a model as JSON, in the __metadata__ of .safetensors:
 *     [{"kind": K, "layers": [NAME, HASH, ...], "calls": [[LAYER, CALL, OUTPUT, ...], ...]}, ...]
 * A hash is 32 hexadecimal digits; each call lists its layer and its inputs. */
#ifndef CLI_GRAPHS_JSON_H
#define CLI_GRAPHS_JSON_H

#include "formats/json.h"

#include <ligament/ligament.h>

typedef struct cli_graphs { /* embedded; zero-initialised is valid and empty */
    lig_graph *graphs;
    size_t count;
    void **memory; /* arrays of the graphs that cli_graphs_parse made */
    size_t memory_count;
    cli_json *json;
} cli_graphs;

void cli_graphs_put(cli_json_writer *writer, const lig_graph *graphs, size_t count);
/* Copies the text. LIG_E_CORRUPT if it is not such JSON or an index is out of range; cycles are
 * found when the graphs are saved. */
lig_status cli_graphs_parse(cli_graphs *graphs, const char *text);
void cli_graphs_fini(cli_graphs *graphs);

#endif
