#include "backend/rados/rados_record.h"

#include "backend/rados/rados_error.h"
#include "backend/rados/rados_log.h"
#include "backend/rados/rados_ops.h"
#include "base/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A value is one byte that says where the record is, and then the record, or its id and size. */
enum { INLINE = 0, APART = 1, APART_BYTES = 1 + LIGI_RECORD_ID_BYTES + 8 };

int ligi_rados_value_is(const void *value, size_t bytes, const void *id)
{
    return bytes > LIGI_RECORD_ID_BYTES &&
           memcmp((const uint8_t *)value + 1, id, LIGI_RECORD_ID_BYTES) == 0;
}

/* The key first: a record whose writer dies is found by it. It stays as long as the object. */
static lig_status write_apart(ligi_rados *e, uint64_t version, const void *record, size_t bytes)
{
    ligi_rados_name name = ligi_rados_record_name(version, record);
    rados_write_op_t op = e->api.rados_create_write_op();

    e->api.rados_write_op_assert_exists(op);
    ligi_rados_op_set(e, op, ligi_rados_record_key(version, record).text, "", 0);
    int result = ligi_rados_op_run(e, op, e->meta, LIGI_RADOS_HEAD);
    for (uint64_t at = 0; result == 0 && at < bytes; at += LIGI_RADOS_CHUNK_BYTES) {
        uint64_t left = bytes - at;
        op = e->api.rados_create_write_op();
        e->api.rados_write_op_write(op, (const char *)record + at,
                                    left < LIGI_RADOS_CHUNK_BYTES ? left : LIGI_RADOS_CHUNK_BYTES,
                                    at);
        result = ligi_rados_op_run(e, op, e->meta, name.text);
    }
    return result == 0 ? LIG_OK : ligi_rados_fail(e, result, "writing a large commit");
}

lig_status ligi_rados_record_put(ligi_rados *e, uint64_t version, const void *record, size_t bytes,
                                 ligi_rados_value *value)
{
    const int apart = bytes > LIGI_RADOS_INLINE_MAX;

    if (bytes < LIGI_RECORD_ID_BYTES || bytes > LIGI_RADOS_RECORD_MAX)
        return e->host->fail(LIG_E_LIMIT, "commit of %zu bytes: the limit is %llu", bytes,
                             (unsigned long long)LIGI_RADOS_RECORD_MAX);
    value->apart = apart;
    value->size = apart ? APART_BYTES : bytes + 1;
    value->bytes = malloc(value->size);
    if (value->bytes == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory for a commit of %zu bytes", bytes);
    value->bytes[0] = apart ? APART : INLINE;
    memcpy(value->bytes + 1, record, apart ? LIGI_RECORD_ID_BYTES : bytes);
    if (!apart)
        return LIG_OK;
    ligi_store_le((uint8_t *)value->bytes + 1 + LIGI_RECORD_ID_BYTES, bytes, 8);
    lig_status status = write_apart(e, version, record, bytes);
    if (status != LIG_OK) {
        ligi_rados_record_drop(e, version, value);
        free(value->bytes);
    }
    return status;
}

static int remove_record(ligi_rados *e, uint64_t version, const void *id)
{
    ligi_rados_name name = ligi_rados_record_name(version, id);
    rados_write_op_t op;
    int result = e->api.rados_remove(e->meta, name.text);

    if (result != 0 && result != -ENOENT)
        return result;
    op = e->api.rados_create_write_op();
    ligi_rados_op_unset(e, op, ligi_rados_record_key(version, id).text);
    return ligi_rados_op_run(e, op, e->meta, LIGI_RADOS_HEAD);
}

void ligi_rados_record_drop(ligi_rados *e, uint64_t version, const ligi_rados_value *value)
{
    if (value->apart)
        remove_record(e, version, value->bytes + 1);
}

static int read_apart(ligi_rados *e, const char *object, char *record, uint64_t bytes)
{
    int result = 0;

    for (uint64_t at = 0; result == 0 && at < bytes; at += LIGI_RADOS_CHUNK_BYTES) {
        uint64_t want = bytes - at < LIGI_RADOS_CHUNK_BYTES ? bytes - at : LIGI_RADOS_CHUNK_BYTES;
        rados_read_op_t op = e->api.rados_create_read_op();
        size_t got = 0;
        int inner = 0;
        e->api.rados_read_op_read(op, at, want, record + at, &got, &inner);
        result = e->api.rados_read_op_operate(op, e->meta, object, 0);
        e->api.rados_release_read_op(op);
        if (result == 0)
            result = inner;
        if (result == 0 && got != want)
            result = -EBADMSG;
    }
    return result;
}

lig_status ligi_rados_record_visit(ligi_rados *e, uint64_t version, const void *value, size_t bytes,
                                   ligi_log_visit visit, void *context)
{
    const uint8_t *from = value;

    if (bytes > LIGI_RECORD_ID_BYTES && from[0] == INLINE)
        return visit(context, version, from + 1, bytes - 1);
    if (bytes != APART_BYTES || from[0] != APART ||
        ligi_load_le(from + 1 + LIGI_RECORD_ID_BYTES, 8) > LIGI_RADOS_RECORD_MAX)
        return visit(context, version, from, 0); /* damaged: none of it is a record */
    uint64_t size = ligi_load_le(from + 1 + LIGI_RECORD_ID_BYTES, 8);
    ligi_rados_name name = ligi_rados_record_name(version, from + 1);
    char *record = malloc(size);
    if (record == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory for a commit of %llu bytes",
                             (unsigned long long)size);
    int result = read_apart(e, name.text, record, size);
    lig_status status = LIG_E_NOTFOUND;
    if (result == 0)
        status = visit(context, version, record, size);
    else if (result == -EBADMSG)
        status = visit(context, version, record, 0);
    else if (result != -ENOENT)
        status = ligi_rados_fail(e, result, "reading a large commit");
    free(record);
    return status;
}

typedef struct record_walk {
    ligi_rados *e;
    uint64_t before;
} record_walk;

/* The number is settled: its record was trimmed, or another record has it. */
static int visit_record(void *context, const char *key, size_t key_bytes, const void *value,
                        size_t bytes)
{
    record_walk *walk = context;
    ligi_rados_token id;
    uint64_t version;

    (void)value, (void)bytes;
    if (!ligi_rados_key_writer(key, key_bytes, "big/", &version, &id) || version >= walk->before)
        return 0;
    return remove_record(walk->e, version, id.bytes);
}

lig_status ligi_rados_records_remove(ligi_rados *e, uint64_t before)
{
    record_walk walk = {.e = e, .before = before};
    int result = ligi_rados_keys_visit(e, LIGI_RADOS_HEAD, "", "big/", visit_record, &walk);

    return result == 0 ? LIG_OK : ligi_rados_fail(e, result, "removing large commits");
}
