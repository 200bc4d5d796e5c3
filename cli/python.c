#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int cli_needs_python(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".ckpt", ".bin", ".keras", ".h5", ".hdf5"};
    struct stat info;
    if (strchr(path, '#') != NULL || strstr(path, "://") != NULL)
        return 0;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return cli_folder_holds(path, ".metadata") && !cli_folder_holds(path, "ligament");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (cli_ends_with(path, ends[i]))
            return 1;
    return 0;
}

lig_status cli_refuse_foreign(const char *path)
{
    return lig_fail(LIG_E_UNSUPPORTED,
                    "'%s' must be copied into a store first: ligament cp '%s' STORE#NAME", path,
                    path);
}

static int is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static int in_folder(const char *folder, char *path, size_t path_bytes)
{
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; i < 2; i++) {
        int bytes = snprintf(path, path_bytes, "%s/%s", folder, names[i]);
        if (bytes > 0 && (size_t)bytes < path_bytes && is_program(path))
            return 1;
    }
    return 0;
}

static int beside(const char *program, char *path, size_t path_bytes)
{
    char copy[PATH_MAX];
    int bytes = snprintf(copy, sizeof copy, "%s", program);
    return bytes > 0 && (size_t)bytes < sizeof copy && in_folder(dirname(copy), path, path_bytes);
}

static lig_status find_python(char *path, size_t path_bytes)
{
    const char *named = getenv("LIGAMENT_PYTHON"), *environment = getenv("VIRTUAL_ENV");
    /* As it was started: a link in the environment's bin/ counts. */
    const char *started = (const char *)(uintptr_t)getauxval(AT_EXECFN);
    char self[PATH_MAX], folder[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (named != NULL && named[0] != '\0') {
        snprintf(path, path_bytes, "%s", named);
        return is_program(path)
                   ? LIG_OK
                   : lig_fail(LIG_E_NOTFOUND, "LIGAMENT_PYTHON: '%s' is not a program", named);
    }
    if (started != NULL && beside(started, path, path_bytes))
        return LIG_OK;
    self[bytes > 0 ? bytes : 0] = '\0';
    if (beside(self, path, path_bytes))
        return LIG_OK;
    if (environment != NULL && environment[0] != '\0' &&
        snprintf(folder, sizeof folder, "%s/bin", environment) < (int)sizeof folder &&
        in_folder(folder, path, path_bytes))
        return LIG_OK;
    return lig_fail(
        LIG_E_UNSUPPORTED,
        "this format needs Python, but no interpreter was found next to the program (install "
        "ligament with pip, or name an interpreter in LIGAMENT_PYTHON)");
}

/* The command line of a module. -P: the working directory may hold files of others. */
static lig_status module_words(const char *module, const char *const *arguments, size_t count,
                               char *path, size_t path_bytes, const char ***words)
{
    const char **list;
    LIG_TRY(find_python(path, path_bytes));
    LIG_TRY(cli_alloc(&list, count + 5, sizeof *list));
    list[0] = path;
    list[1] = "-P";
    list[2] = "-m";
    list[3] = module;
    memcpy(list + 4, arguments, count * sizeof *list);
    *words = list;
    return LIG_OK;
}

lig_status cli_run_python(const char *const *arguments, size_t count)
{
    char path[PATH_MAX];
    const char **words;
    LIG_TRY(module_words("ligament.convert.files", arguments, count, path, sizeof path, &words));
    fflush(NULL);
    execv(path, (char *const *)(uintptr_t)words);
    free(words);
    return cli_fail_path(path, "run");
}

/* Runs in the child. Copies have high numbers first: standard streams may be closed, and the
 * descriptors then have their numbers. */
static void become(const char **words, pid_t parent, int input, int output)
{
    int high_input = fcntl(input, F_DUPFD_CLOEXEC, 10);
    int high_output = fcntl(output, F_DUPFD_CLOEXEC, 10);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(high_input, STDIN_FILENO) >= 0 &&
        dup2(high_output, STDOUT_FILENO) >= 0)
        execv(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

lig_status cli_python_start(cli_python *python, const char *module, const char *const *arguments,
                            size_t count, int output)
{
    char path[PATH_MAX];
    const char **words;
    int ends[2];
    LIG_TRY(module_words(module, arguments, count, path, sizeof path, &words));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(words);
        return cli_fail_path(path, "connect to");
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(words, parent, ends[1], output);
    free(words);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return cli_fail_path(path, "run");
    }
    *python = (cli_python){pid, ends[0]};
    return LIG_OK;
}

static int wait_for(const cli_python *python)
{
    int ended = -1;
    while (waitpid(python->pid, &ended, 0) < 0 && errno == EINTR)
        ;
    return ended;
}

void cli_python_stop(cli_python *python)
{
    kill(python->pid, SIGKILL);
    wait_for(python);
    close(python->fd);
}

/* All that the child sends: JSON holds no NUL. */
static lig_status receive(const cli_python *python, cli_batch *batch, char **text, size_t *bytes)
{
    char *got = NULL;
    size_t room = 0;
    FILE *file = fdopen(python->fd, "r");
    ssize_t count = file != NULL ? getdelim(&got, &room, '\0', file) : -1;
    lig_status status = count > 0
                            ? cli_batch_text(batch, got, (size_t)count, text)
                            : lig_fail(LIG_E_IO, "the Python interpreter exited without a result");
    *bytes = (size_t)count;
    free(got);
    if (file != NULL)
        fclose(file);
    else
        close(python->fd);
    return status;
}

lig_status cli_python_finish(cli_python *python, cli_batch *batch)
{
    const char *error;
    char *text;
    size_t bytes;
    uint64_t number;
    lig_status status = receive(python, batch, &text, &bytes);
    wait_for(python);
    LIG_TRY(status);
    LIG_TRY(cli_json_parse(text, bytes, 0, &batch->json));
    const cli_json_value *answer = cli_json_root(batch->json);
    if (cli_json_member(answer, "error") == NULL)
        return LIG_OK;
    LIG_TRY(cli_json_to_text(cli_json_member(answer, "error"), "error", &error));
    LIG_TRY(cli_json_to_u64(cli_json_member(answer, "status"), "status", &number));
    return lig_fail((lig_status)number, "%s", error);
}
