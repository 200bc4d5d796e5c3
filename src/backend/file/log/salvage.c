#include "backend/file/log/salvage.h"

#include "backend/file/log/log_numbers.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct segment_bytes { /* a whole segment in memory */
    uint64_t number;
    uint8_t *data;
    size_t bytes;
    int headless; /* its header is damaged */
} segment_bytes;

static lig_status tell(ligi_salvage *self, const ligi_clog_item *event, const char *format,
                       uint64_t version, uint64_t segment)
{
    char text[256];

    snprintf(text, sizeof text, format, version, segment);
    return self->problem == NULL ? LIG_OK
                                 : self->problem(self->context, text, event ? event->value : NULL,
                                                 event ? event->value_bytes : 0);
}

#define DAMAGED                                                                                    \
    "the record of version %" PRIu64 " in log/" LIGI_NAME_SEGMENT_START "%016" PRIx64 " is "       \
    "damaged"

static lig_status read_segment(ligi_file_log *log, segment_bytes *segment)
{
    ligi_clog_file *file;

    LIG_TRY(ligi_clog_segment_file(log, segment->number, &file));
    size_t bytes = ligi_clog_data_bytes(file->fd);
    lig_status status = ligi_alloc(&segment->data, bytes + 1, "a segment");
    if (status == LIG_OK)
        status = ligi_clog_pread(&log->folder, file->fd, segment->data, bytes, 0, &segment->bytes);
    ligi_clog_folder_release(&log->folder, file);
    return status;
}

/* Passes on the intact items of `bytes` bytes of a record. *lost counts the others; events are
 * reported if `problem`. */
static lig_status hand_items(ligi_salvage *self, const uint8_t *record, size_t bytes,
                             uint64_t version, const ligi_clog_position *at, int problem)
{
    size_t next = LIGI_CLOG_HEADER_BYTES;
    ligi_clog_item item;

    for (;;) {
        if (!ligi_clog_item_next(record, bytes, &next, &item)) {
            if (!ligi_clog_item_skip(record, bytes, &next))
                return LIG_OK;
            continue;
        }
        if (item.kind == LIGI_CLOG_EVENT && problem)
            LIG_TRY(tell(self, &item, DAMAGED, version, at->segment));
        if (self->item != NULL)
            LIG_TRY(self->item(self->context, &item, version, at));
    }
}

/* The next whole header at or behind the offset, of a version above the one reached; 0: none. */
static int find_header(const ligi_salvage *self, const segment_bytes *segment, size_t from,
                       uint64_t limit, size_t *offset, ligi_clog_header *header)
{
    for (size_t i = from; i + LIGI_CLOG_HEADER_BYTES <= segment->bytes; i += 8)
        if (ligi_clog_header_get(segment->data + i, header) &&
            header->bytes <= segment->bytes - i && header->version > self->reached.version &&
            header->version < limit) {
            *offset = i;
            return 1;
        }
    return 0;
}

static lig_status hand_record(ligi_salvage *self, const segment_bytes *segment, size_t offset,
                              const ligi_clog_header *header, int whole)
{
    const uint8_t *record = segment->data + offset;
    ligi_clog_position at = {header->version - 1, header->previous, segment->number, offset, 0};

    if (!whole) {
        self->damages++;
        LIG_TRY(tell(self, NULL, DAMAGED, header->version, segment->number));
    }
    LIG_TRY(hand_items(self, record, header->bytes, header->version, &at, !whole));
    self->reached = (ligi_clog_position){header->version, ligi_clog_chain(header), segment->number,
                                         offset + header->bytes, offset};
    return LIG_OK;
}

/* What lies between the position and `end` holds no whole header. */
static lig_status hand_rest(ligi_salvage *self, const segment_bytes *segment, size_t end)
{
    size_t offset = self->reached.offset;
    ligi_clog_position at = self->reached;

    self->damages++;
    LIG_TRY(tell(self, NULL, DAMAGED, at.version + 1, segment->number));
    if (end - offset < LIGI_CLOG_HEADER_BYTES)
        return LIG_OK;
    return hand_items(self, segment->data + offset, end - offset, at.version + 1, &at, 1);
}

static int any_byte(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != 0)
            return 1;
    return 0;
}

/* The end of the last segment: a record cut short that was never acknowledged is no damage. */
static lig_status hand_end(ligi_salvage *self, const segment_bytes *segment, uint64_t limit)
{
    size_t offset = self->reached.offset;
    int missing = limit != UINT64_MAX && self->reached.version + 1 < limit;

    if (self->synced > self->reached.version && limit == UINT64_MAX)
        missing = 1;
    if (self->numbered && segment->number > self->reached.version)
        missing = 1;
    if (!missing)
        return LIG_OK;
    if (offset < segment->bytes && any_byte(segment->data + offset, segment->bytes - offset))
        return hand_rest(self, segment, segment->bytes);
    self->damages++;
    return tell(self, NULL,
                "the log lacks the records from version %" PRIu64
                " on, after log/" LIGI_NAME_SEGMENT_START "%016" PRIx64,
                self->reached.version + 1, segment->number);
}

/* 1 when what follows in the last segment was never acknowledged: neither a witness nor an intact
 * record after it shows that the next one was durable. A killed process leaves that, and the next
 * writer cuts it off. */
static int is_residue(const ligi_salvage *self, const segment_bytes *segment, uint64_t limit)
{
    uint64_t version = self->reached.version + 1;
    ligi_clog_header header;

    if (limit != UINT64_MAX || self->synced >= version || segment->number > version ||
        self->numbered)
        return 0;
    for (size_t i = self->reached.offset; i + LIGI_CLOG_HEADER_BYTES <= segment->bytes; i += 8)
        if (ligi_clog_header_get(segment->data + i, &header) && header.synced >= version &&
            header.bytes <= segment->bytes - i &&
            ligi_clog_record_whole(segment->data + i, &header))
            return 0;
    return 1;
}

/* Records up to `limit`, the first version of the next segment. */
static lig_status hand_segment(ligi_salvage *self, const segment_bytes *segment, uint64_t limit)
{
    size_t offset;
    ligi_clog_header header;

    self->reached.segment = segment->number;
    self->reached.offset = LIGI_SEGMENT_HEADER_BYTES;
    self->reached.last = 0;
    if (segment->headless && self->reached.version == 0 &&
        find_header(self, segment, self->reached.offset, limit, &offset, &header) &&
        offset == self->reached.offset && header.version == segment->number)
        self->reached.chain = header.previous; /* nothing else tells it */
    while (find_header(self, segment, self->reached.offset, limit, &offset, &header)) {
        int follows =
            header.version == self->reached.version + 1 && header.previous == self->reached.chain;
        int whole = ligi_clog_record_whole(segment->data + offset, &header);
        if (!(follows && whole) && is_residue(self, segment, limit))
            return LIG_OK;
        if (!follows && self->reached.version != 0 && offset != self->reached.offset)
            LIG_TRY(hand_rest(self, segment, offset));
        else if (!follows && header.version != self->reached.version + 1) {
            self->damages++;
            LIG_TRY(tell(self, NULL,
                         "the log lacks the record of version %" PRIu64
                         " before log/" LIGI_NAME_SEGMENT_START "%016" PRIx64,
                         self->reached.version + 1, segment->number));
        }
        LIG_TRY(hand_record(self, segment, offset, &header, whole));
    }
    return hand_end(self, segment, limit);
}

/* The last version that was acknowledged, as far as that is known. Without syncs a commit is
 * acknowledged when it is published; a failed sync may have lost it since. */
static uint64_t acknowledged(const ligi_file_log *log)
{
    if (log->head.page == NULL)
        return log->witnessed;
    uint64_t synced = ligi_head_synced(&log->head), appended = ligi_head_appended(&log->head);
    if (log->numbered != 0 || ligi_head_poisoned(&log->head) != 0)
        return synced;
    return appended > synced ? appended : synced;
}

static lig_status hand_segments(ligi_file_log *log, ligi_salvage *self)
{
    uint64_t *numbers;
    size_t count;

    /* Read before the segments: others continue to commit. */
    self->synced = acknowledged(log);
    self->numbered = log->numbered != 0;
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count));
    lig_status status = LIG_OK;
    if (count == 0 && self->synced > self->reached.version) {
        self->damages++;
        status = tell(self, NULL,
                      "the log lacks all records from version %" PRIu64 " to %" PRIu64
                      " and those after them",
                      self->reached.version + 1, self->synced);
    }
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        segment_bytes segment = {.number = numbers[i]};
        uint64_t limit = i + 1 < count ? numbers[i + 1] : UINT64_MAX;
        ligi_segment_header header;
        ligi_clog_file *file;
        if (limit <= self->reached.version + 1 ||
            (self->numbered && numbers[i] <= self->reached.version)) /* the checkpoint covers it */
            continue;
        status = ligi_clog_segment_file(log, numbers[i], &file);
        if (status != LIG_OK)
            break;
        if (ligi_segment_header_read(&log->folder, file->fd, numbers[i], &header) ==
            LIG_E_CORRUPT) {
            self->damages++;
            status = tell(self, NULL,
                          "the header (version %" PRIu64 ") of log/" LIGI_NAME_SEGMENT_START
                          "%016" PRIx64 " is damaged",
                          numbers[i], numbers[i]);
            segment.headless = 1;
        } else if (self->reached.version + 1 == numbers[i] && self->reached.version == 0) {
            self->reached.chain = header.previous;
        }
        ligi_clog_folder_release(&log->folder, file);
        if (status == LIG_OK)
            status = read_segment(log, &segment);
        if (status == LIG_OK)
            status = hand_segment(self, &segment, limit);
        free(segment.data);
    }
    free(numbers);
    return status;
}

/* --- checkpoints --- */

typedef struct base_visit {
    ligi_salvage *salvage;
    uint64_t checkpoint;
} base_visit;

static lig_status hand_base(void *context, const ligi_checkpoint_item *item)
{
    const base_visit *visit = context;
    const ligi_salvage *salvage = visit->salvage;
    return salvage->base == NULL ? LIG_OK
                                 : salvage->base(salvage->context, item, visit->checkpoint);
}

/* The newest checkpoint with an intact header, and its intact items. */
static lig_status hand_checkpoint(ligi_file_log *log, ligi_salvage *self)
{
    ligi_checkpoint_info info;
    uint64_t *numbers;
    size_t count, skipped = 0;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    lig_status status = LIG_E_CORRUPT;
    while (status == LIG_E_CORRUPT && count-- > 0) {
        base_visit visit = {self, numbers[count]};
        status = ligi_checkpoint_look(log, numbers[count], &info);
        if (status == LIG_OK)
            status = ligi_checkpoint_salvage(log, numbers[count], hand_base, &visit, &skipped);
        if (status == LIG_OK)
            self->reached = (ligi_clog_position){.version = info.version, .chain = info.chain};
        if (status == LIG_E_CORRUPT || skipped > 0) {
            self->damages++;
            lig_status told = tell(self, NULL,
                                   "the checkpoint of version %" PRIu64
                                   " (log/" LIGI_NAME_CHECKPOINT_START "%016" PRIx64 ") is damaged",
                                   numbers[count], numbers[count]);
            status = told == LIG_OK ? status : told;
        }
    }
    free(numbers);
    return status == LIG_E_CORRUPT ? LIG_OK : status;
}

lig_status ligi_salvage_run(ligi_file_log *log, ligi_salvage *self)
{
    memset(&self->reached, 0, sizeof self->reached);
    LIG_TRY(hand_checkpoint(log, self));
    return hand_segments(log, self);
}

static lig_status ignore_item(void *context, const ligi_checkpoint_item *item)
{
    (void)context, (void)item;
    return LIG_OK;
}

/* The oldest intact checkpoint; damaged ones are reported. What a repair of a numbered log leaves
 * for other hosts, below the newest, is ignored. */
static lig_status verify_checkpoints(ligi_file_log *log, ligi_salvage *self, uint64_t *oldest)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    lig_status status = LIG_OK;
    while (count-- > 0 && status == LIG_OK && !(log->numbered != 0 && *oldest != 0)) {
        status = ligi_checkpoint_read(log, numbers[count], ignore_item, NULL);
        if (status == LIG_OK)
            *oldest = numbers[count];
        if (status == LIG_E_CORRUPT) {
            self->damages++;
            status = tell(self, NULL,
                          "the checkpoint of version %" PRIu64 " (log/" LIGI_NAME_CHECKPOINT_START
                          "%016" PRIx64 ") is damaged",
                          numbers[count], numbers[count]);
        }
    }
    free(numbers);
    return status;
}

lig_status ligi_salvage_verify(ligi_file_log *log, ligi_salvage *self)
{
    ligi_checkpoint_info info = {0};
    uint64_t oldest = 0;

    LIG_TRY(verify_checkpoints(log, self, &oldest));
    if (oldest != 0)
        LIG_TRY(ligi_checkpoint_look(log, oldest, &info));
    self->reached = (ligi_clog_position){.version = info.version, .chain = info.chain};
    return hand_segments(log, self);
}

lig_status ligi_salvage_sound(ligi_file_log *log, int *sound)
{
    ligi_salvage quiet = {0};

    lig_status status = ligi_salvage_verify(log, &quiet);
    *sound = status == LIG_OK && quiet.damages == 0;
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}
