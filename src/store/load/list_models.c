#include "base/error.h"
#include "base/log.h"
#include "store/load/model.h"
#include "store/search/name_pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *tag_of(const lig_model *model, const char *name)
{
    for (size_t i = 0; i < model->tag_count; i++)
        if (strcmp(model->tags[i].name, name) == 0)
            return model->tags[i].value;
    return NULL;
}

static const lig_metric *metric_of(const lig_model *model, const char *name)
{
    for (size_t i = 0; i < model->metric_count; i++)
        if (strcmp(model->metrics[i].name, name) == 0)
            return &model->metrics[i];
    return NULL;
}

static int fits(const lig_model *model, const lig_query *query)
{
    if (query->name && !ligi_pattern_fits(query->name, model->name))
        return 0;
    for (size_t i = 0; i < query->tag_count; i++) {
        const char *value = tag_of(model, query->tags[i].name);
        if (value == NULL || (query->tags[i].value && strcmp(value, query->tags[i].value) != 0))
            return 0;
    }
    return 1;
}

typedef struct order {
    const char *by;
    int descending;
} order;

static int compare_numbers(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* A model without the metric, or with a NaN, is last in either direction. */
static int compare_metrics(const lig_model *a, const lig_model *b, const order *by)
{
    const lig_metric *left = metric_of(a, by->by), *right = metric_of(b, by->by);
    int no_left = left == NULL || isnan(left->value),
        no_right = right == NULL || isnan(right->value);
    if (no_left || no_right)
        return no_left - no_right;
    int result = compare_numbers(left->value, right->value);
    return by->descending ? -result : result;
}

static int compare_created(const lig_model *a, const lig_model *b)
{
    if (a->created_ns != b->created_ns)
        return a->created_ns < b->created_ns ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int compare(const void *left, const void *right, void *context)
{
    const lig_model *a = *(lig_model *const *)left, *b = *(lig_model *const *)right;
    const order *by = context;
    int result;
    if (strcmp(by->by, "created") == 0)
        result = compare_created(a, b);
    else if (strcmp(by->by, "name") == 0)
        result = strcmp(a->name, b->name);
    else if (strcmp(by->by, "bytes") == 0)
        result = a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
    else {
        result = compare_metrics(a, b, by);
        return result ? result : compare_created(a, b);
    }
    if (by->descending)
        result = -result;
    return result ? result : compare_created(a, b);
}

typedef struct found {
    lig_model **models;
    size_t count, capacity;
} found;

static lig_status collect(lig_store *store, const lig_query *query, found *into)
{
    ligi_catalog_view view;
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    while (ligi_catalog_view_next(&view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_model *model = NULL;
        status = ligi_model_list_in(&view, &item, &model);
        if (status == LIG_E_CORRUPT) { /* one damaged record must not hide the others */
            ligi_log(LIG_LOG_WARNING, "skipping a model of %s: %s", store->uri, lig_error_text());
            status = LIG_OK;
            continue;
        }
        if (status == LIG_OK && fits(&model->shown, query) &&
            ligi_store_sees(store, model->shown.name))
            status = ligi_grow(&into->models, &into->capacity, into->count + 1,
                               sizeof *into->models, "a list of models");
        else if (status == LIG_OK) {
            ligi_model_free(model);
            continue;
        }
        if (status != LIG_OK) {
            ligi_model_free(model);
            break;
        }
        into->models[into->count++] = &model->shown;
    }
    ligi_catalog_view_end(&view);
    return status;
}

static lig_status check_query(const lig_query *query)
{
    if (query->struct_bytes < sizeof *query)
        return lig_fail(LIG_E_INVALID, "the query was not initialised with LIG_QUERY_INIT");
    if (query->flags)
        return lig_fail(LIG_E_INVALID, "unknown flags %#x in a query", query->flags);
    for (size_t i = 0; i < query->tag_count; i++)
        if (query->tags[i].name == NULL)
            return lig_fail(LIG_E_INVALID, "tag %zu of a query has no name", i);
    return LIG_OK;
}

lig_status lig_store_models(lig_store *store, const lig_query *query, lig_model ***models,
                            size_t *count)
{
    static const lig_query all = LIG_QUERY_INIT;
    LIG_TRY(ligi_store_usable(store));
    if (query == NULL)
        query = &all;
    LIG_TRY(check_query(query));
    if (store->remote)
        return store->remote->models(store, query, models, count);
    found into = {0};
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < LIGI_VIEW_TRIES && status == LIG_E_BUSY; i++) {
        lig_models_destroy(into.models, into.count);
        into = (found){0};
        status = collect(store, query, &into);
    }
    if (status == LIG_OK && into.models == NULL)
        status = ligi_calloc(&into.models, 1, sizeof *into.models, "a list of models");
    if (status != LIG_OK) {
        lig_models_destroy(into.models, into.count);
        return status;
    }
    order by = {.by = query->order ? query->order : ""};
    by.descending = by.by[0] == '-';
    by.by += by.descending;
    if (by.by[0] == '\0')
        by.by = "created";
    qsort_r(into.models, into.count, sizeof *into.models, compare, &by);
    for (size_t i = query->limit; query->limit && i < into.count; i++)
        lig_model_destroy(into.models[i]);
    if (query->limit && into.count > query->limit)
        into.count = query->limit;
    *models = into.models;
    *count = into.count;
    return LIG_OK;
}
