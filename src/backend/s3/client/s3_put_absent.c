#include "backend/s3/client/s3_put_absent.h"

#include <stdlib.h>
#include <string.h>

#include "backend/remote/format/numbered_commit.h"
#include "backend/s3/client/s3_requests.h"
#include "base/clock.h"

#define ATTEMPT_NS INT64_C(15000000000) /* of one request: an answer later than this is lost */

static int64_t within(int64_t until)
{
    int64_t left = ligi_time_left(until);

    return left < ATTEMPT_NS ? left : ATTEMPT_NS;
}

/* The object's id and nothing else is needed: GET of a range would fail for an empty object. */
static ligi_commit_reply look(ligi_s3_client *client, const ligi_s3_absent *object, int64_t until,
                              ligi_s3_transfer *last)
{
    char id[LIGI_RECORD_ID_BYTES];
    struct iovec into = {id, sizeof id};

    *last = ligi_s3_request("GET", object->key, within(until));
    last->range_bytes = sizeof id;
    last->into = &into;
    last->into_count = 1;
    ligi_s3_client_perform(client, last);
    last->into = NULL;
    if (last->answer.link == LIGI_S3_LINK_OK && last->answer.http == 404 &&
        strcmp(last->answer.code, "NoSuchBucket") != 0)
        return LIGI_REPLY_ABSENT;
    if (last->answer.link == LIGI_S3_LINK_OK && last->answer.http == 416)
        return LIGI_REPLY_OTHERS;
    if (ligi_s3_answer_verdict(&last->answer) != LIGI_S3_DONE)
        return LIGI_REPLY_LOST;
    return last->filled_bytes == sizeof id && memcmp(id, object->data, sizeof id) == 0
               ? LIGI_REPLY_MINE
               : LIGI_REPLY_OTHERS;
}

typedef struct put_times {
    int64_t sign_ns, until;
} put_times;

static ligi_commit_reply send_object(ligi_s3_client *client, const ligi_s3_absent *object,
                                     const put_times *times, ligi_s3_transfer *last)
{
    if (object->unconditional) {
        ligi_commit_reply there = look(client, object, times->until, last);
        if (there == LIGI_REPLY_MINE)
            return LIGI_REPLY_WRITTEN;
        if (there != LIGI_REPLY_ABSENT)
            return there == LIGI_REPLY_OTHERS ? LIGI_REPLY_EXISTS : LIGI_REPLY_LOST;
    }
    *last = ligi_s3_request("PUT", object->key, within(times->until));
    last->body = object->data;
    last->body_bytes = object->bytes;
    last->if_absent = !object->unconditional;
    last->attempts_max = 1;
    last->sign_ns = times->sign_ns;
    ligi_s3_client_perform(client, last);
    return ligi_s3_answer_put_reply(&last->answer);
}

static lig_status outcome(ligi_s3_client *client, const ligi_s3_absent *object,
                          ligi_commit_next next, const ligi_s3_transfer *last)
{
    const ligi_engine_host *host = ligi_s3_client_host(client);
    const ligi_s3_place *place = ligi_s3_client_place(client);

    switch (next) {
    case LIGI_COMMIT_DONE: return LIG_OK;
    case LIGI_COMMIT_BUSY: return LIG_E_BUSY;
    case LIGI_COMMIT_UNKNOWN:
        return host->fail(LIG_E_IO,
                          "s3: whether s3://%s/%s%s was written is unknown: no valid response from "
                          "%s (open the store again to find out)",
                          place->bucket, place->prefix, object->key, place->host);
    default: break;
    }
    lig_status status = ligi_s3_client_fail(client, last, "cannot write");
    /* LIG_E_IO would mean that the outcome is unknown. */
    return status != LIG_E_IO
               ? status
               : host->fail(LIG_E_TIMEOUT, "%s (nothing was written)", host->error_text());
}

lig_status ligi_s3_put_absent(ligi_s3_client *client, const ligi_s3_absent *object)
{
    ligi_numbered_commit commit;
    ligi_s3_transfer last = {.answer = {.link = LIGI_S3_LINK_UNSENT}};
    int64_t until = ligi_time_until(object->timeout_ns), start = ligi_date_ns();
    int fenced = object->fresh_ns > 0;

    ligi_numbered_commit_begin(&commit, fenced ? object->seen_ns : start,
                               fenced ? object->fresh_ns : INT64_MAX / 4);
    for (unsigned attempt = 0;; attempt++) {
        put_times times = {ligi_date_ns(), until};
        ligi_commit_next next =
            ligi_numbered_commit_next(&commit, times.sign_ns, ligi_time_left(until) == 0);
        if (next != LIGI_COMMIT_PUT && next != LIGI_COMMIT_GET)
            return outcome(client, object, next, &last);
        ligi_commit_reply reply = next == LIGI_COMMIT_PUT
                                      ? send_object(client, object, &times, &last)
                                      : look(client, object, until, &last);
        if (object->removable && reply == LIGI_REPLY_ABSENT && commit.conflicted)
            return LIG_E_BUSY;
        ligi_numbered_commit_reply(&commit, reply);
        if (reply == LIGI_REPLY_AGAIN || (reply == LIGI_REPLY_LOST && next == LIGI_COMMIT_GET) ||
            reply == LIGI_REPLY_ABSENT) {
            int64_t pause =
                ligi_s3_answer_pause_ns(&last.answer, attempt + 1, ligi_s3_client_random(client));
            int64_t left = ligi_time_left(until);
            ligi_s3_client_pause(pause < left ? pause : left);
        }
    }
}
