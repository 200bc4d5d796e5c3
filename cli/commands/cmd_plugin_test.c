#include "commands/plugin_suite.h"

#include "formats/json.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TITLE_BYTES = 256 };

typedef struct tally {
    char *running; /* shared with the parent process: the check in progress */
    cli_json_writer *writer;
    size_t passed, failed, absent;
} tally;

static void report(tally *self, const char *title, const char *result, const char *message)
{
    if (self->writer != NULL) {
        cli_json_open(self->writer, NULL, '{');
        cli_json_put_text(self->writer, "check", title);
        cli_json_put_text(self->writer, "result", result);
        cli_json_put_text(self->writer, "sentence", message);
        cli_json_close(self->writer, '}');
        return;
    }
    printf("%-6s %s", result, title);
    if (message != NULL) {
        fputs(": ", stdout);
        cli_put_escaped(stdout, message);
    }
    putchar('\n');
    fflush(stdout);
}

static void run_checks(tally *self, cli_suite *suite, const cli_suite_check *check)
{
    for (; check->title != NULL; check++) {
        snprintf(self->running, TITLE_BYTES, "%s", check->title);
        if (check->applies != NULL && !check->applies(suite)) {
            self->absent++;
            report(self, check->title, "absent", NULL);
        } else if (check->run(suite) == LIG_OK) {
            self->passed++;
            report(self, check->title, "ok", NULL);
        } else {
            self->failed++;
            report(self, check->title, "FAILED", lig_error_text());
        }
    }
}

/* A path, or the name of a registered backend. */
static lig_status find_backend(cli_suite *suite, const char *word)
{
    suite->name = word;
    suite->ops = strchr(word, '/') == NULL ? lig_backend_find(word) : NULL;
    if (suite->ops != NULL)
        return LIG_OK;
    LIG_TRY(lig_plugin_load(word, &suite->name));
    suite->ops = lig_backend_find(suite->name);
    return suite->ops != NULL
               ? LIG_OK
               : lig_fail(LIG_E_INTERNAL, "'%s' was loaded but did not register a backend", word);
}

static lig_status test(const cli_call *call, cli_suite *suite, tally *self)
{
    uint64_t count = 5000;
    suite->config = cli_value(call, "config") != NULL ? cli_value(call, "config") : "";
    LIG_TRY(cli_number(call, "tensors", 1, 10000000, &count));
    suite->tensor_count = count;
    LIG_TRY(find_backend(suite, call->words[0]));
    LIG_TRY(cli_suite_open(suite));
    report(self, "loads and opens", "ok", NULL);
    self->passed++;
    run_checks(self, suite, cli_set_checks);
    run_checks(self, suite, cli_optional_checks);
    cli_suite_close(suite);
    return LIG_OK;
}

static void sum_up(const tally *self, const cli_suite *suite)
{
    if (self->writer == NULL) {
        printf("%s: %zu passed, %zu failed, %zu absent\n", suite->name, self->passed, self->failed,
               self->absent);
        return;
    }
    cli_json_put_u64(self->writer, "passed", self->passed);
    cli_json_put_u64(self->writer, "failed", self->failed);
    cli_json_put_u64(self->writer, "absent", self->absent);
}

static int run_suite(const cli_call *call, char *running)
{
    cli_json_writer writer = {.file = stdout};
    cli_suite suite = {0};
    tally self = {.running = running, .writer = call->json ? &writer : NULL};
    if (call->json) {
        cli_json_open(&writer, NULL, '{');
        cli_json_open(&writer, "checks", '[');
    }
    lig_status status = test(call, &suite, &self);
    if (call->json)
        cli_json_close(&writer, ']');
    if (status == LIG_OK)
        sum_up(&self, &suite);
    if (call->json)
        cli_json_close(&writer, '}');
    if (status == LIG_OK && self.failed > 0)
        status = lig_fail(LIG_E_MISMATCH, "backend '%s' failed %zu check%s", suite.name,
                          self.failed, self.failed > 1 ? "s" : "");
    return status == LIG_OK ? 0 : cli_failed();
}

/* A plugin under test may crash, which is also a result, so the suite runs in a child process. */
static int run(cli_call *call)
{
    char *running =
        mmap(NULL, TITLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ended = 0;
    if (running == MAP_FAILED)
        return cli_fail_path("memory", "share") != LIG_OK ? cli_failed() : 0;
    snprintf(running, TITLE_BYTES, "loads and opens");
    pid_t child = fork();
    if (child == 0) {
        int status = run_suite(call, running);
        fflush(stdout);
        _exit(status);
    }
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR)
        ;
    lig_status status = LIG_OK;
    if (child < 0)
        status = lig_fail(LIG_E_IO, "cannot create a process for the suite");
    else if (WIFSIGNALED(ended))
        status = lig_fail(LIG_E_INTERNAL, "'%s' crashed (%s) in '%s'", call->words[0],
                          strsignal(WTERMSIG(ended)), running);
    munmap(running, TITLE_BYTES);
    return status != LIG_OK ? cli_failed() : WEXITSTATUS(ended);
}

static const cli_flag flags[] = {
    {"config", 'c', "TEXT", "configuration to open the backend with; use an empty location"},
    {"tensors", 0, "N", "number of tensors in the large set (5000)"},
    {NULL, 0, NULL, NULL},
};

const cli_command cli_cmd_plugin_test = {
    .name = "plugin-test",
    .usage = "LIBRARY.so | NAME [options]",
    .summary = "Runs the conformance suite on a plugin",
    .details = "Prints one line per check; exits with 1 if any failed. The suite does not remove\n"
               "the sets it saves: use --config to give it a separate location.",
    .flags = flags,
    .word_min = 1,
    .word_max = 1,
    .run = run,
};
