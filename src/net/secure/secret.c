#include <ligament/secret.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "net/secure/secret_memory.h"

lig_status lig_secret_make(char text[LIG_SECRET_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[(LIG_SECRET_TEXT_MAX - 1) / 2];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return ligi_fail_errno(errno, "getrandom failed for a secret");
    for (size_t i = 0; i < sizeof random; i++) {
        text[2 * i] = digits[random[i] >> 4];
        text[2 * i + 1] = digits[random[i] & 15];
    }
    text[LIG_SECRET_TEXT_MAX - 1] = '\0';
    explicit_bzero(random, sizeof random);
    return LIG_OK;
}

static lig_status check_size(const char *path, size_t bytes)
{
    if (bytes >= LIG_SECRET_LEAST && bytes <= LIG_SECRET_MOST)
        return LIG_OK;
    return lig_fail(LIG_E_INVALID,
                    "the secret of %s has %zu bytes, expected %d to %d (best: 64 hexadecimal "
                    "digits of 32 random bytes)",
                    path, bytes, LIG_SECRET_LEAST, LIG_SECRET_MOST);
}

static lig_status write_all(int fd, const char *path, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return ligi_fail_errno(errno, "cannot write secret file %s", path);
        at += written;
        bytes -= (size_t)written;
    }
    return LIG_OK;
}

lig_status lig_secret_write(const char *path, const void *secret, size_t bytes)
{
    LIG_TRY(check_size(path, bytes));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return lig_fail(LIG_E_EXISTS, "secret file %s already exists: remove it, or use it", path);
    if (fd < 0)
        return ligi_fail_errno(errno, "cannot create secret file %s", path);
    lig_status status = write_all(fd, path, secret, bytes);
    if (status == LIG_OK)
        status = write_all(fd, path, "\n", 1);
    if (close(fd) != 0 && status == LIG_OK)
        status = ligi_fail_errno(errno, "cannot write secret file %s", path);
    if (status != LIG_OK)
        unlink(path);
    return status;
}

/* Checks the open file, so that it cannot be replaced between check and read. */
static lig_status check_file(const char *path, const struct stat *file)
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
                        "create a new secret if somebody may have read it",
                        path, (unsigned)(file->st_mode & 0777));
    if (file->st_size > LIG_SECRET_MOST + 64)
        return check_size(path, (size_t)file->st_size);
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
    return check_size(path, at);
}

lig_status lig_secret_read(const char *path, char **secret, size_t *bytes)
{
    /* Opening a FIFO must not block; it is rejected once it is open. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? lig_fail(LIG_E_NOTFOUND, "no secret file %s", path)
                               : ligi_fail_errno(errno, "cannot open secret file %s", path);
    struct stat file;
    char *data = NULL;
    size_t got = 0, room = LIG_SECRET_MOST + 64;
    lig_status status = fstat(fd, &file) == 0
                            ? check_file(path, &file)
                            : ligi_fail_errno(errno, "fstat of secret file %s failed", path);
    if (status == LIG_OK)
        status = ligi_secret_memory_alloc(&data, room + 1, "a secret");
    if (status == LIG_OK)
        status = read_all(fd, path, data, room, &got);
    close(fd);
    if (status != LIG_OK) {
        ligi_secret_memory_free(data);
        return status;
    }
    *secret = data;
    *bytes = got;
    return LIG_OK;
}

void lig_secret_free(char *secret)
{
    ligi_secret_memory_free(secret);
}
