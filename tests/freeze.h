/* Stops a child for tests of peers that say nothing. */
#ifndef FREEZE_H
#define FREEZE_H

#include "base/test.h"

#include <signal.h>
#include <sys/wait.h>

/* It stands still when this returns: until all of its threads have heard of it, one may still
 * answer. */
static inline void freeze(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

#endif
