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

static uint64_t *add_room(ligi_evo_state *state, size_t count)
{
    size_t all = state->taken_count + count;
    uint64_t *grown = realloc(state->taken, (all + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    state->taken = grown;
    state->taken_count = all;
    return grown + all - count;
}

static lig_status out_of_memory(void)
{
    return lig_fail(LIG_E_NOMEM, "out of memory for time stamps");
}

static lig_status take_served(ligi_evo_state *state, lig_store *store, const char *operation)
{
    int64_t *stamps;
    size_t count;
    LIG_TRY(lig_store_time_stamps(store, operation, &stamps, &count));
    uint64_t *out = add_room(state, count);
    for (size_t i = 0; out && i < count; i++)
        out[i] = (uint64_t)stamps[i] / 1000;
    lig_time_stamps_destroy(stamps);
    return out ? LIG_OK : out_of_memory();
}

static lig_status take_own(ligi_evo_state *state, const ligi_evo_stamps *stamps)
{
    uint64_t *out = add_room(state, 2 * stamps->count);
    if (out == NULL)
        return out_of_memory();
    ligi_evo_stamps_copy(stamps, out);
    return LIG_OK;
}

static lig_status take(ligi_evo_state *state, ligi_evo_call call, int served)
{
    if (!served || operations[call] == NULL)
        return take_own(state, &state->stamps[call]);
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
        state->stamps[call].count = 0;
        state->stamps[call].next = 0;
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
