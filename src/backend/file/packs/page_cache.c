#include "backend/file/packs/page_cache.h"

#include "backend/file/packs/engine.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHESTAT_NUMBER 451
#define SHARE 4 /* of the available memory, one read may take this part */

struct cachestat_range {
    uint64_t off, len;
};
struct cachestat {
    uint64_t nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted;
};

/* The number of resident pages; -1 if unknown. */
static int64_t mapped_bytes(int fd, uint64_t from, uint64_t to)
{
    unsigned char pages[(LIGI_SLOT_BYTES + LIGI_ALIGN_BYTES) / LIGI_ALIGN_BYTES];
    int64_t cached = 0;

    for (uint64_t at = from - from % LIGI_ALIGN_BYTES, end; at < to; at = end) {
        end = to - at > LIGI_SLOT_BYTES ? at + LIGI_SLOT_BYTES : to;
        void *map = mmap(NULL, end - at, PROT_READ, MAP_SHARED, fd, (off_t)at);
        if (map == MAP_FAILED)
            return -1;
        int failed = mincore(map, end - at, pages) != 0;
        munmap(map, end - at);
        if (failed)
            return -1;
        for (uint64_t i = 0; i < (end - at + LIGI_ALIGN_BYTES - 1) / LIGI_ALIGN_BYTES; i++)
            cached += (pages[i] & 1) * (int64_t)LIGI_ALIGN_BYTES;
    }
    return cached;
}

/* On overlayfs the pages belong to the underlying file, which cachestat does not examine. */
static int is_overlay(int fd)
{
    struct statfs about;

    return fstatfs(fd, &about) == 0 && about.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* Asking costs a microsecond, and reading with RWF_NOWAIT on the chance would start the kernel's
 * read-ahead. */
int64_t ligi_page_cache_bytes(int fd, uint64_t from, uint64_t to)
{
    struct cachestat_range range = {from, to - from};
    struct cachestat counts;

    if (syscall(CACHESTAT_NUMBER, fd, &range, &counts, 0) == 0 &&
        (counts.nr_cache > 0 || !is_overlay(fd)))
        return (int64_t)(counts.nr_cache * (uint64_t)sysconf(_SC_PAGESIZE));
    return mapped_bytes(fd, from, to);
}

/* An OFD lock on the first byte, which nothing else locks: writers use flock. */
static struct flock reading(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
}

void ligi_page_cache_announce(int fd)
{
    struct flock lock = reading(F_RDLCK);

    (void)!fcntl(fd, F_OFD_SETLK, &lock);
}

int ligi_page_cache_shared(int fd)
{
    struct flock lock = reading(F_WRLCK);

    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

uint64_t ligi_page_cache_available(void)
{
    static const char label[] = "MemAvailable:";
    char text[512];

    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    if (bytes < 0)
        return 0;
    text[bytes] = 0;
    const char *found = strstr(text, label);
    return found == NULL ? 0 : (uint64_t)strtoull(found + sizeof label - 1, NULL, 10) << 10;
}

int ligi_page_cache_fits(uint64_t bytes, uint64_t available)
{
    return bytes <= available / SHARE;
}
