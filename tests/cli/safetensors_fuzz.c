/* Whatever the bytes are: a sentence, or tensors that lie inside them. */
#include <stdlib.h>
#include <string.h>

#include "batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli_batch batch = {0};
    if (cli_safetensors_parse(&batch, "fuzz", data, size) == LIG_OK &&
        lig_tensors_check(batch.tensors, batch.count) == LIG_OK) {
        for (size_t i = 0; i < batch.count; i++)
            for (uint64_t at = 0; at < batch.tensors[i].bytes; at++)
                sink ^= ((const uint8_t *)batch.tensors[i].data)[at];
    }
    cli_batch_fini(&batch);
    return 0;
}
