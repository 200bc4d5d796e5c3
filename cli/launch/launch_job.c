#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAST_OUTPUT_NS INT64_C(1000000000) /* time to drain the pipes of a dead process */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* --- starting -------------------------------------------------------------------------------- */

/* Runs in the child until exec. A separate process group: Ctrl-C in the terminal reaches only us
 * and is forwarded once, and processes that the program starts can be terminated with it. */
static void become(char *const *words, char **environment, pid_t parent, const int pipes[3][2])
{
    sigset_t none;
    int input = pipes[2][0] >= 0 ? pipes[2][0] : open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(125);
    signal(SIGBUS, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(pipes[0][1], STDOUT_FILENO) < 0 ||
        dup2(pipes[1][1], STDERR_FILENO) < 0)
        return;
    execvpe(words[0], words, environment);
}

static void close_pair(int pair[2])
{
    if (pair[0] >= 0)
        close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
}

/* Errors in the child are reported through a pipe that exec closes. */
static lig_status fork_one(launch_process *process, char *const *words, char **environment,
                           int pipes[3][2], int trouble[2])
{
    pid_t parent = getpid(), pid = fork();
    int number = 0;
    if (pid < 0)
        return lig_fail(LIG_E_IO, "cannot start %s: %s", process->name, strerror(errno));
    if (pid == 0) {
        become(words, environment, parent, (const int (*)[2])pipes);
        number = errno;
        ssize_t ignored = write(trouble[1], &number, sizeof number);
        (void)ignored;
        _exit(127);
    }
    close(trouble[1]);
    trouble[1] = -1;
    ssize_t got;
    do
        got = read(trouble[0], &number, sizeof number);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof number) {
        waitpid(pid, NULL, 0);
        return lig_fail(number == ENOENT   ? LIG_E_NOTFOUND
                        : number == EACCES ? LIG_E_DENIED
                                           : LIG_E_IO,
                        "cannot start '%s': %s", words[0], strerror(number));
    }
    setpgid(pid, pid);
    process->pid = pid;
    return LIG_OK;
}

/* The data fits into a pipe. */
static lig_status send_input(launch_process *process, int fd, const launch_text *input)
{
    process->input_fd = fd;
    ssize_t put = write(fd, input->data, input->bytes);
    return put == (ssize_t)input->bytes
               ? LIG_OK
               : lig_fail(LIG_E_IO, "cannot send %zu bytes to %s: %s", input->bytes, process->name,
                          put < 0 ? strerror(errno) : "the pipe is full");
}

static lig_status open_pipes(const launch_process *process, int pipes[3][2], int trouble[2],
                             int with_input)
{
    if (pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0 &&
        pipe2(trouble, O_CLOEXEC) == 0 && (!with_input || pipe2(pipes[2], O_CLOEXEC) == 0))
        return LIG_OK;
    return lig_fail(LIG_E_IO, "cannot create pipes for %s: %s", process->name, strerror(errno));
}

lig_status launch_start(launch_job *job, launch_process *process, char *const *words,
                        char **environment, const launch_text *input)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, trouble[2] = {-1, -1};
    lig_status status = open_pipes(process, pipes, trouble, input != NULL);
    if (status == LIG_OK)
        status = fork_one(process, words, environment, pipes, trouble);
    if (status == LIG_OK) {
        for (int s = 0; s < 2; s++) {
            process->streams[s].fd = pipes[s][0];
            fcntl(pipes[s][0], F_SETFL, O_NONBLOCK);
            pipes[s][0] = -1;
        }
        job->alive++;
        if (input != NULL) {
            fcntl(pipes[2][1], F_SETFL, O_NONBLOCK);
            status = send_input(process, pipes[2][1], input);
            pipes[2][1] = -1;
        }
    }
    for (int i = 0; i < 3; i++)
        close_pair(pipes[i]);
    close_pair(trouble);
    return status;
}

/* --- ending ---------------------------------------------------------------------------------- */

static void signal_all(launch_job *job, int signal)
{
    for (size_t i = 0; i < job->count; i++)
        if (job->processes[i].pid > 0)
            kill(-job->processes[i].pid, signal);
}

void launch_end(launch_job *job, int signal)
{
    if (job->kill_ns == 0)
        job->kill_ns = now_ns() + job->grace_ns;
    signal_all(job, signal);
    signal_all(job, SIGCONT); /* also reach a stopped process */
}

static int can_restart(const launch_job *job, const launch_process *process)
{
    return job->restart != NULL && process->restarts < job->restarts_max && !process->rendezvous;
}

/* The others continue: to them the process is lost until it rejoins under its rank. */
static void restart(launch_job *job, launch_process *process, const char *how)
{
    launch_output_finish(job, process);
    process->restarts++;
    launch_output_say(job, "%s %s; restarting it (%u of %u)", process->name, how, process->restarts,
                      job->restarts_max);
    if (job->restart(job, process, job->restart_context) == LIG_OK) {
        launch_guard_tell(job, process, process->pid);
        return;
    }
    job->status = 1;
    launch_output_say(job, "%s", lig_error_text());
    launch_end(job, SIGTERM);
}

static void end_after(launch_job *job, const launch_process *process, const char *how)
{
    const char *why = process->rendezvous && job->restarts_max > 0
                          ? "; it runs the rendezvous and cannot be restarted"
                          : "";
    launch_output_say(job, "%s %s%s%s", process->name, how, why,
                      job->alive > 0 ? "; terminating the others" : "");
    launch_end(job, SIGTERM);
}

/* A process has exited. The processes it started are killed before its id can be reused. */
static void bury(launch_job *job, launch_process *process)
{
    int state = 0;
    pid_t pid = process->pid;
    char how[160];
    kill(-pid, SIGKILL);
    launch_guard_tell(job, process, 0);
    if (waitpid(pid, &state, 0) != pid)
        return;
    process->pid = 0;
    job->alive--;
    if (process->input_fd >= 0)
        close(process->input_fd);
    process->input_fd = -1;
    int signal = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    int status = signal > 0 ? 128 + signal : WEXITSTATUS(state);
    if (status == 0 || job->kill_ns != 0)
        return;
    if (signal > 0)
        snprintf(how, sizeof how, "(pid %d) was killed by signal %d (%s)", (int)pid, signal,
                 strsignal(signal));
    else
        snprintf(how, sizeof how, "(pid %d) failed with status %d", (int)pid, status);
    if (can_restart(job, process)) {
        restart(job, process, how);
        return;
    }
    job->status = status;
    end_after(job, process, how);
}

static void reap(launch_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        siginfo_t ended = {0};
        pid_t pid = job->processes[i].pid;
        if (pid > 0 && waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            ended.si_pid == pid)
            bury(job, &job->processes[i]);
    }
}

/* Ctrl-Z: all stop, and continue together. */
static void pause_all(launch_job *job)
{
    signal_all(job, SIGSTOP);
    kill(getpid(), SIGSTOP);
    signal_all(job, SIGCONT);
}

/* The first Ctrl-C terminates, the second kills. */
static void take_signal(launch_job *job, int signal)
{
    if (signal == SIGCHLD)
        return;
    if (signal == SIGTSTP) {
        pause_all(job);
        return;
    }
    if (job->stopped_by != 0) {
        job->kill_ns = now_ns();
        return;
    }
    job->stopped_by = signal;
    if (job->status == 0)
        job->status = 128 + signal;
    launch_end(job, signal);
}

static void take_signals(launch_job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(job, (int)info.ssi_signo);
}

/* --- running --------------------------------------------------------------------------------- */

static int is_waiting(const launch_out *out)
{
    return out->at < out->bytes;
}

/* A stream is read only after its previous output has been written, so a process that writes faster
 * than we can blocks. */
static size_t fill_polls(launch_job *job)
{
    size_t count = 0;
    job->polls[count++] = (struct pollfd){.fd = job->signals, .events = POLLIN};
    for (int s = 0; s < 2; s++)
        job->polls[count++] = (struct pollfd){
            .fd = is_waiting(&job->outs[s]) ? job->outs[s].fd : -1, .events = POLLOUT};
    for (size_t i = 0; i < job->count; i++)
        for (int s = 0; s < 2; s++)
            job->polls[count++] = (struct pollfd){
                .fd = is_waiting(launch_output_of(job, s)) ? -1 : job->processes[i].streams[s].fd,
                .events = POLLIN};
    job->polls[count++] = (struct pollfd){.fd = job->caller_fd, .events = POLLIN};
    return count;
}

static int open_streams(const launch_job *job)
{
    int count = 0;
    for (size_t i = 0; i < job->count; i++)
        for (int s = 0; s < 2; s++)
            count += job->processes[i].streams[s].fd >= 0;
    return count;
}

static void move(launch_job *job)
{
    if (is_waiting(&job->outs[0]) || is_waiting(&job->outs[1]))
        launch_status_hide(job);
    for (int s = 0; s < 2; s++)
        if (job->polls[1 + s].revents != 0)
            launch_output_put(&job->outs[s]);
    for (size_t i = 0; i < job->count; i++)
        for (int s = 0; s < 2; s++)
            if (job->polls[3 + 2 * i + (size_t)s].revents != 0 &&
                launch_output_take(job, &job->processes[i], s) != LIG_OK) {
                job->status = job->status > 0 ? job->status : cli_failed();
                launch_end(job, SIGKILL);
            }
}

static int wait_ms(int64_t until_ns)
{
    if (until_ns == 0)
        return -1;
    int64_t left = (until_ns - now_ns()) / 1000000;
    return left <= 0 ? 0 : left > 60000 ? 60000 : (int)left + 1;
}

static void turn(launch_job *job, int64_t until_ns)
{
    size_t count = fill_polls(job);
    if (poll(job->polls, count, wait_ms(until_ns)) < 0)
        return;
    if (job->polls[0].revents != 0)
        take_signals(job);
    if (job->polls[count - 1].revents != 0) { /* nothing is ever sent: it was closed */
        job->caller_fd = -1;
        job->status = job->status > 0 ? job->status : 1;
        launch_end(job, SIGTERM);
    }
    move(job);
    reap(job);
}

/* The earlier of two times; 0 is never. */
static int64_t sooner(int64_t a, int64_t b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

int launch_run(launch_job *job)
{
    launch_status_start(job);
    while (job->alive > 0) {
        launch_status_show(job);
        turn(job, sooner(job->killed ? 0 : job->kill_ns, launch_status_next_ns(job)));
        if (job->kill_ns != 0 && !job->killed && now_ns() >= job->kill_ns) {
            job->killed = 1;
            signal_all(job, SIGKILL);
        }
    }
    /* A process that left the group can hold a stream open; it is not waited for. A slow reader
     * of our output is waited for, unless we were asked to stop. */
    launch_status_hide(job);
    job->line.on = 0;
    int64_t until = now_ns() + LAST_OUTPUT_NS;
    while (is_waiting(&job->outs[0]) || is_waiting(&job->outs[1]) || open_streams(job) > 0) {
        int waiting = is_waiting(&job->outs[0]) || is_waiting(&job->outs[1]);
        if (now_ns() >= until && (!waiting || job->stopped_by != 0))
            break;
        turn(job, now_ns() < until ? until : 0);
    }
    return job->status;
}
