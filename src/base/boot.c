#include "base/boot.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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
