#include "backend/file/log/log_folder.h"

#include "backend/file/folder.h"
#include "backend/file/packs/engine.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SEGMENT_MAGIC "LIGSEG"
#define SEGMENT_FORMAT 1
#define TEMPORARY_S (2 * 86400)
#define LOOK_EVERY 64
#define STEP_BYTES_LEAST (UINT64_C(128) << 10)
#define STEP_BYTES_MOST (UINT64_C(4) << 20)
#define STEP_BYTES_KEPT (UINT64_C(4) << 10)
#define RESERVE_BYTES (UINT64_C(64) << 10) /* for commits that free space on a full disk */

lig_status ligi_clog_folder_open(ligi_clog_folder *folder, int store_fd, const char *place,
                                 int sync, int read_only)
{
    size_t bytes = strlen(place) + sizeof "/" LIGI_NAME_LOG;

    memset(folder, 0, sizeof *folder);
    folder->fd = -1;
    folder->store_fd = store_fd;
    folder->place = place;
    folder->sync = sync;
    folder->read_only = read_only;
    pthread_mutex_init(&folder->lock, NULL);
    LIG_TRY(ligi_alloc(&folder->log_place, bytes, "the name of a folder"));
    snprintf(folder->log_place, bytes, "%s/" LIGI_NAME_LOG, place);
    if (!read_only && ligi_entry_mkdir(store_fd, LIGI_NAME_LOG) && sync)
        LIG_TRY(ligi_folder_sync(store_fd, place));
    return ligi_entry_folder(store_fd, place, LIGI_NAME_LOG, &folder->fd);
}

/* Releases one reference to the file; NULL is valid. */
static void drop(ligi_clog_file **file)
{
    ligi_clog_file *dropped = *file;

    *file = NULL;
    if (dropped == NULL || --dropped->users > 0)
        return;
    close(dropped->fd);
    free(dropped);
}

/* Closes what is open, without the lock. */
static void close_files(ligi_clog_folder *folder)
{
    for (size_t i = 0; i < LIGI_CLOG_FILES; i++)
        drop(&folder->files[i]);
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

void ligi_clog_folder_close(ligi_clog_folder *folder)
{
    close_files(folder);
    free(folder->log_place);
    folder->log_place = NULL;
    pthread_mutex_destroy(&folder->lock);
}

void ligi_clog_folder_name(ligi_name_kind kind, uint64_t number, char name[LIGI_CLOG_NAME_BYTES])
{
    snprintf(name, LIGI_CLOG_NAME_BYTES, "%s%016" PRIx64,
             kind == LIGI_NAME_SEGMENT ? LIGI_NAME_SEGMENT_START : LIGI_NAME_CHECKPOINT_START,
             number);
}

/* --- open files --- */

/* Where the folder lists the file; NULL when it does not. */
static ligi_clog_file **find_open(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number)
{
    for (size_t i = 0; i < LIGI_CLOG_FILES; i++) {
        const ligi_clog_file *file = folder->files[i];
        if (file != NULL && file->number == number && file->kind == kind)
            return &folder->files[i];
    }
    return NULL;
}

/* A free place in the list: if necessary, that of the least recently used file. */
static ligi_clog_file **make_place(ligi_clog_folder *folder)
{
    ligi_clog_file **oldest = &folder->files[0];

    for (size_t i = 1; i < LIGI_CLOG_FILES && *oldest != NULL; i++)
        if (folder->files[i] == NULL || folder->files[i]->used < (*oldest)->used)
            oldest = &folder->files[i];
    drop(oldest);
    return oldest;
}

/* Removed, or replaced by one of the same number: after a failed sync, or by another host. Asks for
 * the count only: fstat asks for the times too, and on file systems with fine-grained times the
 * next write then notes a new one. The fdatasync behind it would write the inode as well. */
static int is_gone(int fd)
{
    struct statx info;

    return statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &info) != 0 || info.stx_nlink == 0;
}

static lig_status open_descriptor(const ligi_clog_folder *folder, ligi_name_kind kind,
                                  uint64_t number, int *fd)
{
    char name[LIGI_CLOG_NAME_BYTES], shown[LIGI_CLOG_NAME_BYTES + 8];
    int only = folder->read_only || folder->numbered || kind == LIGI_NAME_CHECKPOINT;

    ligi_clog_folder_name(kind, number, name);
    LIG_TRY(ligi_entry_open(folder->store_fd, folder->fd, folder->log_place, name,
                            only ? O_RDONLY : O_RDWR, fd));
    if (only)
        return LIG_OK;
    /* A copy made of hard links would write to the original's log. */
    snprintf(shown, sizeof shown, LIGI_NAME_LOG "/%s", name);
    lig_status status = ligi_plain_sole(*fd, folder->place, shown);
    if (status != LIG_OK)
        close(*fd);
    return status;
}

/* What another process has removed takes up space while it is open here. */
static void drop_gone(ligi_clog_folder *folder)
{
    for (size_t i = 0; i < LIGI_CLOG_FILES; i++)
        if (folder->files[i] != NULL && is_gone(folder->files[i]->fd))
            drop(&folder->files[i]);
}

static lig_status open_file(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number,
                            ligi_clog_file **file)
{
    ligi_clog_file *made;

    drop_gone(folder);
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a file of the log"));
    lig_status status = open_descriptor(folder, kind, number, &made->fd);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->kind = kind;
    made->number = number;
    made->users = 1;
    *make_place(folder) = made;
    *file = made;
    return LIG_OK;
}

/* `each`: checks each time whether the file was removed, otherwise from time to time: a removed
 * file takes up space while it is open. */
static lig_status take_file(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number,
                            int each, ligi_clog_file **file)
{
    ligi_clog_file *found = NULL;
    lig_status status = LIG_OK;

    pthread_mutex_lock(&folder->lock);
    ligi_clog_file **listed = find_open(folder, kind, number);
    int look = each || folder->clock % LOOK_EVERY == 0;
    if (listed != NULL && look && is_gone((*listed)->fd))
        drop(listed);
    else if (listed != NULL)
        found = *listed;
    if (found == NULL)
        status = open_file(folder, kind, number, &found);
    if (status == LIG_OK) {
        found->used = ++folder->clock;
        found->users++;
        *file = found;
    }
    pthread_mutex_unlock(&folder->lock);
    return status;
}

lig_status ligi_clog_folder_file(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number,
                                 ligi_clog_file **file)
{
    return take_file(folder, kind, number, 1, file);
}

lig_status ligi_clog_folder_file_once(ligi_clog_folder *folder, ligi_name_kind kind,
                                      uint64_t number, ligi_clog_file **file)
{
    return take_file(folder, kind, number, 0, file);
}

void ligi_clog_folder_release(ligi_clog_folder *folder, ligi_clog_file *file)
{
    pthread_mutex_lock(&folder->lock);
    drop(&file);
    pthread_mutex_unlock(&folder->lock);
}

void ligi_clog_folder_forget(ligi_clog_folder *folder, ligi_name_kind kind, uint64_t number)
{
    pthread_mutex_lock(&folder->lock);
    for (size_t i = 0; i < LIGI_CLOG_FILES; i++) {
        const ligi_clog_file *file = folder->files[i];
        if (file != NULL && file->kind == kind && file->number < number)
            drop(&folder->files[i]);
    }
    pthread_mutex_unlock(&folder->lock);
}

/* --- names --- */

static lig_status open_list(const ligi_clog_folder *folder, DIR **list)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    *list = fd < 0 ? NULL : fdopendir(fd);
    if (*list != NULL)
        return LIG_OK;
    lig_status status = ligi_fail_errno(errno, "cannot list %s/" LIGI_NAME_LOG, folder->place);
    if (fd >= 0)
        close(fd);
    return status;
}

lig_status ligi_clog_folder_list(const ligi_clog_folder *folder, ligi_name_kind kind,
                                 uint64_t **numbers, size_t *count)
{
    size_t capacity = 0;
    lig_status status = LIG_OK;
    DIR *list;

    *numbers = NULL;
    *count = 0;
    LIG_TRY(open_list(folder, &list));
    errno = 0;
    for (struct dirent *entry; status == LIG_OK && (entry = readdir(list)) != NULL;) {
        uint64_t number;
        if (ligi_name_read(LIGI_FOLDER_LOG, entry->d_name, &number) != kind)
            continue;
        status = ligi_grow(numbers, &capacity, *count + 1, sizeof **numbers, "the log's files");
        if (status == LIG_OK)
            (*numbers)[(*count)++] = number;
    }
    if (status == LIG_OK && errno != 0)
        status = ligi_fail_errno(errno, "cannot list %s/" LIGI_NAME_LOG, folder->place);
    closedir(list);
    if (*count > 1)
        qsort(*numbers, *count, sizeof **numbers, ligi_order_u64);
    if (status != LIG_OK) {
        free(*numbers);
        *numbers = NULL;
    }
    return status;
}

lig_status ligi_clog_folder_remove(const ligi_clog_folder *folder, ligi_name_kind kind,
                                   uint64_t number)
{
    char name[LIGI_CLOG_NAME_BYTES];

    ligi_clog_folder_name(kind, number, name);
    if (unlinkat(folder->fd, name, 0) != 0 && errno != ENOENT)
        return ligi_fail_errno(errno, "cannot remove %s/" LIGI_NAME_LOG "/%s", folder->place, name);
    return LIG_OK;
}

/* Of another host: its clock and the server's may differ, but not by days. */
static int is_old(const ligi_clog_folder *folder, const char *name)
{
    struct stat info;

    return fstatat(folder->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           ligi_date_ns() / 1000000000 - (int64_t)info.st_ctim.tv_sec > TEMPORARY_S;
}

void ligi_clog_folder_clean(const ligi_clog_folder *folder)
{
    DIR *list;

    if (open_list(folder, &list) != LIG_OK)
        return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (ligi_name_read(LIGI_FOLDER_LOG, entry->d_name, NULL) == LIGI_NAME_LOG_TEMPORARY &&
            (!folder->numbered || is_old(folder, entry->d_name)))
            unlinkat(folder->fd, entry->d_name, 0);
    closedir(list);
}

lig_status ligi_clog_folder_create(const ligi_clog_folder *folder, char name[LIGI_CLOG_NAME_BYTES],
                                   int *fd)
{
    snprintf(name, LIGI_CLOG_NAME_BYTES, LIGI_NAME_TEMPORARY "%016" PRIx64,
             ligi_folder_random_id());
    *fd = openat(folder->fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return ligi_fail_errno(errno, "cannot create %s/" LIGI_NAME_LOG "/%s", folder->place, name);
    ligi_entry_own(folder->store_fd, *fd);
    return LIG_OK;
}

lig_status ligi_clog_folder_publish(ligi_clog_folder *folder, const char *name, int fd,
                                    ligi_name_kind kind, uint64_t number)
{
    char final[LIGI_CLOG_NAME_BYTES];

    ligi_clog_folder_name(kind, number, final);
    if (fsync(fd) != 0)
        return ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG "/%s: fsync failed", folder->place,
                               final);
    if (renameat(folder->fd, name, folder->fd, final) != 0)
        return ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG "/%s: rename failed", folder->place,
                               final);
    pthread_mutex_lock(&folder->lock); /* one of that number was replaced */
    ligi_clog_file **replaced = find_open(folder, kind, number);
    if (replaced != NULL)
        drop(replaced);
    pthread_mutex_unlock(&folder->lock);
    return ligi_folder_sync(folder->fd, folder->place);
}

void ligi_clog_folder_discard(const ligi_clog_folder *folder, const char *name)
{
    unlinkat(folder->fd, name, 0);
}

/* --- segments --- */

void ligi_segment_header_put(const ligi_segment_header *header,
                             uint8_t bytes[LIGI_SEGMENT_HEADER_BYTES])
{
    ligi_writer writer = {0};

    memset(bytes, 0, LIGI_SEGMENT_HEADER_BYTES);
    ligi_put_bytes(&writer, SEGMENT_MAGIC, 6);
    ligi_put_u8(&writer, SEGMENT_FORMAT);
    ligi_put_u8(&writer, 0);
    ligi_put_bytes(&writer, header->id, 16);
    ligi_put_u64(&writer, header->first);
    ligi_put_u64(&writer, header->previous);
    ligi_put_u64(&writer, header->writer);
    ligi_put_zeros(&writer, 8);
    if (writer.status == LIG_OK)
        ligi_put_u64(&writer, ligi_hash64_plain(writer.data, writer.bytes));
    if (writer.status == LIG_OK)
        memcpy(bytes, writer.data, LIGI_SEGMENT_HEADER_BYTES);
    ligi_writer_fini(&writer);
}

lig_status ligi_segment_header_read(const ligi_clog_folder *folder, int fd, uint64_t first,
                                    ligi_segment_header *header)
{
    uint8_t bytes[LIGI_SEGMENT_HEADER_BYTES];
    size_t got;

    LIG_TRY(ligi_clog_pread(folder, fd, bytes, sizeof bytes, 0, &got));
    ligi_reader reader = {.data = bytes, .bytes = got};
    const void *magic = ligi_get_bytes(&reader, 6);
    uint8_t format = ligi_get_u8(&reader);
    (void)ligi_get_u8(&reader);
    const void *id = ligi_get_bytes(&reader, 16);
    header->first = ligi_get_u64(&reader);
    header->previous = ligi_get_u64(&reader);
    header->writer = ligi_get_u64(&reader);
    (void)ligi_get_bytes(&reader, 8);
    uint64_t check = ligi_get_u64(&reader);
    if (reader.failed || memcmp(magic, SEGMENT_MAGIC, 6) != 0 || header->first != first ||
        check != ligi_hash64_plain(bytes, sizeof bytes - 8))
        return lig_fail(LIG_E_CORRUPT,
                        "%s/" LIGI_NAME_LOG "/" LIGI_NAME_SEGMENT_START "%016" PRIx64
                        ": the header is damaged (ligament check --repair)",
                        folder->place, first);
    if (format != SEGMENT_FORMAT)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "%s: the log has format %u, but this library supports %u (use a newer library)",
            folder->place, format, SEGMENT_FORMAT);
    memcpy(header->id, id, 16);
    return LIG_OK;
}

int ligi_clog_is_full(int error_number)
{
    return error_number == ENOSPC || error_number == EDQUOT;
}

uint64_t ligi_clog_bytes_left(const ligi_clog_folder *folder)
{
    struct statvfs room;

    return fstatvfs(folder->fd, &room) == 0 ? (uint64_t)room.f_bavail * room.f_frsize : UINT64_MAX;
}

lig_status ligi_clog_extend(const ligi_clog_folder *folder, int fd, uint64_t from, uint64_t to)
{
    static const uint8_t zeros[64 << 10];

    for (uint64_t at = from; at < to;) {
        uint64_t step = to - at < sizeof zeros ? to - at : sizeof zeros;
        if (ligi_write_all(fd, zeros, step, at) != LIG_OK)
            return ligi_fail_errno(lig_error_number(), "cannot extend %s", folder->log_place);
        at += step;
    }
    return LIG_OK;
}

/* Does not ask for the times (is_gone). */
lig_status ligi_clog_measure(const ligi_clog_folder *folder, int fd, uint64_t *size,
                             uint64_t *stored)
{
    struct statx info;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_BLOCKS, &info) != 0)
        return ligi_fail_errno(errno, "stat of a file in %s failed", folder->log_place);
    *size = info.stx_size;
    *stored = info.stx_blocks * 512;
    return LIG_OK;
}

int ligi_clog_allocate(int fd, uint64_t from, uint64_t to)
{
    int failed;

    do
        failed =
            to > from && fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) != 0;
    while (failed && errno == EINTR);
    return failed && ligi_clog_is_full(errno) ? errno : 0;
}

/* A file system that compresses stores less than was requested. */
lig_status ligi_clog_keep(const ligi_clog_folder *folder, ligi_clog_file *segment, uint64_t end)
{
    uint64_t size, stored, ahead = end + (end / 4 < STEP_BYTES_MOST ? end / 4 : STEP_BYTES_MOST);

    LIG_TRY(ligi_clog_measure(folder, segment->fd, &size, &stored));
    int given_back = stored < segment->kept_stored; /* by another process */
    if (stored >= end || (segment->kept >= end && !given_back))
        return LIG_OK;
    int number = ligi_clog_allocate(segment->fd, size, ahead);
    if (ligi_clog_is_full(number))
        number = ligi_clog_allocate(segment->fd, size, ahead = end);
    if (number != 0)
        return ligi_fail_errno(number, "cannot extend %s", folder->log_place);
    segment->kept = ahead;
    return ligi_clog_measure(folder, segment->fd, &size, &segment->kept_stored);
}

void ligi_clog_keep_most(const ligi_clog_folder *folder, ligi_clog_file *segment, uint64_t end)
{
    uint64_t size, stored;

    if (ligi_clog_keep(folder, segment, end) == LIG_OK ||
        ligi_clog_measure(folder, segment->fd, &size, &stored) != LIG_OK)
        return;
    for (uint64_t step = end > size ? end - size : 0; step >= STEP_BYTES_KEPT && size < end;) {
        uint64_t to = size + step < end ? size + step : end;
        if (ligi_clog_allocate(segment->fd, size, to) == 0)
            size = to;
        else
            step /= 2;
    }
}

void ligi_clog_trim(const ligi_clog_folder *folder, int fd, uint64_t end)
{
    uint64_t size, stored;

    if (ligi_clog_measure(folder, fd, &size, &stored) != LIG_OK || stored <= end)
        return;
    if (size < end) /* blocks behind the end stay when it moves up */
        (void)!ftruncate(fd, (off_t)end);
    (void)!ftruncate(fd, (off_t)end);
}

void ligi_clog_give_back(ligi_clog_folder *folder, uint64_t segment, uint64_t end)
{
    uint64_t size, stored;
    ligi_clog_file *file;

    if (ligi_clog_folder_file(folder, LIGI_NAME_SEGMENT, segment, &file) != LIG_OK)
        return;
    if (ligi_clog_measure(folder, file->fd, &size, &stored) == LIG_OK &&
        (stored > size || end < size))
        (void)!ftruncate(file->fd, (off_t)(end < size ? end : size));
    ligi_clog_folder_release(folder, file);
}

/* Zeros up to `need`, and some more. */
static lig_status extend_to(const ligi_clog_folder *folder, int fd, uint64_t size, uint64_t need)
{
    uint64_t step = size / 4;

    step = step < STEP_BYTES_LEAST ? STEP_BYTES_LEAST : step;
    step = step > STEP_BYTES_MOST ? STEP_BYTES_MOST : step;
    if (size + step <= need)
        return ligi_clog_extend(folder, fd, size, need);
    lig_status status = ligi_clog_extend(folder, fd, size, size + step);
    return status == LIG_OK ? LIG_OK : ligi_clog_extend(folder, fd, size, need);
}

/* Zeros behind the record, because they are overwritten faster than new blocks are; what is kept
 * beyond them is for a full disk. */
lig_status ligi_clog_make_room(const ligi_clog_folder *folder, ligi_clog_file *segment,
                               const ligi_clog_room *room)
{
    uint64_t size, stored, need = room->end + RESERVE_BYTES;
    lig_status status = LIG_OK;

    LIG_TRY(ligi_clog_measure(folder, segment->fd, &size, &stored));
    if (need > size && room->frees && ligi_clog_bytes_left(folder) < LIGI_CLOG_TIGHT_BYTES)
        status = ligi_clog_extend(folder, segment->fd, size, room->end);
    else if (need > size)
        status = extend_to(folder, segment->fd, size, need);
    if (status == LIG_OK && !room->frees && stored < need + room->keep)
        status = ligi_clog_keep(folder, segment, need + room->keep);
    if (status == LIG_OK || !room->frees || !ligi_clog_is_full(lig_error_number()))
        return status;
    LIG_TRY(ligi_clog_measure(folder, segment->fd, &size, &stored));
    return room->end <= size ? LIG_OK : status;
}

/* A segment is as large as what was written to it: a larger one was not created by this library,
 * and its size is no reason to allocate memory. */
uint64_t ligi_clog_data_bytes(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END), end = 0, start = 0;

    while (end < size && (start = lseek(fd, end, SEEK_DATA)) >= 0)
        end = lseek(fd, start, SEEK_HOLE);
    if (start < 0 && errno != ENXIO) /* the file system does not know */
        end = size;
    return end > 0 ? (uint64_t)end : 0;
}

lig_status ligi_clog_pread(const ligi_clog_folder *folder, int fd, void *data, size_t bytes,
                           uint64_t offset, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        ssize_t now = pread(fd, (uint8_t *)data + *got, bytes - *got, (off_t)(offset + *got));
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG ": cannot be read", folder->place);
        if (now == 0)
            break;
        *got += (size_t)now;
    }
    return LIG_OK;
}
