#include "evo_state.h"

#include <ligament/serve.h>

#include <stdlib.h>
#include <string.h>

/* --- models whose composition is known --- */

lig_status ligi_evo_known_open(lig_store *store, const char *name, ligi_evo_known *out)
{
    ligi_evo_known made = {.store = store};
    if (!ligi_evo_model_read(name, &made.id))
        return lig_fail(LIG_E_NOTFOUND, "model '%s' is not an EvoStore model", name);
    LIG_TRY(lig_store_resolve(store, name, &made.ref));
    made.model = lig_ref_model(made.ref);
    lig_status status = ligi_evo_composition_of(made.model, &made.composition);
    if (status == LIG_OK)
        *out = made;
    else
        lig_ref_release(made.ref);
    return status;
}

/* The match holds the tensors of the layers in common, and no others. */
static lig_status mark_covered(const lig_match *match, ligi_evo_composition *composition)
{
    unsigned char *held = calloc(match->model->tensor_count + 1, 1);
    if (held == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the match with model '%s'",
                        match->model->name);
    for (size_t i = 0; i < match->tensor_count; i++)
        held[match->tensors[i].stored] = 1;
    for (size_t i = 0; i < composition->count; i++)
        composition->entries[i].covered = held[composition->entries[i].tensor];
    free(held);
    return LIG_OK;
}

static lig_status lease(ligi_evo_known *known)
{
    if (!ligi_evo_model_read(known->model->name, &known->id))
        return lig_fail(LIG_E_CORRUPT,
                        "model '%s' has an EvoStore graph, but its name is not a number",
                        known->model->name);
    LIG_TRY(ligi_evo_composition_of(known->model, &known->composition));
    return mark_covered(known->matches[0], &known->composition);
}

lig_status ligi_evo_known_lease(lig_store *store, lig_match **matches, ligi_evo_known *out)
{
    ligi_evo_known made = {.store = store, .matches = matches, .model = matches[0]->model};
    lig_status status = lease(&made);
    if (status == LIG_OK)
        *out = made;
    else
        ligi_evo_known_close(&made);
    return status;
}

void ligi_evo_known_close(ligi_evo_known *known)
{
    if (known->matches)
        lig_matches_destroy(known->matches, 1);
    lig_ref_release(known->ref);
    ligi_evo_composition_fini(&known->composition);
    *known = (ligi_evo_known){0};
}

/* --- what is held --- */

void ligi_evo_state_release(ligi_evo_state *state, size_t index)
{
    ligi_evo_known_close(&state->held[index]);
    state->held_count--;
    memmove(&state->held[index], &state->held[index + 1],
            (state->held_count - index) * sizeof state->held[0]);
}

void ligi_evo_state_hold(ligi_evo_state *state, const ligi_evo_known *known)
{
    if (state->held_count == EVO_HELD_MAX)
        ligi_evo_state_release(state, 0);
    state->held[state->held_count++] = *known;
}

void ligi_evo_state_drop_part(ligi_evo_state *state, size_t index)
{
    ligi_evo_part *part = &state->parts[index];
    lig_part_close(part->part, state->store_count ? ligi_evo_state_store(state, part->id) : NULL);
    free(part->lids);
    state->part_count--;
    memmove(part, part + 1, (state->part_count - index) * sizeof *part);
}

void ligi_evo_state_drop_parts(ligi_evo_state *state, uint64_t id)
{
    for (size_t i = state->part_count; i-- > 0;)
        if (state->parts[i].id == id)
            ligi_evo_state_drop_part(state, i);
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

int ligi_evo_state_staged(const ligi_evo_state *state, uint64_t id, uint64_t lid)
{
    for (size_t i = 0; i < state->part_count; i++) {
        const ligi_evo_part *part = &state->parts[i];
        if (part->id == id && part->count &&
            bsearch(&lid, part->lids, part->count, sizeof lid, by_value))
            return 1;
    }
    return 0;
}

/* --- stores --- */

lig_store *ligi_evo_state_store(const ligi_evo_state *state, uint64_t id)
{
    return state->stores[id % state->store_count];
}

void ligi_evo_taken_drop(ligi_evo_state *state)
{
    free(state->taken);
    state->taken = NULL;
    state->taken_count = 0;
}

void ligi_evo_state_close(ligi_evo_state *state)
{
    while (state->held_count)
        ligi_evo_state_release(state, state->held_count - 1);
    while (state->part_count)
        ligi_evo_state_drop_part(state, state->part_count - 1);
    free(state->parts);
    state->parts = NULL;
    for (size_t i = 0; i < state->store_count; i++)
        lig_store_close(state->stores[i]);
    ligi_evo_taken_drop(state);
    free(state->stores);
    state->stores = NULL;
    state->store_count = 0;
}

void ligi_evo_state_forget(ligi_evo_state *state)
{
    state->held_count = 0;
    state->parts = NULL;
    state->part_count = 0;
    state->stores = NULL;
    state->store_count = 0;
    state->taken = NULL;
    state->taken_count = 0;
}

lig_status ligi_evo_state_servers(ligi_evo_state *state, const char *servers, size_t size)
{
    size_t used = 0;
    if (servers == NULL && size != 0)
        return lig_fail(LIG_E_INVALID, "the list of stores is NULL");
    char *list = calloc(size + 1, 1);
    if (list == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the names of stores");
    for (size_t at = 0; at < size;) {
        size_t length = strnlen(servers + at, size - at);
        memcpy(list + used, servers + at, length);
        used += length ? length + 1 : 0;
        at += length + 1;
    }
    if (used == 0) {
        free(list);
        return lig_fail(LIG_E_INVALID, "no store given: pass its path or URI");
    }
    if (state->servers && state->servers_bytes == used && memcmp(state->servers, list, used) == 0) {
        free(list);
        return LIG_OK;
    }
    ligi_evo_state_close(state);
    free(state->servers);
    state->servers = list;
    state->stopped = 0;
    state->servers_bytes = used;
    return LIG_OK;
}

static lig_status open_all(ligi_evo_state *state)
{
    size_t count = 0;
    for (size_t at = 0; at < state->servers_bytes; at += strlen(state->servers + at) + 1)
        count++;
    state->stores = calloc(count, sizeof *state->stores);
    if (state->stores == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for %zu stores", count);
    for (const char *uri = state->servers; state->store_count < count; uri += strlen(uri) + 1) {
        char found[LIG_SERVED_URI_BYTES];
        LIG_TRY(lig_served_uri(uri, found, sizeof found));
        LIG_TRY(lig_store_open(&state->stores[state->store_count], found));
        state->store_count++;
    }
    return LIG_OK;
}

lig_status ligi_evo_state_open(ligi_evo_state *state)
{
    if (state->store_count)
        return LIG_OK;
    if (state->servers == NULL)
        return lig_fail(LIG_E_INVALID,
                        "no store given: call set_servers with its path or URI (in Python: "
                        "hosts=[...] or the environment variable LIGAMENT_STORE)");
    lig_status status = open_all(state);
    state->stopped = 0;
    if (status != LIG_OK)
        ligi_evo_state_close(state);
    return status;
}
