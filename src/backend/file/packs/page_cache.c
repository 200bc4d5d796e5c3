#include "backend/file/packs/page_cache.h"

#include "backend/file/packs/engine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* Asking costs a microsecond, and reading with RWF_NOWAIT on the chance would start the kernel's
 * read-ahead. */
int64_t ligi_page_cache_bytes(int fd, uint64_t from, uint64_t to)
{
    struct cachestat_range range = {from, to - from};
    struct cachestat counts;

    if (syscall(CACHESTAT_NUMBER, fd, &range, &counts, 0) == 0)
        return (int64_t)(counts.nr_cache * (uint64_t)sysconf(_SC_PAGESIZE));
    unsigned char pages[(LIGI_SLOT_BYTES + LIGI_ALIGN_BYTES) / LIGI_ALIGN_BYTES];
    uint64_t bytes = to - from, count = (bytes + LIGI_ALIGN_BYTES - 1) / LIGI_ALIGN_BYTES;
    if (count > sizeof pages)
        return -1;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)from);
    if (map == MAP_FAILED)
        return -1;
    int64_t cached = mincore(map, bytes, pages) == 0 ? 0 : -1;
    for (uint64_t i = 0; cached >= 0 && i < count; i++)
        cached += (pages[i] & 1) * (int64_t)LIGI_ALIGN_BYTES;
    munmap(map, bytes);
    return cached;
}

/* An OFD lock on the first byte, which is nobody else's business: writers use flock. */
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
