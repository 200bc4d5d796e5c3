#include "net/shm/sealed.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static lig_status fail_and_close(int fd, uint64_t bytes)
{
    lig_status status = ligi_fail_errno(errno, "cannot allocate %llu bytes of shared memory",
                                        (unsigned long long)bytes);
    close(fd);
    return status;
}

static lig_status create(uint64_t bytes, int *fd)
{
    int made = memfd_create("ligament", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return ligi_fail_errno(errno, "memfd_create failed");
    if (bytes > INT64_MAX || ftruncate(made, (off_t)bytes) != 0)
        return fail_and_close(made, bytes);
    *fd = made;
    return LIG_OK;
}

lig_status ligi_sealed_create(uint64_t bytes, int *fd)
{
    int made;
    LIG_TRY(create(bytes, &made));
    if (fcntl(made, F_ADD_SEALS, seals) != 0)
        return fail_and_close(made, bytes);
    *fd = made;
    return LIG_OK;
}

lig_status ligi_sealed_create_read_only(uint64_t bytes, void *at, int *fd)
{
    int made;
    LIG_TRY(create(bytes, &made));
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, made, 0);
    if (mapped == MAP_FAILED || fcntl(made, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) != 0)
        return fail_and_close(made, bytes);
    *fd = made;
    return LIG_OK;
}

/* Huge pages (MFD_HUGETLB) may not exist when they are first read, which raises SIGBUS. */
static int has_huge_pages(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) != 0 || system.f_type == HUGETLBFS_MAGIC;
}

lig_status ligi_sealed_check(int fd, uint64_t bytes)
{
    struct stat file;
    int found = fcntl(fd, F_GET_SEALS);
    if (found < 0)
        return lig_fail(LIG_E_DENIED,
                        "the peer's shared memory is not a memfd and cannot be trusted");
    if ((found & seals) != seals)
        return lig_fail(LIG_E_DENIED,
                        "the peer's shared memory is not sealed: the peer could shrink it");
    if (has_huge_pages(fd))
        return lig_fail(LIG_E_DENIED,
                        "the peer's shared memory consists of reserved huge pages, which may be "
                        "missing");
    if (fstat(fd, &file) != 0)
        return ligi_fail_errno(errno, "fstat of the peer's shared memory failed");
    if (file.st_size < 0 || (uint64_t)file.st_size != bytes)
        return lig_fail(LIG_E_DENIED,
                        "the peer's shared memory has %lld bytes, but %llu were announced",
                        (long long)file.st_size, (unsigned long long)bytes);
    return LIG_OK;
}

lig_status ligi_sealed_view(int fd, uint64_t bytes, void **memory, int *read_only)
{
    int found = fcntl(fd, F_GET_SEALS);
    *read_only = found >= 0 && (found & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) != 0;
    if (!*read_only)
        return ligi_sealed_map(fd, bytes, NULL, memory);
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapped == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of %llu bytes of shared memory failed",
                               (unsigned long long)bytes);
    *memory = mapped;
    return LIG_OK;
}

lig_status ligi_sealed_map(int fd, uint64_t bytes, void *at, void **memory)
{
    int flags = MAP_SHARED | (at != NULL ? MAP_FIXED : 0);
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (mapped == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of %llu bytes of shared memory failed",
                               (unsigned long long)bytes);
    *memory = mapped;
    return LIG_OK;
}
