#include "backend/s3/client/s3_parallel.h"

#include <stdlib.h>
#include <string.h>

typedef struct parallel_state {
    const ligi_s3_work *work;
    ligi_s3_batch batch;
    ligi_s3_slot *slots;
    unsigned slot_count;
    size_t next;
} parallel_state;

static void start_next(parallel_state *state, ligi_s3_slot *slot)
{
    memset(slot, 0, sizeof *slot);
    slot->index = state->next++;
    state->work->prepare(state->work->context, slot);
    slot->transfer.context = slot;
    ligi_s3_batch_start(&state->batch, &slot->transfer);
}

/* What is still in flight writes into the caller's memory: it has to end. */
static void abandon(parallel_state *state)
{
    ligi_s3_transfer *transfer;

    for (unsigned i = 0; i < state->slot_count; i++)
        if (state->slots[i].transfer.context != NULL)
            ligi_s3_batch_cancel(&state->batch, &state->slots[i].transfer);
    while ((transfer = ligi_s3_batch_next(&state->batch)) != NULL)
        free(transfer->received);
}

static lig_status drive(parallel_state *state)
{
    const ligi_s3_work *work = state->work;
    ligi_s3_transfer *transfer;

    for (unsigned i = 0; i < state->slot_count && state->next < work->count; i++)
        start_next(state, &state->slots[i]);
    while ((transfer = ligi_s3_batch_next(&state->batch)) != NULL) {
        ligi_s3_slot *slot = transfer->context;
        lig_status status = work->ended(work->context, slot);
        free(transfer->received);
        transfer->context = NULL;
        if (status != LIG_OK) {
            abandon(state);
            return status;
        }
        if (state->next < work->count)
            start_next(state, slot);
    }
    return LIG_OK;
}

lig_status ligi_s3_parallel(ligi_s3_client *client, const ligi_s3_work *work)
{
    parallel_state state = {.work = work};

    if (work->count == 0)
        return LIG_OK;
    state.slot_count = work->count < work->window ? (unsigned)work->count : work->window;
    state.slots = calloc(state.slot_count, sizeof *state.slots);
    if (state.slots == NULL)
        return ligi_s3_client_host(client)->fail(LIG_E_NOMEM, "s3: out of memory");
    ligi_s3_batch_init(&state.batch, client);
    lig_status status = drive(&state);
    ligi_s3_batch_fini(&state.batch);
    free(state.slots);
    return status;
}
