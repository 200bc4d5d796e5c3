/* Formats that need Python libraries are read and written by `python -m ligament.convert`, which
 * replaces this process. */
#ifndef CLI_PYTHON_H
#define CLI_PYTHON_H

#include "cli.h"

/* 1 for a path whose format needs Python: .pt, .pth, .ckpt, .bin, .keras, .h5, .hdf5, or a folder
 * of torch.distributed.checkpoint. An existing store of such a name is a store. */
int cli_needs_python(const char *path);

/* Runs the interpreter that LIGAMENT_PYTHON names, else the one beside the program, else that of
 * the active virtual environment, with `arguments` (ends with NULL) after `-m ligament.convert`.
 * Returns only on failure. */
lig_status cli_run_python(const char *const *arguments, size_t count);

#endif
