#include "output/summary.h"

#include "formats/json.h"
#include "models/known_names.h"

#include <stdlib.h>

typedef struct summary {
    lig_store *store;
    lig_store_stats stats;
    cli_known known;
    cli_run *runs;
    size_t run_count;
} summary;

static void put_list(cli_json_writer *writer, const char *key, const char **names, size_t count)
{
    cli_json_open(writer, key, '[');
    for (size_t i = 0; i < count; i++)
        cli_json_put_text(writer, NULL, names[i]);
    cli_json_close(writer, ']');
}

static void put_json(const summary *self, cli_json_writer *writer)
{
    cli_json_open(writer, NULL, '{');
    cli_json_put_text(writer, "store", lig_store_uri(self->store));
    cli_json_put_u64(writer, "models", self->stats.models);
    cli_json_put_u64(writer, "tensors", self->stats.tensors);
    cli_json_put_u64(writer, "bytes", self->stats.bytes);
    cli_json_put_u64(writer, "stored_bytes", self->stats.stored_bytes);
    cli_json_put_u64(writer, "version", self->stats.version);
    cli_json_open(writer, "runs", '[');
    for (size_t i = 0; i < self->run_count; i++)
        cli_json_put_text(writer, NULL, self->runs[i].name);
    cli_json_close(writer, ']');
    put_list(writer, "metrics", self->known.metrics, self->known.metric_count);
    put_list(writer, "tags", self->known.tags, self->known.tag_count);
    cli_json_close(writer, '}');
}

/* --- text ------------------------------------------------------------------------------------ */

enum { SHOWN = 8 };

static void print_list(const char *title, const char *const *names, size_t count)
{
    if (count == 0)
        return;
    printf("%-9s ", title);
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        cli_put_escaped(stdout, names[i]);
    }
    if (count > SHOWN)
        printf(" and %zu more", count - SHOWN);
    putchar('\n');
}

static void print_runs(const summary *self)
{
    for (size_t i = 0; i < self->run_count && i < SHOWN; i++) {
        printf("%-9s ", i == 0 ? "runs" : "");
        cli_put_escaped(stdout, self->runs[i].name);
        printf(": %zu checkpoint%s, latest step %llu\n", self->runs[i].checkpoints,
               self->runs[i].checkpoints == 1 ? "" : "s", (unsigned long long)self->runs[i].step);
    }
    if (self->run_count > SHOWN)
        printf("%-9s and %zu more (ligament ls --runs)\n", "", self->run_count - SHOWN);
}

/* `known.models` is in order of age. */
static void print_newest(const summary *self)
{
    for (size_t i = 0; i < self->known.model_count && i < 3; i++) {
        const lig_model *model = self->known.models[self->known.model_count - 1 - i];
        char size[24], date[32];
        cli_size_text(model->bytes, size, sizeof size);
        cli_date_text(model->created_ns, date, sizeof date);
        printf("%-9s ", i == 0 ? "newest" : "");
        cli_put_escaped(stdout, model->name);
        printf("  %s  %s\n", size, date);
    }
}

static void print_text(const summary *self)
{
    char size[24], stored[24];
    cli_size_text(self->stats.bytes, size, sizeof size);
    cli_size_text(self->stats.stored_bytes, stored, sizeof stored);
    printf("%-9s ", "store");
    cli_put_escaped(stdout, lig_store_uri(self->store));
    printf("\n%-9s %llu, %s in %llu tensor%s\n", "models", (unsigned long long)self->stats.models,
           size, (unsigned long long)self->stats.tensors, self->stats.tensors == 1 ? "" : "s");
    printf("%-9s %s\n", "stored", stored);
    print_newest(self);
    print_runs(self);
    print_list("metrics", self->known.metrics, self->known.metric_count);
    print_list("tags", self->known.tags, self->known.tag_count);
}

lig_status cli_summary(lig_store *store, cli_json_writer *writer, size_t index)
{
    summary self = {.store = store};
    LIG_TRY(lig_store_stat(store, &self.stats));
    LIG_TRY(cli_known_read(&self.known, store));
    lig_status status = cli_runs(store, &self.runs, &self.run_count);
    if (status == LIG_OK) {
        if (writer != NULL) {
            put_json(&self, writer);
        } else {
            fputs(index > 0 ? "\n" : "", stdout);
            print_text(&self);
        }
        cli_runs_destroy(self.runs, self.run_count);
    }
    cli_known_fini(&self.known);
    return status;
}
