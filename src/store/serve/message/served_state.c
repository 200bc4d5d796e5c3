#include "store/serve/message/served_state.h"

#include "base/error.h"

#include <stdlib.h>

/* Bytes of the shortest of each. */
enum { PROBLEM_LEAST = 2, STAMP_BYTES = 8, EVENT_LEAST = 10 };

void ligi_served_info_put(ligi_writer *writer, const ligi_served_info *info)
{
    ligi_put_text(writer, info->uri);
    ligi_put_text(writer, info->description);
    ligi_put_text(writer, info->release);
    ligi_served_blob_put(writer, info->card, info->card_bytes);
}

lig_status ligi_served_info_get(const void *body, size_t bytes, ligi_served_info *info)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    info->uri = ligi_get_text(&reader, bytes);
    info->description = ligi_get_text(&reader, bytes);
    info->release = ligi_get_text(&reader, bytes);
    info->card = ligi_served_blob_get(&reader, &info->card_bytes);
    return ligi_served_end(&reader, "info");
}

void ligi_served_stats_put(ligi_writer *writer, const lig_store_stats *stats)
{
    ligi_put_u64(writer, stats->models);
    ligi_put_u64(writer, stats->tensors);
    ligi_put_u64(writer, stats->packs);
    ligi_put_u64(writer, stats->bytes);
    ligi_put_u64(writer, stats->stored_bytes);
    ligi_put_u64(writer, stats->version);
}

lig_status ligi_served_stats_get(const void *body, size_t bytes, lig_store_stats *stats)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    stats->models = ligi_get_u64(&reader);
    stats->tensors = ligi_get_u64(&reader);
    stats->packs = ligi_get_u64(&reader);
    stats->bytes = ligi_get_u64(&reader);
    stats->stored_bytes = ligi_get_u64(&reader);
    stats->version = ligi_get_u64(&reader);
    return ligi_served_end(&reader, "counts");
}

void ligi_served_report_put(ligi_writer *writer, const lig_report *report)
{
    ligi_put_u64(writer, report->models);
    ligi_put_u64(writer, report->tensors);
    ligi_put_u64(writer, report->packs);
    ligi_put_u64(writer, report->bytes);
    ligi_put_u64(writer, report->freed_bytes);
    ligi_put_u64(writer, report->repaired);
    ligi_put_u64(writer, report->leftover_bytes);
    ligi_put_varint(writer, report->problem_count);
    for (size_t i = 0; i < report->problem_count; i++)
        ligi_put_text(writer, report->problems[i]);
}

lig_status ligi_served_report_get(const void *body, size_t bytes, lig_report *report)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    const char **problems;
    report->models = ligi_get_u64(&reader);
    report->tensors = ligi_get_u64(&reader);
    report->packs = ligi_get_u64(&reader);
    report->bytes = ligi_get_u64(&reader);
    report->freed_bytes = ligi_get_u64(&reader);
    report->repaired = ligi_get_u64(&reader);
    report->leftover_bytes = ligi_get_u64(&reader);
    size_t count = ligi_get_count(&reader, PROBLEM_LEAST);
    if (count) {
        LIG_TRY(ligi_calloc(&problems, count, sizeof *problems, "a report"));
        report->problems = problems;
        report->problem_count = count;
        for (size_t i = 0; i < count; i++)
            problems[i] = ligi_get_text(&reader, bytes);
    }
    return ligi_served_end(&reader, "report");
}

void ligi_served_report_fini(lig_report *report)
{
    free((void *)report->problems);
    *report = (lig_report){0};
}

void ligi_served_stamps_put(ligi_writer *writer, const int64_t *stamps, size_t count)
{
    ligi_put_varint(writer, count);
    for (size_t i = 0; i < count; i++)
        ligi_put_u64(writer, (uint64_t)stamps[i]);
}

lig_status ligi_served_stamps_get(const void *body, size_t bytes, int64_t **stamps, size_t *count)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    int64_t *made;
    size_t number = ligi_get_count(&reader, STAMP_BYTES);
    LIG_TRY(ligi_calloc(&made, number + 1, sizeof *made, "time stamps"));
    for (size_t i = 0; i < number; i++)
        made[i] = (int64_t)ligi_get_u64(&reader);
    lig_status status = ligi_served_end(&reader, "time stamps");
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    *stamps = made;
    *count = number;
    return LIG_OK;
}

void ligi_served_watch_put(ligi_writer *writer, const ligi_served_watch *watch)
{
    ligi_put_u64(writer, watch->since);
    ligi_put_u64(writer, watch->wait_ns);
    ligi_put_u64(writer, watch->limit);
}

lig_status ligi_served_watch_get(const void *body, size_t bytes, ligi_served_watch *watch)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    watch->since = ligi_get_u64(&reader);
    watch->wait_ns = ligi_get_u64(&reader);
    watch->limit = ligi_get_u64(&reader);
    return ligi_served_end(&reader, "watch");
}

void ligi_served_events_put(ligi_writer *writer, const ligi_served_events *events)
{
    ligi_put_u64(writer, events->until);
    ligi_put_varint(writer, events->count);
    for (size_t i = 0; i < events->count; i++) {
        ligi_put_varint(writer, events->events[i].version);
        ligi_put_u64(writer, (uint64_t)events->events[i].date_ns);
        ligi_served_blob_put(writer, events->events[i].data, events->events[i].bytes);
    }
}

lig_status ligi_served_events_get(const void *body, size_t bytes, ligi_served_events *events)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    uint64_t before = 0;
    events->until = ligi_get_u64(&reader);
    size_t count = ligi_get_count(&reader, EVENT_LEAST);
    if (count) {
        LIG_TRY(ligi_calloc(&events->events, count, sizeof *events->events, "events"));
        events->count = count;
    }
    for (size_t i = 0; i < count && !reader.failed; i++) {
        ligi_served_event *event = &events->events[i];
        event->version = ligi_get_varint(&reader);
        event->date_ns = (int64_t)ligi_get_u64(&reader);
        event->data = ligi_served_blob_get(&reader, &event->bytes);
        if (event->version < before || event->version > events->until)
            reader.failed = 1;
        before = event->version;
    }
    return ligi_served_end(&reader, "events");
}

void ligi_served_events_fini(ligi_served_events *events)
{
    free(events->events);
    *events = (ligi_served_events){0};
}
