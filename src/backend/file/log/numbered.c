#include "backend/file/log/numbered.h"

#include "backend/file/folder.h"
#include "backend/file/packs/engine.h"
#include "base/codec.h"
#include "base/error.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "LIGNUM"
#define FORMAT 1
#define FILE_BYTES 40 /* magic, format, 0, id, from, check */

int64_t ligi_numbered_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Opening a folder asks the server whether it has changed: then remembered absences are dropped. */
void ligi_numbered_revalidate(const ligi_clog_folder *folder)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
}

/* --- files that get their name once --- */

static lig_status write_temporary(const ligi_clog_folder *folder, const char *name, int fd,
                                  const void *data, size_t bytes)
{
    lig_status status = ligi_write_all(fd, data, bytes, 0);

    if (status != LIG_OK)
        return ligi_fail_errno(lig_error_number(), "%s/" LIGI_NAME_LOG "/%s: cannot be written",
                               folder->place, name);
    /* Also with fsync=0: what has a name must have its bytes on every host. */
    if (fsync(fd) != 0)
        return ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG "/%s: fsync failed", folder->place, name);
    return LIG_OK;
}

/* Makes a durable temporary file; *made_s is the server's time. */
static lig_status make_temporary(const ligi_clog_folder *folder, const void *data, size_t bytes,
                                 char name[LIGI_CLOG_NAME_BYTES], int64_t *made_s)
{
    struct stat info;
    int fd;

    LIG_TRY(ligi_clog_folder_create(folder, name, &fd));
    lig_status status = write_temporary(folder, name, fd, data, bytes);
    if (status == LIG_OK && fstat(fd, &info) != 0)
        status = ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG "/%s: cannot be examined",
                                 folder->place, name);
    close(fd);
    if (status == LIG_OK)
        *made_s = (int64_t)info.st_ctim.tv_sec;
    else
        ligi_clog_folder_discard(folder, name);
    return status;
}

/* --- the file log/numbered --- */

static void put_numbering(const ligi_numbering *numbering, uint8_t bytes[FILE_BYTES])
{
    memset(bytes, 0, FILE_BYTES);
    memcpy(bytes, MAGIC, 6);
    bytes[6] = FORMAT;
    memcpy(bytes + 8, numbering->id, 16);
    ligi_put_be64(bytes + 24, numbering->from);
    ligi_put_be64(bytes + 32, ligi_hash64_plain(bytes, FILE_BYTES - 8));
}

lig_status ligi_numbering_read(const ligi_clog_folder *folder, ligi_numbering *numbering)
{
    uint8_t bytes[FILE_BYTES];
    size_t got;
    int fd;

    LIG_TRY(ligi_entry_open(folder->store_fd, folder->fd, folder->log_place, LIGI_NAME_NUMBERED,
                            O_RDONLY, &fd));
    lig_status status = ligi_clog_pread(folder, fd, bytes, sizeof bytes, 0, &got);
    close(fd);
    LIG_TRY(status);
    if (got != sizeof bytes || memcmp(bytes, MAGIC, 6) != 0 ||
        ligi_get_be64(bytes + 32) != ligi_hash64_plain(bytes, FILE_BYTES - 8))
        return lig_fail(LIG_E_CORRUPT, "%s/" LIGI_NAME_LOG "/" LIGI_NAME_NUMBERED " is damaged",
                        folder->place);
    if (bytes[6] != FORMAT)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s/" LIGI_NAME_LOG "/" LIGI_NAME_NUMBERED
                        " has format %u, but this library supports %u (use a newer library)",
                        folder->place, bytes[6], FORMAT);
    memcpy(numbering->id, bytes + 8, 16);
    numbering->from = ligi_get_be64(bytes + 24);
    return LIG_OK;
}

lig_status ligi_numbering_make(ligi_clog_folder *folder, ligi_numbering *numbering)
{
    char name[LIGI_CLOG_NAME_BYTES];
    uint8_t bytes[FILE_BYTES];
    int64_t made_s;

    put_numbering(numbering, bytes);
    LIG_TRY(make_temporary(folder, bytes, sizeof bytes, name, &made_s));
    int number = linkat(folder->fd, name, folder->fd, LIGI_NAME_NUMBERED, 0) == 0 ? 0 : errno;
    ligi_clog_folder_discard(folder, name);
    if (number != 0 && number != EEXIST)
        return ligi_fail_errno(number,
                               "%s/" LIGI_NAME_LOG "/" LIGI_NAME_NUMBERED
                               ": link failed (share=network needs link(2))",
                               folder->place);
    LIG_TRY(ligi_folder_sync(folder->fd, folder->place));
    ligi_numbered_revalidate(folder);
    return ligi_numbering_read(folder, numbering);
}

/* --- commits --- */

lig_status ligi_numbered_draft_make(const ligi_clog_folder *folder, ligi_segment_header *header,
                                    const void *record, size_t bytes, ligi_numbered_draft *draft)
{
    uint8_t *data;

    draft->number = header->first;
    draft->writer = header->writer = ligi_folder_random_id();
    LIG_TRY(ligi_alloc(&data, LIGI_SEGMENT_HEADER_BYTES + bytes, "a record of the log"));
    ligi_segment_header_put(header, data);
    memcpy(data + LIGI_SEGMENT_HEADER_BYTES, record, bytes);
    lig_status status = make_temporary(folder, data, LIGI_SEGMENT_HEADER_BYTES + bytes, draft->name,
                                       &draft->made_s);
    free(data);
    return status;
}

/* Whose segment has the number: *ours 1; 0: another's; -1: none has it. Decided by its content, not
 * by its link count, which the client may have cached. */
static lig_status look_at_number(const ligi_clog_folder *folder, const char *final,
                                 const ligi_numbered_draft *draft, int *ours, struct stat *info)
{
    ligi_segment_header header;
    int fd;

    *ours = -1;
    ligi_numbered_revalidate(folder);
    lig_status status =
        ligi_entry_open(folder->store_fd, folder->fd, folder->log_place, final, O_RDONLY, &fd);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    status = ligi_segment_header_read(folder, fd, draft->number, &header);
    if (status == LIG_OK && fstat(fd, info) != 0)
        status = ligi_fail_errno(errno, "%s/" LIGI_NAME_LOG "/%s: cannot be examined",
                                 folder->place, final);
    close(fd);
    if (status == LIG_OK)
        *ours = header.writer == draft->writer;
    return status == LIG_E_CORRUPT ? LIG_OK : status; /* not ours: that one is whole */
}

static lig_status refused(const ligi_clog_folder *folder, const ligi_numbered_draft *draft,
                          int ours, int number)
{
    if (ours == 0 || number == EEXIST)
        return lig_fail(LIG_E_BUSY, "%s: version %" PRIu64 " was committed by another process",
                        folder->place, draft->number);
    return ligi_fail_errno(
        number, "%s/" LIGI_NAME_LOG ": link failed (share=network needs link(2))", folder->place);
}

lig_status ligi_numbered_draft_link(const ligi_clog_folder *folder,
                                    const ligi_numbered_draft *draft, int *late)
{
    char final[LIGI_CLOG_NAME_BYTES];
    struct stat info = {0};
    int ours = 1;

    ligi_clog_folder_name(LIGI_NAME_SEGMENT, draft->number, final);
    int number = linkat(folder->fd, draft->name, folder->fd, final, 0) == 0 ? 0 : errno;
    /* A refused request that is still on its way finds no file to give a name to. */
    ligi_clog_folder_discard(folder, draft->name);
    /* The reply to a first attempt may have been lost: then the second finds the number taken. */
    lig_status status = LIG_OK;
    if (number != 0)
        status = look_at_number(folder, final, draft, &ours, &info);
    else if (fstatat(folder->fd, final, &info, AT_SYMLINK_NOFOLLOW) != 0)
        info.st_ctim.tv_sec = 0;
    if (status != LIG_OK)
        return ligi_fail_errno(
            lig_error_number() ? lig_error_number() : EIO,
            "%s: whether version %" PRIu64
            " was committed is unknown (check whether the model exists, and save again if not)",
            folder->place, draft->number);
    if (ours != 1)
        return refused(folder, draft, ours, number);
    *late = (int64_t)info.st_ctim.tv_sec - draft->made_s > LIGI_NUMBERED_FRESH_S;
    return LIG_OK;
}
