#include "base/files/plain.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "a plain file";
    case S_IFDIR: return "a folder";
    case S_IFLNK: return "a symbolic link";
    case S_IFIFO: return "a FIFO";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

static lig_status check_kind(mode_t mode, mode_t wanted, const char *place, const char *name)
{
    if ((mode & S_IFMT) == wanted)
        return LIG_OK;
    const char *advice = S_ISLNK(mode) ? "links below a store are not followed: replace it by what "
                                         "it points to"
                                       : "move it away";
    return lig_fail(LIG_E_CORRUPT, "%s/%s is %s, expected %s (%s)", place, name, kind_of(mode),
                    kind_of(wanted), advice);
}

lig_status ligi_plain_check(mode_t mode, const char *place, const char *name)
{
    return check_kind(mode, S_IFREG, place, name);
}

lig_status ligi_plain_sole(int fd, const char *place, const char *name)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return ligi_fail_errno(errno, "fstat of %s/%s failed", place, name);
    if (info.st_nlink <= 1)
        return LIG_OK;
    return lig_fail(LIG_E_DENIED,
                    "%s/%s has %llu hard links, expected 1: writing would change the file under "
                    "its other names (replace it by a copy)",
                    place, name, (unsigned long long)info.st_nlink);
}

/* The open failed with `number`: links, sockets and folders each fail in a different way. */
static lig_status explain(int folder_fd, const char *place, const char *name, mode_t wanted,
                          int number)
{
    struct stat info;

    if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
        LIG_TRY(check_kind(info.st_mode, wanted, place, name));
    return ligi_fail_errno(number, "cannot open %s/%s", place, name);
}

static lig_status check(int fd, const char *place, const char *name, int flags)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return ligi_fail_errno(errno, "cannot open %s/%s", place, name);
    LIG_TRY(ligi_plain_check(info.st_mode, place, name));
    /* io_uring takes the flag as a request not to wait for the disk. */
    if (fcntl(fd, F_SETFL, flags & (O_DIRECT | O_APPEND)) != 0)
        return ligi_fail_errno(errno, "cannot open %s/%s", place, name);
    return LIG_OK;
}

lig_status ligi_plain_open(int folder_fd, const char *place, const char *name, int flags, int *fd)
{
    const int careful = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

    int opened = openat(folder_fd, name, flags | careful, 0666);
    if (opened < 0 && errno == ENOENT && (flags & O_CREAT) == 0)
        return LIG_E_NOTFOUND;
    if (opened < 0)
        return explain(folder_fd, place, name, S_IFREG, errno);
    lig_status status = check(opened, place, name, flags);
    if (status == LIG_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

lig_status ligi_plain_folder(int folder_fd, const char *place, const char *name, int *fd)
{
    int opened = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (opened < 0 && errno == ENOENT)
        return LIG_E_NOTFOUND;
    if (opened < 0)
        return explain(folder_fd, place, name, S_IFDIR, errno);
    *fd = opened;
    return LIG_OK;
}

int ligi_plain_write(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t wrote = write(fd, at, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}
