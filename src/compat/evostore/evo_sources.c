#include "evo_sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void ligi_evo_sources_init(ligi_evo_sources *sources, ligi_evo_state *state)
{
    *sources = (ligi_evo_sources){.state = state};
}

void ligi_evo_sources_fini(ligi_evo_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        ligi_evo_known_close(sources->known[i]);
        free(sources->known[i]);
    }
    free(sources->known);
    *sources = (ligi_evo_sources){.state = sources->state};
}

/* --- models --- */

static lig_status make_room(ligi_evo_sources *self)
{
    size_t room = self->room ? self->room * 2 : 8;
    ligi_evo_known **known = self->count < self->room
                                 ? self->known
                                 : realloc(self->known, room * sizeof(ligi_evo_known *));
    if (known == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the records of %zu models", room);
    if (self->count == self->room)
        self->room = room;
    self->known = known;
    return LIG_OK;
}

static lig_status add(ligi_evo_sources *self, lig_store *store, const char *name)
{
    LIG_TRY(make_room(self));
    ligi_evo_known *known = calloc(1, sizeof *known);
    if (known == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the record of model '%s'", name);
    lig_status status = ligi_evo_known_open(store, name, known);
    if (status == LIG_OK)
        self->known[self->count++] = known;
    else
        free(known);
    return status;
}

static const ligi_evo_known *looked_at(const ligi_evo_sources *self, uint64_t id)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->known[i]->id == id)
            return self->known[i];
    return NULL;
}

lig_status ligi_evo_sources_model(ligi_evo_sources *self, uint64_t id, const ligi_evo_known **known)
{
    char name[24];
    *known = looked_at(self, id);
    if (*known || self->all)
        return LIG_OK;
    snprintf(name, sizeof name, "%" PRIu64, id);
    lig_status status = add(self, ligi_evo_state_store(self->state, id), name);
    if (status == LIG_OK)
        *known = self->known[self->count - 1];
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

static lig_status add_all_of(ligi_evo_sources *self, lig_store *store)
{
    lig_model **models;
    size_t count;
    LIG_TRY(lig_store_models(store, NULL, &models, &count));
    lig_status status = LIG_OK;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        uint64_t id;
        if (!ligi_evo_model_read(models[i]->name, &id) || looked_at(self, id))
            continue;
        status = add(self, store, models[i]->name);
        if (status == LIG_E_NOTFOUND) /* retired since */
            status = LIG_OK;
    }
    lig_models_destroy(models, count);
    return status;
}

static lig_status add_all(ligi_evo_sources *self)
{
    for (size_t i = 0; i < self->state->store_count; i++)
        LIG_TRY(add_all_of(self, self->state->stores[i]));
    self->all = 1;
    return LIG_OK;
}

/* --- tensors --- */

static int has(const ligi_evo_known *known, uint64_t lid, uint64_t owner, ligi_evo_source *source)
{
    const ligi_evo_entry *entry =
        known ? ligi_evo_composition_find(&known->composition, lid) : NULL;
    if (entry == NULL || entry->owner != owner || !entry->covered)
        return 0;
    *source = (ligi_evo_source){known, entry};
    return 1;
}

/* `hint` NULL: any lease. The latest first: a model may have been replaced. */
static int held(const ligi_evo_state *state, const uint64_t *hint, uint64_t lid, uint64_t owner,
                ligi_evo_source *source)
{
    for (size_t i = state->held_count; i-- > 0;)
        if ((hint == NULL || state->held[i].id == *hint) &&
            has(&state->held[i], lid, owner, source))
            return 1;
    return 0;
}

static lig_status in_model(ligi_evo_sources *self, uint64_t id, uint64_t lid, uint64_t owner,
                           ligi_evo_source *source, int *found)
{
    const ligi_evo_known *known;
    LIG_TRY(ligi_evo_sources_model(self, id, &known));
    *found = has(known, lid, owner, source);
    return LIG_OK;
}

lig_status ligi_evo_sources_find(ligi_evo_sources *self, uint64_t hint, uint64_t lid,
                                 uint64_t owner, ligi_evo_source *source)
{
    int found = 0;
    if (held(self->state, &hint, lid, owner, source))
        return LIG_OK;
    LIG_TRY(in_model(self, hint, lid, owner, source, &found));
    if (found || held(self->state, NULL, lid, owner, source))
        return LIG_OK;
    LIG_TRY(in_model(self, owner, lid, owner, source, &found));
    if (found)
        return LIG_OK;
    *source = (ligi_evo_source){NULL, NULL};
    if (owner == 0) /* the result of get_composition for a tensor that a model lacks */
        return LIG_OK;
    if (!self->all)
        LIG_TRY(add_all(self));
    for (size_t i = 0; i < self->count; i++)
        if (has(self->known[i], lid, owner, source))
            return LIG_OK;
    return lig_fail(LIG_E_NOTFOUND,
                    "tensor %" PRIu64 " of model %" PRIu64
                    ": no stored model refers to it (was it saved, or retired with its last user?)",
                    lid, owner);
}

lig_status ligi_evo_source_load(const ligi_evo_known *known, const lig_tensor *tensors,
                                size_t count)
{
    if (known->matches)
        return lig_store_load_match(known->store, known->matches[0], tensors, count);
    return lig_ref_load(known->ref, tensors, count);
}

/* --- reading --- */

static lig_status read_group(const ligi_evo_source *found, const ligi_evo_read *reads, size_t count,
                             size_t first, lig_tensor *tensors)
{
    const ligi_evo_known *known = found[first].known;
    size_t used = 0;
    for (size_t i = first; i < count; i++) {
        if (found[i].known != known || !found[i].entry->stored)
            continue;
        const lig_tensor *stored = &known->model->tensors[found[i].entry->tensor].tensor;
        tensors[used] = reads[i].into;
        if (tensors[used].dtype == LIG_DTYPE_NONE) { /* bytes alone: they are what is stored */
            tensors[used] = *stored;
            tensors[used].data = reads[i].into.data;
        }
        tensors[used++].name = stored->name;
    }
    return used ? ligi_evo_source_load(known, tensors, used) : LIG_OK;
}

static int is_first(const ligi_evo_source *found, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (found[i].known == found[at].known)
            return 0;
    return 1;
}

static lig_status read_all(ligi_evo_sources *self, uint64_t hint, const ligi_evo_read *reads,
                           size_t count, ligi_evo_source *found, lig_tensor *tensors)
{
    for (size_t i = 0; i < count; i++)
        LIG_TRY(ligi_evo_sources_find(self, hint, reads[i].lid, reads[i].owner, &found[i]));
    for (size_t i = 0; i < count; i++)
        if (found[i].known && is_first(found, i))
            LIG_TRY(read_group(found, reads, count, i, tensors));
    return LIG_OK;
}

lig_status ligi_evo_sources_read(ligi_evo_sources *self, uint64_t hint, const ligi_evo_read *reads,
                                 size_t count)
{
    ligi_evo_source *found = calloc(count + 1, sizeof *found);
    lig_tensor *tensors = calloc(count + 1, sizeof *tensors);
    lig_status status = found && tensors
                            ? read_all(self, hint, reads, count, found, tensors)
                            : lig_fail(LIG_E_NOMEM, "out of memory reading %zu tensors", count);
    free(found);
    free(tensors);
    return status;
}
