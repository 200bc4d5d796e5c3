#include "backend/rados/rados_ops.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { KEYS_AT_ONCE = 512 };

void ligi_rados_op_set(const ligi_rados *e, rados_write_op_t op, const char *key, const void *value,
                       size_t bytes)
{
    const char *text = value;
    size_t key_bytes = strlen(key);

    e->api.rados_write_op_omap_set2(op, &key, &text, &key_bytes, &bytes, 1);
}

void ligi_rados_op_unset(const ligi_rados *e, rados_write_op_t op, const char *key)
{
    size_t key_bytes = strlen(key);

    e->api.rados_write_op_omap_rm_keys2(op, &key, &key_bytes, 1);
}

void ligi_rados_op_expect(const ligi_rados *e, rados_write_op_t op, const char *key,
                          const void *value, size_t bytes)
{
    e->api.rados_write_op_omap_cmp2(op, key, LIBRADOS_CMPXATTR_OP_EQ, value, strlen(key), bytes,
                                    NULL);
}

void ligi_rados_op_lock(const ligi_rados *e, rados_write_op_t op, const ligi_class_lock *lock)
{
    ligi_class_argument argument = ligi_class_lock_encode(lock);

    e->api.rados_write_op_exec(op, "lock", "lock", argument.bytes, argument.size, NULL);
}

int ligi_rados_op_run(const ligi_rados *e, rados_write_op_t op, rados_ioctx_t io,
                      const char *object)
{
    int result = e->api.rados_write_op_operate2(op, io, object, NULL, 0);

    e->api.rados_release_write_op(op);
    return result;
}

int ligi_rados_key_read(const ligi_rados *e, const char *object, const char *key, void *value,
                        size_t capacity, size_t *bytes)
{
    rados_read_op_t op = e->api.rados_create_read_op();
    rados_omap_iter_t values;
    size_t key_bytes = strlen(key), found_bytes = 0;
    char *found_key = NULL, *found = NULL;
    int inner = 0;

    e->api.rados_read_op_omap_get_vals_by_keys2(op, &key, 1, &key_bytes, &values, &inner);
    int result = e->api.rados_read_op_operate(op, e->meta, object, 0);
    e->api.rados_release_read_op(op);
    if (result == 0)
        result = inner;
    if (result == 0)
        result = e->api.rados_omap_get_next2(values, &found_key, &found, &key_bytes, &found_bytes);
    if (result == 0 && found_key == NULL)
        result = -ENODATA;
    if (result == 0 && found_bytes > capacity)
        result = -ERANGE;
    if (result == 0) {
        memcpy(value, found, found_bytes);
        *bytes = found_bytes;
    }
    e->api.rados_omap_get_end(values);
    return result;
}

typedef struct key_walk {
    const char *object, *begin;
    ligi_rados_visit visit;
    void *context;
    ligi_rados_name last; /* key that was read */
    unsigned char more;
} key_walk;

static int visit_page(const ligi_rados *e, key_walk *walk)
{
    rados_read_op_t op = e->api.rados_create_read_op();
    rados_omap_iter_t values;
    char *key, *value;
    size_t key_bytes, bytes;
    int inner = 0;

    e->api.rados_read_op_omap_get_vals2(op, walk->last.text, walk->begin, KEYS_AT_ONCE, &values,
                                        &walk->more, &inner);
    int result = e->api.rados_read_op_operate(op, e->meta, walk->object, 0);
    e->api.rados_release_read_op(op);
    if (result == 0)
        result = inner;
    while (result == 0) {
        result = e->api.rados_omap_get_next2(values, &key, &value, &key_bytes, &bytes);
        if (result != 0 || key == NULL)
            break;
        /* Longer ones are not ours. */
        if (key_bytes < sizeof walk->last.text) {
            memcpy(walk->last.text, key, key_bytes);
            walk->last.text[key_bytes] = '\0';
            result = walk->visit(walk->context, key, key_bytes, value, bytes);
        }
    }
    e->api.rados_omap_get_end(values);
    return result;
}

int ligi_rados_keys_visit(const ligi_rados *e, const char *object, const char *after,
                          const char *begin, ligi_rados_visit visit, void *context)
{
    key_walk walk = {.object = object, .begin = begin, .visit = visit, .context = context};
    int result;

    assert(strlen(after) < sizeof walk.last.text);
    memcpy(walk.last.text, after, strlen(after) + 1);
    do {
        walk.more = 0;
        result = visit_page(e, &walk);
    } while (result == 0 && walk.more);
    return result == -ENOENT ? 0 : result;
}

int ligi_rados_lock_holders(const ligi_rados *e, const char *object, const char *lock,
                            uint32_t *holders)
{
    ligi_class_argument argument = ligi_class_info_encode(lock);
    rados_read_op_t op = e->api.rados_create_read_op();
    char answer[4096];
    size_t used = 0;
    int inner = 0;

    e->api.rados_read_op_exec_user_buf(op, "lock", "get_info", argument.bytes, argument.size,
                                       answer, sizeof answer, &used, &inner);
    int result = e->api.rados_read_op_operate(op, e->data, object, 0);
    e->api.rados_release_read_op(op);
    if (result == 0)
        result = inner;
    if (result == -ERANGE) { /* more than fit: many hold it */
        *holders = UINT32_MAX;
        return 0;
    }
    if (result == 0 && !ligi_class_info_decode(answer, used, holders))
        result = -EBADMSG;
    return result;
}

void ligi_rados_flight_init(ligi_rados_flight *flight, const ligi_rados *e,
                            ligi_rados_landed landed, void *context)
{
    *flight = (ligi_rados_flight){.e = e, .landed = landed, .context = context};
}

static void land(ligi_rados_flight *flight, unsigned at, int result)
{
    size_t tag = flight->ring[at].tag;
    uint64_t bytes = flight->ring[at].bytes;

    flight->e->api.rados_aio_release(flight->ring[at].done);
    flight->count--;
    flight->landed(flight->context, tag, bytes, result);
}

static void land_oldest(ligi_rados_flight *flight)
{
    const ligi_rados_calls *api = &flight->e->api;
    unsigned at = flight->first;

    assert(flight->count > 0);
    api->rados_aio_wait_for_complete(flight->ring[at].done);
    flight->first = (at + 1) % LIGI_RADOS_WINDOW;
    land(flight, at, api->rados_aio_get_return_value(flight->ring[at].done));
}

rados_completion_t ligi_rados_flight_next(ligi_rados_flight *flight, size_t tag, uint64_t bytes)
{
    rados_completion_t made;

    if (flight->count == LIGI_RADOS_WINDOW)
        land_oldest(flight);
    if (flight->e->api.rados_aio_create_completion2(NULL, NULL, &made) != 0)
        return NULL;
    unsigned at = (flight->first + flight->count) % LIGI_RADOS_WINDOW;
    flight->ring[at].done = made;
    flight->ring[at].tag = tag;
    flight->ring[at].bytes = bytes;
    flight->count++;
    return made;
}

/* What never started never completes. */
void ligi_rados_flight_started(ligi_rados_flight *flight, int result)
{
    assert(flight->count > 0);
    if (result != 0)
        land(flight, (flight->first + flight->count - 1) % LIGI_RADOS_WINDOW, result);
}

void ligi_rados_flight_drain(ligi_rados_flight *flight)
{
    while (flight->count > 0)
        land_oldest(flight);
}
