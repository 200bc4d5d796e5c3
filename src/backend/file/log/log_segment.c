#include "backend/file/log/log_segment.h"

#include "backend/file/log/log_numbers.h"
#include "backend/file/packs/engine.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENT_BYTES (UINT64_C(128) << 10) /* a new one */
#define SMALL_BYTES (UINT64_C(8) << 10)     /* on a full disk */
#define FIRST_BYTES (UINT64_C(16) << 10)    /* that one, and its folder */
#define MOVED_BYTES (UINT64_C(16) << 10)    /* at a time */

/* The zeros of a new segment behind its first `bytes` bytes. `small`: the disk is full. */
static lig_status fill_segment(const ligi_file_log *log, int fd, uint64_t bytes, int small)
{
    uint64_t size = (small ? SMALL_BYTES : SEGMENT_BYTES) - LIGI_SEGMENT_HEADER_BYTES;

    lig_status status = ligi_clog_extend(&log->folder, fd, bytes, bytes + size);
    if (status == LIG_OK || !ligi_clog_is_full(lig_error_number()))
        return status;
    /* All commits are in it, so the disk can be freed. */
    return bytes > LIGI_SEGMENT_HEADER_BYTES ? LIG_OK : status;
}

lig_status ligi_clog_segment_make(ligi_file_log *log, const ligi_clog_position *after,
                                  const ligi_writer *records, int small)
{
    ligi_segment_header header = {.first = after->version + 1, .previous = after->chain};
    uint8_t head[LIGI_SEGMENT_HEADER_BYTES];
    char name[LIGI_CLOG_NAME_BYTES];
    int fd;

    memcpy(header.id, log->id, sizeof header.id);
    ligi_segment_header_put(&header, head);
    LIG_TRY(ligi_clog_folder_create(&log->folder, name, &fd));
    if (log->head.page != NULL)
        ligi_head_rolling(&log->head);
    lig_status status = ligi_write_all(fd, head, sizeof head, 0);
    if (status == LIG_OK && records->bytes > 0)
        status = ligi_write_all(fd, records->data, records->bytes, sizeof head);
    if (status != LIG_OK)
        status = ligi_fail_errno(lig_error_number(), "cannot write %s/" LIGI_NAME_LOG,
                                 log->folder.place);
    if (status == LIG_OK)
        status = fill_segment(log, fd, sizeof head + records->bytes, small);
    if (status == LIG_OK)
        status = ligi_clog_folder_publish(&log->folder, name, fd, LIGI_NAME_SEGMENT, header.first);
    if (status != LIG_OK)
        ligi_clog_folder_discard(&log->folder, name);
    close(fd);
    if (status == LIG_OK && log->head.page != NULL) {
        ligi_head_named_set(&log->head, header.first);
        ligi_head_segment_set(&log->head, header.first);
    }
    return status;
}

/* Moves the room step by step: another program can take a step only while neither has it. */
static void move_in_steps(ligi_file_log *log, int from, uint64_t from_end, ligi_clog_file *next,
                          uint64_t end)
{
    uint64_t size, have, to = 0;

    if (ligi_clog_measure(&log->folder, from, &size, &have) != LIG_OK ||
        ligi_clog_measure(&log->folder, next->fd, &size, &to) != LIG_OK)
        return;
    while (have > from_end && to < end) {
        have = have - from_end > MOVED_BYTES ? have - MOVED_BYTES : from_end;
        to = end - to > MOVED_BYTES ? to + MOVED_BYTES : end;
        ligi_clog_trim(&log->folder, from, have);
        ligi_clog_keep_most(&log->folder, next, to);
    }
}

/* The room that is kept in this segment goes to the next one: before it is given back, if the disk
 * has as much, so that nobody else takes it. */
static void move_room(ligi_file_log *log, const ligi_clog_position *at)
{
    uint64_t end = SMALL_BYTES + log->keep;
    ligi_clog_file *next, *file;

    if (ligi_clog_tail_file(log, at->version + 1, &next) != LIG_OK)
        return;
    if (ligi_clog_keep(&log->folder, next, end) != LIG_OK &&
        ligi_clog_segment_file(log, at->segment, &file) == LIG_OK) {
        move_in_steps(log, file->fd, at->offset, next, end);
        ligi_clog_folder_release(&log->folder, file);
    }
    ligi_clog_give_back(&log->folder, at->segment, at->offset);
    ligi_clog_folder_release(&log->folder, next);
}

/* On a full disk the next segment gets the room that this one has left. If that is not enough, this
 * one takes it back. */
static lig_status make_from_room(ligi_file_log *log, const ligi_clog_position *at)
{
    uint64_t size, stored;
    ligi_clog_file *file;
    ligi_failure failure;

    LIG_TRY(ligi_clog_segment_file(log, at->segment, &file));
    lig_status status = ligi_clog_measure(&log->folder, file->fd, &size, &stored);
    uint64_t end = at->offset + FIRST_BYTES;
    if (status == LIG_OK) /* no more than that: another program may take it */
        ligi_clog_trim(&log->folder, file->fd, stored > end ? stored - FIRST_BYTES : at->offset);
    if (status == LIG_OK)
        status = ligi_clog_segment_make(log, at, &(ligi_writer){0}, 1);
    ligi_failure_take(&failure, status);
    if (status != LIG_OK)
        ligi_clog_keep_most(&log->folder, file, stored);
    ligi_clog_folder_release(&log->folder, file);
    return ligi_failure_publish(&failure);
}

lig_status ligi_clog_segment_follow(ligi_file_log *log, const ligi_clog_position *at, int frees)
{
    lig_status status = ligi_clog_segment_make(log, at, &(ligi_writer){0}, 0);

    if (status != LIG_OK && ligi_clog_is_full(lig_error_number()))
        status = ligi_clog_segment_make(log, at, &(ligi_writer){0}, 1);
    if (status != LIG_OK && ligi_clog_is_full(lig_error_number()) && frees)
        status = make_from_room(log, at);
    if (status == LIG_OK)
        move_room(log, at);
    return status;
}

void ligi_clog_segments_give_back(ligi_file_log *log, uint64_t segment)
{
    uint64_t *numbers;
    size_t count;

    if (ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count) != LIG_OK)
        return;
    for (size_t i = 0; i < count && numbers[i] < segment; i++)
        ligi_clog_give_back(&log->folder, numbers[i], UINT64_MAX);
    free(numbers);
}

void ligi_clog_segment_trim(ligi_file_log *log, const ligi_clog_position *at)
{
    ligi_clog_file *file;

    if (ligi_clog_tail_file(log, at->segment, &file) != LIG_OK)
        return;
    ligi_clog_trim(&log->folder, file->fd, at->offset + FIRST_BYTES + log->keep);
    ligi_clog_folder_release(&log->folder, file);
}
