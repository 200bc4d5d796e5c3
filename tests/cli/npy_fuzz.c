/* The header of an array; its elements are never touched. */
#include "batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli_npy npy;
    cli_npy_parse(&npy, "fuzz", data, size);
    return 0;
}
