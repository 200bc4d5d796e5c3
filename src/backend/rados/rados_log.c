#include "backend/rados/rados_log.h"

#include "backend/rados/rados_error.h"
#include "backend/rados/rados_ops.h"
#include "backend/rados/rados_pools.h"
#include "backend/rados/rados_record.h"
#include "backend/rados/rados_watch.h"
#include "base/clock.h"
#include "base/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- birth --- */

lig_status ligi_rados_marker_put(void *self, const void *marker, size_t bytes)
{
    ligi_rados *e = self;
    rados_write_op_t op = e->api.rados_create_write_op();
    uint8_t version[8] = {0};

    e->api.rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
    e->api.rados_write_op_write_full(op, marker, bytes);
    ligi_rados_op_set(e, op, "v", version, sizeof version);
    ligi_rados_op_set(e, op, "data", e->data_pool, strlen(e->data_pool));
    int result = ligi_rados_op_run(e, op, e->meta, LIGI_RADOS_HEAD);
    if (result == -EEXIST || result == -ETIMEDOUT) {
        /* An unanswered request may have been executed. */
        uint8_t found[LIGI_ENGINE_MARKER_MAX];
        size_t found_bytes = 0;
        lig_status status = ligi_rados_marker_get(e, found, &found_bytes);
        if (status == LIG_OK && found_bytes == bytes && memcmp(found, marker, bytes) == 0)
            return LIG_OK;
        if (status == LIG_OK || (status == LIG_E_NOTFOUND && result == -EEXIST))
            return e->host->fail(LIG_E_EXISTS, "a store already exists in pool '%s', prefix '%s'",
                                 e->pool, e->prefix);
        if (status != LIG_E_NOTFOUND)
            return status;
    }
    return result == 0 ? LIG_OK : ligi_rados_fail(e, result, "creating a store");
}

lig_status ligi_rados_marker_get(void *self, void *marker, size_t *bytes)
{
    ligi_rados *e = self;
    rados_read_op_t op = e->api.rados_create_read_op();
    char pool[256] = "";
    size_t pool_bytes = 0, read_bytes = 0;
    int inner = 0;

    e->api.rados_read_op_read(op, 0, LIGI_ENGINE_MARKER_MAX, marker, &read_bytes, &inner);
    int result = e->api.rados_read_op_operate(op, e->meta, LIGI_RADOS_HEAD, 0);
    e->api.rados_release_read_op(op);
    if (result == -ENOENT)
        return LIG_E_NOTFOUND;
    if (result == 0)
        result = inner;
    if (result == 0)
        result =
            ligi_rados_key_read(e, LIGI_RADOS_HEAD, "data", pool, sizeof pool - 1, &pool_bytes);
    if (result == -ENODATA)
        return e->host->fail(LIG_E_CORRUPT,
                             "object 'head' of pool '%s', prefix '%s' is not a store's", e->pool,
                             e->prefix);
    if (result != 0)
        return ligi_rados_fail(e, result, "opening a store");
    pool[pool_bytes] = '\0';
    *bytes = read_bytes;
    return ligi_rados_data_pool_use(e, pool);
}

/* --- appending --- */

typedef enum rados_owner { MINE, OTHERS, NOBODYS, REMOVED } rados_owner;

/* Determines the writer of commit `version`. */
static int entry_owner(ligi_rados *e, uint64_t version, const void *id, rados_owner *owner)
{
    uint8_t *value = malloc(LIGI_RADOS_VALUE_MAX), last[8];
    ligi_rados_name key = ligi_rados_log_key(version);
    size_t bytes = 0, last_bytes = 0;

    if (value == NULL)
        return -ENOMEM;
    /* The version first: an entry that is not there afterwards was removed, not late. */
    int result = ligi_rados_key_read(e, LIGI_RADOS_HEAD, "v", last, sizeof last, &last_bytes);
    if (result == 0)
        result =
            ligi_rados_key_read(e, LIGI_RADOS_HEAD, key.text, value, LIGI_RADOS_VALUE_MAX, &bytes);
    if (result == 0)
        *owner = ligi_rados_value_is(value, bytes, id) ? MINE : OTHERS;
    if (result == -ENODATA) {
        *owner = last_bytes == 8 && ligi_load_le(last, 8) >= version ? REMOVED : NOBODYS;
        result = 0;
    }
    free(value);
    return result;
}

static int compare_and_set(ligi_rados *e, uint64_t before, const ligi_rados_value *value)
{
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_name key = ligi_rados_log_key(before + 1);
    uint8_t old[8], new[8];

    ligi_store_le(old, before, 8);
    ligi_store_le(new, before + 1, 8);
    e->api.rados_write_op_assert_exists(op);
    ligi_rados_op_expect(e, op, "v", old, sizeof old);
    ligi_rados_op_set(e, op, "v", new, sizeof new);
    ligi_rados_op_set(e, op, key.text, value->bytes, value->size);
    return ligi_rados_op_run(e, op, e->meta, LIGI_RADOS_HEAD);
}

/* An unanswered request may be executed late. Repeating the request decides: it is refused if the
 * first one, or another writer's, was executed before, and the entry's id shows which. */
static lig_status append_value(ligi_rados *e, uint64_t before, const void *id,
                               const ligi_rados_value *value)
{
    const int64_t deadline = ligi_time_until(e->timeout_ns);
    int unanswered = 0;

    for (;;) {
        rados_owner owner;
        int result = compare_and_set(e, before, value);
        if (result == 0)
            return LIG_OK;
        if (result != -ECANCELED && result != -ETIMEDOUT)
            return unanswered ? ligi_rados_fail(e, -EIO, "a commit, whose outcome is unknown,")
                              : ligi_rados_fail(e, result, "a commit");
        unanswered |= result == -ETIMEDOUT;
        int looked = entry_owner(e, before + 1, id, &owner);
        if (looked == 0 && owner == MINE)
            return LIG_OK;
        if (looked == 0 && (owner == OTHERS || (!unanswered && result == -ECANCELED)))
            return LIG_E_BUSY;
        if (ligi_time_left(deadline) == 0 || (looked == 0 && owner == REMOVED))
            return e->host->fail(LIG_E_IO,
                                 "the outcome of a commit is unknown: the Ceph cluster did not "
                                 "answer within %.3g s for pool '%s' (ceph -s shows its state)",
                                 (double)e->timeout_ns / 1e9, e->pool);
    }
}

lig_status ligi_rados_log_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                                 const void *record, size_t bytes)
{
    ligi_rados *e = self;
    ligi_rados_value value;

    (void)fresh_ns; /* "v" records removed entries, so an old number cannot be added again */
    LIG_TRY(ligi_rados_record_put(e, end->version + 1, record, bytes, &value));
    lig_status status = append_value(e, end->version, record, &value);
    if (status == LIG_OK)
        ligi_rados_notify(e, end->version + 1);
    else if (status != LIG_E_IO)
        ligi_rados_record_drop(e, end->version + 1, &value);
    free(value.bytes);
    return status;
}

/* --- reading --- */

typedef struct log_walk {
    ligi_rados *e;
    uint64_t after, last; /* visited; the newest */
    ligi_log_visit visit;
    void *context;
} log_walk;

static lig_status visit_entries(log_walk *walk, rados_omap_iter_t entries)
{
    char *key, *value;
    size_t key_bytes, bytes;
    uint64_t version;

    for (;;) {
        int result = walk->e->api.rados_omap_get_next2(entries, &key, &value, &key_bytes, &bytes);
        if (result != 0)
            return ligi_rados_fail(walk->e, result, "reading the log");
        if (key == NULL)
            return LIG_OK;
        if (!ligi_rados_key_number(key, key_bytes, "log/", &version) || version != walk->after + 1)
            return LIG_E_NOTFOUND;
        LIG_TRY(
            ligi_rados_record_visit(walk->e, version, value, bytes, walk->visit, walk->context));
        walk->after = version;
    }
}

/* The version and the entries in one operation, so that they are consistent. */
static lig_status read_page(log_walk *walk)
{
    ligi_rados *e = walk->e;
    rados_read_op_t op = e->api.rados_create_read_op();
    ligi_rados_name after = ligi_rados_log_key(walk->after);
    rados_omap_iter_t version, entries;
    const char *key = "v";
    char *found_key = NULL, *found = NULL;
    size_t key_bytes = 1, bytes = 0;
    unsigned char more;
    int inner[2] = {0, 0};
    lig_status status = LIG_OK;

    e->api.rados_read_op_omap_get_vals_by_keys2(op, &key, 1, &key_bytes, &version, &inner[0]);
    e->api.rados_read_op_omap_get_vals2(op, after.text, "log/", LIGI_RADOS_LOG_PAGE, &entries,
                                        &more, &inner[1]);
    int result = e->api.rados_read_op_operate(op, e->meta, LIGI_RADOS_HEAD, 0);
    e->api.rados_release_read_op(op);
    result = result != 0 ? result : inner[0] != 0 ? inner[0] : inner[1];
    if (result == 0)
        result = e->api.rados_omap_get_next2(version, &found_key, &found, &key_bytes, &bytes);
    if (result != 0)
        status = ligi_rados_fail(e, result, "reading the log");
    else if (found_key == NULL || bytes != 8)
        status = e->host->fail(LIG_E_CORRUPT, "the log in pool '%s', prefix '%s' has no version",
                               e->pool, e->prefix);
    else
        walk->last = ligi_load_le(found, 8);
    if (status == LIG_OK && walk->last > walk->after)
        status = visit_entries(walk, entries);
    e->api.rados_omap_get_end(version);
    e->api.rados_omap_get_end(entries);
    return status;
}

lig_status ligi_rados_log_read(void *self, const ligi_log_end *end, int64_t fresh_ns,
                               ligi_log_visit visit, void *context)
{
    log_walk walk = {.e = self, .after = end->version, .visit = visit, .context = context};

    (void)fresh_ns;
    for (;;) {
        uint64_t before = walk.after;
        LIG_TRY(read_page(&walk));
        if (walk.last < walk.after)
            return LIG_E_NOTFOUND;
        if (walk.last == walk.after)
            return LIG_OK;
        if (walk.after == before)
            return LIG_E_NOTFOUND; /* the next one was removed */
    }
}

/* --- trimming --- */

static int kept_from(ligi_rados *e, uint64_t *version)
{
    uint8_t last[8];
    size_t bytes = 0;
    int result = ligi_rados_key_read(e, LIGI_RADOS_HEAD, "v", last, sizeof last, &bytes);

    if (result == 0 && bytes != sizeof last)
        result = -EBADMSG;
    if (result == 0) {
        uint64_t end = ligi_load_le(last, 8);
        *version = end > LIGI_RADOS_LOG_KEPT ? end - LIGI_RADOS_LOG_KEPT : 0;
    }
    return result;
}

lig_status ligi_rados_log_trim(void *self, uint64_t before, int64_t keep_ns)
{
    ligi_rados *e = self;
    uint64_t kept = 0;
    int result = kept_from(e, &kept);

    (void)keep_ns;
    if (result != 0)
        return ligi_rados_fail(e, result, "trimming the log");
    if (before > kept)
        before = kept;
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_name first = ligi_rados_log_key(0), end = ligi_rados_log_key(before);
    e->api.rados_write_op_assert_exists(op);
    e->api.rados_write_op_omap_rm_range2(op, first.text, strlen(first.text), end.text,
                                         strlen(end.text));
    result = ligi_rados_op_run(e, op, e->meta, LIGI_RADOS_HEAD);
    if (result != 0)
        return ligi_rados_fail(e, result, "trimming the log");
    return ligi_rados_records_remove(e, before);
}

lig_status ligi_rados_checkpoint_publish(void *self, uint64_t version)
{
    ligi_rados *e = self;
    rados_write_op_t op = e->api.rados_create_write_op();
    ligi_rados_name list = ligi_rados_shard_name(LIGI_OBJECT_CHECKPOINT, 0);

    ligi_rados_op_set(e, op, ligi_rados_published_key(version).text, "1", 1);
    int result = ligi_rados_op_run(e, op, e->meta, list.text);
    return result == 0 ? LIG_OK : ligi_rados_fail(e, result, "publishing a checkpoint");
}

typedef struct newest_walk {
    uint64_t before, version;
    int found;
} newest_walk;

static int visit_published(void *context, const char *key, size_t key_bytes, const void *value,
                           size_t bytes)
{
    newest_walk *walk = context;
    uint64_t version;

    (void)value, (void)bytes;
    if (ligi_rados_key_number(key, key_bytes, "published/", &version) && version < walk->before) {
        walk->version = version;
        walk->found = 1;
    }
    return 0;
}

lig_status ligi_rados_checkpoint_newest(void *self, uint64_t before, uint64_t *version)
{
    ligi_rados *e = self;
    ligi_rados_name list = ligi_rados_shard_name(LIGI_OBJECT_CHECKPOINT, 0);
    newest_walk walk = {.before = before};

    int result = ligi_rados_keys_visit(e, list.text, "", "published/", visit_published, &walk);
    if (result != 0)
        return ligi_rados_fail(e, result, "listing checkpoints");
    if (!walk.found)
        return LIG_E_NOTFOUND;
    *version = walk.version;
    return LIG_OK;
}
