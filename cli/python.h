/* Formats that need Python libraries are read and written by `python -m ligament.convert.files`,
 * which replaces this process; .npz files are read and written by a child process. */
#ifndef CLI_PYTHON_H
#define CLI_PYTHON_H

#include "batch.h"

#include <sys/types.h>

/* 1 for a path whose format needs Python: .pt, .pth, .ckpt, .bin, .keras, .h5, .hdf5, or a folder
 * of torch.distributed.checkpoint. An existing store of such a name is a store. */
int cli_needs_python(const char *path);
/* The error for such a path where a store or a file of the program's own formats is expected. */
lig_status cli_refuse_foreign(const char *path);

/* Runs the interpreter that LIGAMENT_PYTHON names, else the one next to the program, else that
 * of the active virtual environment, with `arguments` after `-m ligament.convert.files`.
 * Modules in the working directory are not imported. Returns only on failure. */
lig_status cli_run_python(const char *const *arguments, size_t count);

typedef struct cli_python { /* a child process */
    pid_t pid;
    int fd; /* a socket, the child's standard input */
} cli_python;

/* Starts `python -m MODULE ARGUMENTS` with the same interpreter. `output` becomes its standard
 * output; it is killed if this process ends. */
lig_status cli_python_start(cli_python *python, const char *module, const char *const *arguments,
                            size_t count, int output);
/* Reads the child's answer from the socket into batch->json and waits for its end. An answer
 * {"status": N, "error": TEXT} becomes this failure. */
lig_status cli_python_finish(cli_python *python, cli_batch *batch);
/* Kills the child; the error message stays. */
void cli_python_stop(cli_python *python);

#endif
