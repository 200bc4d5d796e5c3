/* Declarations shared by the .safetensors reader and writer. */
#ifndef CLI_SAFETENSORS_H
#define CLI_SAFETENSORS_H

#include <stdint.h>

#define CLI_SAFETENSORS_HEADER_MAX 100000000u

/* Keys of __metadata__ that are not tags. */
#define CLI_METRICS_KEY "ligament.metrics"
#define CLI_META_KEY "ligament.meta"
#define CLI_STRUCTURE_KEY "ligament.structure"
#define CLI_GRAPHS_KEY "ligament.graphs"

typedef struct cli_safetensors_dtype {
    const char *name;
    uint32_t dtype;
} cli_safetensors_dtype;

/* Ends with a NULL name. */
const cli_safetensors_dtype *cli_safetensors_dtypes(void);

#endif
