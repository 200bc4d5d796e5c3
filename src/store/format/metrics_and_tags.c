#include "store/format/metrics_and_tags.h"

#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

lig_status ligi_text_check(const char *what, const char *text)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes > LIGI_TEXT_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "%s has %zu bytes, but the limit is %llu", what, bytes,
                        (unsigned long long)LIGI_TEXT_BYTES_MAX);
    if (bytes && !ligi_utf8_valid(text, bytes))
        return lig_fail(LIG_E_INVALID, "%s is not valid UTF-8", what);
    return LIG_OK;
}

static lig_status check_label(const char *what, const char *name, size_t index, ligi_map *seen)
{
    size_t bytes = name ? strlen(name) : 0;
    if (bytes == 0)
        return lig_fail(LIG_E_INVALID, "%s %zu has no name", what, index);
    if (bytes > LIG_NAME_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "the name of %s '%.40s...' has more than %d bytes", what, name,
                        LIG_NAME_BYTES_MAX);
    if (!ligi_utf8_valid(name, bytes))
        return lig_fail(LIG_E_INVALID, "the name of %s %zu is not valid UTF-8", what, index);
    lig_status status = ligi_map_insert(seen, name, bytes, index, NULL);
    if (status == LIG_E_EXISTS)
        return lig_fail(LIG_E_INVALID, "duplicate %s '%s'", what, name);
    return status;
}

static lig_status check_count(const char *what, size_t count)
{
    if (count > LIGI_LABELS_MAX)
        return lig_fail(LIG_E_LIMIT, "a model cannot have %zu %ss: the limit is %d", count, what,
                        LIGI_LABELS_MAX);
    return LIG_OK;
}

lig_status ligi_metrics_check(const lig_metric *metrics, size_t count)
{
    LIG_TRY(check_count("metric", count));
    ligi_map seen = {0};
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = check_label("metric", metrics[i].name, i, &seen);
    ligi_map_fini(&seen);
    return status;
}

lig_status ligi_tags_check(const lig_tag *tags, size_t count, int removals)
{
    LIG_TRY(check_count("tag", count));
    ligi_map seen = {0};
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        status = check_label("tag", tags[i].name, i, &seen);
        if (status == LIG_OK && tags[i].value == NULL && !removals)
            status = lig_fail(LIG_E_INVALID, "tag '%s' has no value", tags[i].name);
        if (status == LIG_OK)
            status = ligi_text_check("the value of a tag", tags[i].value);
    }
    ligi_map_fini(&seen);
    return status;
}

static lig_status merge_metrics(ligi_about *about, const lig_update *update)
{
    size_t count = about->metric_count;
    lig_metric *metrics;
    LIG_TRY(ligi_calloc(&metrics, count + update->metric_count, sizeof *metrics, "metrics"));
    if (count)
        memcpy(metrics, about->metrics, count * sizeof *metrics);
    for (size_t i = 0; i < update->metric_count; i++) {
        size_t at = 0;
        while (at < count && strcmp(metrics[at].name, update->metrics[i].name) != 0)
            at++;
        metrics[at] = update->metrics[i];
        count += at == count;
    }
    free(about->metrics);
    about->metrics = metrics;
    about->metric_count = count;
    return check_count("metric", count);
}

static lig_status merge_tags(ligi_about *about, const lig_update *update)
{
    size_t count = about->tag_count;
    lig_tag *tags;
    LIG_TRY(ligi_calloc(&tags, count + update->tag_count, sizeof *tags, "tags"));
    if (count)
        memcpy(tags, about->tags, count * sizeof *tags);
    for (size_t i = 0; i < update->tag_count; i++) {
        const lig_tag *tag = &update->tags[i];
        size_t at = 0;
        while (at < count && strcmp(tags[at].name, tag->name) != 0)
            at++;
        if (tag->value) {
            tags[at] = *tag;
            count += at == count;
        } else if (at < count) {
            memmove(&tags[at], &tags[at + 1], (count - at - 1) * sizeof *tags);
            count--;
        }
    }
    free(about->tags);
    about->tags = tags;
    about->tag_count = count;
    return check_count("tag", count);
}

lig_status ligi_labels_merge(ligi_about *about, const lig_update *update)
{
    LIG_TRY(merge_metrics(about, update));
    LIG_TRY(merge_tags(about, update));
    if (update->meta)
        about->meta = update->meta;
    return LIG_OK;
}

lig_status ligi_labels_check_name(const char *what, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return lig_fail(LIG_E_INVALID, "the %s has no name", what);
    size_t bytes = strlen(name);
    if (bytes > LIG_NAME_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT,
                        "the name of the %s ('%.40s...') has %zu bytes, but the limit is %d", what,
                        name, bytes, LIG_NAME_BYTES_MAX);
    if (!ligi_utf8_valid(name, bytes))
        return lig_fail(LIG_E_INVALID, "the name of the %s is not valid UTF-8", what);
    return LIG_OK;
}
