/* The processes that `ligament launch` starts: how one is started, what they say, how they end. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "cli.h"

#include <poll.h>
#include <sys/types.h>

#define LAUNCH_PROCESSES_MAX 1024

typedef struct launch_stream { /* what a process writes, up to the next end of a line */
    int fd;                    /* -1: it has ended */
    char *data;
    size_t bytes;
} launch_stream;

typedef struct launch_process {
    char name[32]; /* "worker 0" */
    const char *role;
    unsigned rank, group, instance;
    pid_t pid; /* 0: not started, or ended */
    launch_stream streams[2];
} launch_process;

typedef struct launch_out { /* what is on its way to a descriptor of ours */
    int fd;
    char *data;
    size_t bytes, at, capacity;
} launch_out;

typedef struct launch_job {
    launch_process *processes;
    size_t count, alive;
    launch_out outs[2];
    int same_out; /* both descriptors are one place: then all goes through the first */
    int quiet;    /* no names in front of lines */
    int signals;  /* a signalfd */
    struct pollfd *polls;
    int64_t grace_ns, kill_ns; /* kill_ns: when those that are left are killed; 0: not ending */
    int killed, status, stopped_by;
    pid_t guard;  /* 0: none */
    int guard_fd; /* it ends when this does */
} launch_job;

/* --- launch_output.c --- */

lig_status launch_output_open(launch_job *job);
void launch_output_close(launch_job *job);
/* Takes what a stream has; whole lines go out, each behind the process's name. */
lig_status launch_output_take(launch_job *job, launch_process *process, int stream);
/* Writes what can be written without waiting; a reader that has gone is no error of the job's. */
void launch_output_put(launch_out *out);
/* A line of our own, to stderr, behind what is waiting there. */
void launch_output_say(launch_job *job, const char *format, ...) LIG_PRINTF(2, 3);
launch_out *launch_output_of(launch_job *job, int stream);

/* --- launch_job.c --- */

/* Starts `words` as this process; `environment` is the child's. */
lig_status launch_start(launch_job *job, launch_process *process, char *const *words,
                        char **environment);
/* Runs until all have ended; the exit status of the job. */
int launch_run(launch_job *job);
/* Ends all that are there: SIGTERM, and SIGKILL after the grace. */
void launch_end(launch_job *job, int signal);

/* --- launch_guard.c --- */

/* When this process is killed, what the job's processes have started is killed too. After all were
 * started. */
lig_status launch_guard_start(launch_job *job);
/* The process has ended and is about to be waited for: its group is no longer guarded. */
void launch_guard_tell(const launch_job *job, const launch_process *process);
void launch_guard_stop(launch_job *job);

#endif
