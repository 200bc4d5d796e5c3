#include "backend/rados/rados_claim.h"

#include "backend/rados/rados_body.h"
#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOCK_NAME_BYTES = 640, HOLDER_BYTES = 256 };

static ligi_rados_name first_stripe(uint64_t pack)
{
    const ligi_rados_body body = {.object = {LIGI_OBJECT_PACK, pack}};
    return ligi_rados_stripe_name(&body, 0);
}

lig_status ligi_rados_pack_held(void *self, uint64_t id)
{
    ligi_rados *e = self;
    uint32_t holders = 0;
    int result =
        ligi_rados_lock_holders(e, first_stripe(id).text, LIGI_RADOS_WRITER_LOCK, &holders);

    if (result == -ENOENT)
        return e->host->fail(LIG_E_NOTFOUND, "there is no pack %016llx in pool '%s', prefix '%s'",
                             (unsigned long long)id, e->data_pool, e->prefix);
    if (result != 0)
        return ligi_rados_data_fail(e, result, "looking for the writer of a pack");
    return holders == 0 ? LIG_OK
                        : e->host->fail(LIG_E_BUSY, "the writer of pack %016llx still holds it",
                                        (unsigned long long)id);
}

/* --- pins --- */

typedef struct rados_pin {
    ligi_rados *e;
    ligi_rados_name cookie;
    size_t count;
    int error; /* of the calls in flight */
    uint64_t packs[];
} rados_pin;

/* Without the pack, nothing is pinned; if its remover has it, the pack is condemned, which the
 * caller will see in the catalog. */
static void pin_landed(void *context, size_t index, uint64_t bytes, int result)
{
    rados_pin *pin = context;

    (void)index, (void)bytes;
    if (result != 0 && result != -ENOENT && result != -EBUSY && pin->error == 0)
        pin->error = result;
}

static void pin_one(rados_pin *pin, ligi_rados_flight *flight, size_t index, int64_t ttl_ns)
{
    ligi_rados *e = pin->e;
    const ligi_class_lock lock = {.name = LIGI_RADOS_PIN_LOCK,
                                  .type = LIGI_CLASS_SHARED,
                                  .cookie = pin->cookie.text,
                                  .duration_ns = ttl_ns,
                                  .flags = LIBRADOS_LOCK_FLAG_MAY_RENEW};
    rados_write_op_t op = e->api.rados_create_write_op();
    rados_completion_t done = ligi_rados_flight_next(flight, index, 0);

    /* The lock class creates an object that does not exist. */
    e->api.rados_write_op_assert_exists(op);
    ligi_rados_op_lock(e, op, &lock);
    if (done == NULL)
        pin->error = -ENOMEM;
    else
        ligi_rados_flight_started(
            flight, e->api.rados_aio_write_op_operate(
                        op, e->data, done, first_stripe(pin->packs[index]).text, NULL, 0));
    e->api.rados_release_write_op(op);
}

static lig_status pin_all(rados_pin *pin, int64_t ttl_ns)
{
    ligi_rados_flight flight;

    pin->error = 0;
    ligi_rados_flight_init(&flight, pin->e, pin_landed, pin);
    for (size_t i = 0; i < pin->count && pin->error == 0; i++)
        pin_one(pin, &flight, i, ttl_ns);
    ligi_rados_flight_drain(&flight);
    return pin->error == 0 ? LIG_OK : ligi_rados_data_fail(pin->e, pin->error, "pinning packs");
}

lig_status ligi_rados_pin(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns,
                          void **pin)
{
    ligi_rados *e = self;
    ligi_rados_token cookie;

    LIG_TRY(e->host->random(cookie.bytes, sizeof cookie.bytes));
    rados_pin *made = calloc(1, sizeof *made + count * sizeof *packs);
    if (made == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory for %zu pins", count);
    made->e = e;
    made->count = count;
    made->cookie = ligi_rados_token_text(&cookie);
    if (count > 0)
        memcpy(made->packs, packs, count * sizeof *packs);
    lig_status status = pin_all(made, ttl_ns);
    if (status != LIG_OK) {
        ligi_rados_unpin(made, 0);
        return status;
    }
    *pin = made;
    return LIG_OK;
}

lig_status ligi_rados_pin_renew(void *pin, int64_t ttl_ns)
{
    return pin_all(pin, ttl_ns);
}

void ligi_rados_unpin(void *pin, int forked)
{
    rados_pin *held = pin;
    ligi_rados_flight flight;

    if (held == NULL)
        return;
    ligi_rados *e = held->e;
    ligi_class_argument argument = ligi_class_unlock_encode(LIGI_RADOS_PIN_LOCK, held->cookie.text);
    ligi_rados_flight_init(&flight, e, pin_landed, held);
    for (size_t i = 0; i < held->count && !forked; i++) {
        rados_completion_t done = ligi_rados_flight_next(&flight, i, 0);
        if (done == NULL)
            break; /* it ends by time */
        rados_write_op_t op = e->api.rados_create_write_op();
        e->api.rados_write_op_exec(op, "lock", "unlock", argument.bytes, argument.size, NULL);
        ligi_rados_flight_started(
            &flight, e->api.rados_aio_write_op_operate(op, e->data, done,
                                                       first_stripe(held->packs[i]).text, NULL, 0));
        e->api.rados_release_write_op(op);
    }
    ligi_rados_flight_drain(&flight);
    free(held);
}

lig_status ligi_rados_pinned(void *self, const uint64_t *packs, size_t count, uint8_t *pinned)
{
    ligi_rados *e = self;

    for (size_t i = 0; i < count; i++) {
        uint32_t holders = 0;
        int result =
            ligi_rados_lock_holders(e, first_stripe(packs[i]).text, LIGI_RADOS_PIN_LOCK, &holders);
        if (result != 0 && result != -ENOENT)
            return ligi_rados_data_fail(e, result, "looking for pins");
        pinned[i] = result == 0 && holders > 0;
    }
    return LIG_OK;
}

/* --- locks by name --- */

typedef struct rados_lock {
    ligi_rados *e;
    ligi_rados_name cookie;
    char object[LOCK_NAME_BYTES];
    char *name;
} rados_lock;

static int take(const rados_lock *lock, const char *holder, int64_t ttl_ns, uint8_t flags)
{
    ligi_rados *e = lock->e;
    const ligi_class_lock wanted = {.name = "name",
                                    .type = LIGI_CLASS_EXCLUSIVE,
                                    .cookie = lock->cookie.text,
                                    .duration_ns = ttl_ns,
                                    .flags = flags};
    rados_write_op_t op = e->api.rados_create_write_op();

    ligi_rados_op_lock(e, op, &wanted);
    if (holder != NULL)
        e->api.rados_write_op_write_full(op, holder, strlen(holder));
    return ligi_rados_op_run(e, op, e->meta, lock->object);
}

static lig_status held_by_other(const rados_lock *lock)
{
    ligi_rados *e = lock->e;
    rados_read_op_t op = e->api.rados_create_read_op();
    char holder[HOLDER_BYTES] = "";
    size_t bytes = 0;
    int inner = 0;

    e->api.rados_read_op_read(op, 0, sizeof holder - 1, holder, &bytes, &inner);
    int result = e->api.rados_read_op_operate(op, e->meta, lock->object, 0);
    e->api.rados_release_read_op(op);
    if (result != 0 || inner != 0 || bytes == 0)
        return e->host->fail(LIG_E_BUSY, "'%s' is locked by another process", lock->name);
    holder[bytes] = '\0';
    return e->host->fail(LIG_E_BUSY, "'%s' is locked by %s", lock->name, holder);
}

static void lock_destroy(rados_lock *lock)
{
    free(lock->name);
    free(lock);
}

lig_status ligi_rados_lock(void *self, const char *name, const char *holder, int64_t ttl_ns,
                           void **lock)
{
    ligi_rados *e = self;
    ligi_rados_token cookie;
    rados_lock *made = calloc(1, sizeof *made);
    lig_status status = LIG_E_NOMEM;

    if (made == NULL || (made->name = strdup(name)) == NULL) {
        free(made);
        return e->host->fail(LIG_E_NOMEM, "out of memory for a lock");
    }
    made->e = e;
    if (ligi_rados_lock_name(name, made->object, sizeof made->object) != LIG_OK)
        status = e->host->fail(LIG_E_LIMIT, "the name of a lock is longer than 200 bytes");
    else
        status = e->host->random(cookie.bytes, sizeof cookie.bytes);
    if (status == LIG_OK) {
        made->cookie = ligi_rados_token_text(&cookie);
        int result = take(made, holder, ttl_ns, 0);
        if (result == -EBUSY || result == -EEXIST)
            status = held_by_other(made);
        else if (result != 0)
            status = ligi_rados_fail(e, result, "locking a name");
    }
    if (status != LIG_OK) {
        lock_destroy(made);
        return status;
    }
    *lock = made;
    return LIG_OK;
}

lig_status ligi_rados_lock_renew(void *lock, int64_t ttl_ns)
{
    rados_lock *held = lock;
    int result = take(held, NULL, ttl_ns, LIBRADOS_LOCK_FLAG_MUST_RENEW);

    if (result == -ENOENT || result == -EBUSY)
        return held->e->host->fail(LIG_E_NOTFOUND, "the lock '%s' has expired", held->name);
    return result == 0 ? LIG_OK : ligi_rados_fail(held->e, result, "renewing a lock");
}

void ligi_rados_unlock(void *lock, int forked)
{
    rados_lock *held = lock;

    if (held == NULL)
        return;
    if (!forked) {
        ligi_rados *e = held->e;
        ligi_class_argument argument = ligi_class_unlock_encode("name", held->cookie.text);
        rados_write_op_t op = e->api.rados_create_write_op();
        /* Not if it expired and another has it: unlock fails, and so does the whole operation. */
        e->api.rados_write_op_assert_exists(op);
        e->api.rados_write_op_exec(op, "lock", "unlock", argument.bytes, argument.size, NULL);
        e->api.rados_write_op_remove(op);
        ligi_rados_op_run(e, op, e->meta, held->object);
    }
    lock_destroy(held);
}
