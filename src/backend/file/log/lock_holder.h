/* Who holds a lock, in words: what the kernel says of a process. */
#ifndef LIGI_LOCK_HOLDER_H
#define LIGI_LOCK_HOLDER_H

#include <stddef.h>

/* 1 when it was stopped (SIGSTOP, a debugger); 0 also when it cannot be seen from here. */
int ligi_process_stopped(int pid);
/* "process 12 (python, stopped)"; "another process" for one that is not known. */
void ligi_process_name(int pid, char *text, size_t bytes);

#endif
