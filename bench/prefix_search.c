/* How long the search for the longest common prefix takes as the store grows, against a scan.
 *
 *     prefix_search FOLDER evolved|shared COUNT... [queries=N] [options=QUERY] [reuse=1]
 *
 * prints one line of JSON for each COUNT (ascending). `evolved`: each model is a changed copy of
 * one of the last 1,000; `shared`: all have the first 40 of their 60 layers in common. Layers form
 * a chain with a jump over every fifth. The scan is the original's: from the roots, by each stored
 * model's table of vertices, all in memory. Both answers are compared. `reuse`: the models are
 * there from a run before with the same, single COUNT. */
#include "base/clock.h"

#include <ligament/ligament.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 60, COMMON = 40, KINDS = 12, RECENT = 1000, SLOTS = 128, COUNTS_MAX = 16 };

typedef struct net { /* kind of each layer; they are called by their place */
    uint8_t kinds[LAYERS];
    uint8_t count;
} net;

typedef struct bench {
    const char *folder, *options;
    int shared, reuse;
    size_t queries;
    uint64_t random;
    net *nets;
    size_t net_count;
    lig_store *store;
    char names[LAYERS][8], tensor_names[LAYERS][8], signatures[KINDS][16];
} bench;

static double now(void)
{
    return (double)ligi_now_ns() * 1e-9;
}

static uint32_t dice(bench *self, uint32_t sides)
{
    self->random = self->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((self->random >> 33) % sides);
}

static int has_jump(uint32_t layer)
{
    return layer >= 5 && layer % 5 == 0;
}

/* --- the population --- */

static net next_net(bench *self)
{
    net made = {.count = LAYERS};
    if (self->net_count == 0 || self->shared) {
        for (uint32_t i = 0; i < LAYERS; i++)
            made.kinds[i] = (uint8_t)(self->shared && i < COMMON ? i % KINDS : dice(self, KINDS));
        return made;
    }
    size_t reach = self->net_count < RECENT ? self->net_count : RECENT;
    made = self->nets[self->net_count - 1 - dice(self, (uint32_t)reach)];
    made.kinds[dice(self, made.count)] = (uint8_t)dice(self, KINDS);
    if (dice(self, 4) == 0)
        made.count = (uint8_t)(LAYERS - 6 + dice(self, 7));
    return made;
}

typedef struct drawn {
    lig_layer layers[LAYERS];
    lig_call calls[LAYERS];
    lig_input inputs[LAYERS][2];
    lig_graph graph;
} drawn;

static void draw(const bench *self, const net *from, drawn *to)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const char *signature = self->signatures[from->kinds[i]];
        to->layers[i] = (lig_layer){self->names[i], signature, strlen(signature)};
        to->inputs[i][0] = (lig_input){i - 1, 0};
        to->inputs[i][1] = (lig_input){i - 4, 0};
        to->calls[i] = (lig_call){i,
                                  i == 0        ? 0
                                  : has_jump(i) ? 2
                                                : 1,
                                  i == 0 ? NULL : to->inputs[i]};
    }
    to->graph = (lig_graph){"bench/1", to->layers, to->calls, from->count, from->count};
}

static lig_status add_model(bench *self)
{
    static const int64_t shape[1] = {2};
    float values[LAYERS][2];
    lig_tensor tensors[LAYERS];
    net made = next_net(self);
    drawn graph;
    draw(self, &made, &graph);
    for (uint32_t i = 0; i < made.count; i++) {
        values[i][0] = (float)self->net_count;
        values[i][1] = (float)i;
        tensors[i] = (lig_tensor){.name = self->tensor_names[i],
                                  .data = values[i],
                                  .bytes = 8,
                                  .shape = shape,
                                  .ndim = 1,
                                  .dtype = LIG_FLOAT32};
    }
    lig_save_options options = LIG_SAVE_INIT;
    lig_metric metric = {"val_acc", (double)dice(self, 1000) / 1000};
    options.graphs = &graph.graph;
    options.graph_count = 1;
    options.metrics = &metric;
    options.metric_count = 1;
    char name[32];
    snprintf(name, sizeof name, "m%zu", self->net_count);
    if (!self->reuse)
        LIG_TRY(lig_store_save(self->store, name, tensors, made.count, &options));
    self->nets[self->net_count++] = made;
    return LIG_OK;
}

/* --- the scan --- */

typedef struct vertices { /* of one model: label -> place, with the label of each input */
    uint32_t table[SLOTS];
    uint32_t labels[LAYERS];
    uint8_t count;
} vertices;

static uint32_t label(const net *of, uint32_t layer)
{
    return 1 + layer * KINDS + of->kinds[layer];
}

static void index_net(const net *from, vertices *to)
{
    memset(to, 0, sizeof *to);
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t slot = label(from, i) * 2654435761u % SLOTS;
        to->labels[i] = label(from, i);
        while (to->table[slot])
            slot = (slot + 1) % SLOTS;
        to->table[slot] = i + 1;
    }
}

static uint32_t place_of(const vertices *in, uint32_t wanted)
{
    for (uint32_t slot = wanted * 2654435761u % SLOTS; in->table[slot]; slot = (slot + 1) % SLOTS)
        if (in->labels[in->table[slot] - 1] == wanted)
            return in->table[slot];
    return 0;
}

static uint32_t common(const net *asking, const vertices *stored)
{
    uint8_t in[LAYERS] = {0};
    uint32_t length = 0;
    for (uint32_t i = 0; i < asking->count; i++) {
        uint32_t there = place_of(stored, label(asking, i));
        if (there == 0 || there - 1 != i || (i > 0 && !in[i - 1]) || (has_jump(i) && !in[i - 4]))
            continue;
        in[i] = 1;
        length++;
    }
    return length;
}

static uint32_t scan(const bench *self, const vertices *all, const net *asking)
{
    uint32_t best = 0;
    for (size_t i = 0; i < self->net_count; i++) {
        uint32_t length = common(asking, &all[i]);
        best = length > best ? length : best;
    }
    return best;
}

/* --- measuring --- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static long rss_anon_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kib = strtol(line + 8, NULL, 10);
    if (file)
        fclose(file);
    return kib;
}

static lig_status open_store(bench *self)
{
    char uri[4096];
    snprintf(uri, sizeof uri, "%s?%s", self->folder, self->options);
    return lig_store_open(&self->store, uri);
}

typedef struct figures {
    double find_p50, find_p99, scan_p50, save_s, open_s, first_s;
    size_t wrong;
    long rss_kib;
} figures;

/* One search; its answer against the scan's. */
static lig_status ask(bench *self, const vertices *all, double *find_s, double *scan_s,
                      size_t *wrong)
{
    net asking = next_net(self);
    drawn graph;
    lig_match **matches = NULL;
    lig_find_options options = LIG_FIND_INIT;
    size_t count = 0;
    options.prefer = "val_acc";
    draw(self, &asking, &graph);
    double begin = now();
    LIG_TRY(lig_store_find(self->store, &graph.graph, &options, &matches, &count));
    *find_s = now() - begin;
    size_t length = count ? matches[0]->layer_count : 0;
    lig_matches_destroy(matches, count);
    begin = now();
    uint32_t best = all ? scan(self, all, &asking) : (uint32_t)length;
    *scan_s = now() - begin;
    *wrong += best != length;
    return LIG_OK;
}

static lig_status measure(bench *self, figures *out)
{
    long before = rss_anon_kib();
    double begin = now();
    LIG_TRY(open_store(self));
    out->open_s = now() - begin;
    double unused;
    LIG_TRY(ask(self, NULL, &out->first_s, &unused, &out->wrong));
    out->rss_kib = rss_anon_kib() - before;
    vertices *all = malloc(self->net_count * sizeof *all);
    double *times = calloc(2 * self->queries, sizeof *times);
    lig_status status = all && times ? LIG_OK : lig_fail(LIG_E_NOMEM, "no memory for the scan");
    for (size_t i = 0; i < self->net_count && status == LIG_OK; i++)
        index_net(&self->nets[i], &all[i]);
    for (size_t i = 0; i < self->queries && status == LIG_OK; i++)
        status = ask(self, all, &times[i], &times[self->queries + i], &out->wrong);
    if (status == LIG_OK) {
        qsort(times, self->queries, sizeof *times, by_value);
        qsort(times + self->queries, self->queries, sizeof *times, by_value);
        out->find_p50 = times[self->queries / 2];
        out->find_p99 = times[self->queries * 99 / 100];
        out->scan_p50 = times[self->queries + self->queries / 2];
    }
    free(all);
    free(times);
    lig_store_close(self->store);
    self->store = NULL;
    return status;
}

static lig_status grow(bench *self, size_t count, figures *out)
{
    size_t had = self->net_count;
    net *nets = realloc(self->nets, count * sizeof *nets);
    if (nets == NULL)
        return lig_fail(LIG_E_NOMEM, "no memory for %zu models", count);
    self->nets = nets;
    LIG_TRY(open_store(self));
    double begin = now();
    lig_status status = LIG_OK;
    while (self->net_count < count && status == LIG_OK)
        status = add_model(self);
    out->save_s = (now() - begin) / (double)(count > had ? count - had : 1);
    lig_store_close(self->store);
    self->store = NULL;
    return status;
}

static lig_status run(bench *self, size_t count)
{
    figures out = {0};
    LIG_TRY(grow(self, count, &out));
    LIG_TRY(measure(self, &out));
    printf(
        "{\"population\": \"%s\", \"models\": %zu, \"find_p50_ms\": %.4f, \"find_p99_ms\": %.4f, "
        "\"scan_p50_ms\": %.4f, \"wrong\": %zu, \"save_ms\": %.3f, \"open_ms\": %.2f, "
        "\"first_find_ms\": %.3f, \"rss_anon_mib\": %.1f}\n",
        self->shared ? "shared" : "evolved", count, out.find_p50 * 1e3, out.find_p99 * 1e3,
        out.scan_p50 * 1e3, out.wrong, out.save_s * 1e3, out.open_s * 1e3, out.first_s * 1e3,
        (double)out.rss_kib / 1024);
    fflush(stdout);
    return LIG_OK;
}

int main(int argc, char **argv)
{
    bench self = {.options = "fsync=0", .queries = 300, .random = 1};
    size_t counts[COUNTS_MAX], count = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: prefix_search FOLDER evolved|shared COUNT... [queries=N]\n");
        return 2;
    }
    self.folder = argv[1];
    self.shared = strcmp(argv[2], "shared") == 0;
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "queries=", 8) == 0)
            self.queries = strtoul(argv[i] + 8, NULL, 10);
        else if (strncmp(argv[i], "options=", 8) == 0)
            self.options = argv[i] + 8;
        else if (strncmp(argv[i], "reuse=", 6) == 0)
            self.reuse = argv[i][6] == '1';
        else if (count < COUNTS_MAX)
            counts[count++] = strtoul(argv[i], NULL, 10);
    }
    for (int i = 0; i < LAYERS; i++) {
        snprintf(self.names[i], sizeof self.names[i], "l%d", i);
        snprintf(self.tensor_names[i], sizeof self.tensor_names[i], "l%d.w", i);
    }
    for (int i = 0; i < KINDS; i++)
        snprintf(self.signatures[i], sizeof self.signatures[i], "kind-%d", i);
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        status = run(&self, counts[i]);
    if (status != LIG_OK)
        fprintf(stderr, "prefix_search: %s\n", lig_error_text());
    free(self.nets);
    return status == LIG_OK ? 0 : 1;
}
