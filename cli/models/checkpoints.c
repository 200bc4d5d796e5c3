/* The checkpoints of training runs, as ligament.checkpoint names them: step-000000000010 for run
 * "default", RUN/step-000000000010 for any other. */
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STEP "step-"
#define LATEST "latest"
#define DEFAULT_RUN "default"

/* Returns 1 if the model is a checkpoint: fills the run's name, which is borrowed, and the step. */
static int read_checkpoint(const char *model, const char **run, size_t *run_bytes, uint64_t *step)
{
    const char *slash = strrchr(model, '/');
    const char *name = slash != NULL ? slash + 1 : model;
    const char *digits = name + strlen(STEP);
    char text[40];

    if (strncmp(name, STEP, strlen(STEP)) != 0 || strlen(digits) < 12 || strlen(digits) > 20)
        return 0;
    for (const char *c = digits; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c))
            return 0;
    *step = strtoull(digits, NULL, 10);
    snprintf(text, sizeof text, STEP "%012" PRIu64, *step);
    *run = slash != NULL ? model : DEFAULT_RUN;
    *run_bytes = slash != NULL ? (size_t)(slash - model) : strlen(DEFAULT_RUN);
    int named_default = slash != NULL && *run_bytes == strlen(DEFAULT_RUN) &&
                        strncmp(model, DEFAULT_RUN, *run_bytes) == 0;
    return strcmp(name, text) == 0 && *run_bytes > 0 && !named_default;
}

static cli_run *find_run(cli_run *runs, size_t count, const char *name, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(runs[i].name) == bytes && strncmp(runs[i].name, name, bytes) == 0)
            return &runs[i];
    return NULL;
}

static lig_status add_checkpoint(cli_run *runs, size_t *count, const lig_model *model)
{
    const char *name;
    size_t bytes;
    uint64_t step;

    if (!read_checkpoint(model->name, &name, &bytes, &step))
        return LIG_OK;
    /* Models are sorted by name, so those of a run are adjacent. */
    cli_run *run = *count > 0 ? find_run(&runs[*count - 1], 1, name, bytes) : NULL;
    if (run == NULL) {
        run = &runs[*count];
        *run = (cli_run){0};
        LIG_TRY(cli_format(&run->name, "%.*s", (int)bytes, name));
        (*count)++;
    }
    run->checkpoints++;
    if (run->checkpoints > 1 && step < run->step)
        return LIG_OK;
    free(run->latest);
    run->latest = NULL;
    run->step = step;
    run->created_ns = model->created_ns;
    return cli_format(&run->latest, "%s", model->name);
}

void cli_runs_destroy(cli_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(runs[i].name);
        free(runs[i].latest);
    }
    free(runs);
}

lig_status cli_runs(lig_store *store, cli_run **out, size_t *count)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model **models;
    cli_run *runs;
    size_t model_count, found = 0;

    query.name = "*" STEP "*";
    query.order = "name";
    LIG_TRY(lig_store_models(store, &query, &models, &model_count));
    lig_status status = cli_alloc(&runs, model_count, sizeof *runs);
    if (status == LIG_OK) {
        for (size_t i = 0; i < model_count && status == LIG_OK; i++)
            status = add_checkpoint(runs, &found, models[i]);
        if (status != LIG_OK)
            cli_runs_destroy(runs, found);
    }
    lig_models_destroy(models, model_count);
    if (status == LIG_OK) {
        *out = runs;
        *count = found;
    }
    return status;
}

/* The length of the run's name in "RUN/latest", or of the default run's for "latest". */
static int asks_for_latest(const char *name, const char **run, size_t *run_bytes)
{
    const char *slash = strrchr(name, '/');

    *run = slash != NULL ? name : DEFAULT_RUN;
    *run_bytes = slash != NULL ? (size_t)(slash - name) : strlen(DEFAULT_RUN);
    return strcmp(slash != NULL ? slash + 1 : name, LATEST) == 0;
}

lig_status cli_checkpoint_name(lig_store *store, const char *name, char **resolved)
{
    const char *wanted;
    size_t bytes, count;
    lig_model *model;
    cli_run *runs;

    if (!asks_for_latest(name, &wanted, &bytes))
        return cli_format(resolved, "%s", name);
    lig_status status = lig_store_model(store, name, &model);
    if (status == LIG_OK)
        lig_model_destroy(model);
    if (status != LIG_E_NOTFOUND)
        return status == LIG_OK ? cli_format(resolved, "%s", name) : status;
    LIG_TRY(cli_runs(store, &runs, &count));
    const cli_run *run = find_run(runs, count, wanted, bytes);
    status = cli_format(resolved, "%s", run != NULL ? run->latest : name);
    cli_runs_destroy(runs, count);
    return status;
}
