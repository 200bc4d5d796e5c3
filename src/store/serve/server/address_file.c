#include "store/serve/server/address_file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lig_status write_line(int fd, const char *path, const char *address)
{
    if (dprintf(fd, "%s\n", address) < 0 || fsync(fd) != 0)
        return ligi_fail_errno(errno, "cannot write address file %s", path);
    return LIG_OK;
}

lig_status ligi_address_file_write(const char *path, const char *address)
{
    char *made;
    if (asprintf(&made, "%s.XXXXXX", path) < 0)
        return lig_fail(LIG_E_NOMEM, "out of memory for a path");
    int fd = mkostemp(made, O_CLOEXEC);
    if (fd < 0) {
        lig_status failed = ligi_fail_errno(errno, "cannot create address file %s", path);
        free(made);
        return failed;
    }
    lig_status status = write_line(fd, path, address);
    if (status == LIG_OK && fchmod(fd, 0644) != 0)
        status = ligi_fail_errno(errno, "cannot write address file %s", path);
    close(fd);
    if (status == LIG_OK && rename(made, path) != 0)
        status = ligi_fail_errno(errno, "cannot rename address file %s", path);
    if (status != LIG_OK)
        (void)unlink(made);
    free(made);
    return status;
}

/* Fills `address` with the first line, without its newline. LIG_E_NOTFOUND: there is no file. */
static lig_status read_address(const char *path, char *address, size_t address_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? lig_fail(LIG_E_NOTFOUND, "no address file %s", path)
                               : ligi_fail_errno(errno, "cannot open address file %s", path);
    ssize_t got = read(fd, address, address_bytes - 1);
    int number = errno;
    close(fd);
    if (got < 0)
        return ligi_fail_errno(number, "cannot read address file %s", path);
    address[got] = '\0';
    size_t line = strcspn(address, "\n");
    if (address[line] != '\n' || line == 0)
        return lig_fail(LIG_E_CORRUPT, "address file %s does not contain an address", path);
    address[line] = '\0';
    return LIG_OK;
}

void ligi_address_file_remove(const char *path, const char *address)
{
    char found[512];
    if (read_address(path, found, sizeof found) == LIG_OK && strcmp(found, address) == 0)
        (void)unlink(path);
}
