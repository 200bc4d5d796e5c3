#include "backend/s3/s3_upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_requests.h"
#include "backend/s3/wire/s3_text.h"

#define ANSWER_BYTES_MAX (UINT64_C(64) << 10)
#define COMPLETE_ATTEMPTS 3

lig_status ligi_s3_upload_start(ligi_s3_upload *upload)
{
    ligi_s3 *s3 = upload->s3;
    ligi_s3_transfer transfer = ligi_s3_request("POST", upload->key, s3->timeout_ns);

    transfer.query = "uploads=";
    transfer.received_max = ANSWER_BYTES_MAX;
    lig_status status = ligi_s3_execute(s3->client, &transfer, "cannot start the upload of");
    if (status == LIG_E_NOTFOUND)
        status = ligi_s3_client_fail(s3->client, &transfer, "cannot start the upload of");
    if (status == LIG_OK &&
        !ligi_s3_upload_parse(transfer.received != NULL ? transfer.received : "",
                              transfer.received_bytes, upload->id)) {
        upload->id[0] = '\0';
        status =
            s3->host->fail(LIG_E_IO,
                           "s3: cannot start the upload of %s: malformed response (is it an S3 "
                           "endpoint?)",
                           upload->key);
    }
    free(transfer.received);
    return status;
}

lig_status ligi_s3_upload_reserve(ligi_s3_upload *upload, size_t number)
{
    if (number > LIGI_S3_PARTS_MAX)
        return upload->s3->host->fail(LIG_E_LIMIT, "s3: %s has more than %d parts", upload->key,
                                      LIGI_S3_PARTS_MAX);
    if (number <= upload->etag_capacity)
        return LIG_OK;
    size_t wider = number * 2 + 16;
    void *memory = realloc(upload->etags, wider * sizeof *upload->etags);
    if (memory == NULL)
        return upload->s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    upload->etags = memory;
    upload->etag_capacity = wider;
    return LIG_OK;
}

static void add_upload_id(const char *id, ligi_s3_text *query)
{
    ligi_s3_text_add(query, "uploadId=");
    ligi_s3_text_encode(query, id, 0);
}

void ligi_s3_upload_query(const ligi_s3_upload *upload, size_t number, char *query, size_t bytes)
{
    ligi_s3_text text = ligi_s3_text_over(query, bytes);

    ligi_s3_text_format(&text, "partNumber=%zu&", number);
    add_upload_id(upload->id, &text);
}

/* An ETag comes from the server and goes back in XML. */
static void add_etag(ligi_s3_text *text, const char *etag)
{
    for (; *etag != '\0'; etag++)
        if (*etag == '&' || *etag == '<' || *etag == '>')
            ligi_s3_text_format(text, "&#%d;", *etag);
        else
            ligi_s3_text_add_bytes(text, etag, 1);
}

static char *make_list(const ligi_s3_upload *upload, size_t *bytes)
{
    size_t capacity = 128 + upload->part_count * (5 * LIGI_S3_ETAG_BYTES + 80);
    char *memory = malloc(capacity);

    if (memory == NULL)
        return NULL;
    ligi_s3_text text = ligi_s3_text_over(memory, capacity);
    ligi_s3_text_add(&text, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < upload->part_count; i++) {
        ligi_s3_text_format(&text, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        add_etag(&text, upload->etags[i]);
        ligi_s3_text_add(&text, "</ETag></Part>");
    }
    ligi_s3_text_add(&text, "</CompleteMultipartUpload>");
    *bytes = text.bytes;
    return memory;
}

/* 1 if the object is there: an earlier completion has succeeded, and its answer was lost. Its
 * name is random, so no other process created it. */
static int is_complete(ligi_s3_upload *upload, uint64_t bytes)
{
    uint64_t there;

    return ligi_s3_head(upload->s3->client, upload->key, upload->s3->timeout_ns, &there) ==
               LIG_OK &&
           there == bytes;
}

lig_status ligi_s3_upload_complete(ligi_s3_upload *upload, uint64_t bytes)
{
    ligi_s3 *s3 = upload->s3;
    char query[LIGI_S3_UPLOAD_BYTES * 3 + 64];
    ligi_s3_text text = ligi_s3_text_over(query, sizeof query);
    size_t list_bytes;
    char *list = make_list(upload, &list_bytes);
    lig_status status = LIG_OK;
    int done = 0;

    if (list == NULL)
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    add_upload_id(upload->id, &text);
    for (int attempt = 0; !done && attempt < COMPLETE_ATTEMPTS; attempt++) {
        ligi_s3_transfer transfer = ligi_s3_request("POST", upload->key, s3->timeout_ns);
        transfer.query = query;
        transfer.body = list;
        transfer.body_bytes = list_bytes;
        transfer.received_max = ANSWER_BYTES_MAX;
        ligi_s3_client_perform(s3->client, &transfer);
        done = ligi_s3_answer_verdict(&transfer.answer) == LIGI_S3_DONE
                   ? transfer.received != NULL &&
                         ligi_s3_complete_parse(transfer.received, transfer.received_bytes)
                   : is_complete(upload, bytes);
        int again = ligi_s3_answer_verdict(&transfer.answer) == LIGI_S3_DONE;
        if (!done && !again)
            status = ligi_s3_client_fail(s3->client, &transfer, "cannot complete");
        else if (!done)
            status = s3->host->fail(LIG_E_IO,
                                    "s3: cannot complete %s: the server reports an error "
                                    "after its first line",
                                    upload->key);
        free(transfer.received);
        if (!again)
            break;
    }
    free(list);
    return done ? LIG_OK : status;
}

lig_status ligi_s3_upload_discard(ligi_s3 *s3, const char *key, const char *id)
{
    char query[LIGI_S3_UPLOAD_BYTES * 3 + 64];
    ligi_s3_text text = ligi_s3_text_over(query, sizeof query);
    ligi_s3_transfer transfer = ligi_s3_request("DELETE", key, s3->timeout_ns);

    add_upload_id(id, &text);
    transfer.query = query;
    ligi_s3_client_perform(s3->client, &transfer);
    if (transfer.answer.link == LIGI_S3_LINK_OK && transfer.answer.http == 404 &&
        strcmp(transfer.answer.code, "NoSuchBucket") != 0)
        return LIG_OK;
    return ligi_s3_result(s3->client, &transfer, "cannot abort the upload of");
}

void ligi_s3_upload_abort(ligi_s3_upload *upload)
{
    if (upload->id[0] != '\0')
        (void)ligi_s3_upload_discard(upload->s3, upload->key, upload->id);
    upload->id[0] = '\0';
}

void ligi_s3_upload_fini(ligi_s3_upload *upload)
{
    free(upload->etags);
    upload->etags = NULL;
}
