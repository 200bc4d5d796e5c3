#include "cli.h"

#include <string.h>
#include <sys/stat.h>

int cli_ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

int cli_folder_holds(const char *folder, const char *name)
{
    struct stat info;
    char path[8192];
    int bytes = snprintf(path, sizeof path, "%s/%s", folder, name);
    return bytes > 0 && (size_t)bytes < sizeof path && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode);
}
