#include "evo_served.h"

#include <ligament/serve.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The server's operation behind each function. Clients read for themselves. */
static const char *const operations[EVO_CALLS] = {
    [EVO_GET_COMPOSITION] = "lookup", [EVO_GET_PREFIX] = "find",
    [EVO_READ_LAYERS] = NULL,         [EVO_STORE_LAYERS] = "write",
    [EVO_STORE_META] = "commit",      [EVO_UPDATE_REF_COUNTER] = "retire"};

static int is_served(const char *text)
{
    char uri[LIG_SERVED_URI_BYTES];
    return lig_served_uri(text, uri, sizeof uri) == LIG_OK && strncasecmp(uri, "ligament:", 9) == 0;
}

int ligi_evo_served_all(const ligi_evo_state *state)
{
    for (size_t at = 0; at < state->servers_bytes; at += strlen(state->servers + at) + 1)
        if (!is_served(state->servers + at))
            return 0;
    return state->servers_bytes != 0;
}

/* --- time stamps --- */

ligi_evo_call ligi_evo_call_named(const char *name)
{
    static const char *const names[EVO_CALLS] = {"get_composition", "get_prefix",
                                                 "read_layers",     "store_layers",
                                                 "store_meta",      "update_ref_counter"};
    int call = 0;
    while (call < EVO_CALLS && (name == NULL || strcmp(names[call], name) != 0))
        call++;
    return (ligi_evo_call)call;
}

static int64_t *add_room(ligi_evo_state *state, size_t count)
{
    size_t all = state->taken_count + count;
    int64_t *grown = realloc(state->taken, (all + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    state->taken = grown;
    state->taken_count = all;
    return grown + all - count;
}

static lig_status out_of_memory(void)
{
    return lig_fail(LIG_E_NOMEM, "out of memory for timestamps");
}

static lig_status take_served(ligi_evo_state *state, lig_store *store, const char *operation)
{
    int64_t *stamps;
    size_t count;
    LIG_TRY(lig_store_time_stamps(store, operation, &stamps, &count));
    int64_t *out = add_room(state, count);
    if (out)
        memcpy(out, stamps, count * sizeof *out);
    lig_time_stamps_destroy(stamps);
    return out ? LIG_OK : out_of_memory();
}

static lig_status take_own(ligi_evo_state *state, const ligi_stamps_ring *times)
{
    int64_t *out = add_room(state, 2 * times->count);
    if (out == NULL)
        return out_of_memory();
    ligi_stamps_ring_copy(times, out);
    return LIG_OK;
}

static lig_status take(ligi_evo_state *state, ligi_evo_call call, int served)
{
    if (!served || operations[call] == NULL)
        return take_own(state, &state->times[call]);
    for (size_t i = 0; i < state->store_count; i++)
        LIG_TRY(take_served(state, state->stores[i], operations[call]));
    return LIG_OK;
}

/* Drops what was taken before. If all stores are served, opens them. */
static lig_status begin_stamps(ligi_evo_state *state, int *served)
{
    *served = ligi_evo_served_all(state);
    ligi_evo_taken_drop(state);
    return *served ? ligi_evo_state_open(state) : LIG_OK;
}

lig_status ligi_evo_stamps_take(ligi_evo_state *state, ligi_evo_call first, ligi_evo_call end)
{
    int served;
    LIG_TRY(begin_stamps(state, &served));
    lig_status status = LIG_OK;
    for (int call = (int)first; call < (int)end && status == LIG_OK; call++)
        status = take(state, (ligi_evo_call)call, served);
    if (status != LIG_OK)
        ligi_evo_taken_drop(state);
    else
        state->taken_first = first, state->taken_end = end;
    return status;
}

lig_status ligi_evo_stamps_clear(ligi_evo_state *state, ligi_evo_call first, ligi_evo_call end)
{
    int served;
    LIG_TRY(begin_stamps(state, &served));
    for (int call = (int)first; call < (int)end; call++) {
        state->times[call].count = state->times[call].oldest = 0;
        for (size_t i = 0; served && operations[call] && i < state->store_count; i++)
            LIG_TRY(lig_store_clear_time_stamps(state->stores[i], operations[call]));
    }
    return LIG_OK;
}

/* --- shutdown --- */

static int is_gone(lig_status status)
{
    return status == LIG_E_PEER || status == LIG_E_CLOSED;
}

lig_status ligi_evo_served_stop(ligi_evo_state *state)
{
    if (state->stopped)
        return LIG_OK;
    lig_status result = ligi_evo_served_all(state) ? ligi_evo_state_open(state) : LIG_OK;
    if (result != LIG_OK)
        return is_gone(result) ? LIG_OK : result;
    for (size_t i = 0; i < state->store_count && result == LIG_OK; i++) {
        lig_status status = lig_store_shutdown_server(state->stores[i]);
        if (status != LIG_E_UNSUPPORTED && !is_gone(status))
            result = status;
    }
    state->stopped = result == LIG_OK;
    return result;
}
