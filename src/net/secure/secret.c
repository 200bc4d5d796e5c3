#include <ligament/secret.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/error.h"
#include "base/files/plain.h"
#include "net/secure/secret_file.h"
#include "net/secure/secret_memory.h"

lig_status lig_secret_make(char text[LIG_SECRET_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[(LIG_SECRET_TEXT_MAX - 1) / 2];

    LIG_TRY(ligi_random(random, sizeof random));
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
                    "the secret of %s has %zu bytes, expected %d to %d (recommended: 64 "
                    "hexadecimal digits of 32 random bytes)",
                    path, bytes, LIG_SECRET_LEAST, LIG_SECRET_MOST);
}

lig_status lig_secret_write(const char *path, const void *secret, size_t bytes)
{
    LIG_TRY(check_size(path, bytes));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return lig_fail(LIG_E_EXISTS, "secret file %s already exists: remove it, or use it", path);
    if (fd < 0)
        return ligi_fail_errno(errno, "cannot create secret file %s", path);
    lig_status status = LIG_OK;
    if (ligi_plain_write(fd, secret, bytes) != 0 || ligi_plain_write(fd, "\n", 1) != 0)
        status = ligi_fail_errno(errno, "cannot write secret file %s", path);
    if (close(fd) != 0 && status == LIG_OK)
        status = ligi_fail_errno(errno, "cannot write secret file %s", path);
    if (status != LIG_OK)
        unlink(path);
    return status;
}

lig_status lig_secret_read(const char *path, char **secret, size_t *bytes)
{
    char *text;
    size_t got;
    LIG_TRY(ligi_secret_file_read(path, LIG_SECRET_MOST + 64, &text, &got));
    lig_status status = check_size(path, got);
    if (status != LIG_OK) {
        ligi_secret_memory_free(text);
        return status;
    }
    *secret = text;
    *bytes = got;
    return LIG_OK;
}

void lig_secret_free(char *secret)
{
    ligi_secret_memory_free(secret);
}
