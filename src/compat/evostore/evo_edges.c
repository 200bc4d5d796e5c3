#include "evo_edges.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 24 };

typedef struct vertex {
    uint64_t id;
    size_t first; /* where it is mentioned first; later its index */
} vertex;

typedef struct arc { /* between indexes */
    uint32_t to, from;
} arc;

typedef struct making {
    vertex *by_id;  /* ascending; `first` is the index in the graph */
    arc *arcs;      /* ascending, each once */
    uint32_t *left; /* inputs of each vertex that the order has not reached; its queue behind */
    size_t count, arc_count;
} making;

static int by_id_then_first(const void *left, const void *right)
{
    const vertex *a = left, *b = right;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static int by_first(const void *left, const void *right)
{
    const vertex *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

static int by_ends(const void *left, const void *right)
{
    const arc *a = left, *b = right;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Inputs are compared as a set: their order is that of the layers' numbers, not of the list. */
static int by_rank(const void *left, const void *right)
{
    const vertex *a = left, *b = right;
    return a->id < b->id ? -1 : a->id > b->id;
}

static lig_status no_memory(void)
{
    return lig_fail(LIG_E_NOMEM, "out of memory for a graph");
}

/* Indexes the layers by first mention; fills ids. */
static lig_status index_vertices(making *self, const uint64_t *edges, size_t words, uint64_t *ids)
{
    for (size_t i = 0; i < words; i++)
        self->by_id[i] = (vertex){edges[i], i};
    qsort(self->by_id, words, sizeof *self->by_id, by_id_then_first);
    for (size_t i = 0; i < words; i++)
        if (self->count == 0 || self->by_id[self->count - 1].id != self->by_id[i].id)
            self->by_id[self->count++] = self->by_id[i];
    qsort(self->by_id, self->count, sizeof *self->by_id, by_first);
    for (size_t i = 0; i < self->count; i++) {
        ids[i] = self->by_id[i].id;
        self->by_id[i].first = i;
    }
    qsort(self->by_id, self->count, sizeof *self->by_id, by_rank);
    return LIG_OK;
}

/* The position among the layers in ascending order of their numbers. */
static size_t rank_of(const making *self, uint64_t id)
{
    vertex key = {.id = id};
    const vertex *found = bsearch(&key, self->by_id, self->count, sizeof key, by_rank);
    return (size_t)(found - self->by_id);
}

/* Arcs in terms of ranks, so that inputs come in ascending order of their numbers. */
static void index_arcs(making *self, const uint64_t *edges, size_t words)
{
    for (size_t i = 0; i + 1 < words; i += 2)
        self->arcs[i / 2] =
            (arc){(uint32_t)rank_of(self, edges[i + 1]), (uint32_t)rank_of(self, edges[i])};
    qsort(self->arcs, words / 2, sizeof *self->arcs, by_ends);
    for (size_t i = 0; i < words / 2; i++)
        if (self->arc_count == 0 || by_ends(&self->arcs[self->arc_count - 1], &self->arcs[i]) != 0)
            self->arcs[self->arc_count++] = self->arcs[i];
}

static int by_source(const void *left, const void *right)
{
    const arc *a = left, *b = right;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Sets left[rank] to 0 for every layer that all paths to it are without cycles. */
static lig_status order(making *self)
{
    uint32_t *queue = self->left + self->count;
    size_t head = 0, tail = 0;
    arc *out = malloc((self->arc_count + 1) * sizeof *out);
    size_t *start = calloc(self->count + 1, sizeof *start);
    if (out == NULL || start == NULL) {
        free(out);
        free(start);
        return no_memory();
    }
    memcpy(out, self->arcs, self->arc_count * sizeof *out);
    qsort(out, self->arc_count, sizeof *out, by_source);
    for (size_t i = 0; i < self->arc_count; i++) {
        start[out[i].from + 1]++;
        self->left[out[i].to]++;
    }
    for (size_t i = 0; i < self->count; i++) {
        start[i + 1] += start[i];
        if (self->left[i] == 0)
            queue[tail++] = (uint32_t)i;
    }
    while (head < tail) {
        uint32_t from = queue[head++];
        for (size_t i = start[from]; i < start[from + 1]; i++)
            if (--self->left[out[i].to] == 0)
                queue[tail++] = out[i].to;
    }
    free(out);
    free(start);
    return LIG_OK;
}

typedef struct built {
    lig_layer *layers;
    lig_call *calls;
    lig_input *inputs;
    char *names;
} built;

static void fill_layer(const making *self, const built *to, size_t rank, int asking)
{
    size_t at = self->by_id[rank].first;
    char *name = to->names + at * NAME_BYTES;
    snprintf(name, NAME_BYTES, "%" PRIu64, self->by_id[rank].id);
    int cyclic = self->left[rank] != 0;
    const char *mark = asking ? "?asking" : "!stored";
    to->layers[at] = (lig_layer){.name = name,
                                 .signature = cyclic ? mark : name,
                                 .signature_bytes = strlen(cyclic ? mark : name)};
    to->calls[at] = (lig_call){.layer = (uint32_t)at};
}

static void fill(const making *self, const built *to, int asking)
{
    size_t used = 0;
    for (size_t rank = 0; rank < self->count; rank++)
        fill_layer(self, to, rank, asking);
    for (size_t i = 0; i < self->arc_count; i++) {
        const arc *one = &self->arcs[i];
        lig_call *call = &to->calls[self->by_id[one->to].first];
        if (self->left[one->from] != 0) /* behind a cycle: it matches nothing anyway */
            continue;
        if (call->input_count == 0)
            call->inputs = to->inputs + used;
        to->inputs[used++] = (lig_input){.call = (uint32_t)self->by_id[one->from].first};
        call->input_count++;
    }
}

static lig_status make(making *self, const uint64_t *edges, size_t words, int asking,
                       ligi_evo_graph *out)
{
    LIG_TRY(index_vertices(self, edges, words, out->ids));
    index_arcs(self, edges, words);
    LIG_TRY(order(self));
    built to = {.layers = calloc(self->count, sizeof(lig_layer)),
                .calls = calloc(self->count, sizeof(lig_call)),
                .inputs = calloc(self->arc_count + 1, sizeof(lig_input)),
                .names = calloc(self->count, NAME_BYTES)};
    void *parts[] = {out->ids, to.layers, to.calls, to.inputs, to.names};
    memcpy(out->parts, parts, sizeof parts);
    if (!to.layers || !to.calls || !to.inputs || !to.names)
        return no_memory();
    fill(self, &to, asking);
    out->graph = (lig_graph){.kind = "evostore/1",
                             .layers = to.layers,
                             .calls = to.calls,
                             .layer_count = self->count,
                             .call_count = self->count};
    return LIG_OK;
}

lig_status ligi_evo_graph_make(const uint64_t *edges, size_t words, int asking, ligi_evo_graph *out)
{
    words -= words % 2;
    if (edges == NULL || words == 0 || words / 2 > UINT32_MAX / 4)
        return lig_fail(LIG_E_INVALID, "a graph must have 1 to 2^30 pairs of layers");
    ligi_evo_graph made = {.ids = calloc(words, sizeof *made.ids)};
    made.parts[0] = made.ids;
    making self = {.by_id = calloc(words, sizeof *self.by_id),
                   .arcs = calloc(words / 2, sizeof *self.arcs),
                   .left = calloc(words * 2, sizeof *self.left)};
    lig_status status = made.ids && self.by_id && self.arcs && self.left
                            ? make(&self, edges, words, asking, &made)
                            : no_memory();
    free(self.by_id);
    free(self.arcs);
    free(self.left);
    if (status == LIG_OK)
        *out = made;
    else
        ligi_evo_graph_fini(&made);
    return status;
}

void ligi_evo_graph_fini(ligi_evo_graph *graph)
{
    for (size_t i = 0; i < sizeof graph->parts / sizeof graph->parts[0]; i++)
        free(graph->parts[i]);
    *graph = (ligi_evo_graph){0};
}
