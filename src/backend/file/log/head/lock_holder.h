/* Describes the holder of a lock with the kernel's information about the process. */
#ifndef LIGI_LOCK_HOLDER_H
#define LIGI_LOCK_HOLDER_H

#include <stddef.h>

/* 1 when it was stopped (SIGSTOP, a debugger); 0 also if it is not visible from here. */
int ligi_process_stopped(int pid);
/* "process 12 (python, stopped)"; "another process" if it is unknown. */
void ligi_process_name(int pid, char *text, size_t bytes);

#endif
