#include "net/secure/secret_file.h"

#include "base/error.h"
#include "net/secure/secret_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Checks the open file, so that it cannot be replaced between check and read. */
static lig_status check_file(const char *path, const struct stat *file, size_t most)
{
    if (!S_ISREG(file->st_mode))
        return lig_fail(LIG_E_INVALID, "secret file %s is not a regular file", path);
    if (file->st_uid != geteuid() && file->st_uid != 0)
        return lig_fail(
            LIG_E_DENIED,
            "secret file %s belongs to user %u, not to user %u: its owner knows the secret", path,
            (unsigned)file->st_uid, (unsigned)geteuid());
    if ((file->st_mode & 077) != 0)
        return lig_fail(LIG_E_DENIED,
                        "secret file %s is accessible by others (mode %03o): chmod 600 it, and "
                        "create a new secret if others may have read it",
                        path, (unsigned)(file->st_mode & 0777));
    if ((uint64_t)file->st_size > most)
        return lig_fail(LIG_E_INVALID, "secret file %s has %lld bytes, expected at most %zu", path,
                        (long long)file->st_size, most);
    return LIG_OK;
}

static lig_status read_all(int fd, const char *path, char *data, size_t capacity, size_t *bytes)
{
    size_t at = 0;
    while (at < capacity) {
        ssize_t got = read(fd, data + at, capacity - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ligi_fail_errno(errno, "cannot read secret file %s", path);
        if (got == 0)
            break;
        at += (size_t)got;
    }
    while (at > 0 && strchr(" \t\r\n", data[at - 1]) != NULL && data[at - 1] != '\0')
        at--;
    data[at] = '\0';
    *bytes = at;
    return LIG_OK;
}

lig_status ligi_secret_file_read(const char *path, size_t most, char **text, size_t *bytes)
{
    /* Opening a FIFO must not block; it is rejected once it is open. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? lig_fail(LIG_E_NOTFOUND, "no secret file %s", path)
                               : ligi_fail_errno(errno, "cannot open secret file %s", path);
    struct stat file;
    char *data = NULL;
    size_t got = 0;
    lig_status status = fstat(fd, &file) == 0
                            ? check_file(path, &file, most)
                            : ligi_fail_errno(errno, "fstat of secret file %s failed", path);
    if (status == LIG_OK)
        status = ligi_secret_memory_alloc(&data, most + 1, "a secret");
    if (status == LIG_OK)
        status = read_all(fd, path, data, most, &got);
    close(fd);
    if (status != LIG_OK) {
        ligi_secret_memory_free(data);
        return status;
    }
    *text = data;
    *bytes = got;
    return LIG_OK;
}
