#include "net/shm/sealed.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

lig_status ligi_sealed_create(uint64_t bytes, int *fd)
{
    int made = memfd_create("ligament", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return ligi_fail_errno(errno, "shared memory cannot be made");
    if (bytes > INT64_MAX || ftruncate(made, (off_t)bytes) != 0 ||
        fcntl(made, F_ADD_SEALS, seals) != 0) {
        lig_status status = ligi_fail_errno(errno, "%llu bytes of shared memory cannot be had",
                                            (unsigned long long)bytes);
        close(made);
        return status;
    }
    *fd = made;
    return LIG_OK;
}

lig_status ligi_sealed_check(int fd, uint64_t bytes)
{
    struct stat file;
    int found = fcntl(fd, F_GET_SEALS);
    if (found < 0)
        return lig_fail(LIG_E_DENIED, "the peer's shared memory is no memfd: it cannot be trusted");
    if ((found & seals) != seals)
        return lig_fail(LIG_E_DENIED,
                        "the peer's shared memory is not sealed: it could be shrunk under us");
    if (fstat(fd, &file) != 0)
        return ligi_fail_errno(errno, "the peer's shared memory cannot be looked at");
    if (file.st_size < 0 || (uint64_t)file.st_size != bytes)
        return lig_fail(LIG_E_DENIED, "the peer's shared memory has %lld bytes, %llu were said",
                        (long long)file.st_size, (unsigned long long)bytes);
    return LIG_OK;
}

lig_status ligi_sealed_map(int fd, uint64_t bytes, void *at, void **memory)
{
    int flags = MAP_SHARED | (at != NULL ? MAP_FIXED : 0);
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (mapped == MAP_FAILED)
        return ligi_fail_errno(errno, "%llu bytes of shared memory cannot be mapped",
                               (unsigned long long)bytes);
    *memory = mapped;
    return LIG_OK;
}
