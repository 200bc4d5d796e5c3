#include "evostore.h"

#include "evo_edges.h"
#include "evo_publish.h"
#include "evo_served.h"
#include "evo_sources.h"
#include "evo_state.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions take no handle, so this is the process's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static ligi_evo_state state;
static _Thread_local lig_status last;

static void in_child(void)
{
    pthread_mutex_init(&lock, NULL); /* another thread of the parent may have had it */
    ligi_evo_state_forget(&state);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void enter(void)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&lock);
}

static bool leave(lig_status status)
{
    pthread_mutex_unlock(&lock);
    last = status;
    return status == LIG_OK;
}

static bool leave_call(ligi_evo_call call, int64_t begin_ns, lig_status status)
{
    state.called[call] = 1;
    ligi_stamps_ring_add(&state.times[call], begin_ns, ligi_now_ns());
    return leave(status);
}

LIG_API int lig_evostore_status(void)
{
    return last;
}

LIG_API int set_servers(const char *servers, size_t size)
{
    enter();
    return !leave(ligi_evo_state_servers(&state, servers, size));
}

int shutdown(void);
LIG_API int shutdown(void)
{
    enter();
    lig_status status = ligi_evo_served_stop(&state);
    ligi_evo_state_close(&state);
    return !leave(status);
}

/* --- search --- */

/* More layers, then the higher val_acc. */
static int is_better(const lig_match *one, const lig_match *other)
{
    double quality[2] = {-HUGE_VAL, -HUGE_VAL};
    if (one->layer_count != other->layer_count)
        return one->layer_count > other->layer_count;
    for (int i = 0; i < 2; i++) {
        const lig_model *model = (i ? other : one)->model;
        for (size_t j = 0; j < model->metric_count; j++)
            if (strcmp(model->metrics[j].name, "val_acc") == 0)
                quality[i] = model->metrics[j].value;
    }
    return quality[0] > quality[1];
}

static lig_status find_in(lig_store *store, const lig_graph *graph, lig_match ***best,
                          lig_store **where)
{
    lig_find_options options = LIG_FIND_INIT;
    lig_match **matches;
    size_t count;
    options.prefer = "val_acc";
    LIG_TRY(lig_store_find(store, graph, &options, &matches, &count));
    if (count == 0 || (*best && !is_better(matches[0], (*best)[0]))) {
        lig_matches_destroy(matches, count);
        return LIG_OK;
    }
    if (*best)
        lig_matches_destroy(*best, 1);
    *best = matches;
    *where = store;
    return LIG_OK;
}

static lig_status find_best(const lig_graph *graph, lig_match ***best, lig_store **where)
{
    *best = NULL;
    for (size_t i = 0; i < state.store_count; i++) {
        lig_status status = find_in(state.stores[i], graph, best, where);
        if (status != LIG_OK) {
            if (*best)
                lig_matches_destroy(*best, 1);
            return status;
        }
    }
    return LIG_OK;
}

static lig_status search(const ligi_evo_graph *graph, size_t room, uint64_t *id, uint64_t *result,
                         int *count)
{
    lig_match **best;
    lig_store *where;
    ligi_evo_known known;
    LIG_TRY(find_best(&graph->graph, &best, &where));
    if (best == NULL)
        return LIG_OK;
    LIG_TRY(ligi_evo_known_lease(where, best, &known));
    const lig_match *match = best[0];
    for (size_t i = 0; i < match->layer_count && i < room; i++)
        result[i] = graph->ids[match->layers[i]];
    *id = known.id;
    *count = (int)(match->layer_count < room ? match->layer_count : room);
    ligi_evo_state_hold(&state, &known);
    return LIG_OK;
}

LIG_API int get_prefix(const uint64_t *edges, int n, uint64_t *id, uint64_t *result)
{
    int count = 0;
    int64_t begin_ns = ligi_now_ns();
    ligi_evo_graph graph;
    enter();
    lig_status status = ligi_evo_state_open(&state);
    if (status == LIG_OK && n >= 2) { /* a graph without a pair has no prefix */
        status = ligi_evo_graph_make(edges, (size_t)n, 1, &graph);
        if (status == LIG_OK) {
            status = search(&graph, (size_t)n, id, result, &count);
            ligi_evo_graph_fini(&graph);
        }
    }
    leave_call(EVO_GET_PREFIX, begin_ns, status);
    return count;
}

/* --- composition --- */

/* The current model, or the leased version. */
static lig_status known_model(ligi_evo_sources *sources, uint64_t id, const ligi_evo_known **known)
{
    LIG_TRY(ligi_evo_sources_model(sources, id, known));
    for (size_t i = state.held_count; *known == NULL && i-- > 0;)
        if (state.held[i].id == id)
            *known = &state.held[i];
    return LIG_OK;
}

static lig_status compose(ligi_evo_sources *sources, uint64_t id, const uint64_t *lids,
                          uint64_t *owners, size_t n, int *count)
{
    const ligi_evo_known *known;
    LIG_TRY(ligi_evo_state_open(&state));
    LIG_TRY(known_model(sources, id, &known));
    for (size_t i = 0; i < n; i++) {
        const ligi_evo_entry *entry =
            known ? ligi_evo_composition_find(&known->composition, lids[i]) : NULL;
        owners[i] = entry ? entry->owner : 0;
        *count += entry != NULL;
    }
    return LIG_OK;
}

LIG_API int get_composition(uint64_t id, const uint64_t *lids, uint64_t *owners, int n)
{
    int count = 0;
    int64_t begin_ns = ligi_now_ns();
    ligi_evo_sources sources;
    enter();
    ligi_evo_sources_init(&sources, &state);
    lig_status status = compose(&sources, id, lids, owners, n > 0 ? (size_t)n : 0, &count);
    ligi_evo_sources_fini(&sources);
    leave_call(EVO_GET_COMPOSITION, begin_ns, status);
    return count;
}

/* --- tensors --- */

lig_status ligi_evo_save(uint64_t id, const uint64_t *lids, const lig_tensor *tensors, size_t count)
{
    int64_t begin_ns = ligi_now_ns();
    enter();
    lig_status status = ligi_evo_state_open(&state);
    if (status == LIG_OK)
        status = ligi_evo_stage(&state, id, lids, tensors, count);
    leave_call(EVO_STORE_LAYERS, begin_ns, status);
    return status;
}

static lig_status load(uint64_t hint, const uint64_t *lids, const uint64_t *owners,
                       const lig_tensor *tensors, size_t count)
{
    ligi_evo_sources sources;
    ligi_evo_read *reads = calloc(count + 1, sizeof *reads);
    if (reads == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory reading %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        reads[i] = (ligi_evo_read){lids[i], owners[i], tensors[i]};
    ligi_evo_sources_init(&sources, &state);
    lig_status status = ligi_evo_sources_read(&sources, hint, reads, count);
    ligi_evo_sources_fini(&sources);
    free(reads);
    return status;
}

lig_status ligi_evo_load(uint64_t hint, const uint64_t *lids, const uint64_t *owners,
                         const lig_tensor *tensors, size_t count)
{
    int64_t begin_ns = ligi_now_ns();
    enter();
    lig_status status = ligi_evo_state_open(&state);
    if (status == LIG_OK)
        status = load(hint, lids, owners, tensors, count);
    leave_call(EVO_READ_LAYERS, begin_ns, status);
    return status;
}

LIG_API bool store_layers(uint64_t id, const uint64_t *lids, const uint64_t *sizes,
                          unsigned char **data, int n)
{
    size_t count = n > 0 ? (size_t)n : 0;
    lig_tensor *tensors = calloc(count + 1, sizeof *tensors);
    int64_t *shapes = calloc(count + 1, sizeof *shapes);
    lig_status status =
        tensors && shapes ? LIG_OK : lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        if (sizes[i] > INT64_MAX)
            status = lig_fail(LIG_E_LIMIT,
                              "tensor %" PRIu64 " of model %" PRIu64 ": invalid size of %" PRIu64
                              " bytes",
                              lids[i], id, sizes[i]);
        shapes[i] = (int64_t)sizes[i];
        tensors[i] = (lig_tensor){
            .data = data[i], .bytes = sizes[i], .shape = &shapes[i], .ndim = 1, .dtype = LIG_UINT8};
    }
    if (status == LIG_OK)
        status = ligi_evo_save(id, lids, tensors, count);
    last = status;
    free(tensors);
    free(shapes);
    return status == LIG_OK;
}

/* Owners come from the model's composition. */
static lig_status read_bytes(uint64_t id, const uint64_t *lids, unsigned char **data, size_t count)
{
    uint64_t *owners = calloc(count + 1, sizeof *owners);
    lig_tensor *tensors = calloc(count + 1, sizeof *tensors);
    ligi_evo_sources sources;
    int found = 0;
    lig_status status =
        owners && tensors ? LIG_OK : lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
    ligi_evo_sources_init(&sources, &state);
    if (status == LIG_OK)
        status = compose(&sources, id, lids, owners, count, &found);
    ligi_evo_sources_fini(&sources);
    if (status == LIG_OK && (size_t)found < count)
        status =
            lig_fail(LIG_E_NOTFOUND, "model %" PRIu64 " has %d of %zu tensors", id, found, count);
    for (size_t i = 0; i < count && status == LIG_OK; i++)
        tensors[i].data = data[i];
    if (status == LIG_OK)
        status = load(id, lids, owners, tensors, count);
    free(owners);
    free(tensors);
    return status;
}

LIG_API bool read_layers(uint64_t id, const uint64_t *lids, unsigned char **data, int n)
{
    int64_t begin_ns = ligi_now_ns();
    enter();
    return leave_call(EVO_READ_LAYERS, begin_ns, read_bytes(id, lids, data, n > 0 ? (size_t)n : 0));
}

LIG_API int lig_evostore_stored(uint64_t id, const uint64_t *lids, const uint64_t *owners, int n,
                                unsigned char *stored)
{
    int count = 0;
    ligi_evo_sources sources;
    enter();
    ligi_evo_sources_init(&sources, &state);
    lig_status status = ligi_evo_state_open(&state);
    for (int i = 0; i < n && status == LIG_OK; i++) {
        ligi_evo_source found;
        status = ligi_evo_sources_find(&sources, id, lids[i], owners[i], &found);
        stored[i] = status == LIG_OK && found.known && found.entry->stored;
        count += stored[i];
    }
    ligi_evo_sources_fini(&sources);
    return leave(status) ? count : -1;
}

/* --- models --- */

LIG_API bool store_meta(uint64_t id, const uint64_t *edges, int m, const uint64_t *lids,
                        const uint64_t *owners, const uint64_t *sizes, int n, float val_acc)
{
    (void)sizes;
    int64_t begin_ns = ligi_now_ns();
    ligi_evo_description about = {edges,  m > 0 ? (size_t)m : 0, lids,
                                  owners, n > 0 ? (size_t)n : 0, val_acc};
    enter();
    lig_status status = ligi_evo_state_open(&state);
    if (status == LIG_OK)
        status = ligi_evo_publish(&state, id, &about);
    return leave_call(EVO_STORE_META, begin_ns, status);
}

static lig_status retire(uint64_t id)
{
    char name[24];
    LIG_TRY(ligi_evo_state_open(&state));
    snprintf(name, sizeof name, "%" PRIu64, id);
    return lig_store_retire(ligi_evo_state_store(&state, id), name);
}

static lig_status exists(uint64_t id)
{
    ligi_evo_sources sources;
    const ligi_evo_known *known = NULL;
    LIG_TRY(ligi_evo_state_open(&state));
    ligi_evo_sources_init(&sources, &state);
    lig_status status = ligi_evo_sources_model(&sources, id, &known);
    if (status == LIG_OK && known == NULL)
        status = lig_fail(LIG_E_NOTFOUND, "there is no model %" PRIu64, id);
    ligi_evo_sources_fini(&sources);
    return status;
}

LIG_API bool update_ref_counter(uint64_t id, int value)
{
    int64_t begin_ns = ligi_now_ns();
    enter();
    return leave_call(EVO_UPDATE_REF_COUNTER, begin_ns, value < 0 ? retire(id) : exists(id));
}

/* --- time stamps --- */

/* With `ts`: what was counted for these functions before, if it was. */
static int stamps_of(ligi_evo_call first, ligi_evo_call end, uint64_t *ts)
{
    lig_status status = LIG_OK;
    int is_taken = state.taken && state.taken_first == first && state.taken_end == end;
    if (ts == NULL || !is_taken)
        status = ligi_evo_stamps_take(&state, first, end);
    int count = status == LIG_OK ? (int)state.taken_count : -1;
    for (int i = 0; ts && i < count; i++)
        ts[i] = (uint64_t)state.taken[i] / 1000;
    if (ts)
        ligi_evo_taken_drop(&state);
    leave(status);
    return count;
}

static int all_stamps(uint64_t *ts)
{
    enter();
    return stamps_of((ligi_evo_call)0, EVO_CALLS, ts);
}

/* Of a served store a function may have been called by others. */
static int is_called(ligi_evo_call call)
{
    return call < EVO_CALLS && (state.called[call] || ligi_evo_served_all(&state));
}

static int some_stamps(const char *name, uint64_t *ts)
{
    ligi_evo_call call = ligi_evo_call_named(name);
    enter();
    if (is_called(call))
        return stamps_of(call, (ligi_evo_call)(call + 1), ts);
    leave(LIG_OK);
    return -1;
}

LIG_API int get_num_time_stamps(void)
{
    return all_stamps(NULL);
}

LIG_API int get_time_stamps(uint64_t *ts)
{
    return all_stamps(ts);
}

LIG_API int get_num_time_stamps_by_key(const char *name)
{
    return some_stamps(name, NULL);
}

LIG_API int get_time_stamps_by_key(uint64_t *ts, const char *name)
{
    return some_stamps(name, ts);
}

LIG_API void clear_time_stamps(void)
{
    enter();
    leave(ligi_evo_stamps_clear(&state, (ligi_evo_call)0, EVO_CALLS));
}

LIG_API bool clear_time_stamps_by_key(const char *name)
{
    ligi_evo_call call = ligi_evo_call_named(name);
    enter();
    if (is_called(call))
        return leave(ligi_evo_stamps_clear(&state, call, (ligi_evo_call)(call + 1)));
    leave(LIG_OK);
    return false;
}
