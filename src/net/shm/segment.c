#include "net/shm/segment.h"

#include "base/error.h"
#include "net/shm/sealed.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A segment's addresses begin at a multiple of LIGI_SEGMENT_ALIGN with one private page, which
 * records the owner of the memory: free finds it from any block's address, and no peer can write
 * there. The shared pages follow. A block larger than half of LIGI_SEGMENT_ALIGN has a segment to
 * itself; since it begins at the second page, free finds it in the same way. */

#define SHARED_PAGES (LIGI_SEGMENT_ALIGN / LIGI_BLOCK_BYTES - 1)
#define ALONE_BYTES (LIGI_SEGMENT_ALIGN / 2)

typedef struct segment {
    struct segment *next;
    ligi_segments *owner;
    uint8_t *memory; /* the shared pages */
    uint64_t bytes;  /* of them */
    uint32_t id;
    int fd, alone;
    int reserved; /* alone, read-only to peers, not counted */
    uint32_t block_count;
    uint32_t runs[]; /* by page: pages of the block that begins here, 0 where none does; one entry
                        when alone */
} segment;

struct ligi_segments {
    uint64_t limit_bytes;
    pid_t pid;
    pthread_mutex_t lock;
    segment *first;
    uint64_t used_bytes, epoch;
    uint32_t last_id;
    int owned;
};

lig_status ligi_segments_create(uint64_t limit_bytes, ligi_segments **segments)
{
    ligi_segments *made;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the table of shared memory"));
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (limit_bytes == 0)
        limit_bytes = pages > 0 && page > 0 ? (uint64_t)pages / 2 * (uint64_t)page : INT32_MAX;
    made->limit_bytes = limit_bytes;
    made->pid = getpid();
    made->owned = 1;
    if (pthread_mutex_init(&made->lock, NULL) != 0) {
        free(made);
        return lig_fail(LIG_E_NOMEM, "pthread_mutex_init failed for the table of shared memory");
    }
    *segments = made;
    return LIG_OK;
}

/* Called with the lock; releases it. */
static void leave(ligi_segments *segments)
{
    int last = !segments->owned && segments->first == NULL;
    pthread_mutex_unlock(&segments->lock);
    if (last) {
        pthread_mutex_destroy(&segments->lock);
        free(segments);
    }
}

void ligi_segments_destroy(ligi_segments *segments)
{
    /* In a forked child the lock may be held forever by a thread of the parent. */
    if (segments == NULL || segments->pid != getpid())
        return;
    pthread_mutex_lock(&segments->lock);
    segments->owned = 0;
    leave(segments);
}

static lig_status reserve(uint64_t bytes, uint8_t **base)
{
    uint64_t all = bytes + LIGI_SEGMENT_ALIGN;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *wide = mmap(NULL, all, PROT_NONE, flags, -1, 0);
    if (wide == MAP_FAILED)
        return ligi_fail_errno(errno, "cannot reserve addresses for %llu bytes",
                               (unsigned long long)bytes);
    uint64_t before = -(uint64_t)(uintptr_t)wide & (LIGI_SEGMENT_ALIGN - 1);
    if (before > 0)
        munmap(wide, before);
    munmap(wide + before + bytes, all - before - bytes);
    *base = wide + before;
    return LIG_OK;
}

static lig_status make_shared(segment *made, uint8_t *at)
{
    void *mapped;
    if (made->reserved)
        return ligi_sealed_create_read_only(made->bytes, at, &made->fd);
    LIG_TRY(ligi_sealed_create(made->bytes, &made->fd));
    lig_status status = ligi_sealed_map(made->fd, made->bytes, at, &mapped);
    if (status != LIG_OK)
        close(made->fd);
    return status;
}

static lig_status segment_map(segment *made)
{
    uint8_t *base;
    lig_status status;

    LIG_TRY(reserve(made->bytes + LIGI_BLOCK_BYTES, &base));
    if (mprotect(base, LIGI_BLOCK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        status = ligi_fail_errno(errno, "mmap of a page for shared memory failed");
        goto unreserve;
    }
    status = make_shared(made, base + LIGI_BLOCK_BYTES);
    if (status != LIG_OK)
        goto unreserve;
    made->memory = base + LIGI_BLOCK_BYTES;
    *(segment **)(void *)base = made;
    return LIG_OK;
unreserve:
    munmap(base, made->bytes + LIGI_BLOCK_BYTES);
    return status;
}

static lig_status segment_create(ligi_segments *segments, uint64_t alone_bytes, int reserved,
                                 segment **out)
{
    segment *made;
    size_t pages = alone_bytes > 0 ? 1 : SHARED_PAGES;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made + pages * sizeof *made->runs, "a shared segment"));
    made->owner = segments;
    made->alone = alone_bytes > 0;
    made->reserved = reserved;
    made->bytes = made->alone ? alone_bytes : SHARED_PAGES * LIGI_BLOCK_BYTES;
    lig_status status = segment_map(made);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->id = ++segments->last_id;
    made->next = segments->first;
    segments->first = made;
    *out = made;
    return LIG_OK;
}

static void segment_destroy(segment *gone)
{
    ligi_segments *segments = gone->owner;
    segment **link = &segments->first;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    segments->epoch++;
    munmap(gone->memory - LIGI_BLOCK_BYTES, gone->bytes + LIGI_BLOCK_BYTES);
    close(gone->fd);
    free(gone);
}

/* The first run of `pages` free pages of a segment for many blocks. */
static uint8_t *carve(segment *from, uint32_t pages)
{
    uint32_t free_pages = 0;
    for (uint32_t page = 0; page < SHARED_PAGES;) {
        if (from->runs[page] > 0) {
            page += from->runs[page];
            free_pages = 0;
            continue;
        }
        page++;
        if (++free_pages < pages)
            continue;
        from->runs[page - pages] = pages;
        from->block_count++;
        return from->memory + (uint64_t)(page - pages) * LIGI_BLOCK_BYTES;
    }
    return NULL;
}

/* Called with the lock. */
static lig_status alloc_block(ligi_segments *segments, uint64_t bytes, void **memory)
{
    segment *from;
    if (bytes > segments->limit_bytes || segments->used_bytes > segments->limit_bytes - bytes)
        return lig_fail(LIG_E_LIMIT,
                        "shared memory limit reached: %llu bytes requested, %llu in use, the limit "
                        "is %llu (free some tensors first)",
                        (unsigned long long)bytes, (unsigned long long)segments->used_bytes,
                        (unsigned long long)segments->limit_bytes);
    if (bytes > ALONE_BYTES) {
        LIG_TRY(segment_create(segments, bytes, 0, &from));
        from->block_count = 1;
        *memory = from->memory;
        return LIG_OK;
    }
    uint32_t pages = (uint32_t)(bytes / LIGI_BLOCK_BYTES);
    for (from = segments->first; from != NULL; from = from->next) {
        void *found = from->alone ? NULL : carve(from, pages);
        if (found != NULL) {
            *memory = found;
            return LIG_OK;
        }
    }
    LIG_TRY(segment_create(segments, 0, 0, &from));
    *memory = carve(from, pages);
    return LIG_OK;
}

lig_status ligi_segments_alloc(ligi_segments *segments, uint64_t bytes, void **memory)
{
    if (bytes > INT64_MAX)
        return lig_fail(LIG_E_LIMIT, "shared memory request too large: %llu bytes",
                        (unsigned long long)bytes);
    bytes = (bytes + (bytes == 0) + LIGI_BLOCK_BYTES - 1) / LIGI_BLOCK_BYTES * LIGI_BLOCK_BYTES;
    pthread_mutex_lock(&segments->lock);
    lig_status status = alloc_block(segments, bytes, memory);
    if (status == LIG_OK)
        segments->used_bytes += bytes;
    pthread_mutex_unlock(&segments->lock);
    return status;
}

lig_status ligi_segments_reserve(ligi_segments *segments, uint64_t bytes, void **memory)
{
    segment *made;
    if (bytes == 0 || bytes > INT64_MAX / 2)
        return lig_fail(LIG_E_LIMIT, "cannot reserve %llu bytes of shared memory",
                        (unsigned long long)bytes);
    bytes = (bytes + LIGI_BLOCK_BYTES - 1) / LIGI_BLOCK_BYTES * LIGI_BLOCK_BYTES;
    pthread_mutex_lock(&segments->lock);
    lig_status status = segment_create(segments, bytes, 1, &made);
    if (status == LIG_OK) {
        made->block_count = 1;
        *memory = made->memory;
    }
    pthread_mutex_unlock(&segments->lock);
    return status;
}

static uint64_t block_bytes(const segment *of, const void *memory)
{
    size_t page = (size_t)((const uint8_t *)memory - of->memory) / LIGI_BLOCK_BYTES;
    return of->alone ? of->bytes : (uint64_t)of->runs[page] * LIGI_BLOCK_BYTES;
}

void ligi_segments_free(void *memory)
{
    uintptr_t base = (uintptr_t)memory & ~(uintptr_t)(LIGI_SEGMENT_ALIGN - 1);
    segment *of = *(segment **)base;
    ligi_segments *segments = of->owner;
    if (segments->pid != getpid()) {
        munmap(memory, block_bytes(of, memory));
        return;
    }
    pthread_mutex_lock(&segments->lock);
    uint64_t bytes = block_bytes(of, memory);
    segments->used_bytes -= of->reserved ? 0 : bytes;
    /* Punches the pages out of the file: they are freed even if a peer still maps them. */
    (void)madvise(memory, bytes, MADV_REMOVE);
    if (!of->alone)
        of->runs[((uint8_t *)memory - of->memory) / LIGI_BLOCK_BYTES] = 0;
    if (--of->block_count == 0)
        segment_destroy(of);
    leave(segments);
}

int ligi_segments_find(ligi_segments *segments, const void *data, uint64_t bytes,
                       ligi_segment_place *place)
{
    uintptr_t at = (uintptr_t)data;
    int found = 0;
    pthread_mutex_lock(&segments->lock);
    for (const segment *one = segments->first; one != NULL && !found; one = one->next) {
        uintptr_t from = (uintptr_t)one->memory;
        if (at < from || at - from > one->bytes || bytes > one->bytes - (at - from))
            continue;
        *place = (ligi_segment_place){one->id, one->fd, one->bytes, at - from};
        found = 1;
    }
    pthread_mutex_unlock(&segments->lock);
    return found;
}

int ligi_segments_alive(ligi_segments *segments, uint32_t id)
{
    int alive = 0;
    pthread_mutex_lock(&segments->lock);
    for (const segment *one = segments->first; one != NULL && !alive; one = one->next)
        alive = one->id == id;
    pthread_mutex_unlock(&segments->lock);
    return alive;
}

uint64_t ligi_segments_epoch(ligi_segments *segments)
{
    pthread_mutex_lock(&segments->lock);
    uint64_t epoch = segments->epoch;
    pthread_mutex_unlock(&segments->lock);
    return epoch;
}
