#include "backend/remote/cache/cache_files.h"

#include "base/error.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* <store: 16 digits>-<pack: 16 digits>.data and .sums. The sums begin with the size of the pack and
 * a check of it; then comes the check of each block, 0 for none. */
enum { STEM_BYTES = 33, NAME_BYTES = 48 };
/* Evicted down to this part of the limit, */
enum { EVICT_TO = 90 };
/* after this part of it was added by this process. */
enum { CHECK_PART = 16 };
enum { SUMS_AT_ONCE = 64 };
#define BLOCKS_MAX (UINT64_C(1) << 26)

struct ligi_remote_cache {
    int folder;
    uint64_t bytes, store;
    pthread_mutex_t lock;
    uint64_t added; /* since the folder was listed; at first all of it */
};

static void name_of(const ligi_remote_cache *cache, uint64_t id, const char *kind,
                    char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "-%016" PRIx64 ".%s", cache->store, id, kind);
}

static int is_ours(const char *name)
{
    for (int i = 0; i < STEM_BYTES; i++)
        if (i == 16 ? name[i] != '-' : strchr("0123456789abcdef", name[i]) == NULL || !name[i])
            return 0;
    return strcmp(name + STEM_BYTES, ".data") == 0 || strcmp(name + STEM_BYTES, ".sums") == 0;
}

/* --- the folder --- */

static lig_status check_folder(int folder, const char *path)
{
    struct stat info;

    if (fstat(folder, &info) != 0)
        return ligi_fail_errno(errno, "cannot use the cache '%s'", path);
    if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return lig_fail(LIG_E_DENIED,
                        "the cache '%s' belongs to another user or is writable by others "
                        "(chmod 700)",
                        path);
    return LIG_OK;
}

lig_status ligi_remote_cache_open(const char *path, uint64_t bytes, const uint8_t store[16],
                                  ligi_remote_cache **out)
{
    ligi_remote_cache *cache;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return ligi_fail_errno(errno, "cannot create the cache '%s'", path);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return ligi_fail_errno(errno, "cannot open the cache '%s'", path);
    lig_status status = check_folder(folder, path);
    if (status == LIG_OK)
        status = ligi_calloc(&cache, 1, sizeof *cache, "a cache of packs");
    if (status != LIG_OK) {
        close(folder);
        return status;
    }
    cache->folder = folder;
    cache->bytes = bytes;
    cache->store = ligi_hash64_plain(store, 16);
    cache->added = bytes; /* the first use lists it */
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return LIG_OK;
}

void ligi_remote_cache_close(ligi_remote_cache *cache)
{
    if (cache == NULL)
        return;
    close(cache->folder);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* --- eviction --- */

typedef struct cached_name {
    char name[NAME_BYTES];
    struct timespec used;
    uint64_t bytes;
} cached_name;

typedef struct name_list {
    cached_name *names;
    size_t count, capacity;
    uint64_t bytes;
} name_list;

static int by_use(const void *a, const void *b)
{
    const cached_name *left = a, *right = b;

    if (left->used.tv_sec != right->used.tv_sec)
        return left->used.tv_sec < right->used.tv_sec ? -1 : 1;
    if (left->used.tv_nsec != right->used.tv_nsec)
        return left->used.tv_nsec < right->used.tv_nsec ? -1 : 1;
    return strcmp(left->name, right->name);
}

static lig_status list_names(DIR *folder, name_list *list)
{
    struct dirent *entry;
    struct stat info;

    while ((entry = readdir(folder)) != NULL) {
        if (strlen(entry->d_name) != STEM_BYTES + 5 || !is_ours(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        LIG_TRY(ligi_grow(&list->names, &list->capacity, list->count + 1, sizeof *list->names,
                          "the files of a cache"));
        cached_name *added = &list->names[list->count++];
        snprintf(added->name, sizeof added->name, "%.38s", entry->d_name);
        added->used = info.st_mtim;
        added->bytes = (uint64_t)info.st_blocks * 512;
        list->bytes += added->bytes;
    }
    return LIG_OK;
}

/* One process at a time; others continue without evicting. */
static void evict(ligi_remote_cache *cache)
{
    name_list list = {0};
    int fd = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ? NULL : fdopendir(fd);

    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (list_names(folder, &list) == LIG_OK && list.bytes > cache->bytes) {
        qsort(list.names, list.count, sizeof *list.names, by_use);
        for (size_t i = 0; i < list.count && list.bytes > cache->bytes / 100 * EVICT_TO; i++)
            if (unlinkat(cache->folder, list.names[i].name, 0) == 0)
                list.bytes -= list.names[i].bytes;
    }
    free(list.names);
    closedir(folder);
}

static void note_added(ligi_remote_cache *cache, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->added += bytes;
    int look = bytes > 0 && cache->added > cache->bytes / CHECK_PART;
    if (look)
        cache->added = 0;
    pthread_mutex_unlock(&cache->lock);
    if (look)
        evict(cache);
}

/* --- files --- */

static int open_one(const ligi_remote_cache *cache, uint64_t id, const char *kind, int create)
{
    char name[NAME_BYTES];
    struct stat info;

    name_of(cache, id, kind, name);
    int fd = openat(cache->folder, name,
                    O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT : 0), 0600);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid())
        return fd;
    close(fd);
    return -1;
}

static void close_both(ligi_cache_file *file)
{
    if (file->data_fd >= 0)
        close(file->data_fd);
    if (file->sums_fd >= 0)
        close(file->sums_fd);
}

static uint64_t size_check(const ligi_remote_cache *cache, uint64_t bytes)
{
    return (cache->store << 32) ^ (bytes * UINT64_C(0x9E3779B97F4A7C15));
}

static int get_size(const ligi_remote_cache *cache, const ligi_cache_file *file, uint64_t *bytes)
{
    uint64_t head[2];

    return pread(file->sums_fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
           head[1] == size_check(cache, head[0]) && (*bytes = head[0]) > 0;
}

int ligi_cache_file_open(ligi_remote_cache *cache, uint64_t id, uint64_t bytes,
                         ligi_cache_file *file)
{
    uint64_t head[2] = {bytes, size_check(cache, bytes)}, known = 0;
    int create = bytes > 0;

    *file = (ligi_cache_file){.data_fd = open_one(cache, id, "data", create),
                              .sums_fd = open_one(cache, id, "sums", create)};
    int there = file->data_fd >= 0 && file->sums_fd >= 0;
    if (there && !get_size(cache, file, &known) && create &&
        pwrite(file->sums_fd, head, sizeof head, 0) == (ssize_t)sizeof head)
        known = bytes;
    there =
        there && known > 0 && (!create || known == bytes) && known / LIG_BLOCK_BYTES < BLOCKS_MAX;
    if (!there)
        close_both(file);
    file->bytes = known;
    return there;
}

void ligi_cache_file_close(ligi_remote_cache *cache, ligi_cache_file *file)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};

    futimens(file->data_fd, now);
    futimens(file->sums_fd, now);
    close_both(file);
    note_added(cache, file->added);
}

/* --- blocks --- */

static off_t sum_place(uint64_t block)
{
    return (off_t)(16 + block * 8);
}

/* Never 0, which means that there is none. */
static uint64_t sum_of(const void *bytes, uint64_t count)
{
    uint64_t sum = ligi_hash64_plain(bytes, count);

    return sum == 0 ? 1 : sum;
}

static int all_put(const ligi_cache_file *file, uint64_t block, uint64_t end)
{
    uint64_t sums[SUMS_AT_ONCE];

    while (block < end) {
        size_t count = end - block < SUMS_AT_ONCE ? (size_t)(end - block) : SUMS_AT_ONCE;
        if (pread(file->sums_fd, sums, count * 8, sum_place(block)) != (ssize_t)(count * 8))
            return 0;
        for (size_t i = 0; i < count; i++)
            if (sums[i] == 0)
                return 0;
        block += count;
    }
    return 1;
}

int ligi_cache_bytes_get(const ligi_cache_file *file, uint64_t offset, void *to, uint64_t bytes)
{
    uint64_t end = (offset + bytes + LIG_BLOCK_BYTES - 1) / LIG_BLOCK_BYTES;

    return all_put(file, offset / LIG_BLOCK_BYTES, end) &&
           pread(file->data_fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

int ligi_cache_block_get(const ligi_cache_file *file, uint64_t block, void *to, uint64_t bytes)
{
    uint64_t sum = 0;

    return pread(file->sums_fd, &sum, sizeof sum, sum_place(block)) == (ssize_t)sizeof sum &&
           sum != 0 &&
           pread(file->data_fd, to, bytes, (off_t)(block * LIG_BLOCK_BYTES)) == (ssize_t)bytes &&
           sum_of(to, bytes) == sum;
}

void ligi_cache_block_put(ligi_cache_file *file, uint64_t block, const void *from, uint64_t bytes)
{
    uint64_t sum = sum_of(from, bytes);

    /* The bytes first: a check without its bytes only makes the block invalid. */
    if (pwrite(file->data_fd, from, bytes, (off_t)(block * LIG_BLOCK_BYTES)) == (ssize_t)bytes &&
        pwrite(file->sums_fd, &sum, sizeof sum, sum_place(block)) == (ssize_t)sizeof sum)
        file->added += bytes;
}
