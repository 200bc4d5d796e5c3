#include "backend/rados/rados_remove.h"

#include "backend/rados/rados_body.h"
#include "backend/rados/rados_claim.h"
#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"
#include "base/clock.h"
#include "base/codec.h"

#include <errno.h>
#include <string.h>

#define TAKING_NS INT64_C(60000000000) /* for which the claim of a dead writer is taken */
#define LATE_NS INT64_C(600000000000)  /* a suspended writer may still write stripes */
enum { DEAD_BYTES = LIGI_RADOS_BODY_BYTES + 8, DRAFTS_AT_ONCE = 64 };

/* --- stripes --- */

static void removal_landed(void *context, size_t stripe, uint64_t bytes, int result)
{
    int *error = context;

    (void)stripe, (void)bytes;
    if (result != 0 && result != -ENOENT && *error == 0)
        *error = result;
}

int ligi_rados_stripes_remove(ligi_rados *e, const ligi_rados_body *body, uint64_t from,
                              uint64_t to)
{
    ligi_rados_flight flight;
    int error = 0;

    ligi_rados_flight_init(&flight, e, removal_landed, &error);
    for (uint64_t stripe = from; stripe < to && error == 0; stripe++) {
        rados_completion_t done = ligi_rados_flight_next(&flight, (size_t)stripe, 0);
        if (done == NULL)
            error = -ENOMEM;
        else
            ligi_rados_flight_started(
                &flight,
                e->api.rados_aio_remove(e->data, ligi_rados_stripe_name(body, stripe).text, done));
    }
    ligi_rados_flight_drain(&flight);
    return error;
}

static uint64_t stripes_of(const ligi_rados_body *body)
{
    uint64_t count = ligi_rados_stripe_count(body);
    return count > body->stripes_max ? count : body->stripes_max;
}

/* --- the dead --- */

/* Its key stays until all stripes are removed: an interrupted removal is resumed. */
void ligi_rados_dead_put(ligi_rados *e, rados_write_op_t op, const ligi_rados_body *body)
{
    uint8_t value[DEAD_BYTES];

    ligi_rados_body_encode(body, value);
    ligi_store_le(value + LIGI_RADOS_BODY_BYTES, (uint64_t)ligi_date_ns(), 8);
    ligi_rados_op_set(e, op, ligi_rados_writer_key("dead/", body).text, value, sizeof value);
}

static int drop_dead(ligi_rados *e, const ligi_rados_body *body)
{
    rados_write_op_t op = e->api.rados_create_write_op();

    ligi_rados_op_unset(e, op, ligi_rados_writer_key("dead/", body).text);
    return ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(body->object).text);
}

int ligi_rados_body_remove(ligi_rados *e, const ligi_rados_body *body)
{
    int result = ligi_rados_stripes_remove(e, body, 0, stripes_of(body));
    return result != 0 ? result : drop_dead(e, body);
}

/* --- sealed objects --- */

/* Locks the first stripe and removes it in one operation, which fails while a reader has a pin. A
 * reader that pins later finds no pack. */
static int remove_unless_pinned(ligi_rados *e, const ligi_rados_body *body)
{
    const ligi_class_lock lock = {.name = LIGI_RADOS_PIN_LOCK,
                                  .type = LIGI_CLASS_EXCLUSIVE,
                                  .cookie = "remover",
                                  .duration_ns = TAKING_NS};
    rados_write_op_t op = e->api.rados_create_write_op();

    e->api.rados_write_op_assert_exists(op);
    ligi_rados_op_lock(e, op, &lock);
    e->api.rados_write_op_remove(op);
    int result = ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(body, 0).text);
    return result == -ENOENT ? 0 : result;
}

static int remove_pack(ligi_rados *e, ligi_object object)
{
    ligi_rados_body body;
    int result = ligi_rados_body_find(e, object, &body);

    if (result == 0)
        result = remove_unless_pinned(e, &body);
    if (result == 0)
        result = ligi_rados_stripes_remove(e, &body, 1, ligi_rados_stripe_count(&body));
    if (result != 0)
        return result == -ENODATA ? 0 : result;
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_op_unset(e, op, ligi_rados_sealed_key(object.id).text);
    result = ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(object).text);
    ligi_rados_body_forget(e, object);
    return result;
}

static int remove_checkpoint(ligi_rados *e, ligi_object object)
{
    ligi_rados_name sealed = ligi_rados_sealed_key(object.id);
    uint8_t value[LIGI_RADOS_BODY_BYTES];
    ligi_rados_body body;
    int found = ligi_rados_body_find(e, object, &body);

    if (found != 0)
        return found == -ENODATA ? 0 : found;
    ligi_rados_body_encode(&body, value);
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_op_expect(e, op, sealed.text, value, sizeof value);
    ligi_rados_op_unset(e, op, sealed.text);
    ligi_rados_op_unset(e, op, ligi_rados_published_key(object.id).text);
    ligi_rados_dead_put(e, op, &body);
    int result = ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(object).text);
    if (result != 0) /* replaced or removed by another meanwhile */
        return result == -ECANCELED ? 0 : result;
    return ligi_rados_body_remove(e, &body);
}

lig_status ligi_rados_object_remove(void *self, ligi_object_kind kind, const uint64_t *ids,
                                    size_t count, lig_status *results)
{
    ligi_rados *e = self;

    for (size_t i = 0; i < count; i++) {
        const ligi_object object = {kind, ids[i]};
        int result =
            kind == LIGI_OBJECT_PACK ? remove_pack(e, object) : remove_checkpoint(e, object);
        results[i] = result == -EBUSY ? LIG_E_BUSY : ligi_rados_status(result);
    }
    return LIG_OK;
}

/* --- drafts --- */

typedef struct drafts_walk {
    ligi_rados *e;
    ligi_object_kind kind;
    unsigned count;
} drafts_walk;

static int decode_writer(const drafts_walk *walk, const char *begin, const char *key,
                         size_t key_bytes, const void *value, ligi_rados_body *body)
{
    uint64_t id;
    ligi_rados_token token;

    if (!ligi_rados_key_writer(key, key_bytes, begin, &id, &token) ||
        !ligi_rados_body_decode(value, LIGI_RADOS_BODY_BYTES, body))
        return 0;
    body->object = (ligi_object){walk->kind, id};
    body->token = token;
    return 1;
}

/* Takes the claim of a writer that does not renew it: from now on that writer cannot start. */
static int take_claim(ligi_rados *e, const ligi_rados_body *body)
{
    const ligi_class_lock lock = {.name = LIGI_RADOS_WRITER_LOCK,
                                  .type = LIGI_CLASS_EXCLUSIVE,
                                  .cookie = "drafts",
                                  .duration_ns = TAKING_NS};
    rados_write_op_t op = e->api.rados_create_write_op();

    ligi_rados_op_lock(e, op, &lock);
    return ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(body, 0).text);
}

/* From now on that writer cannot seal either. */
static int declare_dead(ligi_rados *e, const ligi_rados_body *body, const void *value)
{
    ligi_rados_name key = ligi_rados_writer_key("draft/", body);
    rados_write_op_t op = e->api.rados_create_write_op();

    ligi_rados_op_expect(e, op, key.text, value, LIGI_RADOS_BODY_BYTES);
    ligi_rados_op_unset(e, op, key.text);
    ligi_rados_dead_put(e, op, body);
    return ligi_rados_op_run(e, op, e->meta, ligi_rados_list_name(body->object).text);
}

/* The draft was sealed or aborted while its claim was taken: removes the stripe that taking the
 * claim created. */
static int give_back(ligi_rados *e, const ligi_rados_body *body)
{
    ligi_class_argument argument = ligi_class_unlock_encode(LIGI_RADOS_WRITER_LOCK, "drafts");
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_body sealed;
    int found = ligi_rados_body_find(e, body->object, &sealed);

    e->api.rados_write_op_assert_exists(op);
    e->api.rados_write_op_exec(op, "lock", "unlock", argument.bytes, argument.size, NULL);
    if (found == -ENODATA)
        e->api.rados_write_op_remove(op);
    int result = ligi_rados_op_run(e, op, e->data, ligi_rados_stripe_name(body, 0).text);
    return result == -ENOENT ? 0 : result;
}

static int visit_draft(void *context, const char *key, size_t key_bytes, const void *value,
                       size_t bytes)
{
    drafts_walk *walk = context;
    ligi_rados_body body;

    if (walk->count == DRAFTS_AT_ONCE)
        return 1;
    if (bytes != LIGI_RADOS_BODY_BYTES ||
        !decode_writer(walk, "draft/", key, key_bytes, value, &body))
        return 0;
    walk->count++;
    int result = take_claim(walk->e, &body);
    if (result == -EBUSY || result == -EEXIST) /* its writer is alive, or another took it */
        return 0;
    if (result == 0)
        result = declare_dead(walk->e, &body, value);
    return result == -ECANCELED ? give_back(walk->e, &body) : result;
}

static int visit_dead(void *context, const char *key, size_t key_bytes, const void *value,
                      size_t bytes)
{
    drafts_walk *walk = context;
    ligi_rados_body body;

    if (bytes != DEAD_BYTES || !decode_writer(walk, "dead/", key, key_bytes, value, &body))
        return 0;
    int64_t age =
        ligi_date_ns() - (int64_t)ligi_load_le((const uint8_t *)value + LIGI_RADOS_BODY_BYTES, 8);
    int result = ligi_rados_stripes_remove(walk->e, &body, 0, stripes_of(&body));
    if (result != 0 || age < LATE_NS)
        return result;
    return drop_dead(walk->e, &body);
}

lig_status ligi_rados_drafts_remove(void *self, int *more)
{
    ligi_rados *e = self;
    drafts_walk walk = {.e = e};
    int result = 0;

    for (int kind = LIGI_OBJECT_PACK; kind <= LIGI_OBJECT_CHECKPOINT && result == 0; kind++) {
        walk.kind = (ligi_object_kind)kind;
        for (unsigned shard = 0; shard < ligi_rados_shard_count(walk.kind) && result == 0;
             shard++) {
            ligi_rados_name list = ligi_rados_shard_name(walk.kind, shard);
            result = ligi_rados_keys_visit(e, list.text, "", "draft/", visit_draft, &walk);
            if (result == 0)
                result = ligi_rados_keys_visit(e, list.text, "", "dead/", visit_dead, &walk);
        }
    }
    if (result < 0)
        return ligi_rados_fail(e, result, "removing leftovers of dead writers");
    *more = result > 0;
    return LIG_OK;
}
