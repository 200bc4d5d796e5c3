#include "store/find/find.h"
#include "base/error.h"
#include "base/map.h"
#include "store/catalog/model_graphs.h"
#include "store/find/candidates.h"
#include "store/format/metrics_and_tags.h"
#include "store/load/read_ranges.h"
#include "store/load/resolved_model.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* The limit on models whose graphs are compared. Only graphs that are equal in the index but differ
 * in detail come near it. */
enum { COMPARED_MAX = 10000, FIND_TRIES = 100, FIND_LIMIT_MAX = 100000 };
#define LEASE_NS INT64_C(3600000000000)

/* What to search for: a graph, or the first graph of a stored model, which is excluded from the
 * results. Its name is resolved in the view that is searched. */
typedef struct subject {
    const ligi_layers *layers; /* NULL: those of `model` */
    const char *model;
} subject;

/* A match that was returned to the caller. */
typedef struct match {
    lig_match shown; /* first: a lig_match returned to the caller is one of these */
    lig_ref *ref;
    uint32_t *layers;
    lig_matched_tensor *tensors;
    char *names;
} match;

/* --- ranking --- */

typedef struct hit {
    ligi_candidate exact;
    uint32_t *map; /* requesting layer -> stored layer */
} hit;

typedef struct search {
    const ligi_catalog_view *view;
    const ligi_layers *asking;
    uint64_t asking_id; /* of a stored model; 0: none */
    ligi_graphs stored; /* its graphs */
    size_t limit;
    hit *hits; /* best first; room for one more than the limit */
    size_t hit_count;
    size_t compared;
} search;

static lig_status compare(search *self, const ligi_candidate *candidate, uint32_t *map,
                          ligi_prefix *prefix)
{
    ligi_graphs graphs = {0};
    *prefix = (ligi_prefix){0, 0};
    lig_status status = ligi_graphs_read(self->view, candidate->id, &graphs);
    const ligi_layers *stored = ligi_graphs_kind(&graphs, self->asking->kind);
    if (status == LIG_OK && stored)
        status = ligi_prefix_match(&self->asking->graph, self->asking->keys, &stored->graph,
                                   stored->keys, map, prefix);
    ligi_graphs_fini(&graphs);
    return status;
}

static void keep(search *self, hit found)
{
    size_t at = self->hit_count++;
    for (; at > 0 && ligi_candidate_better(&found.exact, &self->hits[at - 1].exact); at--)
        self->hits[at] = self->hits[at - 1];
    self->hits[at] = found;
    if (self->hit_count > self->limit)
        free(self->hits[--self->hit_count].map);
}

static lig_status look_at(search *self, const ligi_candidate *candidate)
{
    hit found = {.exact = *candidate};
    ligi_prefix prefix;
    LIG_TRY(
        ligi_calloc(&found.map, self->asking->graph.layer_count, sizeof *found.map, "a search"));
    lig_status status = compare(self, candidate, found.map, &prefix);
    if (status != LIG_OK || prefix.layers == 0) {
        free(found.map);
        return status;
    }
    found.exact.layers = prefix.layers;
    found.exact.bytes = prefix.bytes;
    keep(self, found);
    return LIG_OK;
}

/* Models of other scopes are not compared, and do not count towards the limit. */
static lig_status is_seen(const search *self, uint64_t id, int *seen)
{
    ligi_record record = {0};
    *seen = 1;
    if (self->view->store->scope == NULL)
        return LIG_OK;
    lig_status status = ligi_catalog_view_model(self->view, id, &record);
    *seen = status == LIG_OK && ligi_store_sees(self->view->store, record.about.name);
    ligi_record_fini(&record);
    return status == LIG_E_CORRUPT ? LIG_OK : status; /* `check` reports it */
}

/* 1 if no later candidate can be better than the current results. */
static int settled(const search *self, const ligi_candidate *next)
{
    return self->hit_count == self->limit &&
           ligi_candidate_better(&self->hits[self->hit_count - 1].exact, next);
}

static lig_status rank(search *self, const ligi_candidates_ask *ask)
{
    ligi_candidates *candidates = NULL;
    LIG_TRY(ligi_candidates_open(&candidates, self->view, ask));
    ligi_candidate next;
    lig_status status = LIG_OK;
    while (status == LIG_OK && self->compared < COMPARED_MAX) {
        int seen = 0;
        status = ligi_candidates_next(candidates, &next);
        if (status == LIG_OK && settled(self, &next))
            break;
        if (status == LIG_OK)
            status = is_seen(self, next.id, &seen);
        if (status == LIG_OK && seen)
            status = look_at(self, &next);
        self->compared += (size_t)seen;
    }
    ligi_candidates_close(candidates);
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

static void search_fini(search *self)
{
    for (size_t i = 0; i < self->hit_count; i++)
        free(self->hits[i].map);
    free(self->hits);
    ligi_graphs_fini(&self->stored);
}

/* --- from a hit to a match --- */

static void match_free(match *self)
{
    if (self == NULL)
        return;
    lig_ref_release(self->ref);
    free(self->layers);
    free(self->tensors);
    free(self->names);
    free(self);
}

static lig_status take_layers(match *self, const search *from, const hit *found)
{
    LIG_TRY(ligi_calloc(&self->layers, found->exact.layers, sizeof *self->layers, "a match"));
    for (uint32_t i = 0; i < from->asking->graph.layer_count; i++)
        if (found->map[i] != LIGI_NO_CALL)
            self->layers[self->shown.layer_count++] = i;
    self->shown.layers = self->layers;
    return LIG_OK;
}

/* The name of a stored tensor in the requesting model: its layer's name there, followed by the
 * stored name without the layer's prefix. */
static void put_name(ligi_writer *names, const char *asking, const char *stored, const char *tensor)
{
    ligi_put_bytes(names, asking, strlen(asking));
    const char *rest = tensor + strlen(stored);
    ligi_put_bytes(names, rest, strlen(rest) + 1);
}

typedef struct inverse {
    const ligi_layers *stored;
    ligi_map index;
    uint32_t *asking; /* of each stored layer */
} inverse;

static lig_status inverse_make(inverse *self, const ligi_layers *stored, const search *from,
                               const hit *found)
{
    self->stored = stored;
    LIG_TRY(ligi_layers_index(stored, &self->index));
    LIG_TRY(ligi_alloc(&self->asking, stored->graph.layer_count * sizeof *self->asking, "a match"));
    memset(self->asking, 0xff, stored->graph.layer_count * sizeof *self->asking);
    for (uint32_t i = 0; i < from->asking->graph.layer_count; i++)
        if (found->map[i] != LIGI_NO_CALL)
            self->asking[found->map[i]] = i;
    return LIG_OK;
}

static lig_status take_tensors(match *self, const search *from, const inverse *back)
{
    const lig_model *model = lig_ref_model(self->ref);
    ligi_writer names = {0};
    LIG_TRY(ligi_calloc(&self->tensors, model->tensor_count, sizeof *self->tensors, "a match"));
    for (size_t i = 0; i < model->tensor_count; i++) {
        const lig_tensor *tensor = &model->tensors[i].tensor;
        uint32_t layer = ligi_layer_of(&back->index, tensor->name);
        if (layer == LIGI_NO_CALL || back->asking[layer] == LIGI_NO_CALL)
            continue;
        lig_matched_tensor *out = &self->tensors[self->shown.tensor_count++];
        out->stored = i;
        out->name = (const char *)names.bytes; /* an offset in `names` until that is no longer
                                        * reallocated */
        put_name(&names, from->asking->names[back->asking[layer]], back->stored->names[layer],
                 tensor->name);
        self->shown.bytes += model->tensors[i].tied < 0 ? tensor->bytes : 0;
    }
    if (names.status != LIG_OK) {
        lig_status status = names.status;
        ligi_writer_fini(&names);
        return status;
    }
    self->names = (char *)names.data;
    for (size_t i = 0; i < self->shown.tensor_count; i++)
        self->tensors[i].name = self->names + (size_t)self->tensors[i].name;
    self->shown.tensors = self->tensors;
    return LIG_OK;
}

static lig_status translate(match *self, const search *from, const hit *found)
{
    ligi_graphs graphs = {0};
    inverse back = {0};
    lig_status status = ligi_graphs_read(from->view, found->exact.id, &graphs);
    const ligi_layers *stored = ligi_graphs_kind(&graphs, from->asking->kind);
    if (status == LIG_OK && stored)
        status = inverse_make(&back, stored, from, found);
    if (status == LIG_OK && stored)
        status = take_tensors(self, from, &back);
    ligi_map_fini(&back.index);
    free(back.asking);
    ligi_graphs_fini(&graphs);
    return status;
}

/* Pinned first, then read; find_once then checks the catalog. */
static lig_status resolve(const ligi_catalog_view *view, uint64_t id, int64_t lease_ns,
                          lig_ref **out)
{
    int gone = 0;
    LIG_TRY(ligi_ref_at(view, id, out));
    LIG_TRY(ligi_ref_pin(*out, lease_ns));
    lig_status status = ligi_model_fill(view->store, view, (*out)->model, &gone);
    if (status != LIG_OK)
        return gone ? LIG_E_BUSY : status;
    ligi_manifest_fingerprints(&(*out)->model->manifest, view->store->secret);
    return LIG_OK;
}

/* *out is set even on failure: a release may wait for others, and the caller must end its snapshot
 * before that. */
static lig_status make_match(const search *from, const hit *found, int64_t lease_ns, match **out)
{
    match *self = NULL;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a match"));
    *out = self;
    lig_status status = resolve(from->view, found->exact.id, lease_ns, &self->ref);
    if (status == LIG_OK)
        status = take_layers(self, from, found);
    if (status == LIG_OK)
        status = translate(self, from, found);
    LIG_TRY(status);
    self->shown.model = lig_ref_model(self->ref);
    self->shown.ref = self->ref;
    self->shown.expires_ns = ligi_pin_expires(self->ref->pin);
    return LIG_OK;
}

static lig_status copy_tensors(match *self, const ligi_match_parts *parts)
{
    size_t bytes = 0;
    for (size_t i = 0; i < parts->tensor_count; i++)
        bytes += strlen(parts->tensors[i].name) + 1;
    LIG_TRY(ligi_calloc(&self->tensors, parts->tensor_count, sizeof *self->tensors, "a match"));
    LIG_TRY(ligi_alloc(&self->names, bytes, "a match"));
    char *at = self->names;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        self->tensors[i] = (lig_matched_tensor){at, parts->tensors[i].stored};
        at = stpcpy(at, parts->tensors[i].name) + 1;
    }
    return LIG_OK;
}

lig_status ligi_match_make(const ligi_match_parts *parts, lig_match **out)
{
    match *self = NULL;
    lig_status status = ligi_calloc(&self, 1, sizeof *self, "a match");
    if (status != LIG_OK) {
        lig_ref_release(parts->ref);
        return status;
    }
    self->ref = parts->ref;
    status = copy_tensors(self, parts);
    if (status == LIG_OK)
        status = ligi_calloc(&self->layers, parts->layer_count, sizeof *self->layers, "a match");
    if (status != LIG_OK) {
        match_free(self);
        return status;
    }
    if (parts->layer_count)
        memcpy(self->layers, parts->layers, parts->layer_count * sizeof *self->layers);
    self->shown = (lig_match){.model = lig_ref_model(self->ref),
                              .layer_count = parts->layer_count,
                              .tensor_count = parts->tensor_count,
                              .layers = self->layers,
                              .tensors = self->tensors,
                              .bytes = parts->bytes,
                              .expires_ns = parts->expires_ns,
                              .ref = self->ref};
    *out = &self->shown;
    return LIG_OK;
}

/* --- the calls --- */

static lig_status excluded_ids(const search *self, const lig_find_options *options, uint64_t **ids,
                               size_t *count)
{
    LIG_TRY(ligi_calloc(ids, options->exclude_count + 1, sizeof **ids, "a search"));
    for (size_t i = 0; i < options->exclude_count; i++) {
        uint64_t id = 0;
        LIG_TRY(ligi_catalog_view_name(self->view, options->exclude[i], &id));
        if (id == 0)
            LIG_TRY(ligi_catalog_view_alias(self->view, options->exclude[i], &id));
        if (id)
            (*ids)[(*count)++] = id;
    }
    if (self->asking_id)
        (*ids)[(*count)++] = self->asking_id;
    return LIG_OK;
}

static lig_status rank_with(search *self, const lig_find_options *options)
{
    uint64_t *exclude = NULL;
    size_t exclude_count = 0;
    lig_status status = excluded_ids(self, options, &exclude, &exclude_count);
    ligi_candidates_ask ask = {.layers = self->asking,
                               .tags = options->tags,
                               .tag_count = options->tag_count,
                               .exclude = exclude,
                               .exclude_count = exclude_count,
                               .prefer = options->prefer};
    if (status == LIG_OK)
        status = rank(self, &ask);
    free(exclude);
    return status;
}

/* Names in the graphs live as long as the view; a match copies what it needs. */
static lig_status read_stored(search *self, const char *model)
{
    ligi_record record = {0};
    lig_status status = ligi_catalog_view_find(self->view, model, &record);
    self->asking_id = record.about.id;
    ligi_record_fini(&record);
    LIG_TRY(status);
    LIG_TRY(ligi_graphs_read(self->view, self->asking_id, &self->stored));
    if (self->stored.count == 0)
        return lig_fail(LIG_E_INVALID,
                        "model '%s' was saved without a graph and cannot be searched for (save it "
                        "with graph=ligament.Graph.of(model, args), or graphs in lig_save_options)",
                        model);
    self->asking = &self->stored.graphs[0];
    return LIG_OK;
}

static lig_status search_view(search *self, const subject *sought, const lig_find_options *options)
{
    LIG_TRY(ligi_calloc(&self->hits, self->limit + 1, sizeof *self->hits, "a search"));
    self->asking = sought->layers;
    if (sought->model)
        LIG_TRY(read_stored(self, sought->model));
    return rank_with(self, options);
}

/* One attempt on one snapshot. The result is pinned first, and then the catalog is checked for
 * changes: a pack that was removed in between belongs to a model that is missing from the new
 * version. */
static lig_status find_once(lig_store *store, const subject *sought,
                            const lig_find_options *options, lig_match **out, size_t *count)
{
    ligi_catalog_view view;
    int64_t begin = ligi_now_ns();
    LIG_TRY(ligi_catalog_view_begin(store, &view));
    search self = {.view = &view, .limit = options->limit ? options->limit : 1};
    int64_t lease_ns = options->lease_ns > 0 ? options->lease_ns : LEASE_NS;
    lig_status status = search_view(&self, sought, options);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_LOOKUP, begin);
    size_t made = 0;
    for (; made < self.hit_count && status == LIG_OK; made++) {
        match *one = NULL;
        status = make_match(&self, &self.hits[made], lease_ns, &one);
        out[made] = one ? &one->shown : NULL;
    }
    search_fini(&self);
    uint64_t version = view.version;
    ligi_catalog_view_end(&view);
    if (status == LIG_OK && made)
        status = ligi_catalog_view_unchanged(store, version);
    if (status == LIG_OK) {
        *count = made;
        return LIG_OK;
    }
    for (size_t i = 0; i < made; i++)
        match_free((match *)out[i]);
    return status;
}

static lig_status find_all(lig_store *store, const subject *sought, const lig_find_options *options,
                           lig_match ***matches, size_t *count)
{
    static const lig_find_options defaults = LIG_FIND_INIT;
    const lig_find_options *asked = options ? options : &defaults;
    if (asked->limit > FIND_LIMIT_MAX)
        return lig_fail(LIG_E_LIMIT, "a search can return at most %d models", FIND_LIMIT_MAX);
    if (store->remote)
        return store->remote->find(store, sought->layers, sought->model, asked, matches, count);
    lig_match **out = NULL;
    LIG_TRY(ligi_calloc(&out, asked->limit + 1, sizeof *out, "a search"));
    size_t found = 0;
    lig_status status = LIG_E_BUSY;
    for (int i = 0; i < FIND_TRIES && status == LIG_E_BUSY; i++)
        status = find_once(store, sought, asked, out, &found);
    if (status != LIG_OK) {
        free(out);
        return status;
    }
    *matches = out;
    *count = found;
    return LIG_OK;
}

lig_status ligi_find_layers(lig_store *store, const ligi_layers *asking,
                            const lig_find_options *options, lig_match ***matches, size_t *count)
{
    return find_all(store, &(subject){.layers = asking}, options, matches, count);
}

lig_status lig_store_find(lig_store *store, const lig_graph *graph, const lig_find_options *options,
                          lig_match ***matches, size_t *count)
{
    LIG_TRY(ligi_store_usable(store));
    int64_t begin = ligi_now_ns();
    ligi_layers asking = {0};
    lig_status status = ligi_layers_make(&asking, graph, NULL, 0);
    if (status == LIG_OK)
        status = ligi_find_layers(store, &asking, options, matches, count);
    ligi_layers_fini(&asking);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_FIND, begin);
    return status;
}

lig_status lig_store_find_like(lig_store *store, const char *model, const lig_find_options *options,
                               lig_match ***matches, size_t *count)
{
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_labels_check_name("model", model));
    int64_t begin = ligi_now_ns();
    lig_status status = find_all(store, &(subject){.model = model}, options, matches, count);
    ligi_stamps_note(&store->stamps, LIGI_STAMP_FIND, begin);
    return status;
}

void lig_match_release(lig_match *shown)
{
    ligi_ref_unpin(((match *)shown)->ref);
    shown->expires_ns = 0;
}

void lig_matches_destroy(lig_match **matches, size_t count)
{
    for (size_t i = 0; i < count; i++)
        match_free((match *)matches[i]);
    free(matches);
}

lig_status ligi_match_ref(const lig_store *store, const lig_match *shown, const lig_ref **ref)
{
    const lig_ref *found = ((const match *)shown)->ref;
    if (memcmp(found->store->uuid, store->uuid, sizeof store->uuid) != 0)
        return lig_fail(LIG_E_INVALID, "the match with model '%s' is from another store than %s",
                        shown->model->name, store->uri);
    *ref = found;
    return LIG_OK;
}

static lig_status name_reads(const match *self, const lig_tensor *tensors, size_t count,
                             lig_read *reads)
{
    ligi_map names = {0};
    lig_status status = ligi_map_reserve(&names, self->shown.tensor_count);
    for (size_t i = 0; i < self->shown.tensor_count && status == LIG_OK; i++)
        status = ligi_map_insert(&names, self->tensors[i].name, strlen(self->tensors[i].name),
                                 self->tensors[i].stored, NULL);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        uint64_t stored;
        if (!ligi_map_find(&names, tensors[i].name, strlen(tensors[i].name), &stored)) {
            status = lig_fail(LIG_E_MISMATCH,
                              "tensor '%s' is not among the tensors shared with model '%s'",
                              tensors[i].name, self->shown.model->name);
            break;
        }
        reads[i] =
            (lig_read){.name = self->shown.model->tensors[stored].tensor.name, .into = tensors[i]};
    }
    ligi_map_fini(&names);
    return status;
}

lig_status lig_store_load_match(lig_store *store, const lig_match *shown, const lig_tensor *tensors,
                                size_t count)
{
    const lig_ref *ref;
    LIG_TRY(ligi_store_usable(store));
    LIG_TRY(ligi_match_ref(store, shown, &ref));
    LIG_TRY(ligi_tensors_check(tensors, count, 1));
    lig_read *reads = NULL;
    LIG_TRY(ligi_calloc(&reads, count, sizeof *reads, "a load"));
    lig_status status = name_reads((const match *)shown, tensors, count, reads);
    if (status == LIG_OK && count)
        status = lig_ref_read(ref, reads, count, 0);
    free(reads);
    return status;
}
