#include "backend/file/log/log_superseded.h"

#include "backend/file/folder.h"
#include "backend/file/log/log_checkpoint.h"
#include "backend/file/log/numbered.h"
#include "base/clock.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define GRACE_S 10                      /* superseded files are kept for this time */
#define FULL_BYTES (UINT64_C(16) << 20) /* unless there is less room */

/* When the file was named, by the server's clock; 0: not known. */
static int64_t named_s(ligi_file_log *log, ligi_name_kind kind, uint64_t number)
{
    char name[LIGI_CLOG_NAME_BYTES];
    struct stat info;

    ligi_clog_folder_name(kind, number, name);
    return fstatat(log->folder.fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0
               ? (int64_t)info.st_ctim.tv_sec
               : 0;
}

/* The checkpoint from which on everything is kept; 0: all of them. It is not the last one, unless
 * the disk has few bytes `left`, and what it supersedes has been superseded for a while: a reader
 * may still use an earlier snapshot or position. */
static uint64_t choose_kept(ligi_file_log *log, const uint64_t *numbers, size_t count,
                            uint64_t left)
{
    int64_t now_s = ligi_date_ns() / 1000000000;

    if (left < LIGI_CLOG_TIGHT_BYTES && count > 0)
        return numbers[count - 1];
    for (size_t i = count; i-- > 1;) {
        int64_t age = now_s - named_s(log, LIGI_NAME_CHECKPOINT, numbers[i - 1]);
        if (left < FULL_BYTES || age < 0 || age > GRACE_S) /* of the future: the clock was set */
            return numbers[i - 1];
    }
    return 0;
}

/* Removes checkpoints before the one that is kept, and segments that it covers. */
lig_status ligi_clog_superseded_remove(ligi_file_log *log, uint64_t left, size_t *removed)
{
    uint64_t *numbers;
    size_t count;

    *removed = 0;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    uint64_t kept = choose_kept(log, numbers, count, left);
    for (size_t i = 0; i < count && numbers[i] < kept; i++, ++*removed)
        (void)ligi_clog_folder_remove(&log->folder, LIGI_NAME_CHECKPOINT, numbers[i]);
    free(numbers);
    if (kept == 0)
        return LIG_OK;
    ligi_clog_folder_forget(&log->folder, LIGI_NAME_CHECKPOINT, kept);
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count));
    size_t i = 0;
    for (; i + 1 < count && numbers[i + 1] <= kept + 1; i++, ++*removed)
        (void)ligi_clog_folder_remove(&log->folder, LIGI_NAME_SEGMENT, numbers[i]);
    if (count > 0)
        ligi_clog_folder_forget(&log->folder, LIGI_NAME_SEGMENT, numbers[i]);
    free(numbers);
    return LIG_OK;
}

/* Removes files of the kind below `below` that were named before the grace, oldest first. */
static lig_status remove_aged(ligi_file_log *log, ligi_name_kind kind, uint64_t below,
                              int64_t now_s)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, kind, &numbers, &count));
    size_t i = 0;
    for (; i + 1 < count && numbers[i + 1] <= below; i++) {
        int64_t named = named_s(log, kind, numbers[i]);
        if (named == 0 || now_s - named <= LIGI_NUMBERED_GRACE_S)
            break;
        (void)ligi_clog_folder_remove(&log->folder, kind, numbers[i]);
    }
    if (count > 0)
        ligi_clog_folder_forget(&log->folder, kind, numbers[i]);
    free(numbers);
    return LIG_OK;
}

/* A process that read the end of the log less than a minute ago may rely on it: nothing named since
 * then is removed. The record of the kept checkpoint's version is kept, too: an index at that
 * version continues from it. */
lig_status ligi_clog_superseded_numbered(ligi_file_log *log)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    uint64_t last = count >= 2 ? numbers[count - 1] : 0, kept = count >= 2 ? numbers[count - 2] : 0;
    free(numbers);
    int64_t now_s = last != 0 ? named_s(log, LIGI_NAME_CHECKPOINT, last) : 0;
    if (now_s == 0)
        return LIG_OK;
    LIG_TRY(remove_aged(log, LIGI_NAME_CHECKPOINT, kept, now_s));
    return remove_aged(log, LIGI_NAME_SEGMENT, kept, now_s);
}

lig_status ligi_clog_superseded_below(ligi_file_log *log, ligi_name_kind kind, uint64_t number)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, kind, &numbers, &count));
    for (size_t i = 0; i < count && numbers[i] < number; i++)
        (void)ligi_clog_folder_remove(&log->folder, kind, numbers[i]);
    free(numbers);
    ligi_clog_folder_forget(&log->folder, kind, number);
    return LIG_OK;
}

static lig_status skip_item(void *context, const ligi_checkpoint_item *item)
{
    (void)context, (void)item;
    return LIG_OK;
}

/* What the last checkpoint supersedes is all that there is if that one is damaged. */
lig_status ligi_clog_superseded_verified(ligi_file_log *log, size_t *removed)
{
    uint64_t *numbers, last;
    size_t count;

    *removed = 0;
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    last = count > 0 ? numbers[count - 1] : 0;
    free(numbers);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_folder_sync(log->folder.fd, log->folder.place));
    LIG_TRY(ligi_checkpoint_read(log, last, skip_item, NULL));
    return ligi_clog_superseded_remove(log, 0, removed);
}
