#include "store/serve/server/requests/server_retention.h"

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "store/catalog/catalog_view.h"
#include "store/serve/server/workers/server_queue.h"
#include "store/upkeep/retire.h"

#include <stdlib.h>
#include <string.h>

#define PURGE_NS INT64_C(60000000000)

/* --- rules --- */

static lig_status copy_rules(const lig_server_rule *rules, size_t count, const char *option,
                             ligi_quota **out)
{
    if (count == 0)
        return LIG_OK;
    LIG_TRY(ligi_calloc(out, count, sizeof **out, "a server"));
    for (size_t i = 0; i < count; i++) {
        const char *prefix = rules[i].prefix;
        char *copy;
        if (prefix == NULL || (prefix[0] && prefix[strlen(prefix) - 1] != '/'))
            return lig_fail(LIG_E_INVALID,
                            "invalid prefix '%s' of %s (expected a name and '/', or nothing for "
                            "all models)",
                            prefix ? prefix : "", option);
        LIG_TRY(ligi_strdup(&copy, prefix));
        (*out)[i] = (ligi_quota){copy, rules[i].value};
    }
    return LIG_OK;
}

/* A rule for a part of another's models is applied first. */
static int longest_first(const void *a, const void *b)
{
    size_t left = strlen(((const ligi_quota *)a)->prefix);
    size_t right = strlen(((const ligi_quota *)b)->prefix);
    return left > right ? -1 : left < right;
}

static void free_rules(ligi_quota *rules, size_t count)
{
    for (size_t i = 0; rules && i < count; i++)
        free((char *)rules[i].prefix);
    free(rules);
}

lig_status ligi_served_retention_open(lig_server *server, const lig_server_options *options)
{
    if (options->undelete_ns < 0)
        return lig_fail(LIG_E_INVALID, "undelete_ns is negative");
    server->quota_count = options->quota_count;
    server->keep_count = options->keep_count;
    LIG_TRY(copy_rules(options->quotas, options->quota_count, "a quota", &server->quotas));
    LIG_TRY(copy_rules(options->keeps, options->keep_count, "a number to keep", &server->keeps));
    for (size_t i = 0; i < server->keep_count; i++)
        if (server->keeps[i].bytes == 0)
            return lig_fail(LIG_E_INVALID, "the number of models to keep of '%s*' is 0",
                            server->keeps[i].prefix);
    if (server->keep_count)
        qsort(server->keeps, server->keep_count, sizeof *server->keeps, longest_first);
    server->store->quotas = server->quotas;
    server->store->quota_count = server->quota_count;
    server->store->undelete_ns = options->undelete_ns;
    return LIG_OK;
}

void ligi_served_retention_close(lig_server *server)
{
    free_rules(server->quotas, server->quota_count);
    free_rules(server->keeps, server->keep_count);
}

/* --- the newest --- */

typedef struct aged {
    uint64_t id;
    int64_t created_ns;
    char *name;
} aged;

typedef struct ages {
    aged *all;
    size_t count, capacity;
} ages;

static int newest_first(const void *a, const void *b)
{
    const aged *left = a, *right = b;
    if (left->created_ns != right->created_ns)
        return left->created_ns > right->created_ns ? -1 : 1;
    return left->id > right->id ? -1 : left->id < right->id;
}

static lig_status find_aliased(const ligi_catalog_view *view, uint64_t **ids, size_t *count)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    lig_status status;
    size_t capacity = 0;
    while (ligi_catalog_view_next(view, LIGI_TABLE_ALIAS, &walk, &item, &status)) {
        const char *alias;
        uint64_t id;
        if (ligi_alias_get(&item, view->store->secret, &alias, &id) != LIG_OK)
            continue;
        LIG_TRY(ligi_grow(ids, &capacity, *count + 1, sizeof **ids, "aliases"));
        (*ids)[(*count)++] = id;
    }
    if (*count)
        qsort(*ids, *count, sizeof **ids, ligi_order_u64);
    return status;
}

static lig_status add_model(const ligi_record *record, ages *into)
{
    char *name;
    LIG_TRY(ligi_grow(&into->all, &into->capacity, into->count + 1, sizeof *into->all, "a list"));
    LIG_TRY(ligi_strdup(&name, record->about.name));
    into->all[into->count++] = (aged){record->about.id, record->about.created_ns, name};
    return LIG_OK;
}

static lig_status list_models(const ligi_catalog_view *view, const char *prefix, ages *into)
{
    ligi_walk walk = {0};
    lig_catalog_item item;
    uint64_t *aliased = NULL;
    size_t aliased_count = 0;
    lig_status status = find_aliased(view, &aliased, &aliased_count);
    while (status == LIG_OK &&
           ligi_catalog_view_next(view, LIGI_TABLE_MODEL, &walk, &item, &status)) {
        ligi_record record = {0};
        int read = ligi_record_get(&item, view->store->secret, &record) == LIG_OK;
        uint64_t id = record.about.id;
        if (read && strncmp(record.about.name, prefix, strlen(prefix)) == 0 &&
            !(aliased_count && bsearch(&id, aliased, aliased_count, sizeof id, ligi_order_u64)))
            status = add_model(&record, into);
        ligi_record_fini(&record);
    }
    free(aliased);
    return status;
}

static lig_status keep_newest(lig_store *store, const ligi_quota *rule, const char *saved)
{
    ligi_catalog_view view;
    ages models = {0};
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    lig_status status = list_models(&view, rule->prefix, &models);
    ligi_catalog_view_end(&view);
    if (models.count)
        qsort(models.all, models.count, sizeof *models.all, newest_first);
    for (size_t i = rule->bytes; i < models.count && status == LIG_OK; i++)
        if (strcmp(models.all[i].name, saved) != 0) /* a copy has the date of its original */
            status = ligi_retire_id(store, models.all[i].name, models.all[i].id);
    for (size_t i = 0; i < models.count; i++)
        free(models.all[i].name);
    free(models.all);
    return status;
}

void ligi_served_keep_newest(lig_server *server, const char *saved)
{
    for (size_t i = 0; i < server->keep_count; i++) {
        const ligi_quota *rule = &server->keeps[i];
        if (strncmp(saved, rule->prefix, strlen(rule->prefix)) == 0 &&
            keep_newest(server->store, rule, saved) != LIG_OK)
            ligi_log(LIG_LOG_WARNING, "cannot retire old models of '%s*': %s", rule->prefix,
                     lig_error_text());
    }
}

/* --- the retired --- */

static void purge(ligi_served_job *job)
{
    lig_server *server = job->context;
    if (ligi_retired_purge(server->store, NULL) != LIG_OK)
        ligi_log(LIG_LOG_WARNING, "cannot remove retired models: %s", lig_error_text());
    ligi_served_job_free(job);
}

void ligi_served_purge_tick(lig_server *server, int64_t now_ns)
{
    if (server->store->mode == 'r' || now_ns < server->purge_ns)
        return;
    server->purge_ns = now_ns + PURGE_NS;
    ligi_served_job *job = ligi_served_job_make(NULL, purge, server);
    if (job)
        ligi_served_queue_put(&server->queue, job);
}
