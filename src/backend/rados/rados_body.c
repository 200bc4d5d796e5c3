#include "backend/rados/rados_body.h"

#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"

#include <errno.h>
#include <stdlib.h>

/* --- looking up --- */

static ligi_rados_cached *place_of(ligi_rados *e, ligi_object object)
{
    return &e->cache[(object.id * UINT64_C(0x9e3779b97f4a7c15)) >> 52 & (LIGI_RADOS_CACHE - 1)];
}

/* A pack never changes under its id; a checkpoint may be replaced. */
void ligi_rados_body_remember(ligi_rados *e, const ligi_rados_body *body)
{
    if (body->object.kind != LIGI_OBJECT_PACK)
        return;
    pthread_mutex_lock(&e->cache_lock);
    *place_of(e, body->object) = (ligi_rados_cached){.body = *body, .valid = 1};
    pthread_mutex_unlock(&e->cache_lock);
}

void ligi_rados_body_forget(ligi_rados *e, ligi_object object)
{
    pthread_mutex_lock(&e->cache_lock);
    if (place_of(e, object)->body.object.id == object.id)
        place_of(e, object)->valid = 0;
    pthread_mutex_unlock(&e->cache_lock);
}

static int recall(ligi_rados *e, ligi_object object, ligi_rados_body *body)
{
    pthread_mutex_lock(&e->cache_lock);
    const ligi_rados_cached *at = place_of(e, object);
    int known = object.kind == LIGI_OBJECT_PACK && at->valid && at->body.object.id == object.id;
    if (known)
        *body = at->body;
    pthread_mutex_unlock(&e->cache_lock);
    return known;
}

int ligi_rados_body_find(ligi_rados *e, ligi_object object, ligi_rados_body *body)
{
    ligi_rados_name list = ligi_rados_list_name(object), key = ligi_rados_sealed_key(object.id);
    uint8_t value[LIGI_RADOS_BODY_BYTES];
    size_t bytes = 0;

    if (recall(e, object, body))
        return 0;
    int result = ligi_rados_key_read(e, list.text, key.text, value, sizeof value, &bytes);
    if (result == -ENOENT)
        return -ENODATA;
    if (result == 0 && !ligi_rados_body_decode(value, bytes, body))
        return -EBADMSG;
    if (result != 0)
        return result;
    body->object = object;
    ligi_rados_body_remember(e, body);
    return 0;
}

static lig_status find_failed(const ligi_rados *e, int result, ligi_object object)
{
    const char *what = object.kind == LIGI_OBJECT_PACK ? "pack" : "checkpoint";
    unsigned long long id = object.id;

    if (result == -ENODATA || result == -ENOENT)
        return e->host->fail(LIG_E_NOTFOUND, "there is no %s %016llx in pool '%s', prefix '%s'",
                             what, id, e->pool, e->prefix);
    if (result == -EBADMSG)
        return e->host->fail(LIG_E_CORRUPT,
                             "%s %016llx in pool '%s', prefix '%s' is damaged or shorter than it "
                             "was written",
                             what, id, e->data_pool, e->prefix);
    return ligi_rados_data_fail(e, result, "reading a pack");
}

lig_status ligi_rados_object_size(void *self, ligi_object object, uint64_t *bytes)
{
    ligi_rados *e = self;
    ligi_rados_body body;
    int result = ligi_rados_body_find(e, object, &body);

    if (result != 0)
        return find_failed(e, result, object);
    *bytes = body.bytes;
    return LIG_OK;
}

/* --- reading --- */

typedef struct object_reading {
    ligi_rados_body body;
    const ligi_object_range *ranges;
    size_t count;
    uint32_t *left; /* parts of each range in flight or not started */
    ligi_object_arrived arrived;
    void *context;
    lig_status refused; /* by `arrived` */
    int error;
    ligi_rados_flight flight;
} object_reading;

static void range_done(object_reading *reading, size_t index)
{
    if (--reading->left[index] == 0 && reading->error == 0 && reading->refused == LIG_OK &&
        reading->arrived != NULL)
        reading->refused = reading->arrived(reading->context, index);
}

static void part_landed(void *context, size_t index, uint64_t bytes, int result)
{
    object_reading *reading = context;

    if (result >= 0 && (uint64_t)result != bytes)
        result = -EBADMSG;
    if (result < 0 && reading->error == 0)
        reading->error = result;
    range_done(reading, index);
}

/* How many bytes from `offset` are in one stripe and fit in one request. */
static uint64_t part_of(const ligi_rados_body *body, uint64_t offset, uint64_t bytes)
{
    uint64_t part = body->stripe_bytes - offset % body->stripe_bytes;

    if (part > LIGI_RADOS_CHUNK_BYTES)
        part = LIGI_RADOS_CHUNK_BYTES;
    return part < bytes ? part : bytes;
}

static void read_part(object_reading *reading, size_t index, uint64_t at, uint64_t bytes)
{
    const ligi_rados *e = reading->flight.e;
    const ligi_object_range *range = &reading->ranges[index];
    uint64_t offset = range->offset + at, stripe_bytes = reading->body.stripe_bytes;
    ligi_rados_name name = ligi_rados_stripe_name(&reading->body, offset / stripe_bytes);
    rados_completion_t done = ligi_rados_flight_next(&reading->flight, index, bytes);

    if (done == NULL) {
        reading->error = -ENOMEM;
        return;
    }
    reading->left[index]++;
    ligi_rados_flight_started(
        &reading->flight, e->api.rados_aio_read(e->data, name.text, done, (char *)range->data + at,
                                                bytes, offset % stripe_bytes));
}

/* One more than its parts while the range is being asked for: it arrives after its last part. */
static void read_range(object_reading *reading, size_t index)
{
    const ligi_object_range *range = &reading->ranges[index];

    reading->left[index] = 1;
    for (uint64_t at = 0; at < range->bytes && reading->error == 0;) {
        uint64_t bytes = part_of(&reading->body, range->offset + at, range->bytes - at);
        read_part(reading, index, at, bytes);
        at += bytes;
    }
    range_done(reading, index);
}

static int within(const ligi_rados_body *body, const ligi_object_range *range)
{
    return range->offset <= body->bytes && range->bytes <= body->bytes - range->offset;
}

static int read_once(ligi_rados *e, object_reading *reading, ligi_object object)
{
    int result = ligi_rados_body_find(e, object, &reading->body);

    if (result != 0)
        return result;
    ligi_rados_flight_init(&reading->flight, e, part_landed, reading);
    for (size_t i = 0; i < reading->count && reading->error == 0 && reading->refused == LIG_OK;
         i++) {
        if (!within(&reading->body, &reading->ranges[i]))
            reading->error = -EBADMSG;
        else
            read_range(reading, i);
    }
    ligi_rados_flight_drain(&reading->flight);
    return reading->error;
}

lig_status ligi_rados_object_read(void *self, ligi_object object, const ligi_object_range *ranges,
                                  size_t count, ligi_object_arrived arrived, void *context)
{
    ligi_rados *e = self;
    object_reading reading = {
        .ranges = ranges, .count = count, .arrived = arrived, .context = context};

    if (count == 0)
        return LIG_OK;
    reading.left = calloc(count, sizeof *reading.left);
    if (reading.left == NULL)
        return e->host->fail(LIG_E_NOMEM, "out of memory for %zu ranges", count);
    int result = read_once(e, &reading, object);
    free(reading.left);
    if (reading.refused != LIG_OK)
        return reading.refused;
    if (result == 0)
        return LIG_OK;
    if (result == -ENOENT) { /* a stripe: was the whole object removed? */
        ligi_rados_body_forget(e, object);
        int found = ligi_rados_body_find(e, object, &reading.body);
        result = found == 0 ? -EBADMSG : found;
    }
    return find_failed(e, result, object);
}

/* --- listing --- */

typedef struct list_walk {
    uint64_t *ids;
    size_t capacity, count;
} list_walk;

static int visit_sealed(void *context, const char *key, size_t key_bytes, const void *value,
                        size_t bytes)
{
    list_walk *walk = context;

    (void)value, (void)bytes;
    if (walk->count == walk->capacity)
        return 1;
    if (ligi_rados_key_number(key, key_bytes, "sealed/", &walk->ids[walk->count]))
        walk->count++;
    return 0;
}

lig_status ligi_rados_object_list(void *self, ligi_object_kind kind, uint64_t after, uint64_t *ids,
                                  size_t capacity, size_t *count)
{
    ligi_rados *e = self;
    list_walk walk = {.ids = ids, .capacity = capacity};
    ligi_rados_name from = ligi_rados_sealed_key(after);
    unsigned shards = ligi_rados_shard_count(kind);
    int result = 0;

    for (unsigned shard = shards > 1 ? (unsigned)(after >> 60) : 0; shard < shards && result == 0;
         shard++)
        result = ligi_rados_keys_visit(e, ligi_rados_shard_name(kind, shard).text, from.text,
                                       "sealed/", visit_sealed, &walk);
    if (result < 0)
        return ligi_rados_fail(e, result, "listing packs");
    *count = walk.count;
    return LIG_OK;
}
