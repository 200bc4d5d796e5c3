#include "backend/file/log/file_log.h"

#include "backend/file/log/log_numbers.h"
#include "backend/file/log/log_segment.h"
#include "backend/file/log/log_start.h"
#include "backend/file/log/log_sync.h"
#include "backend/file/packs/engine.h"
#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKS_MAX 16 /* for a segment that is removed again and again */
#define RECORD_BYTES_MAX (UINT64_C(1) << 40)

/* --- reading --- */

typedef struct log_scan { /* one pass over the log */
    ligi_file_log *log;
    ligi_clog_position *at;
    ligi_clog_file *file; /* at->segment; NULL: none */
    uint64_t limit;       /* the first version of the next segment */
    uint8_t *buffer;
    size_t capacity;
} log_scan;

static void scan_end(log_scan *scan)
{
    ligi_clog_folder_release(&scan->log->folder, scan->file);
    free(scan->buffer);
}

/* The first version of the segment after `segment`; UINT64_MAX for the last. */
static lig_status next_segment(ligi_file_log *log, uint64_t segment, uint64_t *next)
{
    uint64_t *numbers;
    size_t count;

    *next = UINT64_MAX;
    if (ligi_clog_is_numbered(log, segment)) /* the next one is looked for when this one is read */
        return LIG_OK;
    if (log->numbered == 0 && log->head.page != NULL && ligi_head_segment(&log->head) == segment)
        return LIG_OK;
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count));
    for (size_t i = count; i-- > 0 && numbers[i] > segment;)
        *next = numbers[i];
    free(numbers);
    return LIG_OK;
}

/* LIG_E_NOTFOUND without a sentence. */
static lig_status try_segment(log_scan *scan, uint64_t segment)
{
    ligi_clog_folder_release(&scan->log->folder, scan->file);
    scan->file = NULL;
    LIG_TRY(next_segment(scan->log, segment, &scan->limit));
    return ligi_clog_segment_file(scan->log, segment, &scan->file);
}

static lig_status open_segment(log_scan *scan, uint64_t segment)
{
    lig_status status = try_segment(scan, segment);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_CORRUPT,
                        "%s/" LIGI_NAME_LOG "/" LIGI_NAME_SEGMENT_START "%016" PRIx64
                        " is missing (ligament check --repair)",
                        scan->log->folder.place, segment);
    return status;
}

/* The whole record at the offset in scan->buffer: *found 1; 0 at zeros and at the file's end; -1
 * for anything else. */
static lig_status read_record(log_scan *scan, uint64_t offset, ligi_clog_header *header, int *found)
{
    static const uint8_t zeros[LIGI_CLOG_HEADER_BYTES];
    uint8_t bytes[LIGI_CLOG_HEADER_BYTES];
    size_t got;

    *found = 0;
    LIG_TRY(ligi_clog_pread(&scan->log->folder, scan->file->fd, bytes, sizeof bytes, offset, &got));
    if (memcmp(bytes, zeros, got) == 0)
        return LIG_OK;
    *found = -1;
    if (got < sizeof bytes || !ligi_clog_header_get(bytes, header) ||
        header->bytes > RECORD_BYTES_MAX)
        return LIG_OK;
    off_t size = lseek(scan->file->fd, 0, SEEK_END);
    if (size < 0 || header->bytes > (uint64_t)size - offset)
        return LIG_OK;
    LIG_TRY(ligi_grow(&scan->buffer, &scan->capacity, header->bytes, 1, "a record of the log"));
    LIG_TRY(ligi_clog_pread(&scan->log->folder, scan->file->fd, scan->buffer, header->bytes, offset,
                            &got));
    if (got == header->bytes && ligi_clog_record_whole(scan->buffer, header))
        *found = 1;
    return LIG_OK;
}

static int fits(const ligi_clog_position *at, const ligi_clog_header *header)
{
    return header->version == at->version + 1 && header->previous == at->chain;
}

/* The position behind `version` in the segment, or as far as its records fit. */
static lig_status walk_to(log_scan *scan, uint64_t segment, uint64_t version,
                          ligi_clog_position *at)
{
    ligi_segment_header info;
    ligi_clog_header header;
    int found = 1;

    LIG_TRY(open_segment(scan, segment));
    LIG_TRY(ligi_segment_header_read(&scan->log->folder, scan->file->fd, segment, &info));
    *at = (ligi_clog_position){segment - 1, info.previous, segment, LIGI_SEGMENT_HEADER_BYTES, 0};
    while (at->version < version) {
        LIG_TRY(read_record(scan, at->offset, &header, &found));
        if (found != 1 || !fits(at, &header))
            break;
        ligi_clog_step(at, &header);
    }
    return LIG_OK;
}

/* Moves to the segment that holds the next version: the records of one whose sync failed lie in the
 * next one again, byte by byte. */
static lig_status enter_segment(log_scan *scan, uint64_t segment)
{
    ligi_clog_position at;

    LIG_TRY(walk_to(scan, segment, scan->at->version, &at));
    if (at.version != scan->at->version || at.chain != scan->at->chain)
        return lig_fail(LIG_E_CORRUPT,
                        "%s: the log's segment %" PRIu64 " does not continue version %" PRIu64
                        " (ligament check --repair)",
                        scan->log->folder.place, segment, scan->at->version);
    *scan->at = at;
    return LIG_OK;
}

/* Examines the bytes after the position: for an intact record that was written when `version` was
 * durable, and for any other than zero. */
static lig_status look_behind(log_scan *scan, uint64_t version, int *witnessed, int *something)
{
    uint64_t bytes = ligi_clog_data_bytes(scan->file->fd), from = scan->at->offset;
    ligi_clog_header header;
    uint8_t *rest;
    size_t got;

    *witnessed = 0;
    if (bytes <= from)
        return LIG_OK;
    LIG_TRY(ligi_alloc(&rest, bytes - from, "the end of the log"));
    lig_status status =
        ligi_clog_pread(&scan->log->folder, scan->file->fd, rest, bytes - from, from, &got);
    for (size_t i = 0; status == LIG_OK && i < got; i++)
        *something |= rest[i] != 0;
    for (size_t i = 0; status == LIG_OK && i + LIGI_CLOG_HEADER_BYTES <= got && !*witnessed; i += 8)
        *witnessed = ligi_clog_header_get(rest + i, &header) && header.synced >= version &&
                     header.bytes <= got - i && ligi_clog_record_whole(rest + i, &header);
    free(rest);
    return status;
}

static lig_status judge(log_scan *scan, int found, ligi_clog_end *end)
{
    uint64_t version = scan->at->version + 1;
    int witnessed = scan->limit != UINT64_MAX; /* the next segment was made when this was synced */
    int something = found != 0;

    if (scan->log->witnessed >= version ||
        (scan->log->head.page != NULL && ligi_head_synced(&scan->log->head) >= version))
        witnessed = 1;
    if (ligi_clog_is_numbered(scan->log, scan->at->segment)) {
        /* A numbered segment was complete when it got its number. */
        witnessed |= scan->file != NULL && (found != 0 || scan->at->segment == version);
        *end = witnessed ? LIGI_CLOG_DAMAGED : LIGI_CLOG_AT_END;
        return LIG_OK;
    }
    if (!witnessed && (found != 0 || scan->log->thorough))
        LIG_TRY(look_behind(scan, version, &witnessed, &something));
    *end = witnessed ? LIGI_CLOG_DAMAGED : something ? LIGI_CLOG_CUT : LIGI_CLOG_AT_END;
    return LIG_OK;
}

/* A position before a number that is not assigned yet has no file. */
static lig_status begin_scan(log_scan *scan)
{
    const ligi_clog_position *at = scan->at;

    if (!ligi_clog_is_numbered(scan->log, at->segment) || at->segment != at->version + 1)
        return open_segment(scan, at->segment);
    ligi_numbered_revalidate(&scan->log->folder);
    lig_status status = try_segment(scan, at->segment);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* *more: a segment with the next number is there, and scan->limit names it. */
static lig_status next_number(log_scan *scan, int *more)
{
    uint64_t number = scan->at->version + 1;
    ligi_clog_file *file;

    *more = 0;
    if (scan->log->numbered == 0 || number < scan->log->numbered || scan->at->segment == number)
        return LIG_OK;
    ligi_numbered_revalidate(&scan->log->folder);
    lig_status status = ligi_clog_segment_file(scan->log, number, &file);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    ligi_clog_folder_release(&scan->log->folder, file);
    scan->limit = number;
    *more = 1;
    return LIG_OK;
}

static lig_status run(log_scan *scan, ligi_clog_visit visit, void *context, ligi_clog_end *end)
{
    ligi_clog_header header;
    int found, more;

    LIG_TRY(begin_scan(scan));
    for (;;) {
        if (scan->at->version + 1 >= scan->limit) {
            LIG_TRY(enter_segment(scan, scan->limit));
            continue;
        }
        found = 0;
        if (scan->file != NULL)
            LIG_TRY(read_record(scan, scan->at->offset, &header, &found));
        if (found == 1 && fits(scan->at, &header)) {
            LIG_TRY(visit(context, scan->buffer, &header, scan->at));
            ligi_clog_step(scan->at, &header);
            continue;
        }
        LIG_TRY(next_number(scan, &more));
        if (!more)
            return judge(scan, found, end);
    }
}

lig_status ligi_file_log_read(ligi_file_log *log, ligi_clog_position *at, ligi_clog_visit visit,
                              void *context, ligi_clog_end *end)
{
    log_scan scan = {.log = log, .at = at};
    int64_t began = ligi_numbered_now_ns();
    lig_status status = run(&scan, visit, context, end);

    scan_end(&scan);
    if (status == LIG_OK && log->numbered != 0 && *end == LIGI_CLOG_AT_END)
        status = ligi_clog_confirm(log, at, began);
    return status;
}

/* --- segments --- */

lig_status ligi_file_log_new_id(ligi_file_log *log)
{
    return ligi_random(log->id, sizeof log->id);
}

lig_status ligi_file_log_create(ligi_file_log *log, const ligi_clog_position *after)
{
    return ligi_clog_segment_make(log, after, &(ligi_writer){0}, 0);
}

int ligi_file_log_reaches(ligi_file_log *log, const ligi_clog_position *at)
{
    ligi_clog_position before = *at;
    log_scan scan = {.log = log, .at = &before};
    ligi_segment_header info;
    ligi_clog_header header;
    int found = 0;

    if (log->numbered == 1 && at->version == 0)
        return at->chain == ligi_clog_chain_start(log->id);
    lig_status status = open_segment(&scan, at->segment);
    if (status == LIG_OK && at->last == 0)
        found =
            ligi_segment_header_read(&log->folder, scan.file->fd, at->segment, &info) == LIG_OK &&
            info.previous == at->chain;
    else if (status == LIG_OK)
        found = read_record(&scan, at->last, &header, &found) == LIG_OK && found == 1 &&
                header.version == at->version && ligi_clog_chain(&header) == at->chain;
    scan_end(&scan);
    return found;
}

lig_status ligi_file_log_find(ligi_file_log *log, ligi_clog_position *at)
{
    log_scan scan = {.log = log, .at = at};
    uint64_t segment;

    LIG_TRY(ligi_clog_choose_segment(log, at->version + 1, &segment));
    /* What a checkpoint covers may have been removed. */
    if (log->numbered != 0 && at->version + 1 >= log->numbered && segment < at->version) {
        *at = ligi_clog_before_number(at->version, at->chain);
        return LIG_OK;
    }
    if (segment == 0)
        return lig_fail(LIG_E_CORRUPT,
                        "%s/" LIGI_NAME_LOG ": no segment continues version %" PRIu64
                        " (ligament check --repair)",
                        log->folder.place, at->version);
    lig_status status = enter_segment(&scan, segment);
    scan_end(&scan);
    return status;
}

/* --- the tail --- */

/* The bytes after the position were never acknowledged: they must not be read as the rest of a
 * record. */
static lig_status cut(ligi_file_log *log, const ligi_clog_position *at)
{
    ligi_clog_file *file;

    LIG_TRY(ligi_clog_segment_file(log, at->segment, &file));
    uint64_t bytes = ligi_clog_data_bytes(file->fd);
    lig_status status = LIG_OK;
    if (bytes > at->offset)
        status = ligi_clog_extend(&log->folder, file->fd, at->offset, bytes);
    ligi_clog_folder_release(&log->folder, file);
    return status;
}

static lig_status keep_record(void *context, const uint8_t *record, const ligi_clog_header *header,
                              const ligi_clog_position *at)
{
    ligi_writer *kept = context;
    (void)at;
    ligi_put_bytes(kept, record, header->bytes);
    return kept->status;
}

/* Reports the new positions of the copied records, because the index stores the positions of large
 * values and pages of the old segment may be dropped. Called before the new segment exists: if the
 * visitor fails, the next attempt calls it again. */
static lig_status visit_again(const ligi_writer *kept, const ligi_clog_position *from,
                              const ligi_clog_visitor *visitor)
{
    ligi_clog_position at = {from->version, from->chain, from->version + 1,
                             LIGI_SEGMENT_HEADER_BYTES, 0};
    ligi_clog_header header;

    for (size_t done = 0; visitor != NULL && done < kept->bytes; done += header.bytes) {
        if (!ligi_clog_header_get(kept->data + done, &header))
            return lig_fail(LIG_E_INTERNAL, "internal error: a copied record is invalid");
        LIG_TRY(visitor->visit(visitor->context, kept->data + done, &header, &at));
        ligi_clog_step(&at, &header);
    }
    return LIG_OK;
}

/* The sync of this segment failed, and a second one would report success for pages that the kernel
 * has dropped; or nobody knows how it ended. What was not durable is written again into a new
 * segment. */
static lig_status replace_segment(ligi_file_log *log, ligi_clog_position *at,
                                  const ligi_clog_visitor *visitor)
{
    uint64_t synced = ligi_head_synced(&log->head);
    log_scan scan = {.log = log, .at = at};
    ligi_clog_position from, behind;
    ligi_writer kept = {0};
    ligi_clog_end end;

    lig_status status =
        walk_to(&scan, at->segment, synced < at->version ? synced : at->version, &from);
    scan_end(&scan);
    behind = from;
    if (status == LIG_OK)
        status = ligi_file_log_read(log, &behind, keep_record, &kept, &end);
    /* The kernel has dropped commits that the index shows: the next process that opens the store
     * alone rebuilds it. */
    if (status == LIG_OK && (behind.version != at->version || behind.chain != at->chain))
        status = ligi_fail_errno(EIO,
                                 "%s: a failed fdatasync lost commits that were not acknowledged "
                                 "(close the store in all processes and open it again)",
                                 log->folder.place);
    if (status == LIG_OK)
        status = visit_again(&kept, &from, visitor);
    if (status == LIG_OK)
        status = ligi_clog_segment_make(log, &from, &kept, 0);
    if (status == LIG_OK) {
        uint64_t replaced = at->segment;
        assert(replaced <= from.version + 1 && from.version <= at->version);
        at->segment = from.version + 1;
        at->last =
            at->version == from.version ? 0 : at->last - from.offset + LIGI_SEGMENT_HEADER_BYTES;
        at->offset = LIGI_SEGMENT_HEADER_BYTES + kept.bytes;
        ligi_head_epoch_next(&log->head, at->version, 1);
        ligi_head_unpoison(&log->head, replaced);
    }
    ligi_writer_fini(&kept);
    return status;
}

lig_status ligi_file_log_tail(ligi_file_log *log, ligi_clog_position *at,
                              const ligi_clog_visitor *visitor)
{
    ligi_clog_end end;

    LIG_TRY(ligi_file_log_read(log, at, visitor->visit, visitor->context, &end));
    if (end == LIGI_CLOG_DAMAGED)
        return lig_fail(LIG_E_CORRUPT,
                        "%s: the log of commits is damaged at version %" PRIu64
                        ", which had been acknowledged; nothing is written (ligament check "
                        "--repair restores the intact part)",
                        log->folder.place, at->version + 1);
    if (log->numbered != 0)
        return LIG_OK;
    if (end == LIGI_CLOG_CUT)
        LIG_TRY(cut(log, at));
    uint64_t poisoned = ligi_head_poisoned(&log->head);
    if (poisoned == at->segment)
        return replace_segment(log, at, visitor);
    if (poisoned != 0) /* all its commits are durable, or lie in a later segment */
        ligi_head_unpoison(&log->head, poisoned);
    return LIG_OK;
}

/* --- appending --- */

lig_status ligi_file_log_reserve(ligi_file_log *log, ligi_clog_position *at, uint64_t bytes,
                                 int frees, const ligi_clog_visitor *visitor, int64_t timeout_ns)
{
    ligi_clog_file *file;

    if (log->numbered != 0) {
        *at = ligi_clog_before_number(at->version, at->chain);
        return LIG_OK;
    }
    int tight = frees && ligi_clog_bytes_left(&log->folder) < LIGI_CLOG_TIGHT_BYTES;
    if (at->offset > log->segment_bytes && !tight) { /* the room that is kept is in this one */
        lig_status rolled = ligi_file_log_roll(log, at, frees, visitor, timeout_ns);
        /* On a full disk this segment has the room that is kept, and a new one would need more. */
        if (rolled != LIG_OK && (!frees || !ligi_clog_is_full(lig_error_number()) ||
                                 ligi_head_segment(&log->head) != at->segment))
            return rolled;
    }
    LIG_TRY(ligi_clog_tail_file(log, at->segment, &file));
    ligi_clog_room room = {.end = at->offset + bytes, .keep = log->keep, .frees = frees};
    lig_status status = ligi_clog_make_room(&log->folder, file, &room);
    if (status != LIG_OK && frees && ligi_clog_is_full(lig_error_number())) {
        ligi_clog_segments_give_back(log, at->segment);
        status = ligi_clog_make_room(&log->folder, file, &room);
    }
    ligi_clog_folder_release(&log->folder, file);
    return status;
}

/* The disk works while the index is written, and the sync that follows waits for the rest only. Not
 * while others wait for a sync: the next one then comes for several records at once. A failure is
 * told by the sync. */
static void start_writing(const ligi_file_log *log, int fd, const ligi_clog_position *at,
                          const ligi_clog_header *header)
{
    if (log->folder.sync && header->synced == at->version)
        (void)sync_file_range(fd, (off_t)at->offset, (off_t)header->bytes, SYNC_FILE_RANGE_WRITE);
}

lig_status ligi_file_log_append(ligi_file_log *log, ligi_clog_position *at, const void *record,
                                const ligi_clog_header *header)
{
    ligi_clog_file *file;

    assert(fits(at, header));
    if (log->numbered != 0)
        return ligi_clog_append_number(log, at, record, header);
    LIG_TRY(ligi_clog_tail_file(log, at->segment, &file));
    lig_status status = ligi_write_all(file->fd, record, header->bytes, at->offset);
    if (status != LIG_OK)
        status = ligi_fail_errno(lig_error_number(), "%s/" LIGI_NAME_LOG ": cannot be written",
                                 log->folder.place);
    else
        start_writing(log, file->fd, at, header);
    ligi_clog_folder_release(&log->folder, file);
    LIG_TRY(status);
    ligi_clog_step(at, header);
    return LIG_OK;
}

/* The next segment was not completed. If it has its name nevertheless, it is valid, and the next
 * writer finds it; otherwise this one is still the last. */
static lig_status stay(ligi_file_log *log, const ligi_clog_position *at, lig_status status)
{
    ligi_failure failure;
    uint64_t next;

    ligi_failure_take(&failure, status);
    if (next_segment(log, at->segment, &next) == LIG_OK && next == UINT64_MAX)
        ligi_head_segment_set(&log->head, at->segment);
    return ligi_failure_publish(&failure);
}

/* Also if commits are not synced here: a process that syncs may use the next segment, and a commit
 * there is durable only with those before it. */
lig_status ligi_file_log_roll(ligi_file_log *log, ligi_clog_position *at, int frees,
                              const ligi_clog_visitor *visitor, int64_t timeout_ns)
{
    ligi_clog_durable wanted = {.version = at->version};

    assert(log->numbered == 0 && at->segment <= at->version + 1);
    ligi_head_append(&log->head, at->version);
    ligi_head_segment_set(&log->head, at->segment);
    wanted.epoch = ligi_head_epoch(&log->head);
    lig_status status = ligi_file_log_sync(log, &wanted, timeout_ns);
    if (status == LIG_E_BUSY)
        return replace_segment(log, at, visitor);
    LIG_TRY(status);
    if (at->segment == at->version + 1) /* it is empty */
        return LIG_OK;
    status = ligi_clog_segment_follow(log, at, frees);
    if (status != LIG_OK)
        return stay(log, at, status);
    at->segment = at->version + 1;
    at->offset = LIGI_SEGMENT_HEADER_BYTES;
    at->last = 0;
    return LIG_OK;
}
