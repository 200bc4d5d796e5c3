/* Two models, tensor by tensor: of one store, of two, or in files. */
#ifndef CLI_MODEL_CHANGES_H
#define CLI_MODEL_CHANGES_H

#include "batch.h"

/* One of the two models. Embedded; zero-initialised is valid and empty. */
typedef struct cli_side {
    lig_store *store; /* NULL for a file */
    lig_ref *ref;
    cli_batch file;
    const lig_tensor *tensors; /* descriptions; those of a file have data */
    size_t count;
    lig_tensor *described; /* owns the descriptions of a stored model */
} cli_side;

lig_status cli_side_open(cli_side *side, const cli_place *place);
/* Borrows the store, which may be that of the other side. */
lig_status cli_side_resolve(cli_side *side, lig_store *store, const char *name);
void cli_side_close(cli_side *side, const lig_store *borrowed);

typedef struct cli_change {
    const char *name;
    int change;              /* enum lig_change */
    const lig_tensor *a, *b; /* NULL where the model lacks it */
    double relative;         /* LIG_CHANGE_BYTES: |b - a| / |a| */
} cli_change;

typedef struct cli_changes { /* embedded; borrows both sides */
    cli_change *tensors;     /* those of a in its order, then those that only b has */
    size_t count;
    size_t counts[5]; /* by enum lig_change */
    uint64_t bytes[5];
} cli_changes;

/* Models of one store are compared by fingerprint, and only changed tensors are read; otherwise all
 * bytes are. */
lig_status cli_changes_find(cli_changes *changes, const cli_side *a, const cli_side *b);
int cli_changes_any(const cli_changes *changes);
void cli_changes_fini(cli_changes *changes);

#endif
