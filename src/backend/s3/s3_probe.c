#include "backend/s3/s3_probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_requests.h"
#include "backend/s3/s3_names.h"

#define PROBES 8
#define ROUNDS 3 /* lost answers say nothing: the next round has another key */

typedef struct probe_state {
    ligi_s3 *s3;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    unsigned written, refused, unclear;
    char why[512]; /* the last one was unclear */
} probe_state;

static void prepare_probe(void *context, ligi_s3_slot *slot)
{
    probe_state *state = context;

    slot->transfer = ligi_s3_request("PUT", state->key, state->s3->timeout_ns);
    slot->transfer.body = "probe";
    slot->transfer.body_bytes = 5;
    slot->transfer.if_absent = 1;
}

static lig_status count_probe(void *context, ligi_s3_slot *slot)
{
    probe_state *state = context;
    const ligi_s3_answer *answer = &slot->transfer.answer;

    switch (ligi_s3_answer_put_reply(answer)) {
    case LIGI_REPLY_WRITTEN: state->written++; return LIG_OK;
    case LIGI_REPLY_EXISTS: state->refused++; return LIG_OK;
    case LIGI_REPLY_AGAIN: state->refused += answer->http == 409; return LIG_OK;
    case LIGI_REPLY_LOST:
        state->unclear++;
        (void)ligi_s3_client_fail(state->s3->client, &slot->transfer, "cannot write");
        snprintf(state->why, sizeof state->why, "%s", state->s3->host->error_text());
        return LIG_OK;
    default: break;
    }
    /* A server that does not know the header may also refuse the request. */
    if (answer->http == 501 || answer->http == 400) {
        state->written = PROBES;
        return LIG_OK;
    }
    return ligi_s3_client_fail(state->s3->client, &slot->transfer, "cannot write");
}

static lig_status probe_round(ligi_s3 *s3, probe_state *state)
{
    uint64_t name;

    *state = (probe_state){.s3 = s3};
    LIG_TRY(s3->host->random(&name, sizeof name));
    snprintf(state->key, sizeof state->key, "probe/%016" PRIx64, name);
    lig_status status = ligi_s3_parallel(s3->client, &(ligi_s3_work){.count = PROBES,
                                                                     .window = PROBES,
                                                                     .prepare = prepare_probe,
                                                                     .ended = count_probe,
                                                                     .context = state});
    if (status == LIG_OK)
        status = ligi_s3_delete(s3->client, state->key, s3->timeout_ns);
    return status;
}

static lig_status probe(ligi_s3 *s3)
{
    const ligi_s3_place *place = ligi_s3_client_place(s3->client);
    probe_state state;

    for (int round = 0; round < ROUNDS; round++) {
        LIG_TRY(probe_round(s3, &state));
        if (state.written == 1 && state.refused == PROBES - 1)
            return LIG_OK;
        if (state.written > 1)
            return s3->host->fail(
                LIG_E_UNSUPPORTED,
                "s3: conditional writes (If-None-Match: *) do not work for bucket '%s' at %s: %u "
                "of "
                "%d simultaneous writes of one object succeeded, so several writers would "
                "overwrite "
                "each other's commits (let 'ligament serve' be the only writer, with "
                "?writer=single, or use an unversioned bucket of a server that supports them; "
                "reading works with ?mode=r)",
                place->bucket, place->host, state.written, PROBES);
    }
    return s3->host->fail(LIG_E_IO, "%s (%u of %d requests had no valid response)", state.why,
                          state.unclear, PROBES);
}

/* 1 if an earlier probe at this endpoint succeeded: a bucket may have been copied since. */
static lig_status read_result(ligi_s3 *s3, int *works)
{
    const char *endpoint = ligi_s3_client_place(s3->client)->host;
    ligi_s3_small object;

    *works = 0;
    lig_status status = ligi_s3_get(s3->client, LIGI_S3_CONDITIONAL, 1024, s3->timeout_ns, &object);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    *works = object.bytes == strlen(endpoint) && memcmp(object.data, endpoint, object.bytes) == 0;
    free(object.data);
    return LIG_OK;
}

lig_status ligi_s3_probe_ensure(ligi_s3 *s3)
{
    const char *endpoint = ligi_s3_client_place(s3->client)->host;
    int works;

    pthread_mutex_lock(&s3->lock);
    int known = s3->conditional || s3->single_writer;
    pthread_mutex_unlock(&s3->lock);
    if (known)
        return LIG_OK;
    LIG_TRY(read_result(s3, &works));
    if (!works) {
        LIG_TRY(probe(s3));
        LIG_TRY(ligi_s3_put(s3->client, LIGI_S3_CONDITIONAL, endpoint, strlen(endpoint),
                            s3->timeout_ns));
    }
    pthread_mutex_lock(&s3->lock);
    s3->conditional = 1;
    pthread_mutex_unlock(&s3->lock);
    return LIG_OK;
}
