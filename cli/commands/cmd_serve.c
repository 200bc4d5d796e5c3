#include "cli.h"
#include "formats/json.h"

#include <ligament/serve.h>

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GRACE_SECONDS 30.0
enum { ARENAS = 4 };

/* --- systemd's notification protocol, without its library --- */

/* One datagram to the socket that the service manager named; without one there is nobody to
 * tell. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = path ? strlen(path) : 0;
    if (bytes < 2 || bytes >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, bytes);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
    close(fd);
}

static void notify_reloading(void)
{
    struct timespec now;
    char state[96];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify(state);
}

/* --- running --- */

typedef struct serving {
    lig_server *server;
    pthread_t main;
} serving;

/* A shutdown that a client asked for, where that is allowed, ends the program as SIGTERM does. */
static void *wait_for_request(void *context)
{
    serving *self = context;
    if (lig_server_wait(self->server, LIG_FOREVER) == LIG_OK)
        pthread_kill(self->main, SIGTERM);
    return NULL;
}

static void reload(lig_server *server)
{
    notify_reloading();
    if (lig_server_reload(server) != LIG_OK)
        (void)cli_failed();
    notify("READY=1");
}

/* Until SIGINT or SIGTERM; all of `signals` are blocked. */
static void run_until_signal(lig_server *server, const sigset_t *signals)
{
    int number;
    do {
        if (sigwait(signals, &number) != 0)
            return;
        if (number == SIGHUP)
            reload(server);
    } while (number == SIGHUP);
}

static void print_address(const cli_call *call, const lig_server *server)
{
    char address[512];
    snprintf(address, sizeof address, "ligament://%s", lig_server_address(server));
    if (call->json) {
        cli_json_writer writer = {.file = stdout, .compact = 1};
        cli_json_open(&writer, NULL, '{');
        cli_json_put_text(&writer, "store", call->words[0]);
        cli_json_put_text(&writer, "address", address);
        cli_json_close(&writer, '}');
        putchar('\n');
    } else {
        printf("%s is served at %s\n", call->words[0], address);
    }
    fflush(stdout);
}

static lig_status serve(const cli_call *call, lig_server *server, double grace)
{
    serving self = {server, pthread_self()};
    pthread_t waiter;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    int failed = pthread_create(&waiter, NULL, wait_for_request, &self);
    if (failed)
        return lig_fail(LIG_E_IO, "pthread_create failed: %s", strerror(failed));
    print_address(call, server);
    notify("READY=1");
    run_until_signal(server, &signals);
    notify("STOPPING=1");
    lig_status status = lig_server_stop(server, (int64_t)(grace * 1e9));
    pthread_join(waiter, NULL);
    return status;
}

/* --- arguments --- */

typedef struct rule_list {
    lig_server_rule *rules;
    size_t count;
} rule_list;

static lig_status seconds_of(const cli_call *call, const char *flag, double least, double *seconds)
{
    const char *text = cli_value(call, flag);
    char *end;
    if (text == NULL)
        return LIG_OK;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < least || value > 1e8)
        return cli_wrong(call, lig_fail(LIG_E_INVALID,
                                        "invalid value for --%s: '%s' (expected seconds, at least "
                                        "%g)",
                                        flag, text, least));
    *seconds = value;
    return LIG_OK;
}

/* "team", "team/" and "team/" and a star name the same prefix, "*" alone all models. *room is the
 * caller's to free. */
static lig_status prefix_of(const char *text, char **room)
{
    size_t bytes = strlen(text);
    LIG_TRY(cli_alloc(room, bytes + 2, 1));
    memcpy(*room, text, bytes + 1);
    if (bytes && (*room)[bytes - 1] == '*')
        (*room)[--bytes] = '\0';
    if (bytes && (*room)[bytes - 1] != '/') {
        (*room)[bytes] = '/';
        (*room)[bytes + 1] = '\0';
    }
    return LIG_OK;
}

/* PREFIX=VALUE, repeated. The rules and their prefixes are the caller's to free. */
static lig_status rules_of(const cli_call *call, const char *flag,
                           lig_status (*parse)(const cli_call *call, const char *flag,
                                               const char *text, uint64_t *value),
                           rule_list *out)
{
    lig_tag *pairs;
    size_t count;
    LIG_TRY(cli_tags(call, flag, &pairs, &count));
    lig_status status = cli_alloc(&out->rules, count + 1, sizeof *out->rules);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        char *prefix = NULL;
        status = prefix_of(pairs[i].name, &prefix);
        if (status == LIG_OK)
            out->rules[out->count++] = (lig_server_rule){prefix, 0};
        if (status == LIG_OK)
            status = parse(call, flag, pairs[i].value, &out->rules[i].value);
    }
    free(pairs);
    return status;
}

static void free_rules(rule_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((char *)list->rules[i].prefix);
    free(list->rules);
}

static lig_status parse_count(const cli_call *call, const char *flag, const char *text,
                              uint64_t *value)
{
    char *end;
    unsigned long long count = strtoull(text, &end, 10);
    if (text[0] < '1' || text[0] > '9' || *end != '\0')
        return cli_wrong(call, lig_fail(LIG_E_INVALID,
                                        "invalid value for --%s: '%s' (expected a number of models "
                                        "above 0)",
                                        flag, text));
    *value = count;
    return LIG_OK;
}

/* 90, 30m, 24h, 7d. */
static lig_status undelete_of(const cli_call *call, int64_t *nanoseconds)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    const char *text = cli_value(call, "undelete");
    char *end;
    if (text == NULL)
        return LIG_OK;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : units;
    if (end == text || unit == NULL || (*end && end[1]) || !(value >= 0) || value > 1e6)
        return cli_wrong(call, lig_fail(LIG_E_INVALID,
                                        "invalid value for --undelete: '%s' (expected a time such "
                                        "as 24h, 30m or 90)",
                                        text));
    value *= seconds[unit - units];
    if (value > 1e9)
        return cli_wrong(call, lig_fail(LIG_E_INVALID, "--undelete is at most 1e9 seconds"));
    *nanoseconds = (int64_t)(value * 1e9);
    return LIG_OK;
}

static lig_status fill_options(const cli_call *call, lig_server_options *options, double *grace)
{
    uint64_t clients = 0, workers = 0;
    double lease = 0;
    LIG_TRY(cli_number(call, "max-clients", 1, 1000000, &clients));
    LIG_TRY(cli_number(call, "workers", 1, 1024, &workers));
    LIG_TRY(cli_bytes(call, "max-bytes-in-flight", &options->max_bytes_in_flight));
    LIG_TRY(cli_bytes(call, "rate", &options->rate));
    LIG_TRY(seconds_of(call, "grace", 0, grace));
    LIG_TRY(seconds_of(call, "lease-timeout", 0.1, &lease));
    LIG_TRY(undelete_of(call, &options->undelete_ns));
    options->max_clients = (uint32_t)clients;
    options->workers = (uint32_t)workers;
    options->lease_ns = (int64_t)(lease * 1e9);
    options->listen = cli_value(call, "listen");
    options->secret_file = cli_value(call, "secret-file");
    options->address_file = cli_value(call, "address-file");
    if (cli_has(call, "allow-shutdown"))
        options->flags |= LIG_SERVER_ALLOW_SHUTDOWN;
    return LIG_OK;
}

/* Signals are blocked before the first thread starts, and taken by sigwait alone. */
static void block_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* The system's malloc gives every thread an arena of its own, and keeps in each what the largest
 * request took: with sixteen workers that adds up. */
static void limit_memory(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, ARENAS);
#endif
}

static int run(cli_call *call)
{
    lig_server_options options = LIG_SERVER_INIT;
    double grace = GRACE_SECONDS;
    lig_server *server;
    rule_list quotas = {0}, keeps = {0};
    cli_place place;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK)
        status = cli_place_refuse_name(call, &place);
    cli_place_fini(&place);
    if (status == LIG_OK)
        status = fill_options(call, &options, &grace);
    if (status == LIG_OK)
        status = rules_of(call, "quota", cli_bytes_text, &quotas);
    if (status == LIG_OK)
        status = rules_of(call, "keep", parse_count, &keeps);
    options.quotas = quotas.rules;
    options.quota_count = quotas.count;
    options.keeps = keeps.rules;
    options.keep_count = keeps.count;
    block_signals();
    limit_memory();
    if (status == LIG_OK)
        status = lig_server_open(&server, call->words[0], &options);
    free_rules(&quotas);
    free_rules(&keeps);
    if (status == LIG_OK) {
        status = serve(call, server, grace);
        int failed = status == LIG_OK ? 0 : cli_failed();
        lig_server_close(server);
        return failed;
    }
    return cli_failed();
}

static const cli_flag flags[] = {
    {"listen", 'l', "HOST:PORT",
     "address to listen on (default: 127.0.0.1:0, a free port); any other than loopback requires "
     "--secret-file"},
    {"secret-file", 0, "FILE",
     "file with the secret, or with one line 'name role key [prefix/*]' per role (read, write or "
     "admin); reloaded on SIGHUP"},
    {"address-file", 0, "FILE", "write the address to this file, and remove it on exit"},
    {"max-clients", 0, "N", "maximum number of connected clients (default: 1024)"},
    {"max-bytes-in-flight", 0, "BYTES",
     "limit on requests and replies in memory (default: 1G); one client may use a sixteenth, "
     "large saves together half"},
    {"rate", 0, "BYTES", "bytes per second that all clients may read in total (default: no limit)"},
    {"workers", 0, "N", "number of threads that process requests (default: 16)"},
    {"allow-shutdown", 0, NULL, "let clients with the role admin stop the server"},
    {"quota", 0, "PREFIX=BYTES",
     "limit the bytes that models below PREFIX/ have written; may be repeated"},
    {"keep", 0, "PREFIX=N",
     "after a save below PREFIX/, retire all but the newest N models there that have no alias; may "
     "be repeated"},
    {"undelete", 0, "TIME",
     "keep retired models for this long, for `ligament restore`: seconds, or a number with m, h or "
     "d (default: 0)"},
    {"grace", 0, "SECONDS", "time that running requests have to finish at shutdown (default: 30)"},
    {"lease-timeout", 0, "SECONDS",
     "disconnect a client that is silent for this long (default: 60)"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_serve = {
    .name = "serve",
    .usage = "STORE [options]",
    .summary = "Serves a store to other processes and hosts",
    .details =
        "Clients use the store as ligament://HOST:PORT, or as ligament://@/PATH with the path of\n"
        "the address file. On the same host they connect through shared memory. SIGTERM and\n"
        "SIGINT stop the server after running requests have finished; SIGHUP reloads the\n"
        "secret file and ends the sessions of roles that were changed.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
