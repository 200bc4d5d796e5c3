#include "models/known_names.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_unique(const char **names, size_t *count)
{
    size_t kept = 0;
    qsort(names, *count, sizeof *names, by_text);
    for (size_t i = 0; i < *count; i++)
        if (i == 0 || strcmp(names[i], names[kept - 1]) != 0)
            names[kept++] = names[i];
    *count = kept;
}

lig_status cli_known_read(cli_known *names, lig_store *store)
{
    size_t metrics = 0, tags = 0;
    *names = (cli_known){0};
    LIG_TRY(lig_store_models(store, NULL, &names->models, &names->model_count));
    for (size_t i = 0; i < names->model_count; i++) {
        metrics += names->models[i]->metric_count;
        tags += names->models[i]->tag_count;
    }
    lig_status status = cli_alloc(&names->metrics, metrics, sizeof *names->metrics);
    if (status == LIG_OK)
        status = cli_alloc(&names->tags, tags, sizeof *names->tags);
    if (status != LIG_OK) {
        cli_known_fini(names);
        return status;
    }
    for (size_t i = 0; i < names->model_count; i++) {
        const lig_model *model = names->models[i];
        for (size_t j = 0; j < model->metric_count; j++)
            names->metrics[names->metric_count++] = model->metrics[j].name;
        for (size_t j = 0; j < model->tag_count; j++)
            names->tags[names->tag_count++] = model->tags[j].name;
    }
    sort_unique(names->metrics, &names->metric_count);
    sort_unique(names->tags, &names->tag_count);
    return LIG_OK;
}

void cli_known_fini(cli_known *names)
{
    free(names->metrics);
    free(names->tags);
    lig_models_destroy(names->models, names->model_count);
    *names = (cli_known){0};
}

/* "acc, loss", shortened where there are many. */
static void list_text(const char **names, size_t count, char *text, size_t text_bytes)
{
    enum { SHOWN = 12 };
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && i < SHOWN && used < text_bytes; i++)
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? ", " : "", names[i]);
    if (count > SHOWN && used < text_bytes)
        snprintf(text + used, text_bytes - used, " and %zu more", count - SHOWN);
}

lig_status cli_known_check(const cli_known *names, int is_tag, const char *name, const char *uri)
{
    const char **list = is_tag ? names->tags : names->metrics;
    size_t count = is_tag ? names->tag_count : names->metric_count;
    const char *what = is_tag ? "tag" : "metric";
    char known[512];
    if (names->model_count == 0 || bsearch(&name, list, count, sizeof *list, by_text) != NULL)
        return LIG_OK;
    if (count == 0)
        return lig_fail(LIG_E_NOTFOUND, "no model of '%s' has the %s '%s': none has any %s", uri,
                        what, name, what);
    list_text(list, count, known, sizeof known);
    return lig_fail(LIG_E_NOTFOUND, "no model of '%s' has the %s '%s' (known: %s)", uri, what, name,
                    known);
}
