/* cp of formats that need Python: .pt, .keras, .h5 and folders of torch.distributed.checkpoint.
 * The call is checked here; `python -m ligament.convert.files` then replaces this process. */
#ifndef CLI_PYTHON_COPY_H
#define CLI_PYTHON_COPY_H

#include "cli.h"

/* 1 if a source or the destination of this call of cp needs Python. */
int cli_copy_needs_python(const cli_call *call);
/* Returns only on failure. */
lig_status cli_copy_by_python(const cli_call *call);

#endif
