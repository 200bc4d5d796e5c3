#include "cli.h"
#include "formats/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

/* Notices a closed output between events, too. */
static int is_over(void *context)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    (void)context;
    return stopped || (poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0);
}

static const char *kind_of(const lig_event *event)
{
    static const char *const kinds[] = {"?", "saved", "replaced", "retired", "alias", "updated"};
    size_t kind = (size_t)event->kind;
    return kinds[kind < sizeof kinds / sizeof kinds[0] ? kind : 0];
}

static void print_json(const lig_event *event)
{
    cli_json_writer writer = {.file = stdout, .compact = 1};
    cli_json_open(&writer, NULL, '{');
    cli_json_put_u64(&writer, "version", event->version);
    cli_json_put_i64(&writer, "date_ns", event->date_ns);
    cli_json_put_text(&writer, "kind", kind_of(event));
    cli_json_put_text(&writer, "name", event->name);
    cli_json_put_text(&writer, "other", event->other[0] != '\0' ? event->other : NULL);
    if (event->model != 0)
        cli_json_put_u64(&writer, "model", event->model);
    else
        cli_json_put_raw(&writer, "model", "null");
    cli_json_put_u64(&writer, "more", event->more);
    cli_json_close(&writer, '}');
    putchar('\n');
}

static void print_line(const lig_event *event)
{
    char date[32];
    cli_date_text(event->date_ns, date, sizeof date);
    printf("%s  %llu  %-8s  ", date, (unsigned long long)event->version, kind_of(event));
    cli_put_escaped(stdout, event->name);
    if (event->kind == LIG_EVENT_ALIAS)
        fputs(event->model != 0 ? " -> " : " removed", stdout);
    else if (event->other[0] != '\0')
        fputs(", before: ", stdout);
    cli_put_escaped(stdout, event->other);
    putchar('\n');
}

/* Returns 0 once the output is closed. Discards the buffer, whose flush at exit would fail
 * again. */
static int flush_line(void)
{
    if (fflush(stdout) == 0 || errno != EPIPE)
        return 1;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        close(nowhere);
    }
    fflush(stdout);
    clearerr(stdout);
    return 0;
}

static lig_status follow(const cli_call *call, lig_watch *watch, int64_t timeout_ns)
{
    lig_event event;
    lig_status status;
    while ((status = lig_watch_next(watch, timeout_ns, &event)) == LIG_OK) {
        if (call->json)
            print_json(&event);
        else
            print_line(&event);
        if (!flush_line() || ferror(stdout) || stopped)
            return LIG_OK;
    }
    return status == LIG_E_TIMEOUT || (status == LIG_E_CLOSED && is_over(NULL)) ? LIG_OK : status;
}

static lig_status timeout_of(const cli_call *call, int64_t *timeout_ns)
{
    const char *text = cli_value(call, "timeout");
    char *end;
    if (text == NULL)
        return LIG_OK;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0)
        return cli_wrong(
            call,
            lig_fail(LIG_E_INVALID,
                     "invalid value for --timeout: '%s' (expected seconds, at least 0)", text));
    *timeout_ns = seconds < 9e9 ? (int64_t)(seconds * 1e9) : LIG_FOREVER;
    return LIG_OK;
}

static lig_status watch(const cli_call *call, const cli_place *place)
{
    const char *name = call->word_count > 1 ? call->words[1] : place->name;
    uint64_t since = LIG_WATCH_NOW;
    int64_t timeout_ns = LIG_FOREVER;
    lig_store *store;
    lig_watch *watch;
    LIG_TRY(cli_number(call, "since", 0, INT64_MAX, &since));
    LIG_TRY(timeout_of(call, &timeout_ns));
    LIG_TRY(cli_place_open(place, "r", &store));
    lig_store_set_interrupt(store, is_over, NULL);
    lig_status status = lig_store_watch(store, name, since, &watch);
    if (status == LIG_OK) {
        status = follow(call, watch, timeout_ns);
        lig_watch_close(watch);
    }
    lig_store_close(store);
    return status;
}

static int run(cli_call *call)
{
    const struct sigaction stopping = {.sa_handler = stop};
    cli_place place;
    lig_status status = cli_place_parse(&place, call->words[0]);
    if (status == LIG_OK && place.name != NULL && call->word_count > 1) {
        cli_place_fini(&place);
        return cli_misused(call,
                           "pass the pattern either after '#' or as a separate argument, not both");
    }
    sigaction(SIGINT, &stopping, NULL);
    sigaction(SIGTERM, &stopping, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (status == LIG_OK)
        status = watch(call, &place);
    cli_place_fini(&place);
    return status == LIG_OK ? 0 : cli_failed();
}

static const cli_flag flags[] = {
    {"since", 's', "VERSION",
     "start after this version; 0 prints all events that the store still keeps"},
    {"timeout", 't', "SECONDS", "exit after this many seconds without a change"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_watch = {
    .name = "watch",
    .usage = "STORE[#PATTERN] [PATTERN] [options]",
    .summary = "Prints changes to a store as they are committed",
    .details =
        "Prints one line per event: date, version, kind (saved, replaced, retired, alias, "
        "updated)\n"
        "and name; with --json one JSON object per line. An event matches a pattern by its name or "
        "by\n"
        "the other name it involves. Exits with 0 on SIGINT, SIGTERM or when the output is closed.",
    .flags = flags,
    .word_min = 1,
    .word_max = 2,
    .run = run,
};
