#include "backend/rados/rados_writer.h"

#include "backend/rados/rados_body.h"
#include "backend/rados/rados_claim.h"
#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"
#include "backend/rados/rados_remove.h"
#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STRIPES_AHEAD = 64, PAGE_BYTES = 4096 };

typedef struct rados_writer {
    ligi_rados *e;
    ligi_rados_body body;
    ligi_rados_name cookie;
    ligi_rados_flight flight;
    char *room;
    uint64_t pushed; /* stripes */
    int error, sealed;
} rados_writer;

static void stripe_landed(void *context, size_t stripe, uint64_t bytes, int result)
{
    rados_writer *w = context;

    (void)stripe, (void)bytes;
    if (result != 0 && w->error == 0)
        w->error = result;
}

/* The draft lists the stripes that may exist, for cleaning up after a dead writer. */
static int put_draft(rados_writer *w, uint32_t stripes_max)
{
    ligi_rados *e = w->e;
    const int first = w->body.stripes_max == 0;
    ligi_rados_name key = ligi_rados_writer_key("draft/", &w->body);
    uint8_t old[LIGI_RADOS_BODY_BYTES], new[LIGI_RADOS_BODY_BYTES];
    ligi_rados_body draft = w->body;

    draft.bytes = 0;
    ligi_rados_body_encode(&draft, old);
    draft.stripes_max = stripes_max;
    ligi_rados_body_encode(&draft, new);
    rados_write_op_t op = e->api.rados_create_write_op();
    e->api.rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL); /* a list has no birth */
    if (!first) /* it was treated as dead, or belongs to this process */
        ligi_rados_op_expect(e, op, key.text, old, sizeof old);
    else if (w->body.object.kind == LIGI_OBJECT_PACK)
        ligi_rados_op_expect(e, op, ligi_rados_sealed_key(w->body.object.id).text, "", 0);
    ligi_rados_op_set(e, op, key.text, new, sizeof new);
    int result = ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(w->body.object).text);
    if (result == 0)
        w->body.stripes_max = stripes_max;
    return result;
}

/* Creates the first stripe and locks it, in one operation: an existing stripe belongs to another
 * writer, or to a process that treated this one as dead. */
static int claim(rados_writer *w, int64_t ttl_ns)
{
    ligi_rados *e = w->e;
    const ligi_class_lock lock = {.name = LIGI_RADOS_WRITER_LOCK,
                                  .type = LIGI_CLASS_EXCLUSIVE,
                                  .cookie = w->cookie.text,
                                  .duration_ns = ttl_ns};
    rados_write_op_t op = e->api.rados_create_write_op();

    e->api.rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
    ligi_rados_op_lock(e, op, &lock);
    return ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(&w->body, 0).text);
}

static void drop_draft(rados_writer *w)
{
    ligi_rados *e = w->e;
    rados_write_op_t op = e->api.rados_create_write_op();

    ligi_rados_op_unset(e, op, ligi_rados_writer_key("draft/", &w->body).text);
    ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(w->body.object).text);
}

static lig_status begin(rados_writer *w, uint64_t bytes, int64_t ttl_ns)
{
    ligi_rados *e = w->e;
    uint64_t stripes = bytes / w->body.stripe_bytes + STRIPES_AHEAD;
    int result = stripes > UINT32_MAX ? -EFBIG : put_draft(w, (uint32_t)stripes);

    if (result == -ECANCELED)
        return LIG_E_EXISTS;
    if (result != 0)
        return ligi_rados_fail(e, result, "starting a pack");
    result = claim(w, ttl_ns);
    if (result == 0)
        return LIG_OK;
    if (result == -EEXIST || result == -EBUSY) {
        drop_draft(w);
        return LIG_E_EXISTS;
    }
    return ligi_rados_data_fail(e, result, "starting a pack");
}

lig_status ligi_rados_object_create(void *self, ligi_object object, uint64_t bytes, int64_t ttl_ns,
                                    void **writer)
{
    ligi_rados *e = self;
    rados_writer *w = calloc(1, sizeof *w);

    if (w == NULL || (w->room = aligned_alloc(PAGE_BYTES, e->stripe_bytes)) == NULL) {
        free(w);
        return e->host->fail(LIG_E_NOMEM, "out of memory for a stripe of %llu bytes",
                             (unsigned long long)e->stripe_bytes);
    }
    w->e = e;
    w->body.object = object;
    w->body.stripe_bytes = e->stripe_bytes;
    ligi_rados_flight_init(&w->flight, e, stripe_landed, w);
    lig_status status = e->host->random(w->body.token.bytes, sizeof w->body.token.bytes);
    if (status == LIG_OK) {
        w->cookie = ligi_rados_token_text(&w->body.token);
        status = begin(w, bytes, ttl_ns);
    }
    if (status != LIG_OK) {
        free(w->room);
        free(w);
        return status;
    }
    *writer = w;
    return LIG_OK;
}

static lig_status writing_failed(rados_writer *w)
{
    return ligi_rados_data_fail(w->e, w->error, "writing a pack");
}

/* librados copies what it is given: the room is free as soon as it was pushed. */
lig_status ligi_rados_object_room(void *writer, void **memory, uint64_t *bytes)
{
    rados_writer *w = writer;

    if (w->error != 0)
        return writing_failed(w);
    *memory = w->room;
    *bytes = w->body.stripe_bytes;
    return LIG_OK;
}

static lig_status claim_lost(const rados_writer *w)
{
    return w->e->host->fail(LIG_E_IO,
                            "pack %016llx was treated as a leftover: this process was stopped or "
                            "disconnected for longer than ttl=",
                            (unsigned long long)w->body.object.id);
}

lig_status ligi_rados_object_push(void *writer, uint64_t bytes)
{
    rados_writer *w = writer;
    ligi_rados *e = w->e;

    assert(bytes <= w->body.stripe_bytes && !w->sealed);
    if (w->error != 0)
        return writing_failed(w);
    if (bytes == 0)
        return LIG_OK;
    if (w->pushed == w->body.stripes_max) {
        if (w->body.stripes_max > UINT32_MAX / 2)
            return e->host->fail(LIG_E_LIMIT, "pack too large: the limit is %u stripes",
                                 UINT32_MAX / 2);
        int result = put_draft(w, 2 * w->body.stripes_max);
        if (result == -ECANCELED)
            return claim_lost(w);
        if (result != 0)
            return ligi_rados_fail(e, result, "writing a pack");
    }
    rados_completion_t done = ligi_rados_flight_next(&w->flight, (size_t)w->pushed, bytes);
    if (done == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory for a write");
    rados_write_op_t op = e->api.rados_create_write_op();
    e->api.rados_write_op_write_full(op, w->room, bytes);
    ligi_rados_flight_started(
        &w->flight,
        e->api.rados_aio_write_op_operate(
            op, e->data, done, ligi_rados_stripe_name(&w->body, w->pushed).text, NULL, 0));
    e->api.rados_release_write_op(op);
    w->pushed++;
    w->body.bytes += bytes;
    return w->error == 0 ? LIG_OK : writing_failed(w);
}

/* --- sealing --- */

/* `old`: the checkpoint of the same version that is replaced, or NULL. */
static int seal_once(rados_writer *w, const ligi_rados_body *old)
{
    ligi_rados *e = w->e;
    ligi_rados_name key = ligi_rados_writer_key("draft/", &w->body);
    ligi_rados_name sealed = ligi_rados_sealed_key(w->body.object.id);
    uint8_t before[LIGI_RADOS_BODY_BYTES], after[LIGI_RADOS_BODY_BYTES];
    ligi_rados_body draft = w->body, done = w->body;
    rados_write_op_t op = e->api.rados_create_write_op();

    draft.bytes = 0;
    done.stripes_max = 0;
    ligi_rados_body_encode(&draft, before);
    ligi_rados_op_expect(e, op, key.text, before, sizeof before);
    if (old != NULL) {
        ligi_rados_body_encode(old, after);
        ligi_rados_op_expect(e, op, sealed.text, after, sizeof after);
        ligi_rados_dead_put(e, op, old);
    }
    ligi_rados_body_encode(&done, after);
    ligi_rados_op_unset(e, op, key.text);
    ligi_rados_op_set(e, op, sealed.text, after, sizeof after);
    return ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(w->body.object).text);
}

static lig_status seal_draft(rados_writer *w)
{
    const int64_t deadline = ligi_time_until(w->e->timeout_ns);
    ligi_rados_body old, now;

    for (;;) {
        int found = ligi_rados_body_find(w->e, w->body.object, &old);
        if (found == 0 && memcmp(&old.token, &w->body.token, sizeof old.token) == 0)
            return LIG_OK; /* an attempt that was not answered */
        int result =
            found == 0 || found == -ENODATA ? seal_once(w, found == 0 ? &old : NULL) : found;
        if (result == 0) {
            if (found == 0)
                ligi_rados_body_remove(w->e, &old);
            return LIG_OK;
        }
        if (result == -ECANCELED) {
            found = ligi_rados_body_find(w->e, w->body.object, &now);
            if (found == -ENODATA || (found == 0 && w->body.object.kind == LIGI_OBJECT_PACK &&
                                      memcmp(&now.token, &w->body.token, sizeof now.token) != 0))
                return claim_lost(w);
        } else if (result != -ETIMEDOUT) {
            return ligi_rados_fail(w->e, result, "sealing a pack");
        }
        if (ligi_time_left(deadline) == 0)
            return ligi_rados_fail(w->e, -ETIMEDOUT, "sealing a pack");
    }
}

lig_status ligi_rados_object_seal(void *writer)
{
    rados_writer *w = writer;

    ligi_rados_flight_drain(&w->flight);
    if (w->error != 0)
        return writing_failed(w);
    LIG_TRY(seal_draft(w));
    w->sealed = 1;
    w->body.stripes_max = 0;
    ligi_rados_body_remember(w->e, &w->body);
    return LIG_OK;
}

lig_status ligi_rados_object_renew(void *writer, int64_t ttl_ns)
{
    rados_writer *w = writer;
    ligi_rados *e = w->e;
    const ligi_class_lock lock = {.name = LIGI_RADOS_WRITER_LOCK,
                                  .type = LIGI_CLASS_EXCLUSIVE,
                                  .cookie = w->cookie.text,
                                  .duration_ns = ttl_ns,
                                  .flags = LIBRADOS_LOCK_FLAG_MUST_RENEW};
    rados_write_op_t op = e->api.rados_create_write_op();

    e->api.rados_write_op_assert_exists(op);
    ligi_rados_op_lock(e, op, &lock);
    int result = ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(&w->body, 0).text);
    if (result == -ENOENT || result == -EBUSY)
        return e->host->fail(LIG_E_NOTFOUND, "the claim of pack %016llx has expired",
                             (unsigned long long)w->body.object.id);
    return result == 0 ? LIG_OK : ligi_rados_data_fail(e, result, "renewing the claim of a pack");
}

static void release(rados_writer *w)
{
    ligi_rados *e = w->e;
    ligi_class_argument argument = ligi_class_unlock_encode(LIGI_RADOS_WRITER_LOCK, w->cookie.text);
    rados_write_op_t op = e->api.rados_create_write_op();

    e->api.rados_write_op_assert_exists(op);
    e->api.rados_write_op_exec(op, "lock", "unlock", argument.bytes, argument.size, NULL);
    ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(&w->body, 0).text);
}

void ligi_rados_object_close(void *writer, int forked)
{
    rados_writer *w = writer;

    if (w == NULL)
        return;
    if (!forked) {
        ligi_rados_flight_drain(&w->flight);
        if (w->sealed)
            release(w);
        else if (ligi_rados_stripes_remove(w->e, &w->body, 0, w->pushed > 0 ? w->pushed : 1) == 0)
            drop_draft(w); /* otherwise drafts_remove finds it when the claim has ended */
    }
    free(w->room);
    free(w);
}
