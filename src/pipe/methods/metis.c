#include "pipe/methods/metis.h"

#include <math.h>
#include <string.h>

#include "base/loaded_library.h"

/* From metis.h 5.1, as distributions build it: idx_t int32_t, real_t float. */
#define METIS_OPTIONS 40
#define METIS_OPTION_SEED 8
#define METIS_OPTION_UFACTOR 16
#define METIS_OK 1
#define WEIGHT_MOST 1e6
#define UNITS_PER_BIN 4

typedef int part_fn(int32_t *nvtxs, int32_t *ncon, int32_t *xadj, int32_t *adjncy, int32_t *vwgt,
                    int32_t *vsize, int32_t *adjwgt, int32_t *nparts, float *tpwgts, float *ubvec,
                    int32_t *options, int32_t *objval, int32_t *part);
typedef int defaults_fn(int32_t *options);

typedef struct metis {
    part_fn *part;
    defaults_fn *defaults;
} metis;

static lig_status load_metis(metis *m)
{
    static const char *const library[] = {"libmetis.so.5", NULL};
    static const ligi_library_call calls[] = {
        {library, "METIS_PartGraphKway", offsetof(metis, part)},
        {library, "METIS_SetDefaultOptions", offsetof(metis, defaults)}};
    const char *missing = ligi_library_load(calls, sizeof calls / sizeof *calls, m);

    if (missing == NULL)
        return LIG_OK;
    return lig_fail(
        LIG_E_UNSUPPORTED,
        "the method metis requires libmetis.so.5 (Debian: libmetis5), which cannot be loaded: %s",
        missing);
}

/* The defaults are all -1: how far they extend shows the width of the library's integers. */
static lig_status default_options(const metis *m, int32_t *options)
{
    int32_t twice[2 * METIS_OPTIONS] = {0};
    m->defaults(twice);
    if (twice[METIS_OPTIONS] != 0)
        return lig_fail(LIG_E_UNSUPPORTED, "libmetis.so.5 was built with 64-bit indexes, but the "
                                           "method metis requires 32-bit ones");
    memcpy(options, twice, METIS_OPTIONS * sizeof *options);
    return LIG_OK;
}

/* An undirected graph with one edge per pair of units: METIS ignores directions, which is why its
 * bins are repaired afterwards. */
typedef struct meshwork {
    int32_t units;
    int32_t *begin, *to, *weight, *load;
} meshwork;

static double largest(const double *figure, uint32_t count)
{
    double most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, figure[i]);
    return most > 0 ? most : 1;
}

typedef struct neighbours {
    const ligi_graph *graph;
    meshwork *mesh;
    uint32_t *place; /* [unit]: 1 + index in `to` of the edge from the current one */
    int32_t count;
    double scale;
} neighbours;

static void add_neighbour(neighbours *n, uint32_t from, uint32_t to, double bytes)
{
    int32_t weight = (int32_t)(bytes * n->scale) + 1;
    if (n->place[to] > (uint32_t)n->mesh->begin[from]) {
        n->mesh->weight[n->place[to] - 1] += weight;
        return;
    }
    n->mesh->to[n->count] = (int32_t)to;
    n->mesh->weight[n->count++] = weight;
    n->place[to] = (uint32_t)n->count;
}

static void weave(neighbours *n, double load_scale)
{
    const ligi_graph *graph = n->graph;
    for (uint32_t u = 0; u < graph->unit_count; u++) {
        n->mesh->begin[u] = n->count;
        n->mesh->load[u] = (int32_t)(graph->load[u] * load_scale) + 1;
        for (uint32_t i = graph->in_begin[u]; i < graph->in_begin[u + 1]; i++) {
            uint32_t net = graph->in_net[i];
            add_neighbour(n, u, graph->source[net], graph->bytes[net]);
        }
        for (uint32_t net = graph->out_begin[u]; net < graph->out_begin[u + 1]; net++)
            for (uint32_t p = graph->pin_begin[net]; p < graph->pin_begin[net + 1]; p++)
                add_neighbour(n, u, graph->pin[p], graph->bytes[net]);
    }
    n->mesh->begin[graph->unit_count] = n->count;
}

static lig_status make_mesh(const ligi_graph *graph, meshwork *mesh, ligi_scratch *scratch)
{
    size_t edges = (size_t)graph->pin_begin[graph->net_count] * 2;
    if (edges > INT32_MAX)
        return lig_fail(LIG_E_LIMIT, "the graph has too many edges for metis");
    mesh->units = (int32_t)graph->unit_count;
    mesh->begin = LIGI_TAKE(scratch, int32_t, (size_t)graph->unit_count + 1);
    mesh->to = LIGI_TAKE(scratch, int32_t, edges);
    mesh->weight = LIGI_TAKE(scratch, int32_t, edges);
    mesh->load = LIGI_TAKE(scratch, int32_t, graph->unit_count);
    neighbours n = {.graph = graph, .mesh = mesh};
    n.place = LIGI_TAKE(scratch, uint32_t, graph->unit_count);
    LIG_TRY(ligi_scratch_check(scratch));
    n.scale = 1e4 / largest(graph->bytes, graph->net_count);
    /* METIS sums weights in 32 bits. */
    double load_scale = fmin(WEIGHT_MOST / largest(graph->load, graph->unit_count),
                             1e9 / (graph->load_sum > 0 ? graph->load_sum : 1));
    weave(&n, load_scale);
    return LIG_OK;
}

static lig_status part(const metis *m, const ligi_goal *goal, meshwork *mesh, int32_t *options,
                       int32_t *bin)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    int32_t units = mesh->units, constraints = 1, parts = (int32_t)goal->device_count, cut = 0;
    float *share = LIGI_TAKE(&scratch, float, goal->device_count);
    lig_status status = ligi_scratch_check(&scratch);
    double speeds = 0;
    for (uint32_t d = 0; d < goal->device_count; d++)
        speeds += goal->speed[d];
    for (uint32_t d = 0; status == LIG_OK && d < goal->device_count; d++)
        share[d] = (float)(goal->speed[d] / speeds);
    if (status == LIG_OK &&
        m->part(&units, &constraints, mesh->begin, mesh->to, mesh->load, NULL, mesh->weight, &parts,
                share, NULL, options, &cut, bin) != METIS_OK)
        status = lig_fail(LIG_E_INTERNAL, "METIS_PartGraphKway failed on %d nodes and %d bins",
                          units, parts);
    ligi_scratch_free(&scratch);
    return status;
}

lig_status ligi_metis(const ligi_graph *graph, const ligi_goal *goal, double imbalance,
                      uint64_t seed, uint32_t *bin)
{
    metis m = {0};
    meshwork mesh = {0};
    int32_t options[METIS_OPTIONS];
    LIG_TRY(load_metis(&m));
    LIG_TRY(default_options(&m, options));
    options[METIS_OPTION_SEED] = (int32_t)(seed % INT32_MAX);
    options[METIS_OPTION_UFACTOR] = (int32_t)fmax(1, fmin(1000, (imbalance - 1) * 1000));
    memset(bin, 0, graph->unit_count * sizeof *bin);
    /* With hardly more nodes than bins, METIS writes warnings to standard output and leaves bins
     * empty: use intervals as bins instead. */
    if (graph->unit_count <= UNITS_PER_BIN * goal->device_count) {
        for (uint32_t u = 0; u < graph->unit_count; u++)
            bin[u] = (uint32_t)((uint64_t)u * goal->device_count / graph->unit_count);
        return LIG_OK;
    }
    if (goal->device_count == 1)
        return LIG_OK;
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    lig_status status = make_mesh(graph, &mesh, &scratch);
    if (status == LIG_OK)
        status = part(&m, goal, &mesh, options, (int32_t *)bin);
    ligi_scratch_free(&scratch);
    return status;
}
