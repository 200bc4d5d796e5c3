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
    char secret[LIG_SECRET_TEXT_MAX];
    launch_host *hosts; /* of --hosts */
    size_t host_count;
    char own_path[4096];
    const char *ssh, *program; /* the client, and this program on the other hosts */
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

/* The port is bound but not listened on: the system does not assign it to another process, and
 * the process that runs the rendezvous can still use it. */
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
 * process of the job that runs as this user can open it, regardless of the descriptors it
 * inherits, and nothing remains when this process ends for any reason. */
static lig_status keep_secret(plan *self, char *text)
{
    self->secret_fd = memfd_create("ligament-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = self->secret_fd, seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    size_t bytes = strlen(text);
    int made = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, bytes) == (ssize_t)bytes &&
               fcntl(fd, F_ADD_SEALS, seals) == 0;
    return made ? LIG_OK
                : lig_fail(LIG_E_IO, "memfd_create for the job's secret failed: %s",
                           strerror(errno));
}

static lig_status make_secret(plan *self)
{
    LIG_TRY(lig_secret_make(self->secret));
    return keep_secret(self, self->secret);
}

static void clean(plan *self)
{
    explicit_bzero(self->secret, sizeof self->secret);
    launch_hosts_destroy(self->hosts, self->host_count);
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
    one->streams[0].fd = one->streams[1].fd = one->input_fd = -1;
    if (self->host_count > 0)
        one->host = launch_host_of(self->hosts, self->host_count, job->count - 1);
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
    LIG_TRY(cli_alloc(&job->polls, 2 * count + 4, sizeof *job->polls));
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

/* Without the user. */
static const char *host_name(const char *host)
{
    const char *at = strrchr(host, '@');
    return at != NULL ? at + 1 : host;
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
    LIG_TRY(cli_format(&list[n++], "DMLC_NODE_HOST=%s",
                       one->host != NULL ? host_name(one->host) : self->host));
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

static lig_status start_here(launch_job *job, const plan *self, launch_process *one,
                             char *const *words)
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
        status = launch_start(job, one, words, list, NULL);
    forget_environment(list, kept);
    return status;
}

/* --- a process on another host --------------------------------------------------------------- */

/* In single quotes, for the shell that sshd starts. */
static lig_status quote(const char *text, char **out)
{
    cli_text made;
    LIG_TRY(cli_text_open(&made));
    FILE *file = made.file;
    putc('\'', file);
    for (; *text != '\0'; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, file);
    putc('\'', file);
    LIG_TRY(cli_text_close(&made, LIG_OK));
    *out = made.data;
    return LIG_OK;
}

static lig_status make_order(const plan *self, launch_process *one, char **words, launch_text *text)
{
    char folder[4096], grace[24], **list;
    size_t count = 0;
    if (getcwd(folder, sizeof folder) == NULL)
        return cli_fail_path(".", "find");
    snprintf(grace, sizeof grace, "%llu", (unsigned long long)self->grace_s);
    LIG_TRY(cli_alloc(&list, TOLD + 4, sizeof *list));
    lig_status status = put_place(self, one, list, &count);
    if (status == LIG_OK)
        status = cli_format(&list[count++], "PYTHONUNBUFFERED=1");
    const char *path = getenv("PYTHONPATH");
    if (status == LIG_OK && path != NULL)
        status = cli_format(&list[count++], "PYTHONPATH=%s", path);
    launch_order order = {self->secret, folder, grace, list, words};
    if (status == LIG_OK)
        status = launch_order_write(&order, text);
    forget_environment(list, 0);
    return status;
}

/* Only the fixed command goes through the other host's shell and process list. */
static lig_status start_there(launch_job *job, const plan *self, launch_process *one, char **words)
{
    launch_text order = {0};
    char *program = NULL, *command = NULL;
    lig_status status = make_order(self, one, words, &order);
    if (status == LIG_OK)
        status = quote(self->program, &program);
    if (status == LIG_OK)
        status = cli_format(&command, "exec %s launch --remote", program);
    if (status == LIG_OK) {
        char *const line[] = {(char *)(uintptr_t)self->ssh, "-T",    "-o", "BatchMode=yes", "--",
                              (char *)(uintptr_t)one->host, command, NULL};
        status = launch_start(job, one, line, environ, &order);
    }
    if (order.data != NULL)
        explicit_bzero(order.data, order.bytes);
    free(order.data);
    free(program);
    free(command);
    return status;
}

static lig_status start(launch_job *job, const plan *self, launch_process *one, char **words)
{
    return one->host != NULL ? start_there(job, self, one, words)
                             : start_here(job, self, one, words);
}

/* The arguments and environment of a process, also for restarts. */
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

/* The rendezvous is on the first host, where no port can be reserved from here. */
static lig_status prepare_hosts(plan *self, const cli_call *call)
{
    uint64_t port = 20000 + (uint64_t)getpid() % 10000;
    ssize_t bytes = readlink("/proc/self/exe", self->own_path, sizeof self->own_path - 1);
    self->ssh = cli_has(call, "ssh") ? cli_value(call, "ssh") : "ssh";
    self->program = cli_has(call, "program") ? cli_value(call, "program") : self->own_path;
    if (self->script)
        return lig_fail(LIG_E_INVALID, "--hosts cannot be combined with --script");
    if (bytes < 0)
        return cli_fail_path("/proc/self/exe", "read");
    LIG_TRY(cli_number(call, "port", 1, 65535, &port));
    LIG_TRY(launch_hosts_read(cli_value(call, "hosts"), &self->hosts, &self->host_count));
    self->port = (unsigned)port;
    if (!cli_has(call, "address"))
        self->host = host_name(self->hosts[0].name);
    return LIG_OK;
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
    if (cli_has(call, "hosts"))
        LIG_TRY(prepare_hosts(self, call));
    LIG_TRY(cast(job, self));
    LIG_TRY(launch_output_open(job));
    LIG_TRY(watch_signals(job));
    if (self->host_count == 0)
        LIG_TRY(reserve_port(self));
    return make_secret(self);
}

/* --- the other end of ssh ---------------------------------------------------------------- */

static lig_status set_variables(const plan *self, char *const *list)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), self->secret_fd);
    int failed = setenv("LIGAMENT_SECRET_FILE", path, 1);
    for (; *list != NULL; list++) {
        char *equals = strchr(*list, '=');
        if (equals == NULL)
            return lig_fail(LIG_E_INVALID, "invalid command from the launcher");
        *equals = '\0';
        failed |= setenv(*list, equals + 1, 1);
    }
    return failed ? lig_fail(LIG_E_NOMEM, "out of memory for variables") : LIG_OK;
}

/* Runs one process; ssh's connection is standard input, and its end ends the process. */
static lig_status start_ordered(launch_job *job, plan *self, const launch_order *order)
{
    char secret[LIG_SECRET_TEXT_MAX];
    if (chdir(order->folder) != 0)
        return cli_fail_path(order->folder, "enter");
    snprintf(secret, sizeof secret, "%s", order->secret);
    lig_status status = keep_secret(self, secret);
    explicit_bzero(secret, sizeof secret);
    LIG_TRY(status);
    LIG_TRY(set_variables(self, order->environment));
    job->grace_ns = (int64_t)strtoull(order->grace, NULL, 10) * 1000000000;
    self->script = 1; /* one process, without a role */
    self->workers = self->servers = 0;
    LIG_TRY(cast(job, self));
    LIG_TRY(launch_output_open(job));
    LIG_TRY(watch_signals(job));
    job->quiet = 1;
    job->caller_fd = STDIN_FILENO;
    return launch_start(job, &job->processes[0], order->words, environ, NULL);
}

static lig_status start_job(launch_job *job, plan *self, starting *how, const cli_call *call)
{
    LIG_TRY(prepare(job, self, call));
    LIG_TRY(cli_alloc(&how->words, call->word_count + 1, sizeof *how->words));
    memcpy(how->words, call->words, call->word_count * sizeof *how->words);
    job->restart = start_again;
    job->restart_context = how;
    return start_all(job, how);
}

static lig_status start_remote(launch_job *job, plan *self, launch_order *order, launch_text *text)
{
    LIG_TRY(launch_order_read(STDIN_FILENO, order, text));
    return start_ordered(job, self, order);
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
    launch_job job = {.signals = -1, .caller_fd = -1};
    starting how = {.plan = &self};
    launch_order order = {0};
    launch_text text = {0};
    int result, remote = cli_has(call, "remote");
    if (!remote && call->word_count == 0)
        return cli_misused(call, "missing arguments: name the program to start after '--'");
    lig_status status =
        remote ? start_remote(&job, &self, &order, &text) : start_job(&job, &self, &how, call);
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
    launch_order_fini(&order);
    free(text.data);
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
    {"hosts", 0, "FILE",
     "start the processes over ssh on the hosts that FILE lists, one per line: HOST [slots=N]"},
    {"port", 0, "N",
     "port of the rendezvous with --hosts (default: chosen from 20000 to 29999 by process id)"},
    {"ssh", 0, "PROGRAM", "ssh client for --hosts (ssh)"},
    {"program", 0, "PATH", "this program on the other hosts (the same path)"},
    {"remote", 0, NULL, "internal: started by --hosts on each remote host"},
    {"no-prefix", 0, NULL, "do not prefix output lines"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_launch = {
    .name = "launch",
    .usage = "[options] -- PROGRAM [ARGUMENT...]",
    .summary = "Starts the workers and servers of a mesh, on this host or over ssh",
    .details =
        "Each process runs the program and learns its role from DMLC_* variables, which\n"
        "ligament.mesh.init() reads. The processes share a secret that is generated for the job\n"
        "and never written to disk: LIGAMENT_SECRET_FILE refers to the launcher's memory. Every\n"
        "output line is prefixed with '[role rank]'. If a process fails, the launcher terminates\n"
        "the others and exits with the status of the failed process.\n"
        "\n"
        "With --restarts, a failed worker or server is restarted instead and rejoins the mesh "
        "with\n"
        "its rank; LIGAMENT_RESTART counts the restarts from 0. The process that runs the\n"
        "rendezvous (server 0, or the scheduler with --scheduler) cannot be restarted. On a\n"
        "terminal, a status line shows the number of running processes.\n"
        "\n"
        "With --hosts, the processes run on other hosts over ssh, which must work without a\n"
        "password. The secret is sent over standard input. The processes exit when the launcher\n"
        "exits.\n"
        "\n"
        "With --script, the program is a launch script that starts the members. It runs once and\n"
        "receives no DMLC_* variables, only the secret, which members need if the rendezvous\n"
        "address is not loopback.",
    .flags = flags,
    .word_max = SIZE_MAX,
    .run = run,
};
