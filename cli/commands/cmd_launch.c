#include "launch/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ligament/secret.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

typedef struct plan {
    uint64_t workers, servers, group_size, grace_s, restarts;
    int scheduler;
    int script; /* no members: the program is a launch script that starts them */
    const char *host;
    unsigned port;
    int port_fd, secret_fd;
} plan;

/* --- shared by the processes ----------------------------------------------------------------- */

static lig_status find_host(const plan *self, struct addrinfo **found)
{
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM};
    int failed = getaddrinfo(self->host, NULL, &hint, found);
    return failed == 0
               ? LIG_OK
               : lig_fail(LIG_E_INVALID, "address '%s': %s", self->host, gai_strerror(failed));
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage place;
    socklen_t bytes = sizeof place;
    if (getsockname(fd, (struct sockaddr *)&place, &bytes) != 0)
        return 0;
    return ntohs(place.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&place)->sin6_port
                                             : ((struct sockaddr_in *)&place)->sin_port);
}

/* The port is bound but not listened on: the system assigns it to nobody else, and the process that
 * runs the rendezvous can still take it. */
static lig_status reserve_port(plan *self)
{
    struct addrinfo *place;
    int on = 1;
    LIG_TRY(find_host(self, &place));
    self->port_fd = socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (self->port_fd >= 0 &&
        setsockopt(self->port_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(self->port_fd, place->ai_addr, place->ai_addrlen) == 0)
        self->port = port_of(self->port_fd);
    int error = errno;
    freeaddrinfo(place);
    return self->port > 0 ? LIG_OK
                          : lig_fail(LIG_E_IO, "cannot bind a rendezvous port at %s: %s",
                                     self->host, strerror(error));
}

/* The secret is kept in memory, reachable under a path in this process's /proc directory: every
 * process of this user that the job starts can open it, whatever descriptors it inherits, and
 * nothing remains when this process ends for any reason. */
static lig_status make_secret(plan *self)
{
    char text[LIG_SECRET_TEXT_MAX];
    LIG_TRY(lig_secret_make(text));
    self->secret_fd = memfd_create("ligament-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = self->secret_fd, seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    size_t bytes = strlen(text);
    int made = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, bytes) == (ssize_t)bytes &&
               fcntl(fd, F_ADD_SEALS, seals) == 0;
    explicit_bzero(text, sizeof text);
    return made ? LIG_OK
                : lig_fail(LIG_E_IO, "memfd_create for the job's secret failed: %s",
                           strerror(errno));
}

static void clean(plan *self)
{
    if (self->secret_fd >= 0)
        close(self->secret_fd);
    if (self->port_fd >= 0)
        close(self->port_fd);
}

/* --- members --------------------------------------------------------------------------------- */

static void add(launch_job *job, const plan *self, const char *role, unsigned rank)
{
    launch_process *one = &job->processes[job->count++];
    one->role = role;
    one->rank = rank;
    one->group = rank / (unsigned)self->group_size;
    one->instance = rank % (unsigned)self->group_size;
    one->streams[0].fd = one->streams[1].fd = -1;
    if (strcmp(role, "server") == 0 || strcmp(role, "worker") == 0)
        snprintf(one->name, sizeof one->name, "%s %u", role, rank);
    else
        snprintf(one->name, sizeof one->name, "%s", role);
}

static lig_status cast(launch_job *job, const plan *self)
{
    int single = self->script || self->scheduler;
    uint64_t count = (self->workers + self->servers) * self->group_size + (uint64_t)single;
    if (count == (uint64_t)single && !self->script)
        return lig_fail(LIG_E_INVALID, "no workers or servers requested: use -w or -s");
    if (count > LAUNCH_PROCESSES_MAX)
        return lig_fail(LIG_E_LIMIT, "%llu processes requested, but one host allows at most %d",
                        (unsigned long long)count, LAUNCH_PROCESSES_MAX);
    LIG_TRY(cli_alloc(&job->processes, count, sizeof *job->processes));
    LIG_TRY(cli_alloc(&job->polls, 2 * count + 3, sizeof *job->polls));
    if (single)
        add(job, self, self->script ? "script" : "scheduler", 0);
    for (unsigned i = 0; i < self->servers * self->group_size; i++)
        add(job, self, "server", i);
    for (unsigned i = 0; i < self->workers * self->group_size; i++)
        add(job, self, "worker", i);
    /* The scheduler, or server 0, comes first; nothing runs the rendezvous for a launch script. */
    job->processes[0].rendezvous = self->scheduler || (!self->script && self->servers > 0);
    return LIG_OK;
}

/* --- environment of a process ---------------------------------------------------------------- */

static const char *const told[] = {
    "LIGAMENT_SECRET_FILE=", "DMLC_ROLE=",          "DMLC_NUM_WORKER=",  "DMLC_NUM_SERVER=",
    "DMLC_GROUP_SIZE=",      "DMLC_NODE_RANK=",     "STEPMESH_GPU=",     "DMLC_PS_ROOT_URI=",
    "DMLC_PS_ROOT_PORT=",    "DMLC_NODE_HOST=",     "DMLC_RANK=",        "DMLC_RANK_OFFSET=",
    "DMLC_INSTANCE_ID=",     "LIGAMENT_SCHEDULER=", "LIGAMENT_SERVERS=", "LIGAMENT_RESTART=",
};

enum { TOLD = sizeof told / sizeof told[0], TOLD_SCRIPT = 1 };

static int is_told(const plan *self, const char *variable)
{
    for (size_t i = 0; i < (self->script ? TOLD_SCRIPT : TOLD); i++)
        if (strncmp(variable, told[i], strlen(told[i])) == 0)
            return 1;
    return 0;
}

static void forget_environment(char **list, size_t inherited)
{
    for (size_t i = inherited; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

static lig_status put_place(const plan *self, const launch_process *one, char **list, size_t *count)
{
    size_t n = *count;
    LIG_TRY(cli_format(&list[n++], "DMLC_ROLE=%s", one->role));
    LIG_TRY(cli_format(&list[n++], "DMLC_NUM_WORKER=%llu", (unsigned long long)self->workers));
    LIG_TRY(cli_format(&list[n++], "DMLC_NUM_SERVER=%llu", (unsigned long long)self->servers));
    LIG_TRY(cli_format(&list[n++], "DMLC_GROUP_SIZE=%llu", (unsigned long long)self->group_size));
    LIG_TRY(cli_format(&list[n++], "DMLC_NODE_RANK=%u", one->group));
    LIG_TRY(cli_format(&list[n++], "STEPMESH_GPU=%u", one->instance));
    LIG_TRY(cli_format(&list[n++], "DMLC_PS_ROOT_URI=%s", self->host));
    LIG_TRY(cli_format(&list[n++], "DMLC_PS_ROOT_PORT=%u", self->port));
    LIG_TRY(cli_format(&list[n++], "DMLC_NODE_HOST=%s", self->host));
    LIG_TRY(cli_format(&list[n++], "LIGAMENT_SCHEDULER=%d", self->scheduler));
    LIG_TRY(cli_format(&list[n++], "LIGAMENT_RESTART=%u", one->restarts));
    *count = n;
    return LIG_OK;
}

/* Our variables follow the inherited ones, which are borrowed. */
static lig_status put_own(const plan *self, const launch_process *one, char **list)
{
    size_t n = 0;
    LIG_TRY(cli_format(&list[n++], "LIGAMENT_SECRET_FILE=/proc/%d/fd/%d", (int)getpid(),
                       self->secret_fd));
    if (!self->script)
        LIG_TRY(put_place(self, one, list, &n));
    /* Python programs print their lines unbuffered. */
    return getenv("PYTHONUNBUFFERED") != NULL ? LIG_OK : cli_format(&list[n], "PYTHONUNBUFFERED=1");
}

static lig_status start(launch_job *job, const plan *self, launch_process *one, char *const *words)
{
    size_t all = 0, kept = 0;
    char **list;
    while (environ[all] != NULL)
        all++;
    LIG_TRY(cli_alloc(&list, all + TOLD + 2, sizeof *list));
    for (size_t i = 0; i < all; i++)
        if (!is_told(self, environ[i]))
            list[kept++] = environ[i];
    lig_status status = put_own(self, one, list + kept);
    if (status == LIG_OK)
        status = launch_start(job, one, words, list);
    forget_environment(list, kept);
    return status;
}

/* What a process is started with, now and again. */
typedef struct starting {
    const plan *plan;
    char **words;
} starting;

static lig_status start_again(launch_job *job, launch_process *one, const void *context)
{
    const starting *self = context;
    return start(job, self->plan, one, self->words);
}

static lig_status start_all(launch_job *job, const starting *self)
{
    for (size_t i = 0; i < job->count; i++)
        LIG_TRY(start_again(job, &job->processes[i], self));
    return LIG_OK;
}

/* --- the command ----------------------------------------------------------------------------- */

static lig_status watch_signals(launch_job *job)
{
    sigset_t set;
    sigemptyset(&set);
    const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        sigaddset(&set, caught[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signals >= 0 ? LIG_OK : lig_fail(LIG_E_IO, "signalfd failed: %s", strerror(errno));
}

static lig_status prepare(launch_job *job, plan *self, const cli_call *call)
{
    LIG_TRY(cli_number(call, "workers", 0, LAUNCH_PROCESSES_MAX, &self->workers));
    LIG_TRY(cli_number(call, "servers", 0, LAUNCH_PROCESSES_MAX, &self->servers));
    LIG_TRY(cli_number(call, "group-size", 1, LAUNCH_PROCESSES_MAX, &self->group_size));
    LIG_TRY(cli_number(call, "grace", 0, 86400, &self->grace_s));
    LIG_TRY(cli_number(call, "restarts", 0, 1000000, &self->restarts));
    job->restarts_max = (unsigned)self->restarts;
    self->scheduler = cli_has(call, "scheduler");
    self->script = cli_has(call, "script");
    if (self->script && (self->scheduler || cli_has(call, "workers") || cli_has(call, "servers")))
        return lig_fail(LIG_E_INVALID, "--script cannot be combined with -w, -s or --scheduler: "
                                       "the script starts the members");
    if (self->script)
        self->workers = self->servers = 0;
    if (cli_has(call, "address"))
        self->host = cli_value(call, "address");
    job->quiet = cli_has(call, "no-prefix");
    job->grace_ns = (int64_t)self->grace_s * 1000000000;
    LIG_TRY(cast(job, self));
    LIG_TRY(launch_output_open(job));
    LIG_TRY(watch_signals(job));
    LIG_TRY(reserve_port(self));
    return make_secret(self);
}

static int run(cli_call *call)
{
    plan self = {.workers = 1,
                 .servers = 1,
                 .group_size = 1,
                 .grace_s = 5,
                 .host = "127.0.0.1",
                 .port_fd = -1,
                 .secret_fd = -1};
    launch_job job = {.signals = -1};
    int result;
    starting how = {.plan = &self};
    lig_status status = prepare(&job, &self, call);
    if (status == LIG_OK)
        status = cli_alloc(&how.words, call->word_count + 1, sizeof *how.words);
    if (status == LIG_OK) {
        memcpy(how.words, call->words, call->word_count * sizeof *how.words);
        job.restart = start_again;
        job.restart_context = &how;
        status = start_all(&job, &how);
    }
    if (status == LIG_OK)
        status = launch_guard_start(&job);
    if (status == LIG_OK) {
        result = launch_run(&job);
    } else {
        result = cli_failed();
        launch_end(&job, SIGKILL);
        (void)launch_run(&job);
    }
    launch_guard_stop(&job);
    clean(&self);
    launch_output_close(&job);
    if (job.signals >= 0)
        close(job.signals);
    free(job.processes);
    free(job.polls);
    free(how.words);
    return result;
}

static const cli_flag flags[] = {
    {"workers", 'w', "N", "number of workers (1)"},
    {"servers", 's', "N", "number of servers (1)"},
    {"group-size", 'g', "N", "processes per worker or server (1)"},
    {"scheduler", 0, NULL, "also start a scheduler; otherwise server 0 runs the rendezvous"},
    {"script", 0, NULL, "the program starts the members; it receives only the secret"},
    {"address", 0, "HOST", "address of this host for the rendezvous (127.0.0.1)"},
    {"grace", 0, "SECONDS", "seconds between SIGTERM and SIGKILL when the job ends early (5)"},
    {"restarts", 'r', "N", "restart a failed worker or server up to N times (0)"},
    {"no-prefix", 0, NULL, "do not prefix output lines"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_launch = {
    .name = "launch",
    .usage = "[options] -- PROGRAM [ARGUMENT...]",
    .summary = "Starts the workers and servers of a mesh on this machine",
    .details =
        "Each process runs the program and learns its role from DMLC_* variables, which\n"
        "ligament.mesh.init() reads. The processes share a secret generated for the job and never\n"
        "written to disk: LIGAMENT_SECRET_FILE refers to the launcher's memory. Every output line\n"
        "is prefixed with '[role rank]'. If a process fails, the others are terminated, and the\n"
        "command exits with its status.\n"
        "\n"
        "With --restarts, a worker or server that fails is started again instead, with\n"
        "LIGAMENT_RESTART counting from 0, and joins the mesh again under its rank. The process\n"
        "that runs the rendezvous (server 0, or the scheduler with --scheduler) cannot be\n"
        "restarted. On a terminal a status line shows how many processes run.\n"
        "\n"
        "With --script the program is a launch script that starts the members: it runs once and\n"
        "receives the secret, which its members need to meet at the address of a network "
        "interface,\n"
        "and no DMLC_* variables.",
    .flags = flags,
    .word_min = 1,
    .word_max = SIZE_MAX,
    .run = run,
};
