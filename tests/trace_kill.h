/* Kills a process at a chosen system call: its threads run under ptrace, each system call that
 * changes files counts as two steps (about to begin, ended), and the process is killed at the step
 * that is asked for. Memory shared with other processes is then as it was left at that moment.
 *
 * The process is a child of the caller. The caller has called trace_prepare once. */
#ifndef TRACE_KILL_H
#define TRACE_KILL_H

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { TRACE_THREADS_MAX = 64, TRACE_LOG_MAX = 4096 };
#define TRACE_WAIT_NS INT64_C(60000000000)

typedef struct trace_thread {
    pid_t id;
    long call; /* the system call it is in; -1: one that does not count */
    uint64_t arguments[6];
    int refused; /* it is not made, and fails */
} trace_thread;

typedef struct trace_step {
    long call;
    int ended; /* or about to begin */
} trace_step;

typedef struct trace trace;
struct trace {
    pid_t process;
    /* Sees every step, with the result when the call has ended; may be NULL. */
    void (*observe)(trace *self, trace_thread *thread, int ended, int64_t result);
    void *observer;
    int reads; /* count as well */
    int opens; /* likewise, of files that are there */
    trace_thread threads[TRACE_THREADS_MAX];
    size_t count;
    size_t step, kill_at; /* steps so far; SIZE_MAX: never */
    trace_step log[TRACE_LOG_MAX];
};

enum trace_end { TRACE_READABLE, TRACE_STOPPED, TRACE_KILLED, TRACE_FAILED };

static inline void trace_ignore(int signal)
{
    (void)signal;
}

/* The mask under which SIGCHLD interrupts a wait. */
static inline sigset_t trace_prepare(void)
{
    struct sigaction action = {.sa_handler = trace_ignore};
    sigset_t child, before;
    sigaction(SIGCHLD, &action, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    sigdelset(&before, SIGCHLD);
    return before;
}

static inline int trace_counts(const trace *self, const struct __ptrace_syscall_info *info)
{
    static const long calls[] = {
#ifdef SYS_rename /* not on newer architectures */
        SYS_rename,         SYS_unlink,    SYS_rmdir,    SYS_link,           SYS_symlink,
        SYS_mkdir,
#endif
        SYS_write,          SYS_writev,    SYS_pwrite64, SYS_pwritev,        SYS_pwritev2,
        SYS_fsync,          SYS_fdatasync, SYS_msync,    SYS_renameat2,      SYS_renameat,
        SYS_unlinkat,       SYS_linkat,    SYS_mkdirat,  SYS_ftruncate,      SYS_fallocate,
        SYS_flock,          SYS_close,     SYS_fcntl,    SYS_io_uring_enter, SYS_symlinkat,
        SYS_copy_file_range};
    long call = (long)info->entry.nr;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i] == call)
            return 1;
    if (self->reads && (call == SYS_pread64 || call == SYS_preadv || call == SYS_read))
        return 1;
    return call == SYS_openat && (self->opens || info->entry.args[2] & O_CREAT);
}

/* The call that the thread is about to make is not made; when it has ended, it has failed with
 * `number`. 0 where that is not possible. */
static inline int trace_refuse(trace_thread *thread, int ended, int number)
{
#ifdef __x86_64__
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread->id, NULL, &registers) != 0)
        return 0;
    if (ended)
        registers.rax = (unsigned long long)-number;
    else
        registers.orig_rax = (unsigned long long)-1;
    return ptrace(PTRACE_SETREGS, thread->id, NULL, &registers) == 0;
#else
    (void)thread, (void)ended, (void)number;
    return 0;
#endif
}

static inline trace_thread *trace_find(trace *self, pid_t id)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->threads[i].id == id)
            return &self->threads[i];
    return NULL;
}

static inline void trace_add(trace *self, pid_t id)
{
    if (self->count < TRACE_THREADS_MAX && trace_find(self, id) == NULL)
        self->threads[self->count++] = (trace_thread){.id = id, .call = -1};
}

/* Takes hold of every thread that the process has. An errno value; EPERM where ptrace is not
 * permitted. */
static inline int trace_begin(trace *self, pid_t process)
{
    char path[64];
    *self = (trace){.process = process};
    snprintf(path, sizeof path, "/proc/%ld/task", (long)process);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno;
    int failed = 0;
    for (struct dirent *entry; !failed && (entry = readdir(folder)) != NULL;) {
        pid_t id = (pid_t)atol(entry->d_name);
        if (id == 0)
            continue;
        if (ptrace(PTRACE_SEIZE, id, NULL,
                   (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) !=
                0 ||
            ptrace(PTRACE_INTERRUPT, id, NULL, NULL) != 0)
            failed = errno;
        else
            trace_add(self, id);
    }
    closedir(folder);
    return failed;
}

/* 1 when the step wrote to a file: what it did to memory that is shared with others comes later. */
static inline int trace_wrote(const trace_step *step)
{
    return step->ended && (step->call == SYS_write || step->call == SYS_pwrite64 ||
                           step->call == SYS_writev || step->call == SYS_pwritev);
}

/* 1 when this stop is the step at which the process is to die. */
static inline int trace_at_call(trace *self, trace_thread *thread)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->id, (void *)sizeof info, &info) <= 0)
        return 0;
    int ended = info.op == PTRACE_SYSCALL_INFO_EXIT;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
        thread->call = trace_counts(self, &info) ? (long)info.entry.nr : -1;
    else if (!ended)
        return 0;
    if (thread->call < 0)
        return 0;
    if (!ended)
        memcpy(thread->arguments, info.entry.args, sizeof thread->arguments);
    if (self->observe)
        self->observe(self, thread, ended, ended ? info.exit.rval : 0);
    if (self->step < TRACE_LOG_MAX)
        self->log[self->step] = (trace_step){thread->call, ended};
    return self->step++ == self->kill_at;
}

/* 1 when the process is to die here; otherwise the thread continues. */
static inline int trace_stopped(trace *self, trace_thread *thread, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    unsigned long made = 0;
    if (signal == (SIGTRAP | 0x80)) {
        if (trace_at_call(self, thread))
            return 1;
        signal = 0;
    } else if (event != 0) {
        if (event == PTRACE_EVENT_CLONE && ptrace(PTRACE_GETEVENTMSG, thread->id, NULL, &made) == 0)
            trace_add(self, (pid_t)made);
        signal = 0;
    }
    ptrace(PTRACE_SYSCALL, thread->id, NULL, (void *)(uintptr_t)signal);
    return 0;
}

/* Handles what has happened so far. 1 when the process is to die. Threads that ended are left out.
 */
static inline int trace_poll(trace *self)
{
    int status;
    for (size_t i = 0; i < self->count;) {
        pid_t id = waitpid(self->threads[i].id, &status, WNOHANG | __WALL);
        if (id == 0)
            i++;
        else if (id > 0 && WIFSTOPPED(status)) {
            if (trace_stopped(self, &self->threads[i], status))
                return 1;
        } else
            self->threads[i] = self->threads[--self->count];
    }
    return 0;
}

/* Waits for a child to change, or for `fd` to be readable: 1 then. */
static inline int trace_wait(int fd, const sigset_t *mask, int64_t end_ns)
{
    int64_t left_ns = end_ns - ligi_now_ns();
    struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return left_ns > 0 && ppoll(&ready, 1, &left, mask) > 0;
}

/* Kills what is left of the process, and waits until it is gone. */
static inline void trace_kill(trace *self, const sigset_t *mask)
{
    int64_t end_ns = ligi_now_ns() + TRACE_WAIT_NS;
    self->kill_at = SIZE_MAX;
    if (self->count == 0) /* ptrace was refused: it is a child all the same */
        trace_add(self, self->process);
    kill(self->process, SIGKILL);
    while (trace_poll(self), self->count && ligi_now_ns() < end_ns)
        trace_wait(-1, mask, end_ns);
}

/* Lets the process run until `fd` is readable, it dies, or it stands at step `stop_at`: its thread
 * stays there until trace_continue. */
static inline enum trace_end trace_until(trace *self, int fd, size_t stop_at, const sigset_t *mask)
{
    int64_t end_ns = ligi_now_ns() + TRACE_WAIT_NS;
    self->kill_at = stop_at;
    while (ligi_now_ns() < end_ns) {
        if (trace_poll(self))
            return TRACE_STOPPED;
        if (self->count == 0)
            return TRACE_FAILED;
        if (trace_wait(fd, mask, end_ns))
            return TRACE_READABLE;
    }
    return TRACE_FAILED;
}

/* Lets the threads that stand go on; those that do not stand answer ESRCH. */
static inline void trace_continue(trace *self)
{
    for (size_t i = 0; i < self->count; i++)
        ptrace(PTRACE_SYSCALL, self->threads[i].id, NULL, NULL);
}

/* Lets the process run until `fd` is readable, it dies, or it has been killed at step `kill_at`. */
static inline enum trace_end trace_run(trace *self, int fd, size_t kill_at, const sigset_t *mask)
{
    enum trace_end end = trace_until(self, fd, kill_at, mask);
    if (end != TRACE_STOPPED)
        return end;
    trace_kill(self, mask);
    return TRACE_KILLED;
}

#endif
