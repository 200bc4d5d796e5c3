#include "backend/s3/client/s3_requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/wire/s3_text.h"
#include "base/clock.h"

#define LIST_BYTES_MAX (UINT64_C(8) << 20)
#define QUERY_BYTES 4096

ligi_s3_transfer ligi_s3_request(const char *method, const char *key, int64_t timeout_ns)
{
    return (ligi_s3_transfer){
        .method = method, .key = key, .deadline_ns = ligi_time_until(timeout_ns)};
}

lig_status ligi_s3_result(ligi_s3_client *client, const ligi_s3_transfer *transfer,
                          const char *what)
{
    const ligi_s3_answer *answer = &transfer->answer;

    if (ligi_s3_answer_verdict(answer) == LIGI_S3_DONE)
        return LIG_OK;
    int no_bucket = strcmp(answer->code, "NoSuchBucket") == 0;
    if (answer->link == LIGI_S3_LINK_OK && answer->http == 404 && !no_bucket &&
        strcmp(answer->code, "NoSuchUpload") != 0)
        return LIG_E_NOTFOUND;
    lig_status status = ligi_s3_client_fail(client, transfer, what);
    /* LIG_E_NOTFOUND would mean that an object is absent: the end of the log, no pins. */
    return no_bucket ? LIG_E_IO : status;
}

lig_status ligi_s3_execute(ligi_s3_client *client, ligi_s3_transfer *transfer, const char *what)
{
    ligi_s3_client_perform(client, transfer);
    return ligi_s3_result(client, transfer, what);
}

static int64_t age_of(const ligi_s3_answer *answer)
{
    if (answer->date_s == 0 || answer->modified_s == 0)
        return LIGI_S3_AGE_UNKNOWN;
    return answer->date_s > answer->modified_s ? answer->date_s - answer->modified_s : 0;
}

lig_status ligi_s3_get(ligi_s3_client *client, const char *key, size_t max, int64_t timeout_ns,
                       ligi_s3_small *object)
{
    ligi_s3_transfer transfer = ligi_s3_request("GET", key, timeout_ns);

    transfer.received_max = max;
    lig_status status = ligi_s3_execute(client, &transfer, "cannot read");
    if (status != LIG_OK) {
        free(transfer.received);
        return status;
    }
    *object = (ligi_s3_small){transfer.received, transfer.received_bytes, age_of(&transfer.answer)};
    return LIG_OK;
}

lig_status ligi_s3_put(ligi_s3_client *client, const char *key, const void *data, size_t bytes,
                       int64_t timeout_ns)
{
    ligi_s3_transfer transfer = ligi_s3_request("PUT", key, timeout_ns);

    transfer.body = data;
    transfer.body_bytes = bytes;
    lig_status status = ligi_s3_execute(client, &transfer, "cannot write");
    return status == LIG_E_NOTFOUND ? ligi_s3_client_fail(client, &transfer, "cannot write")
                                    : status;
}

lig_status ligi_s3_delete(ligi_s3_client *client, const char *key, int64_t timeout_ns)
{
    ligi_s3_transfer transfer = ligi_s3_request("DELETE", key, timeout_ns);
    lig_status status = ligi_s3_execute(client, &transfer, "cannot remove");

    return status == LIG_E_NOTFOUND && transfer.answer.link == LIGI_S3_LINK_OK &&
                   strcmp(transfer.answer.code, "NoSuchBucket") != 0
               ? LIG_OK
               : status;
}

lig_status ligi_s3_head(ligi_s3_client *client, const char *key, int64_t timeout_ns,
                        uint64_t *bytes)
{
    ligi_s3_transfer transfer = ligi_s3_request("HEAD", key, timeout_ns);

    LIG_TRY(ligi_s3_execute(client, &transfer, "cannot find"));
    *bytes = transfer.answer.total_bytes;
    return LIG_OK;
}

/* --- lists ---------------------------------------------------------------------------------- */

typedef struct list_state {
    const ligi_s3_listing *listing;
    size_t prefix_bytes;
    char last[LIGI_S3_KEY_BYTES]; /* whole key of the last item */
    char last_upload[LIGI_S3_UPLOAD_BYTES];
    int ended; /* by visit, or by a server that repeats itself */
} list_state;

/* Gives the visitor keys below the store's prefix. */
static int visit_item(void *context, const ligi_s3_list_item *item)
{
    list_state *state = context;
    ligi_s3_list_item inner = *item;

    if (strcmp(item->key, state->last) < 0)
        state->ended = 1;
    memcpy(state->last, item->key, sizeof state->last);
    memcpy(state->last_upload, item->upload, sizeof state->last_upload);
    if (strlen(item->key) < state->prefix_bytes)
        return 0;
    memmove(inner.key, inner.key + state->prefix_bytes,
            strlen(inner.key + state->prefix_bytes) + 1);
    state->ended |= state->listing->visit(state->listing->context, &inner) != 0;
    return state->ended;
}

static void add_value(ligi_s3_text *query, const char *name, const char *value)
{
    ligi_s3_text_format(query, "&%s=", name);
    ligi_s3_text_encode(query, value, 0);
}

/* Sorted by name, as they are signed. */
static int make_query(const list_state *state, const ligi_s3_place *place, char *text)
{
    const ligi_s3_listing *listing = state->listing;
    char prefix[sizeof place->prefix + 64];
    ligi_s3_text query = ligi_s3_text_over(text, QUERY_BYTES);

    snprintf(prefix, sizeof prefix, "%s%s", place->prefix, listing->folder);
    if (listing->uploads) {
        if (state->last[0] != '\0')
            add_value(&query, "key-marker", state->last);
        ligi_s3_text_format(&query, "&max-uploads=%u", listing->page);
        add_value(&query, "prefix", prefix);
        if (state->last[0] != '\0')
            add_value(&query, "upload-id-marker", state->last_upload);
        ligi_s3_text_add(&query, "&uploads=");
    } else {
        ligi_s3_text_format(&query, "&list-type=2&max-keys=%u", listing->page);
        add_value(&query, "prefix", prefix);
        if (state->last[0] != '\0')
            add_value(&query, "start-after", state->last);
    }
    return !query.full;
}

static lig_status list_page(ligi_s3_client *client, list_state *state, int64_t timeout_ns,
                            int *truncated)
{
    char query[QUERY_BYTES];
    ligi_s3_transfer transfer = ligi_s3_request("GET", NULL, timeout_ns);

    if (!make_query(state, ligi_s3_client_place(client), query))
        return ligi_s3_client_host(client)->fail(LIG_E_LIMIT, "s3: a key is too long");
    transfer.query = query + 1;
    transfer.received_max = LIST_BYTES_MAX;
    lig_status status = ligi_s3_execute(client, &transfer, "cannot list");
    if (status == LIG_E_NOTFOUND)
        status = ligi_s3_client_fail(client, &transfer, "cannot list");
    if (status == LIG_OK &&
        !ligi_s3_list_parse(transfer.received != NULL ? transfer.received : "",
                            transfer.received_bytes, visit_item, state, truncated))
        status = ligi_s3_client_host(client)->fail(
            LIG_E_IO, "s3: cannot list s3://%s: malformed response (is it an S3 endpoint?)",
            ligi_s3_client_place(client)->bucket);
    free(transfer.received);
    return status;
}

lig_status ligi_s3_list(ligi_s3_client *client, const ligi_s3_listing *listing, int64_t timeout_ns)
{
    const ligi_s3_place *place = ligi_s3_client_place(client);
    list_state state = {.listing = listing, .prefix_bytes = strlen(place->prefix)};
    int truncated = 1;
    int64_t until = ligi_time_until(timeout_ns);

    if (listing->after != NULL)
        snprintf(state.last, sizeof state.last, "%s%s", place->prefix, listing->after);
    while (truncated && !state.ended)
        LIG_TRY(list_page(client, &state, ligi_time_left(until), &truncated));
    return LIG_OK;
}
