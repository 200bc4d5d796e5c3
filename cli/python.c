#include "python.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static int is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static int beside(const char *folder, char *path, size_t path_bytes)
{
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; i < 2; i++) {
        int bytes = snprintf(path, path_bytes, "%s/%s", folder, names[i]);
        if (bytes > 0 && (size_t)bytes < path_bytes && is_program(path))
            return 1;
    }
    return 0;
}

static lig_status find_python(char *path, size_t path_bytes)
{
    const char *named = getenv("LIGAMENT_PYTHON"), *environment = getenv("VIRTUAL_ENV");
    char self[PATH_MAX], folder[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (named != NULL && named[0] != '\0') {
        snprintf(path, path_bytes, "%s", named);
        return is_program(path)
                   ? LIG_OK
                   : lig_fail(LIG_E_NOTFOUND, "LIGAMENT_PYTHON: '%s' is not a program", named);
    }
    if (bytes > 0) {
        self[bytes] = '\0';
        if (beside(dirname(self), path, path_bytes))
            return LIG_OK;
    }
    if (environment != NULL && environment[0] != '\0' &&
        snprintf(folder, sizeof folder, "%s/bin", environment) < (int)sizeof folder &&
        beside(folder, path, path_bytes))
        return LIG_OK;
    return lig_fail(LIG_E_UNSUPPORTED,
                    "this format needs Python, and there is none beside the program (install "
                    "ligament with pip, or name an interpreter in LIGAMENT_PYTHON)");
}

lig_status cli_run_python(const char *const *arguments, size_t count)
{
    char path[PATH_MAX];
    const char **list;
    LIG_TRY(find_python(path, sizeof path));
    LIG_TRY(cli_alloc(&list, count + 4, sizeof *list));
    list[0] = path;
    list[1] = "-m";
    list[2] = "ligament.convert";
    memcpy(list + 3, arguments, count * sizeof *list);
    fflush(NULL);
    execv(path, (char *const *)(uintptr_t)list);
    free(list);
    return cli_fail_path(path, "run");
}
