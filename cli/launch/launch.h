/* The processes that `ligament launch` starts: starting them, their output, their end. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "cli.h"

#include <poll.h>
#include <sys/types.h>

#define LAUNCH_PROCESSES_MAX 1024

typedef struct launch_stream { /* output of a process up to the next newline */
    int fd;                    /* -1 once closed */
    char *data;
    size_t bytes;
} launch_stream;

typedef struct launch_text {
    char *data;
    size_t bytes;
} launch_text;

typedef struct launch_process {
    char name[32]; /* "worker 0" */
    const char *role;
    unsigned rank, group, instance;
    pid_t pid;         /* 0: not started, or exited */
    unsigned restarts; /* so far */
    const char *host;  /* started there over ssh; NULL: here */
    int input_fd;      /* open as long as a process on another host may run; -1: none */
    int rendezvous;    /* it coordinates the group: without it no member can rejoin */
    launch_stream streams[2];
} launch_process;

typedef struct launch_out { /* output queued for one of our descriptors */
    int fd;
    char *data;
    size_t bytes, at, capacity;
} launch_out;

typedef struct launch_status_line { /* on a terminal: what runs, below the output */
    int on, shown;
    int64_t start_ns, drawn_ns;
} launch_status_line;

struct launch_job;

/* Starts a process that has failed again (launch_start). */
typedef lig_status (*launch_restart)(struct launch_job *job, launch_process *process,
                                     const void *context);

typedef struct launch_job {
    launch_process *processes;
    size_t count, alive;
    unsigned restarts_max; /* of one process */
    launch_restart restart;
    const void *restart_context;
    launch_out outs[2];
    int same_out;  /* both descriptors refer to the same file: everything goes through the first */
    int quiet;     /* no name prefixes */
    int signals;   /* a signalfd */
    int caller_fd; /* the job ends when this is closed: the connection of ssh; -1: none */
    struct pollfd *polls;
    int64_t grace_ns, kill_ns; /* kill_ns: when the remaining processes are killed; 0 if not
                                * ending */
    int killed, status, stopped_by;
    pid_t guard;  /* 0 if none */
    int guard_fd; /* exits with this process */
    launch_status_line line;
} launch_job;

/* --- launch_output.c --- */

lig_status launch_output_open(launch_job *job);
void launch_output_close(launch_job *job);
/* Reads what a stream has; whole lines are written, each prefixed with the process's name. */
lig_status launch_output_take(launch_job *job, launch_process *process, int stream);
/* The process has exited: writes what it left in its streams and closes them. */
void launch_output_finish(launch_job *job, launch_process *process);
/* Writes as much as possible without blocking; a closed reader is not an error of the job. */
void launch_output_put(launch_out *out);
/* A line from the launcher to stderr, after the output queued there. */
void launch_output_say(launch_job *job, const char *format, ...) LIG_PRINTF(2, 3);
launch_out *launch_output_of(launch_job *job, int stream);

/* --- launch_job.c --- */

/* Starts `words` as this process with `environment`. `input`, if not NULL, is written to its
 * standard input, which stays open; otherwise that is /dev/null. */
lig_status launch_start(launch_job *job, launch_process *process, char *const *words,
                        char **environment, const launch_text *input);
/* Runs until all processes have exited; returns the exit status of the job. A process that fails is
 * restarted at most `restarts_max` times, unless it is the one that runs the rendezvous. */
int launch_run(launch_job *job);
/* Terminates all running processes: SIGTERM, and SIGKILL after the grace period. */
void launch_end(launch_job *job, int signal);

/* --- launch_remote.c: processes on other hosts --- */

/* One line of a hosts file: NAME [slots=N]. */
typedef struct launch_host {
    char *name;
    uint64_t slots;
} launch_host;

lig_status launch_hosts_read(const char *path, launch_host **hosts, size_t *count);
void launch_hosts_destroy(launch_host *hosts, size_t count);
/* The host of process number `index`: in turn, as often as each has slots. */
const char *launch_host_of(const launch_host *hosts, size_t count, size_t index);

/* The arguments and environment of a process on another host; sent through ssh's standard input,
 * because other users can see command lines and environments. */
typedef struct launch_order {
    const char *secret, *folder, *grace;
    char **environment, **words; /* end with NULL */
} launch_order;

lig_status launch_order_write(const launch_order *order, launch_text *text);
/* Reads an order from a descriptor; it borrows *text. */
lig_status launch_order_read(int fd, launch_order *order, launch_text *text);
void launch_order_fini(launch_order *order);

/* --- launch_guard.c --- */

/* If this process is killed, processes started by the job's processes are killed as well. Call
 * after all have been started. */
lig_status launch_guard_start(launch_job *job);
/* The process has the id `pid` now; 0: it has exited and is about to be reaped, and its group is no
 * longer guarded. */
void launch_guard_tell(const launch_job *job, const launch_process *process, pid_t pid);
void launch_guard_stop(launch_job *job);

/* --- launch_status.c --- */

/* The line is shown only if stderr is a terminal. */
void launch_status_start(launch_job *job);
/* Draws it if nothing is waiting to be written and it is out of date. */
void launch_status_show(launch_job *job);
/* Removes it before other output. */
void launch_status_hide(launch_job *job);
/* When it changes next; 0 if it is not shown. */
int64_t launch_status_next_ns(const launch_job *job);

#endif
