/* Cleans up if the launcher itself is killed: its children exit (PR_SET_PDEATHSIG), but processes
 * that they started do not. A dedicated process waits for the launcher's end and kills their
 * groups. */
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The launcher's report: which process, and its id. */
typedef struct guard_news {
    uint32_t index;
    int32_t pid;
} guard_news;

/* A group whose process the launcher has reaped must not be killed: its id may have been reused. */
static void watch(launch_job *job, int fd)
{
    guard_news news;
    ssize_t got;
    do {
        got = read(fd, &news, sizeof news);
        if (got == (ssize_t)sizeof news && news.index < job->count)
            job->processes[news.index].pid = news.pid;
    } while (got > 0 || (got < 0 && errno == EINTR));
    for (size_t i = 0; i < job->count; i++)
        if (job->processes[i].pid > 0)
            kill(-job->processes[i].pid, SIGKILL);
}

/* Closes all but the first. Kernels before 5.9 lack close_range, and C libraries before 2.34 lack a
 * wrapper. */
static void close_others(void)
{
    if (syscall(SYS_close_range, STDIN_FILENO + 1, ~0U, 0) == 0)
        return;
    long end = sysconf(_SC_OPEN_MAX);
    for (int fd = STDIN_FILENO + 1; fd < end; fd++)
        close(fd);
}

/* Keeps nothing open that a reader of the launcher's output, or of the secret, would wait for. */
static void become_guard(launch_job *job, int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    if (dup2(fd, STDIN_FILENO) < 0)
        _exit(1);
    close_others();
    watch(job, STDIN_FILENO);
    _exit(0);
}

lig_status launch_guard_start(launch_job *job)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lig_fail(LIG_E_IO, "pipe2 failed: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        become_guard(job, ends[0]);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return lig_fail(LIG_E_IO, "fork failed: %s", strerror(errno));
    }
    job->guard = pid;
    job->guard_fd = ends[1];
    return LIG_OK;
}

void launch_guard_tell(const launch_job *job, const launch_process *process, pid_t pid)
{
    guard_news news = {(uint32_t)(process - job->processes), (int32_t)pid};
    if (job->guard > 0) {
        ssize_t ignored = write(job->guard_fd, &news, sizeof news);
        (void)ignored; /* if the guard was killed, there is no guard; nothing to report */
    }
}

void launch_guard_stop(launch_job *job)
{
    if (job->guard <= 0)
        return;
    close(job->guard_fd);
    while (waitpid(job->guard, NULL, 0) < 0 && errno == EINTR)
        ;
    job->guard = 0;
}
