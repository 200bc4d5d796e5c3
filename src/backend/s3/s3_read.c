#include "backend/s3/s3_read.h"

#include <stdlib.h>

#include "backend/s3/client/s3_requests.h"
#include "backend/s3/s3_names.h"

#define GAP_BYTES_MAX (UINT64_C(128) << 10) /* cheaper to read than another request */

/* --- the plan ------------------------------------------------------------------------------- */

static int grow(void **array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return 1;
    size_t wider = *capacity * 2 > need ? *capacity * 2 : need + 16;
    void *memory = realloc(*array, wider * size);
    if (memory == NULL)
        return 0;
    *array = memory;
    *capacity = wider;
    return 1;
}

static int add_part(ligi_s3_plan *plan, void *data, uint64_t bytes)
{
    void *parts = plan->parts;
    int grown = grow(&parts, &plan->part_capacity, plan->part_count + 1, sizeof *plan->parts);

    plan->parts = parts;
    if (!grown)
        return 0;
    plan->parts[plan->part_count++] = (struct iovec){data, (size_t)bytes};
    ligi_s3_fetch *fetch = &plan->fetches[plan->fetch_count - 1];
    fetch->bytes += bytes;
    fetch->part_count++;
    return 1;
}

static int add_fetch(ligi_s3_plan *plan, uint64_t from, size_t range)
{
    void *fetches = plan->fetches;
    int grown = grow(&fetches, &plan->fetch_capacity, plan->fetch_count + 1, sizeof *plan->fetches);

    plan->fetches = fetches;
    if (!grown)
        return 0;
    plan->fetches[plan->fetch_count++] =
        (ligi_s3_fetch){.from = from, .part = plan->part_count, .range = range};
    return 1;
}

/* 1 if the next bytes, at `offset`, can be part of the last request. */
static int joins(const ligi_s3_plan *plan, uint64_t offset)
{
    if (plan->fetch_count == 0)
        return 0;
    const ligi_s3_fetch *last = &plan->fetches[plan->fetch_count - 1];
    uint64_t end = last->from + last->bytes;
    return offset >= end && offset - end <= GAP_BYTES_MAX &&
           offset - last->from < LIGI_S3_RANGE_BYTES;
}

static int plan_range(ligi_s3_plan *plan, const ligi_object_range *range, size_t index)
{
    uint64_t done = 0;

    while (done < range->bytes) {
        uint64_t offset = range->offset + done;
        if (!joins(plan, offset) && !add_fetch(plan, offset, index))
            return 0;
        ligi_s3_fetch *fetch = &plan->fetches[plan->fetch_count - 1];
        uint64_t gap = offset - (fetch->from + fetch->bytes);
        if (gap > 0 && !add_part(plan, NULL, gap))
            return 0;
        uint64_t room = LIGI_S3_RANGE_BYTES - fetch->bytes, left = range->bytes - done;
        uint64_t bytes = left < room ? left : room;
        if (!add_part(plan, (char *)range->data + done, bytes))
            return 0;
        fetch->range_count = index - fetch->range + 1;
        done += bytes;
    }
    return 1;
}

int ligi_s3_plan_make(const ligi_object_range *ranges, size_t count, ligi_s3_plan *plan)
{
    *plan = (ligi_s3_plan){0};
    for (size_t i = 0; i < count; i++)
        if (!plan_range(plan, &ranges[i], i)) {
            ligi_s3_plan_fini(plan);
            return 0;
        }
    return 1;
}

void ligi_s3_plan_fini(ligi_s3_plan *plan)
{
    free(plan->fetches);
    free(plan->parts);
    *plan = (ligi_s3_plan){0};
}

/* --- reading -------------------------------------------------------------------------------- */

typedef struct read_state {
    ligi_s3 *s3;
    ligi_s3_plan plan;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint32_t *missing; /* requests that a range waits for */
    ligi_object_arrived arrived;
    void *context;
} read_state;

static void prepare_fetch(void *context, ligi_s3_slot *slot)
{
    read_state *state = context;
    const ligi_s3_fetch *fetch = &state->plan.fetches[slot->index];

    slot->transfer = ligi_s3_request("GET", state->key, state->s3->timeout_ns);
    slot->transfer.bulk = 1;
    slot->transfer.range_from = fetch->from;
    slot->transfer.range_bytes = fetch->bytes;
    slot->transfer.into = state->plan.parts + fetch->part;
    slot->transfer.into_count = fetch->part_count;
}

static lig_status take_fetch(void *context, ligi_s3_slot *slot)
{
    read_state *state = context;
    const ligi_s3_fetch *fetch = &state->plan.fetches[slot->index];
    const ligi_s3_answer *answer = &slot->transfer.answer;
    ligi_s3 *s3 = state->s3;

    int short_answer = answer->link == LIGI_S3_LINK_OK &&
                       (answer->http == 416 ||
                        (answer->http == 206 && slot->transfer.filled_bytes != fetch->bytes));
    if (short_answer)
        return s3->host->fail(LIG_E_CORRUPT, "s3: s3://%s/%s%s ends before byte %llu",
                              ligi_s3_client_place(s3->client)->bucket,
                              ligi_s3_client_place(s3->client)->prefix, state->key,
                              (unsigned long long)(fetch->from + fetch->bytes));
    lig_status status = ligi_s3_result(s3->client, &slot->transfer, "cannot read");
    if (status == LIG_E_NOTFOUND)
        return ligi_s3_client_fail(s3->client, &slot->transfer, "cannot read");
    LIG_TRY(status);
    if (slot->transfer.filled_bytes != fetch->bytes)
        return s3->host->fail(LIG_E_IO,
                              "s3: cannot read s3://%s/%s: the server ignores the Range header",
                              ligi_s3_client_place(s3->client)->bucket, state->key);
    for (size_t i = 0; i < fetch->range_count; i++)
        if (--state->missing[fetch->range + i] == 0 && state->arrived != NULL)
            LIG_TRY(state->arrived(state->context, fetch->range + i));
    return LIG_OK;
}

/* Ranges without bytes wait for nothing. */
static lig_status count_missing(read_state *state, const ligi_object_range *ranges, size_t count)
{
    state->missing = calloc(count, sizeof *state->missing);
    if (state->missing == NULL)
        return state->s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    for (size_t i = 0; i < state->plan.fetch_count; i++)
        for (size_t j = 0; j < state->plan.fetches[i].range_count; j++)
            if (ranges[state->plan.fetches[i].range + j].bytes > 0)
                state->missing[state->plan.fetches[i].range + j]++;
    for (size_t i = 0; i < count; i++)
        if (ranges[i].bytes == 0) {
            state->missing[i] = UINT32_MAX;
            if (state->arrived != NULL)
                LIG_TRY(state->arrived(state->context, i));
        }
    return LIG_OK;
}

lig_status ligi_s3_object_read(void *self, ligi_object object, const ligi_object_range *ranges,
                               size_t count, ligi_object_arrived arrived, void *context)
{
    ligi_s3 *s3 = self;
    read_state state = {.s3 = s3, .arrived = arrived, .context = context};

    if (count == 0)
        return LIG_OK;
    ligi_s3_name_object(object, state.key);
    if (!ligi_s3_plan_make(ranges, count, &state.plan))
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    lig_status status = count_missing(&state, ranges, count);
    if (status == LIG_OK)
        status = ligi_s3_parallel(s3->client,
                                  &(ligi_s3_work){.count = state.plan.fetch_count,
                                                  .window = ligi_s3_client_connections(s3->client),
                                                  .prepare = prepare_fetch,
                                                  .ended = take_fetch,
                                                  .context = &state});
    ligi_s3_plan_fini(&state.plan);
    free(state.missing);
    return status;
}

lig_status ligi_s3_object_size(void *self, ligi_object object, uint64_t *bytes)
{
    ligi_s3 *s3 = self;
    ligi_s3_transfer transfer;
    char key[LIGI_S3_SHORT_KEY_BYTES];

    ligi_s3_name_object(object, key);
    transfer = ligi_s3_request("HEAD", key, s3->timeout_ns);
    lig_status status = ligi_s3_execute(s3->client, &transfer, "cannot find");
    if (status == LIG_E_NOTFOUND)
        return ligi_s3_client_fail(s3->client, &transfer, "cannot find");
    LIG_TRY(status);
    *bytes = transfer.answer.total_bytes;
    return LIG_OK;
}
