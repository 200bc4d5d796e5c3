/* The plain values of a saved tree, such as epoch and learning rate. */
#ifndef CLI_PLAIN_VALUES_H
#define CLI_PLAIN_VALUES_H

#include <ligament/base.h>

typedef struct cli_plain_visit {
    /* `path` is "optimizer.lr", `json` the value: a number, a quoted text, true, false, null or,
     * for a complex number, an array of two numbers. Bytes are base64; what JSON has no number for
     * is a text. */
    void (*value)(void *context, const char *path, const char *json);
    void *context;
} cli_plain_visit;

/* Visits the values in the order of the tree. `structure` is a model's, "" for a flat dict of
 * tensors. Paths beyond 1000 bytes are truncated. */
lig_status cli_plain_values(const char *structure, const cli_plain_visit *visit);

#endif
