#include "evo_publish.h"

#include "evo_edges.h"
#include "evo_sources.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_model(char *name, size_t bytes, uint64_t id)
{
    snprintf(name, bytes, "%" PRIu64, id);
}

/* --- tensors of the model itself --- */

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static lig_status sorted(const uint64_t *lids, size_t count, uint64_t **out)
{
    uint64_t *copy = calloc(count + 1, sizeof *copy);
    if (copy == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
    if (count)
        memcpy(copy, lids, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, by_value);
    *out = copy;
    return LIG_OK;
}

/* How many of a part's tensors are in `lids`, which ascend. */
static size_t common(const ligi_evo_part *part, const uint64_t *lids, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < part->count && count; i++)
        found += bsearch(&part->lids[i], lids, count, sizeof *lids, by_value) != NULL;
    return found;
}

static lig_status drop_same(ligi_evo_state *state, uint64_t id, const uint64_t *lids, size_t count)
{
    for (size_t i = 0; i < state->part_count; i++) {
        const ligi_evo_part *part = &state->parts[i];
        size_t again = part->id == id ? common(part, lids, count) : 0;
        if (again && again < part->count)
            return lig_fail(LIG_E_EXISTS,
                            "model %" PRIu64 ": %zu of %zu tensors that were saved together are "
                            "saved again (save all of them, or publish first)",
                            id, again, part->count);
    }
    for (size_t i = state->part_count; i-- > 0;)
        if (state->parts[i].id == id && common(&state->parts[i], lids, count))
            ligi_evo_state_drop_part(state, i);
    return LIG_OK;
}

typedef struct writing { /* names and places of the tensors of one part */
    lig_tensor *tensors;
    lig_box *boxes; /* tensors of a model are in ascending order of their numbers */
    char (*names)[EVO_NAME_BYTES];
    uint64_t *layers;
} writing;

static void writing_fini(writing *self)
{
    free(self->tensors);
    free(self->boxes);
    free(self->names);
    free(self->layers);
}

static lig_status writing_init(writing *self, size_t count)
{
    *self = (writing){.tensors = calloc(count + 1, sizeof *self->tensors),
                      .boxes = calloc(count + 1, sizeof *self->boxes),
                      .names = calloc(count + 1, sizeof *self->names),
                      .layers = calloc(count + 1, sizeof *self->layers)};
    if (self->tensors && self->boxes && self->names && self->layers)
        return LIG_OK;
    writing_fini(self);
    return lig_fail(LIG_E_NOMEM, "out of memory for %zu tensors", count);
}

static lig_status add_part(ligi_evo_state *state, uint64_t id, lig_part *part, uint64_t *lids,
                           size_t count)
{
    ligi_evo_part *parts = realloc(state->parts, (state->part_count + 1) * sizeof *parts);
    if (parts == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a part of model %" PRIu64, id);
    state->parts = parts;
    parts[state->part_count++] = (ligi_evo_part){id, part, lids, count};
    return LIG_OK;
}

static lig_status write_part(ligi_evo_state *state, uint64_t id, const writing *about, size_t count,
                             lig_part **part)
{
    char name[24];
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.boxes = about->boxes;
    options.part = part;
    write_model(name, sizeof name, id);
    return lig_store_save(ligi_evo_state_store(state, id), name, about->tensors, count, &options);
}

lig_status ligi_evo_stage(ligi_evo_state *state, uint64_t id, const uint64_t *lids,
                          const lig_tensor *tensors, size_t count)
{
    writing about;
    uint64_t *ascending;
    lig_part *part;
    LIG_TRY(sorted(lids, count, &ascending));
    lig_status status = writing_init(&about, count);
    if (status != LIG_OK)
        goto free_lids;
    ligi_evo_layers_of(lids, count, about.layers);
    for (size_t i = 0; i < count; i++) {
        ligi_evo_name_write(about.names[i], about.layers[i], lids[i], id, 1);
        about.tensors[i] = tensors[i];
        about.tensors[i].name = about.names[i];
        about.boxes[i].order = lids[i];
    }
    status = drop_same(state, id, ascending, count);
    if (status == LIG_OK)
        status = write_part(state, id, &about, count, &part);
    writing_fini(&about);
    if (status == LIG_OK && (status = add_part(state, id, part, ascending, count)) != LIG_OK)
        lig_part_close(part, ligi_evo_state_store(state, id));
free_lids:
    if (status != LIG_OK)
        free(ascending);
    return status;
}

/* --- tensors of others --- */

typedef struct pick { /* one tensor of the composition that is not among those saved */
    uint64_t lid, owner;
    ligi_evo_source source; /* known NULL: without bytes */
} pick;

typedef struct publishing {
    ligi_evo_state *state;
    ligi_evo_sources sources;
    uint64_t id;
    char name[24];
    pick *picks; /* by source */
    size_t pick_count, inherited;
    lig_part **parts;
    size_t part_count;
} publishing;

static int by_source(const void *left, const void *right)
{
    const pick *a = left, *b = right;
    uintptr_t one = (uintptr_t)a->source.known, other = (uintptr_t)b->source.known;
    if (one != other)
        return one < other ? -1 : 1;
    return a->lid < b->lid ? -1 : a->lid > b->lid;
}

/* Tensors that the model owns and that were never saved are announced without bytes; tensors of
 * other owners must exist. */
static lig_status find_pick(publishing *self, pick *one)
{
    lig_status status =
        ligi_evo_sources_find(&self->sources, self->id, one->lid, one->owner, &one->source);
    if (status == LIG_E_NOTFOUND && one->owner == self->id)
        status = LIG_OK;
    if (status == LIG_OK && one->source.known && !one->source.entry->stored)
        one->source.known = NULL;
    return status;
}

static int by_lid(const void *left, const void *right)
{
    const pick *a = left, *b = right;
    return a->lid < b->lid ? -1 : a->lid > b->lid;
}

static lig_status find_picks(publishing *self, const ligi_evo_description *about)
{
    for (size_t i = 0; i < about->count; i++)
        if (about->owners[i] != self->id ||
            !ligi_evo_state_staged(self->state, self->id, about->lids[i]))
            self->picks[self->pick_count++] =
                (pick){.lid = about->lids[i], .owner = about->owners[i]};
    qsort(self->picks, self->pick_count, sizeof *self->picks, by_lid);
    size_t unique = 0;
    for (size_t i = 0; i < self->pick_count; i++)
        if (unique == 0 || self->picks[unique - 1].lid != self->picks[i].lid)
            self->picks[unique++] = self->picks[i];
    self->pick_count = unique;
    for (size_t i = 0; i < self->pick_count; i++) {
        LIG_TRY(find_pick(self, &self->picks[i]));
        self->inherited += self->picks[i].source.known != NULL;
    }
    qsort(self->picks, self->pick_count, sizeof *self->picks, by_source);
    return LIG_OK;
}

/* The names are the source's, the owner included. */
static void describe(const pick *picks, size_t count, const writing *about, uint64_t *largest)
{
    static const int64_t none[1] = {0};
    for (size_t i = 0; i < count; i++) {
        const ligi_evo_source *source = &picks[i].source;
        about->boxes[i].order = picks[i].lid;
        if (source->known) {
            about->tensors[i] = source->known->model->tensors[source->entry->tensor].tensor;
            about->tensors[i].data = NULL;
            if (about->tensors[i].bytes > *largest)
                *largest = about->tensors[i].bytes;
        } else {
            ligi_evo_name_write(about->names[i], picks[i].lid, picks[i].lid, picks[i].owner, 0);
            about->tensors[i] =
                (lig_tensor){.name = about->names[i], .shape = none, .ndim = 1, .dtype = LIG_UINT8};
        }
    }
}

/* Reads one tensor after the other into `buffer` and offers it: a prefix of any size needs the
 * memory of its largest tensor. */
static lig_status offer_all(const ligi_evo_known *known, const lig_tensor *tensors, size_t count,
                            void *buffer, lig_save *save)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t done;
        lig_tensor one = tensors[i];
        one.data = buffer;
        LIG_TRY(ligi_evo_source_load(known, &one, 1));
        LIG_TRY(lig_save_offer(save, buffer, NULL));
        LIG_TRY(lig_save_progress(save, i, LIG_FOREVER, &done));
    }
    return LIG_OK;
}

static lig_status inherit(publishing *self, const ligi_evo_known *known, const writing *about,
                          size_t count, void *buffer)
{
    lig_store *store = ligi_evo_state_store(self->state, self->id);
    lig_save_options options = LIG_SAVE_INIT;
    lig_ticket *ticket;
    lig_save *save;
    options.flags = LIG_SAVE_REPLACE;
    options.boxes = about->boxes;
    options.part = &self->parts[self->part_count];
    if (known->store == store && known->matches)
        options.match = known->matches[0];
    else if (known->store == store)
        options.parent = known->model->name;
    lig_status status = lig_save_begin(&save, store, self->name, about->tensors, count, &options);
    if (status == LIG_E_NOTFOUND && options.parent) { /* retired since; its bytes are held */
        options.parent = NULL;
        status = lig_save_begin(&save, store, self->name, about->tensors, count, &options);
    }
    LIG_TRY(status);
    status = offer_all(known, about->tensors, count, buffer, save);
    if (status == LIG_OK)
        status = lig_save_commit(save, &ticket);
    if (status != LIG_OK) {
        lig_save_abort(save);
        return status;
    }
    status = lig_ticket_wait(ticket, LIG_FOREVER);
    lig_ticket_destroy(ticket);
    return status;
}

static lig_status write_picks(publishing *self, const pick *picks, size_t count)
{
    writing about;
    uint64_t largest = 0;
    LIG_TRY(writing_init(&about, count));
    describe(picks, count, &about, &largest);
    void *buffer = malloc(largest + 1);
    lig_status status =
        buffer == NULL
            ? lig_fail(LIG_E_NOMEM, "out of memory for a tensor of %" PRIu64 " bytes", largest)
        : picks->source.known
            ? inherit(self, picks->source.known, &about, count, buffer)
            : write_part(self->state, self->id, &about, count, &self->parts[self->part_count]);
    self->part_count += status == LIG_OK;
    free(buffer);
    writing_fini(&about);
    return status;
}

static lig_status write_others(publishing *self)
{
    for (size_t first = 0, end; first < self->pick_count; first = end) {
        end = first + 1;
        while (end < self->pick_count &&
               self->picks[end].source.known == self->picks[first].source.known)
            end++;
        LIG_TRY(write_picks(self, self->picks + first, end - first));
    }
    return LIG_OK;
}

/* --- the model --- */

/* The model that most was inherited from, when it is in the same store. */
static const ligi_evo_known *parent_of(const publishing *self)
{
    const ligi_evo_known *best = NULL;
    size_t most = 0;
    for (size_t first = 0, end; first < self->pick_count; first = end) {
        const ligi_evo_known *known = self->picks[first].source.known;
        for (end = first; end < self->pick_count && self->picks[end].source.known == known;)
            end++;
        if (known && known->id != self->id && end - first > most &&
            known->store == ligi_evo_state_store(self->state, self->id)) {
            best = known;
            most = end - first;
        }
    }
    return best;
}

static lig_status gather_parts(const publishing *self, lig_part_data *data, size_t *count)
{
    for (size_t i = 0; i < self->state->part_count; i++)
        if (self->state->parts[i].id == self->id) {
            LIG_TRY(lig_part_bytes(self->state->parts[i].part, &data[*count].data,
                                   &data[*count].bytes));
            (*count)++;
        }
    for (size_t i = 0; i < self->part_count; i++, (*count)++)
        LIG_TRY(lig_part_bytes(self->parts[i], &data[*count].data, &data[*count].bytes));
    return LIG_OK;
}

static lig_status join(publishing *self, const ligi_evo_description *about, const lig_graph *graph)
{
    lig_store *store = ligi_evo_state_store(self->state, self->id);
    lig_metric metric = {"val_acc", (double)about->val_acc};
    lig_save_options options = LIG_SAVE_INIT;
    const ligi_evo_known *parent = parent_of(self);
    size_t count = 0;
    lig_part_data *data = calloc(self->state->part_count + self->part_count + 1, sizeof *data);
    if (data == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the parts of model %s", self->name);
    options.flags = LIG_SAVE_REPLACE;
    options.graphs = graph;
    options.graph_count = 1;
    options.metrics = &metric;
    options.metric_count = !isnan(about->val_acc);
    options.parent = parent ? parent->model->name : NULL;
    lig_status status = gather_parts(self, data, &count);
    if (status == LIG_OK)
        status = lig_store_join(store, self->name, data, count, &options);
    if (status == LIG_E_NOTFOUND && options.parent) { /* the parent was retired meanwhile */
        options.parent = NULL;
        status = lig_store_join(store, self->name, data, count, &options);
    }
    free(data);
    return status;
}

/* The model has its inherited tensors: the oldest lease that provided some of them is no longer
 * needed. */
static void release_used(publishing *self)
{
    for (size_t i = 0; i < self->state->held_count; i++)
        for (size_t j = 0; j < self->pick_count; j++)
            if (self->picks[j].source.known == &self->state->held[i]) {
                ligi_evo_state_release(self->state, i);
                return;
            }
}

static lig_status run(publishing *self, const ligi_evo_description *about)
{
    ligi_evo_graph graph;
    LIG_TRY(ligi_evo_graph_make(about->edges, about->words, 0, &graph));
    lig_status status = find_picks(self, about);
    if (status == LIG_OK)
        status = write_others(self);
    if (status == LIG_OK)
        status = join(self, about, &graph.graph);
    ligi_evo_graph_fini(&graph);
    return status;
}

lig_status ligi_evo_publish(ligi_evo_state *state, uint64_t id, const ligi_evo_description *about)
{
    publishing self = {.state = state,
                       .id = id,
                       .picks = calloc(about->count + 1, sizeof *self.picks),
                       .parts = calloc(about->count + 1, sizeof(lig_part *))};
    write_model(self.name, sizeof self.name, id);
    ligi_evo_sources_init(&self.sources, state);
    lig_status status = self.picks && self.parts
                            ? run(&self, about)
                            : lig_fail(LIG_E_NOMEM, "out of memory for model %s", self.name);
    for (size_t i = 0; i < self.part_count; i++)
        lig_part_close(self.parts[i], ligi_evo_state_store(state, id));
    if (status == LIG_OK) {
        release_used(&self);
        ligi_evo_state_drop_parts(state, id);
    }
    ligi_evo_sources_fini(&self.sources);
    free(self.picks);
    free(self.parts);
    return status;
}
