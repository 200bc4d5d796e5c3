#include "backend/file/log/log_numbers.h"

#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

lig_status ligi_clog_segment_file(ligi_file_log *log, uint64_t segment, ligi_clog_file **file)
{
    return ligi_clog_folder_file(&log->folder, LIGI_NAME_SEGMENT, segment, file);
}

lig_status ligi_clog_tail_file(ligi_file_log *log, uint64_t segment, ligi_clog_file **file)
{
    return ligi_clog_folder_file_once(&log->folder, LIGI_NAME_SEGMENT, segment, file);
}

void ligi_clog_step(ligi_clog_position *at, const ligi_clog_header *header)
{
    at->version = header->version;
    at->chain = ligi_clog_chain(header);
    at->last = at->offset;
    at->offset += header->bytes;
}

int ligi_clog_is_numbered(const ligi_file_log *log, uint64_t segment)
{
    return log->numbered != 0 && segment >= log->numbered;
}

ligi_clog_position ligi_clog_before_number(uint64_t version, uint64_t chain)
{
    return (ligi_clog_position){version, chain, version + 1, LIGI_SEGMENT_HEADER_BYTES, 0};
}

/* --- the end of a numbered log --- */

/* The highest version of a checkpoint. */
static lig_status last_checkpoint(const ligi_file_log *log, uint64_t *version)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    *version = count > 0 ? numbers[count - 1] : 0;
    free(numbers);
    return LIG_OK;
}

static int is_fresh(const ligi_file_log *log)
{
    int64_t confirmed = atomic_load(&log->confirmed_ns);

    return confirmed != 0 &&
           ligi_numbered_now_ns() - confirmed < LIGI_NUMBERED_FRESH_S * INT64_C(1000000000);
}

/* A free next number shows that it was never used only while it cannot have been removed again.
 * After that, a checkpoint follows it. */
lig_status ligi_clog_confirm(ligi_file_log *log, const ligi_clog_position *at, int64_t began)
{
    uint64_t last;

    if (!is_fresh(log)) {
        LIG_TRY(last_checkpoint(log, &last));
        if (last > at->version)
            return lig_fail(LIG_E_CORRUPT,
                            "%s: the log has advanced to version %" PRIu64
                            " or later, and lacks the versions after %" PRIu64,
                            log->folder.place, last, at->version);
    }
    atomic_store(&log->confirmed_ns, began);
    return LIG_OK;
}

int ligi_file_log_news(ligi_file_log *log, uint64_t version)
{
    ligi_clog_file *file;

    if (log->numbered == 0)
        return 0;
    int64_t began = ligi_numbered_now_ns();
    ligi_numbered_revalidate(&log->folder);
    lig_status status = ligi_clog_segment_file(log, version + 1, &file);
    if (status == LIG_OK)
        ligi_clog_folder_release(&log->folder, file);
    if (status != LIG_E_NOTFOUND || !is_fresh(log))
        return 1;
    atomic_store(&log->confirmed_ns, began);
    return 0;
}

lig_status ligi_file_log_numbering(ligi_file_log *log)
{
    ligi_numbering numbering;

    lig_status status = ligi_numbering_read(&log->folder, &numbering);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    memcpy(log->id, numbering.id, sizeof log->id);
    log->numbered = numbering.from;
    log->folder.numbered = 1;
    return LIG_OK;
}

/* --- commits --- */

/* The number was assigned late: another host's commit may have had it, and been removed after a
 * checkpoint. Then the segment of the next number, if it exists, decides. */
static lig_status check_late(ligi_file_log *log, const ligi_clog_header *header)
{
    ligi_segment_header next;
    uint64_t last;
    ligi_clog_file *file;

    LIG_TRY(last_checkpoint(log, &last));
    if (last < header->version)
        return LIG_OK;
    lig_status status = ligi_clog_segment_file(log, header->version + 1, &file);
    if (status == LIG_OK) {
        status = ligi_segment_header_read(&log->folder, file->fd, header->version + 1, &next);
        ligi_clog_folder_release(&log->folder, file);
    }
    if (status == LIG_OK && next.previous == ligi_clog_chain(header))
        return LIG_OK;
    if (status != LIG_OK)
        return ligi_fail_errno(EIO, "%s: version %" PRIu64 " was committed after a long pause",
                               log->folder.place, header->version);
    LIG_TRY(ligi_clog_folder_remove(&log->folder, LIGI_NAME_SEGMENT, header->version));
    return lig_fail(LIG_E_BUSY, "%s: version %" PRIu64 " was committed by another process",
                    log->folder.place, header->version);
}

lig_status ligi_clog_append_number(ligi_file_log *log, ligi_clog_position *at, const void *record,
                                   const ligi_clog_header *header)
{
    ligi_segment_header segment = {.first = header->version, .previous = header->previous};
    ligi_numbered_draft draft;
    int late;

    assert(log->numbered != 0 && header->version >= log->numbered);
    memcpy(segment.id, log->id, sizeof segment.id);
    LIG_TRY(ligi_numbered_draft_make(&log->folder, &segment, record, header->bytes, &draft));
    LIG_TRY(ligi_numbered_draft_link(&log->folder, &draft, &late));
    lig_status status = late || !is_fresh(log) ? check_late(log, header) : LIG_OK;
    if (status != LIG_OK && status != LIG_E_BUSY)
        return ligi_fail_again(
            LIG_E_IO,
            "%s; whether version %" PRIu64
            " was committed is unknown (check whether the model exists, and save again if not)",
            lig_error_text(), header->version);
    LIG_TRY(status);
    ligi_clog_step(at, header);
    return LIG_OK;
}
