/* Prints the address and the bytes of each tensor to stdout and stores nothing; a load leaves the
 * tensors unchanged. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <ligament/backend.h>

#include "base/error.h"

/* The lines of one call stay together: other threads print too. */
static lig_status print_list(const char *verb, const char *set, const lig_tensor *tensors,
                             size_t count)
{
    flockfile(stdout);
    printf("%s %s: %zu tensors\n", verb, set, count);
    for (size_t i = 0; i < count; i++)
        printf("  %p %12" PRIu64 " bytes  %s\n", tensors[i].data, tensors[i].bytes,
               tensors[i].name);
    int failed = fflush(stdout) != 0 || ferror(stdout);
    int number = errno;
    funlockfile(stdout);
    if (failed)
        return ligi_fail_errno(number, "backend print: cannot write to stdout");
    return LIG_OK;
}

static lig_status print_save(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    (void)self;
    return print_list("save", set, tensors, count);
}

static lig_status print_load(void *self, const char *set, const lig_tensor *tensors, size_t count)
{
    (void)self;
    return print_list("load", set, tensors, count);
}

extern const lig_backend_ops ligi_backend_print;
const lig_backend_ops ligi_backend_print = {
    .flags = LIG_BACKEND_DEVICE,
    .save = print_save,
    .load = print_load,
};
