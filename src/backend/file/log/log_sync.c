#include "backend/file/log/log_sync.h"

#include "backend/file/folder.h"
#include "backend/file/log/log_numbers.h"
#include "base/clock.h"
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#define STOPPED_NS INT64_C(1000000000) /* how long to wait for a syncing process that was stopped */
#define SLOW_NS INT64_C(10000000000)   /* for any other process */

static lig_status failed(const ligi_file_log *log, int number)
{
    return ligi_fail_errno(number, "%s/" LIGI_NAME_LOG ": fdatasync failed", log->folder.place);
}

/* A process that has appended has the segment open: there may be no free descriptor to open it
 * now. */
static int has_current(const ligi_file_log *log, const ligi_clog_durable *wanted, uint64_t segment)
{
    return wanted->file != NULL && wanted->file->number == segment &&
           ligi_head_epoch(&log->head) == wanted->epoch;
}

/* Whether the caller has waited long enough for the process that syncs, or that makes the next
 * segment. The disk may be slow: then another sync would not be faster. */
static int gives_up(ligi_file_log *log, int64_t waited_ns)
{
    uint64_t segment = ligi_head_segment(&log->head);

    if (waited_ns < STOPPED_NS ||
        (waited_ns < SLOW_NS && segment != 0 && !ligi_head_stopped(&log->head, LIGI_HEAD_SYNC)))
        return 0;
    if (segment != 0)
        ligi_head_poison(&log->head, segment);
    return 1;
}

/* The segment may have been created by a process that was killed before it synced the folder, or
 * that syncs nothing. Returns 0 or an errno. */
static int sync_name(ligi_file_log *log, uint64_t segment)
{
    if (ligi_head_named(&log->head) == segment)
        return 0;
    if (ligi_folder_sync(log->folder.fd, log->folder.place) != LIG_OK)
        return lig_error_number() != 0 ? lig_error_number() : EIO;
    ligi_head_named_set(&log->head, segment);
    return 0;
}

/* After ligi_head_sync_begin. */
static lig_status sync_file(ligi_file_log *log, uint64_t segment, int fd, uint64_t version)
{
    int poisoned = ligi_head_poisoned(&log->head) == segment;
    int number = !poisoned && fdatasync(fd) != 0 ? errno : 0;

    assert(segment != 0);
    if (!poisoned && number == 0)
        number = sync_name(log, segment);
    if (number != 0)
        ligi_head_sync_failed(&log->head, segment);
    ligi_head_sync_end(&log->head, poisoned || number != 0 ? 0 : version);
    if (poisoned || number == EINTR)
        return LIG_E_BUSY;
    return number == 0 ? LIG_OK : failed(log, number);
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
    lig_status status = ligi_head_sync_begin(&log->head, segment)
                            ? sync_file(log, segment, fd, version)
                            : LIG_OK; /* the segment was replaced: check again */
    ligi_clog_folder_release(&log->folder, opened);
    return status;
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
    int64_t began = ligi_now_ns();

    if (log->numbered != 0)
        return sync_numbers(log, wanted);
    for (;;) {
        uint32_t seen = ligi_head_sync_bell(&log->head);
        int durable = ligi_head_synced(&log->head) >= wanted->version;
        if (ligi_head_lost(&log->head, wanted->epoch))
            return failed(log, EIO);
        if (durable)
            return LIG_OK;
        lig_status status = ligi_head_take(&log->head, LIGI_HEAD_SYNC, 0);
        if (status == LIG_OK) {
            status = sync_now(log, wanted);
            ligi_head_release(&log->head, LIGI_HEAD_SYNC);
            seen = ligi_head_sync_bell(&log->head);
        }
        if (status == LIG_OK)
            continue;
        int64_t waited = ligi_now_ns() - began;
        if (status != LIG_E_TIMEOUT)
            return status;
        if (gives_up(log, waited))
            return LIG_E_BUSY;
        if (waited >= timeout_ns)
            return lig_fail(LIG_E_TIMEOUT, "%s/" LIGI_NAME_LOG ": fdatasync has taken %.0f s",
                            log->folder.place, (double)waited / 1e9);
        ligi_head_sync_wait(&log->head, seen, wanted->version, timeout_ns - waited);
    }
}
