#include "store/serve/message/served_models.h"

#include "base/error.h"
#include "store/serve/message/served_labels.h"

#include <stdlib.h>

enum { MODEL_LEAST = 5 }; /* bytes of the shortest in a list */

void ligi_served_selector_put(ligi_writer *writer, const ligi_served_selector *selector)
{
    ligi_served_maybe_put(writer, selector->name);
    ligi_put_varint(writer, selector->id);
    ligi_put_varint(writer, selector->parent);
    ligi_put_varint(writer, selector->flags);
}

lig_status ligi_served_selector_get(const void *body, size_t bytes, ligi_served_selector *selector)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    selector->name = ligi_served_maybe_get(&reader, LIG_NAME_BYTES_MAX);
    selector->id = ligi_get_varint(&reader);
    selector->parent = ligi_get_varint(&reader);
    uint64_t flags = ligi_get_varint(&reader);
    if (flags > LIGI_SERVED_HOLD)
        reader.failed = 1;
    selector->flags = (uint32_t)flags;
    return ligi_served_end(&reader, "selector of a model");
}

void ligi_served_model_put(ligi_writer *writer, const ligi_served_model *model)
{
    ligi_put_varint(writer, model->ref);
    ligi_put_varint(writer, model->id);
    ligi_served_blob_put(writer, model->record, model->record_bytes);
    ligi_served_blob_put(writer, model->manifest, model->manifest_bytes);
    ligi_served_blob_put(writer, model->inlined, model->inline_bytes);
}

void ligi_served_model_read(ligi_reader *reader, ligi_served_model *model)
{
    model->ref = ligi_get_varint(reader);
    model->id = ligi_get_varint(reader);
    model->record = ligi_served_blob_get(reader, &model->record_bytes);
    model->manifest = ligi_served_blob_get(reader, &model->manifest_bytes);
    model->inlined = ligi_served_blob_get(reader, &model->inline_bytes);
}

lig_status ligi_served_model_get(const void *body, size_t bytes, ligi_served_model *model)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    ligi_served_model_read(&reader, model);
    return ligi_served_end(&reader, "model");
}

void ligi_served_list_put(ligi_writer *writer, const ligi_served_list *list)
{
    ligi_put_varint(writer, list->count);
    for (size_t i = 0; i < list->count; i++)
        ligi_served_model_put(writer, &list->models[i]);
}

static lig_status read_list(ligi_reader *reader, ligi_served_list *list)
{
    size_t count = ligi_get_count(reader, MODEL_LEAST);
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(&list->models, count, sizeof *list->models, "a list of models"));
    list->count = count;
    for (size_t i = 0; i < count; i++)
        ligi_served_model_read(reader, &list->models[i]);
    return LIG_OK;
}

lig_status ligi_served_list_get(const void *body, size_t bytes, ligi_served_list *list)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    LIG_TRY(read_list(&reader, list));
    return ligi_served_end(&reader, "list of models");
}

void ligi_served_list_fini(ligi_served_list *list)
{
    free(list->models);
    *list = (ligi_served_list){0};
}

void ligi_served_lineage_put(ligi_writer *writer, const ligi_served_lineage *lineage)
{
    ligi_served_list_put(writer, &lineage->ancestors);
    ligi_served_list_put(writer, &lineage->children);
}

lig_status ligi_served_lineage_get(const void *body, size_t bytes, ligi_served_lineage *lineage)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    LIG_TRY(read_list(&reader, &lineage->ancestors));
    LIG_TRY(read_list(&reader, &lineage->children));
    return ligi_served_end(&reader, "lineage");
}

void ligi_served_lineage_fini(ligi_served_lineage *lineage)
{
    ligi_served_list_fini(&lineage->ancestors);
    ligi_served_list_fini(&lineage->children);
}

void ligi_served_query_put(ligi_writer *writer, const lig_query *query)
{
    ligi_put_varint(writer, query->flags);
    ligi_served_maybe_put(writer, query->name);
    ligi_served_tags_put(writer, query->tags, query->tag_count);
    ligi_served_maybe_put(writer, query->order);
    ligi_put_varint(writer, query->limit);
}

lig_status ligi_served_query_get(const void *body, size_t bytes, lig_query *query)
{
    ligi_reader reader = {.data = body, .bytes = bytes};
    lig_tag *tags = NULL;
    *query = (lig_query)LIG_QUERY_INIT;
    query->flags = (uint32_t)ligi_get_varint(&reader);
    query->name = ligi_served_maybe_get(&reader, bytes);
    LIG_TRY(ligi_served_tags_read(&reader, &tags, &query->tag_count));
    query->tags = tags;
    query->order = ligi_served_maybe_get(&reader, bytes);
    query->limit = ligi_get_varint(&reader);
    return ligi_served_end(&reader, "query");
}

void ligi_served_query_fini(lig_query *query)
{
    free((void *)query->tags);
    query->tags = NULL;
    query->tag_count = 0;
}
