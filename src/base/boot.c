#include "base/boot.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { PAGE = 4096 };

static int hex_value(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

int ligi_boot_id(uint8_t id[16])
{
    char text[64];
    size_t digits = 0;

    memset(id, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < bytes && digits < 32; i++) {
        int value = hex_value(text[i]); /* there are dashes between */
        if (value >= 0) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | value);
            digits++;
        }
    }
    if (digits == 32)
        return 1;
    memset(id, 0, 16);
    return 0;
}

lig_status ligi_random(void *out, size_t bytes)
{
    ssize_t got;
    do
        got = getrandom(out, bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0 || (size_t)got != bytes)
        return ligi_fail_errno(got < 0 ? errno : EIO, "getrandom failed");
    return LIG_OK;
}

lig_status ligi_fork_mark_create(uint8_t **mark)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of a page failed");
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        int number = errno;
        munmap(page, PAGE);
        return ligi_fail_errno(number, "madvise(MADV_WIPEONFORK) failed (needs Linux 4.14)");
    }
    *mark = page;
    **mark = 1;
    return LIG_OK;
}

void ligi_fork_mark_destroy(uint8_t *mark)
{
    if (mark != NULL)
        munmap(mark, PAGE);
}
