#include "store/catalog/commit_event.h"

#include "base/error.h"

enum { EVENT_VERSION = 1 };

void ligi_event_put(ligi_writer *writer, const lig_event *event)
{
    ligi_put_u8(writer, EVENT_VERSION);
    ligi_put_u8(writer, (uint8_t)event->kind);
    ligi_put_varint(writer, event->model);
    ligi_put_text(writer, event->name ? event->name : "");
    ligi_put_text(writer, event->other ? event->other : "");
}

lig_status ligi_event_get(const void *data, size_t bytes, lig_event *event)
{
    ligi_reader reader = {.data = data, .bytes = bytes};
    uint8_t version = ligi_get_u8(&reader), kind = ligi_get_u8(&reader);
    uint64_t model = ligi_get_varint(&reader);
    const char *name = ligi_get_text(&reader, LIG_NAME_BYTES_MAX);
    const char *other = ligi_get_text(&reader, LIG_NAME_BYTES_MAX);
    if (version > EVENT_VERSION || (version == EVENT_VERSION && kind > LIG_EVENT_UPDATED))
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "unsupported event of version %u and kind %u: a newer version of Ligament wrote it",
            version, kind);
    if (reader.failed || reader.at != bytes || version == 0 || kind == 0)
        return lig_fail(LIG_E_CORRUPT, "invalid event of %zu bytes in the log of commits", bytes);
    event->kind = kind;
    event->model = model;
    event->name = name;
    event->other = other;
    return LIG_OK;
}
