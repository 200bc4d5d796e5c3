/* The program: finds the command, loads the plugins listed in the environment, runs the command. */
#include "cli.h"

#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The table of commands, in the order of the help text. */
#define COMMANDS(X)                                                                                \
    X(info)                                                                                        \
    X(ls)                                                                                          \
    X(show)                                                                                        \
    X(find)                                                                                        \
    X(diff)                                                                                        \
    X(tree)                                                                                        \
    X(watch)                                                                                       \
    X(cp)                                                                                          \
    X(rm)                                                                                          \
    X(restore)                                                                                     \
    X(alias)                                                                                       \
    X(tag)                                                                                         \
    X(metric)                                                                                      \
    X(rename)                                                                                      \
    X(check)                                                                                       \
    X(compact)                                                                                     \
    X(partition)                                                                                   \
    X(launch)                                                                                      \
    X(serve)                                                                                       \
    X(trace)                                                                                       \
    X(plugin_test)

#define DECLARE(name) extern const cli_command cli_cmd_##name;
COMMANDS(DECLARE)
#define LIST(name) &cli_cmd_##name,
static const cli_command *const commands[] = {COMMANDS(LIST)};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_help(FILE *file)
{
    fputs("Usage: ligament COMMAND [arguments]\n"
          "\n"
          "Saves, inspects and copies models. A model is URI#name; a plain path is a file: URI.\n"
          "\n",
          file);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(file, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs(
        "\n"
        "Run 'ligament COMMAND --help' for details; --json switches the output to JSON.\n"
        "LIGAMENT_PLUGINS is a ':'-separated list of shared libraries to load.\n"
        "Exit status: 0 (success), 1 (failure; an error message is on stderr), 2 (wrong usage).\n",
        file);
}

static lig_status load_plugins(void)
{
    const char *list = getenv("LIGAMENT_PLUGINS");
    while (list != NULL && *list != '\0') {
        size_t bytes = strcspn(list, ":");
        if (bytes > 0) {
            char *path;
            LIG_TRY(cli_format(&path, "%.*s", (int)bytes, list));
            lig_status status = lig_plugin_load(path, NULL);
            free(path);
            LIG_TRY(status);
        }
        list += bytes + (list[bytes] == ':');
    }
    return LIG_OK;
}

/* Other commands read no files of other programs. */
static lig_status provide_credentials(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strncasecmp(argv[i], "s3:", 3) == 0)
            return cli_aws_profile();
    return LIG_OK;
}

/* Files are read through mappings: an I/O error or a truncated file raises SIGBUS. */
static void lose_file(int number)
{
    static const char text[] =
        "ligament: a file was truncated while it was read, or an I/O error occurred\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)number, (void)ignored;
    _exit(1);
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_call call;
    int misused = 0, status = cli_call_parse(&call, command, argc, argv);
    if (status != 0)
        return status > 0 ? status : 0;
    call.misused = &misused;
    cli_show_rebuilds(&call);
    int ready = load_plugins() == LIG_OK && provide_credentials(argc, argv) == LIG_OK;
    status = ready ? command->run(&call) : cli_failed();
    cli_call_fini(&call);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("ligament: cannot write to standard output\n", stderr);
        return 1;
    }
    return misused ? 2 : status;
}

int main(int argc, char **argv)
{
    struct sigaction lost = {.sa_handler = lose_file};
    setlocale(LC_CTYPE, "");
    sigaction(SIGBUS, &lost, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write above RLIMIT_FSIZE fails with EFBIG instead */
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        const cli_command *about = argc > 2 ? find_command(argv[2]) : NULL;
        if (about != NULL)
            cli_help(stdout, about);
        else
            print_help(name == NULL ? stderr : stdout);
        return name == NULL ? 2 : 0;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("ligament %s\n", lig_version());
        return 0;
    }
    const cli_command *command = find_command(name);
    if (command == NULL) {
        fprintf(stderr, "ligament: unknown command '%s' (see 'ligament --help')\n", name);
        return 2;
    }
    return run_command(command, argc - 2, argv + 2);
}
