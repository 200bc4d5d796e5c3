#include "store/serve/message/served_changes.h"

#include "store/serve/message/served_labels.h"

#include <stdlib.h>

void ligi_served_update_put(ligi_writer *writer, const ligi_served_update *update)
{
    const lig_update *what = &update->update;
    ligi_put_text(writer, update->model);
    ligi_put_varint(writer, what->flags);
    ligi_served_metrics_put(writer, what->metrics, what->metric_count);
    ligi_served_tags_put(writer, what->tags, what->tag_count);
    ligi_served_maybe_put(writer, what->meta);
    ligi_served_maybe_put(writer, what->name);
}

lig_status ligi_served_update_get(const void *body, size_t bytes, ligi_served_update *update)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    lig_update *what = &update->update;
    lig_metric *metrics = NULL;
    lig_tag *tags = NULL;
    *what = (lig_update)LIG_UPDATE_INIT;
    update->model = ligi_get_text(&reader, LIG_NAME_BYTES_MAX);
    what->flags = (uint32_t)ligi_get_varint(&reader);
    LIG_TRY(ligi_served_metrics_read(&reader, &metrics, &what->metric_count));
    what->metrics = metrics;
    LIG_TRY(ligi_served_tags_read(&reader, &tags, &what->tag_count));
    what->tags = tags;
    what->meta = ligi_served_maybe_get(&reader, bytes);
    what->name = ligi_served_maybe_get(&reader, bytes);
    return ligi_served_end(&reader, "update");
}

void ligi_served_update_fini(ligi_served_update *update)
{
    free((void *)update->update.metrics);
    free((void *)update->update.tags);
    *update = (ligi_served_update){0};
}

void ligi_served_alias_put(ligi_writer *writer, const ligi_served_alias *alias)
{
    ligi_put_text(writer, alias->alias);
    ligi_served_maybe_put(writer, alias->model);
}

lig_status ligi_served_alias_get(const void *body, size_t bytes, ligi_served_alias *alias)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    alias->alias = ligi_get_text(&reader, bytes);
    alias->model = ligi_served_maybe_get(&reader, bytes);
    return ligi_served_end(&reader, "alias");
}
