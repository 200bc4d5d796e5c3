#include "backend/file/log/log_sync.h"

#include "backend/file/folder.h"
#include "backend/file/log/log_numbers.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <unistd.h>

static lig_status failed(const ligi_file_log *log, int number)
{
    return ligi_fail_errno(number, "%s/" LIGI_NAME_LOG ": fdatasync failed", log->folder.place);
}

/* Who has appended has the segment open: there may be no descriptor left for it now. */
static int has_current(const ligi_file_log *log, const ligi_clog_durable *wanted, uint64_t segment)
{
    return wanted->file != NULL && wanted->file->number == segment &&
           ligi_head_epoch(&log->head) == wanted->epoch;
}

/* Under LIGI_HEAD_SYNC. `appended` is asked for before the segment: a segment is synced before the
 * next one is named, so that the other order could miss the records of a new one. */
static lig_status sync_now(ligi_file_log *log, const ligi_clog_durable *wanted)
{
    uint64_t version = ligi_head_appended(&log->head);
    uint64_t segment = ligi_head_segment(&log->head);
    ligi_clog_file *opened = NULL;

    if (segment == 0) /* the next one is being made */
        return LIG_E_TIMEOUT;
    if (!has_current(log, wanted, segment))
        LIG_TRY(ligi_clog_segment_file(log, segment, &opened));
    int fd = opened != NULL ? opened->fd : wanted->file->fd;
    ligi_head_sync_begin(&log->head, segment);
    int number = ligi_head_poisoned(&log->head) == segment ? EIO : 0;
    if (number == 0 && fdatasync(fd) != 0)
        number = errno;
    if (number != 0)
        ligi_head_poison(&log->head, segment);
    else
        ligi_head_sync(&log->head, version, wanted->epoch);
    ligi_head_sync_end(&log->head);
    ligi_clog_folder_release(&log->folder, opened);
    return number == 0 ? LIG_OK : failed(log, number);
}

/* Segments were durable before they had their names. */
static lig_status sync_numbers(ligi_file_log *log, const ligi_clog_durable *wanted)
{
    if (ligi_head_synced(&log->head) >= wanted->version)
        return LIG_OK;
    LIG_TRY(ligi_folder_sync(log->folder.fd, log->folder.place));
    ligi_head_sync(&log->head, wanted->version, wanted->epoch);
    return LIG_OK;
}

lig_status ligi_file_log_sync(ligi_file_log *log, const ligi_clog_durable *wanted,
                              int64_t timeout_ns)
{
    int64_t deadline = ligi_now_ns() + timeout_ns;

    if (log->numbered != 0)
        return sync_numbers(log, wanted);
    for (;;) {
        uint32_t seen = ligi_head_bell(&log->head);
        int durable = ligi_head_synced(&log->head) >= wanted->version;
        if (ligi_head_epoch(&log->head) != wanted->epoch)
            return failed(log, EIO);
        if (durable)
            return LIG_OK;
        int64_t left = deadline - ligi_now_ns();
        lig_status status = ligi_head_take(&log->head, LIGI_HEAD_SYNC, 0);
        if (status == LIG_OK) {
            status = sync_now(log, wanted);
            ligi_head_release(&log->head, LIGI_HEAD_SYNC);
            seen = ligi_head_bell(&log->head);
        }
        if (status == LIG_OK)
            continue;
        if (status != LIG_E_TIMEOUT || left <= 0)
            return status;
        ligi_head_wait(&log->head, seen, left);
    }
}
