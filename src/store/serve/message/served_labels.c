#include "store/serve/message/served_labels.h"

#include "base/error.h"
#include "store/format/manifest.h"

enum { METRIC_LEAST = 10, TAG_LEAST = 3 }; /* bytes of the shortest */

void ligi_served_metrics_put(ligi_writer *writer, const lig_metric *metrics, size_t count)
{
    ligi_put_varint(writer, count);
    for (size_t i = 0; i < count; i++) {
        ligi_put_text(writer, metrics[i].name);
        ligi_put_f64(writer, metrics[i].value);
    }
}

lig_status ligi_served_metrics_read(ligi_reader *reader, lig_metric **metrics, size_t *count)
{
    lig_metric *made = NULL;
    size_t number = ligi_get_count(reader, METRIC_LEAST);
    if (number > LIGI_LABELS_MAX)
        return lig_fail(LIG_E_LIMIT, "too many metrics: %zu, the limit is %d", number,
                        LIGI_LABELS_MAX);
    if (number == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&made, number, sizeof *made, "metrics"));
    for (size_t i = 0; i < number; i++) {
        made[i].name = ligi_get_text(reader, LIG_NAME_BYTES_MAX);
        made[i].value = ligi_get_f64(reader);
    }
    *metrics = made;
    *count = number;
    return LIG_OK;
}

void ligi_served_tags_put(ligi_writer *writer, const lig_tag *tags, size_t count)
{
    ligi_put_varint(writer, count);
    for (size_t i = 0; i < count; i++) {
        ligi_put_text(writer, tags[i].name);
        ligi_served_maybe_put(writer, tags[i].value);
    }
}

lig_status ligi_served_tags_read(ligi_reader *reader, lig_tag **tags, size_t *count)
{
    lig_tag *made = NULL;
    size_t number = ligi_get_count(reader, TAG_LEAST);
    if (number > LIGI_LABELS_MAX)
        return lig_fail(LIG_E_LIMIT, "too many tags: %zu, the limit is %d", number,
                        LIGI_LABELS_MAX);
    if (number == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&made, number, sizeof *made, "tags"));
    for (size_t i = 0; i < number; i++) {
        made[i].name = ligi_get_text(reader, LIGI_TEXT_BYTES_MAX);
        made[i].value = ligi_served_maybe_get(reader, LIGI_TEXT_BYTES_MAX);
    }
    *tags = made;
    *count = number;
    return LIG_OK;
}
