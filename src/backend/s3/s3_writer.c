#include "backend/s3/s3_writer.h"

#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_requests.h"
#include "backend/s3/leases/s3_hold.h"
#include "backend/s3/s3_names.h"
#include "backend/s3/s3_probe.h"
#include "backend/s3/s3_upload.h"

#define QUERY_BYTES (LIGI_S3_UPLOAD_BYTES * 3 + 64)
#define GROWTH 1000 /* parts of one size */

typedef struct part_slot {
    ligi_s3_transfer transfer;
    void *memory; /* NULL: not allocated */
    uint64_t capacity, bytes;
    size_t number; /* of the part in flight; 0: free */
    char query[QUERY_BYTES];
} part_slot;

typedef struct s3_writer {
    ligi_s3 *s3;
    ligi_object object;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    int held, sealed;
    ligi_s3_hold hold;
    ligi_s3_upload upload;
    ligi_s3_batch batch;
    part_slot slots[LIGI_S3_UPLOADS];
    part_slot *room;  /* being filled by the caller */
    part_slot *first; /* the first part, pushed: it may be the only one */
    uint64_t bytes;   /* pushed */
    lig_status failure;
    char failure_text[512];
} s3_writer;

uint64_t ligi_s3_part_bytes(unsigned index)
{
    return LIGI_S3_PART_BYTES << (index / GROWTH < 6 ? index / GROWTH : 6);
}

/* --- creation ------------------------------------------------------------------------------- */

/* A pack whose writer has ended has no claim any more. */
static lig_status check_absent(s3_writer *writer)
{
    uint64_t bytes;
    lig_status status =
        ligi_s3_head(writer->s3->client, writer->key, writer->s3->timeout_ns, &bytes);

    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    return status == LIG_OK ? LIG_E_EXISTS : status;
}

static lig_status claim(s3_writer *writer, int64_t ttl_ns)
{
    LIG_TRY(ligi_s3_probe_ensure(writer->s3));
    LIG_TRY(ligi_s3_hold_take(&writer->hold, writer->s3, writer->object.id, ttl_ns));
    writer->held = 1;
    lig_status status = check_absent(writer);
    if (status != LIG_OK) {
        ligi_s3_hold_end(&writer->hold, 0);
        writer->held = 0;
    }
    return status;
}

lig_status ligi_s3_object_create(void *self, ligi_object object, uint64_t bytes, int64_t ttl_ns,
                                 void **writer)
{
    ligi_s3 *s3 = self;
    s3_writer *made = calloc(1, sizeof *made);

    (void)bytes;
    if (made == NULL)
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    made->s3 = s3;
    made->object = object;
    ligi_s3_name_object(object, made->key);
    made->upload = (ligi_s3_upload){.s3 = s3, .key = made->key};
    lig_status status = object.kind == LIGI_OBJECT_PACK ? claim(made, ttl_ns) : LIG_OK;
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    ligi_s3_batch_init(&made->batch, s3->client);
    *writer = made;
    return LIG_OK;
}

/* --- parts ---------------------------------------------------------------------------------- */

/* The first failure stays: the next call reports it. */
static lig_status keep_failure(s3_writer *writer, lig_status status)
{
    if (writer->failure == LIG_OK && status != LIG_OK) {
        writer->failure = status;
        strncpy(writer->failure_text, writer->s3->host->error_text(),
                sizeof writer->failure_text - 1);
    }
    return status;
}

static lig_status report_failure(const s3_writer *writer)
{
    if (writer->failure == LIG_OK)
        return LIG_OK;
    return writer->s3->host->fail(writer->failure, "%s", writer->failure_text);
}

static void end_part(s3_writer *writer, part_slot *slot)
{
    lig_status status =
        ligi_s3_result(writer->s3->client, &slot->transfer, "cannot write a part of");

    if (status == LIG_E_NOTFOUND)
        status = ligi_s3_client_fail(writer->s3->client, &slot->transfer, "cannot write a part of");
    if (status == LIG_OK)
        memcpy(writer->upload.etags[slot->number - 1], slot->transfer.answer.etag,
               LIGI_S3_ETAG_BYTES);
    keep_failure(writer, status);
    free(slot->transfer.received);
    slot->transfer.received = NULL;
    slot->number = 0;
    slot->bytes = 0;
}

static lig_status start_part(s3_writer *writer, part_slot *slot)
{
    ligi_s3_upload *upload = &writer->upload;
    size_t number = upload->part_count + 1;

    LIG_TRY(ligi_s3_upload_reserve(upload, number));
    upload->part_count = slot->number = number;
    ligi_s3_upload_query(upload, number, slot->query, sizeof slot->query);
    slot->transfer = ligi_s3_request("PUT", writer->key, writer->s3->timeout_ns);
    slot->transfer.query = slot->query;
    slot->transfer.body = slot->memory;
    slot->transfer.body_bytes = slot->bytes;
    slot->transfer.bulk = 1;
    slot->transfer.received_max = 4096;
    slot->transfer.context = slot;
    ligi_s3_batch_start(&writer->batch, &slot->transfer);
    return LIG_OK;
}

/* There is more than one part: the upload begins. */
static lig_status start_upload(s3_writer *writer)
{
    part_slot *first = writer->first;

    LIG_TRY(ligi_s3_upload_start(&writer->upload));
    writer->first = NULL;
    return start_part(writer, first);
}

static lig_status fit_memory(s3_writer *writer, part_slot *slot, uint64_t bytes)
{
    if (slot->memory != NULL && slot->capacity == bytes)
        return LIG_OK;
    if (slot->capacity == LIGI_S3_PART_BYTES)
        ligi_s3_part_give(writer->s3, slot->memory);
    else
        free(slot->memory);
    slot->capacity = 0;
    slot->memory =
        bytes == LIGI_S3_PART_BYTES ? ligi_s3_part_take(writer->s3) : aligned_alloc(4096, bytes);
    if (slot->memory == NULL)
        return writer->s3->host->fail(LIG_E_NOMEM, "s3: out of memory for a part of %llu bytes",
                                      (unsigned long long)bytes);
    slot->capacity = bytes;
    return LIG_OK;
}

static part_slot *find_free(s3_writer *writer)
{
    ligi_s3_transfer *ended;

    while ((ended = ligi_s3_batch_ended(&writer->batch)) != NULL)
        end_part(writer, ended->context);
    for (;;) {
        for (size_t i = 0; i < LIGI_S3_UPLOADS; i++)
            if (writer->slots[i].number == 0 && &writer->slots[i] != writer->first)
                return &writer->slots[i];
        end_part(writer, ligi_s3_batch_next(&writer->batch)->context);
    }
}

lig_status ligi_s3_object_room(void *self, void **memory, uint64_t *bytes)
{
    s3_writer *writer = self;

    LIG_TRY(report_failure(writer));
    if (writer->room == NULL) {
        if (writer->first != NULL)
            LIG_TRY(keep_failure(writer, start_upload(writer)));
        part_slot *slot = find_free(writer);
        LIG_TRY(report_failure(writer));
        LIG_TRY(fit_memory(writer, slot, ligi_s3_part_bytes((unsigned)writer->upload.part_count)));
        writer->room = slot;
    }
    *memory = writer->room->memory;
    *bytes = writer->room->capacity;
    return LIG_OK;
}

lig_status ligi_s3_object_push(void *self, uint64_t bytes)
{
    s3_writer *writer = self;
    part_slot *slot = writer->room;

    LIG_TRY(report_failure(writer));
    if (slot == NULL || bytes > slot->capacity)
        return writer->s3->host->fail(LIG_E_INTERNAL, "s3: a push without room");
    writer->room = NULL;
    if (bytes == 0)
        return LIG_OK;
    slot->bytes = bytes;
    writer->bytes += bytes;
    if (writer->upload.id[0] == '\0') {
        writer->first = slot;
        return LIG_OK;
    }
    return keep_failure(writer, start_part(writer, slot));
}

/* --- the end -------------------------------------------------------------------------------- */

static lig_status put_whole(s3_writer *writer)
{
    ligi_s3_transfer transfer = ligi_s3_request("PUT", writer->key, writer->s3->timeout_ns);

    transfer.bulk = 1;
    transfer.body = writer->first != NULL ? writer->first->memory : NULL;
    transfer.body_bytes = writer->first != NULL ? writer->first->bytes : 0;
    transfer.received_max = 4096;
    lig_status status = ligi_s3_execute(writer->s3->client, &transfer, "cannot write");
    free(transfer.received);
    return status == LIG_E_NOTFOUND
               ? ligi_s3_client_fail(writer->s3->client, &transfer, "cannot write")
               : status;
}

static lig_status complete(s3_writer *writer)
{
    ligi_s3_transfer *ended;

    while ((ended = ligi_s3_batch_next(&writer->batch)) != NULL)
        end_part(writer, ended->context);
    LIG_TRY(report_failure(writer));
    LIG_TRY(ligi_s3_upload_complete(&writer->upload, writer->bytes));
    writer->upload.id[0] = '\0';
    return LIG_OK;
}

/* The claim is checked before and after the write: a pack that became visible after its claim was
 * lost is removed. */
lig_status ligi_s3_object_seal(void *self)
{
    s3_writer *writer = self;

    LIG_TRY(report_failure(writer));
    if (writer->held)
        LIG_TRY(keep_failure(writer, ligi_s3_hold_check(&writer->hold)));
    lig_status status = writer->upload.id[0] != '\0' ? complete(writer) : put_whole(writer);
    LIG_TRY(keep_failure(writer, status));
    writer->sealed = 1;
    if (!writer->held)
        return LIG_OK;
    status = keep_failure(writer, ligi_s3_hold_check(&writer->hold));
    if (status != LIG_OK)
        (void)ligi_s3_delete(writer->s3->client, writer->key, writer->s3->timeout_ns);
    return report_failure(writer);
}

lig_status ligi_s3_object_renew(void *self, int64_t ttl_ns)
{
    s3_writer *writer = self;

    return writer->held ? ligi_s3_hold_renew(&writer->hold, ttl_ns) : LIG_OK;
}

static void stop_parts(s3_writer *writer)
{
    ligi_s3_transfer *ended;

    for (size_t i = 0; i < LIGI_S3_UPLOADS; i++)
        if (writer->slots[i].number != 0)
            ligi_s3_batch_cancel(&writer->batch, &writer->slots[i].transfer);
    while ((ended = ligi_s3_batch_next(&writer->batch)) != NULL)
        free(ended->received);
}

static void free_writer(s3_writer *writer)
{
    for (size_t i = 0; i < LIGI_S3_UPLOADS; i++)
        if (writer->slots[i].capacity == LIGI_S3_PART_BYTES)
            ligi_s3_part_give(writer->s3, writer->slots[i].memory);
        else
            free(writer->slots[i].memory);
    ligi_s3_upload_fini(&writer->upload);
    free(writer);
}

void ligi_s3_object_close(void *self, int forked)
{
    s3_writer *writer = self;

    if (writer == NULL)
        return;
    if (!forked) {
        stop_parts(writer);
        ligi_s3_upload_abort(&writer->upload);
        ligi_s3_batch_fini(&writer->batch);
    }
    if (writer->held)
        ligi_s3_hold_end(&writer->hold, forked);
    free_writer(writer);
}
