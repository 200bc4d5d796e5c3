#include "pipe/methods/multilevel.h"

#include <string.h>

#include "pipe/search/coarsen.h"

#define LEVELS_MAX 24
/* A coarse graph needs this many units per stage for balanced cuts. */
#define UNITS_PER_STAGE 40

typedef struct level {
    ligi_graph graph;
    uint32_t *cluster; /* [units of the finer level] -> unit of this one */
} level;

typedef struct levels {
    level level[LEVELS_MAX];
    uint32_t count;
} levels;

static const ligi_graph *graph_at(const levels *l, const ligi_search *search, uint32_t depth)
{
    return depth ? &l->level[depth - 1].graph : search->graph;
}

static lig_status coarsen_all(const ligi_search *search, ligi_random *random, levels *l,
                              ligi_scratch *scratch)
{
    uint32_t enough = UNITS_PER_STAGE * search->goal->stage_count;
    double load_most = search->graph->load_sum / search->goal->stage_count / 8;
    while (l->count < LEVELS_MAX) {
        const ligi_graph *fine = graph_at(l, search, l->count);
        level *next = &l->level[l->count];
        uint32_t count = 0;
        if (fine->unit_count <= enough)
            break;
        next->cluster = LIGI_TAKE(scratch, uint32_t, fine->unit_count);
        LIG_TRY(ligi_scratch_check(scratch));
        LIG_TRY(ligi_coarsen(fine, load_most, random, next->cluster, &count));
        if (count > fine->unit_count - fine->unit_count / 20)
            break;
        LIG_TRY(ligi_graph_contract(fine, next->cluster, count, &next->graph, scratch));
        l->count++;
    }
    return LIG_OK;
}

static void project(const level *from, const uint32_t *coarse, uint32_t *fine, uint32_t fine_count)
{
    for (uint32_t u = 0; u < fine_count; u++)
        fine[u] = coarse[from->cluster[u]];
}

/* The first level with a solution is searched thoroughly; on finer levels the solution is
 * refined. */
static lig_status climb(const ligi_search *search, ligi_random *random, levels *l, ligi_found *out,
                        uint32_t *spare)
{
    for (uint32_t depth = l->count + 1; depth-- > 0;) {
        ligi_search at = *search;
        at.graph = graph_at(l, search, depth);
        at.seed = ligi_random_next(random);
        if (out->found) {
            memcpy(spare, out->stage, l->level[depth].graph.unit_count * sizeof *spare);
            project(&l->level[depth], spare, out->stage, at.graph->unit_count);
            LIG_TRY(ligi_settle(&at, random, out));
        } else {
            LIG_TRY(ligi_acyclic(&at, out));
        }
    }
    return LIG_OK;
}

lig_status ligi_multilevel(const ligi_search *search, ligi_found *out)
{
    ligi_scratch scratch = LIGI_SCRATCH_INIT;
    ligi_random random = {search->seed ^ UINT64_C(0x6c6576656c)};
    levels *l = LIGI_TAKE(&scratch, levels, 1);
    uint32_t *spare = LIGI_TAKE(&scratch, uint32_t, search->graph->unit_count);
    lig_status status = ligi_scratch_check(&scratch);
    out->found = 0;
    if (status == LIG_OK)
        status = coarsen_all(search, &random, l, &scratch);
    if (status == LIG_OK)
        status = climb(search, &random, l, out, spare);
    ligi_scratch_free(&scratch);
    return status;
}
