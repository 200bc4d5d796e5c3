/* Birth, commits and errors: tools/engines run build/tests/rados_log_engine_test */
#include "backend/rados/rados_log.h"
#include "backend/remote/remote_volume.h"
#include "base/clock.h"
#include "commit_ops.h"
#include "rados_scene.h"

#include <pthread.h>

static void test_birth(void **state)
{
    (void)state;
    place where = fresh_place();
    uint8_t marker[LIGI_ENGINE_MARKER_MAX];
    size_t bytes = 0;
    void *self = NULL, *other = NULL;

    assert_ok(open_place(&where, &self));
    assert_status(ops->marker_get(self, marker, &bytes), LIG_E_NOTFOUND);
    assert_ok(ops->marker_put(self, "mine", 4));
    assert_ok(open_place(&where, &other));
    assert_status(ops->marker_put(other, "yours", 5), LIG_E_EXISTS);
    assert_ok(ops->marker_get(other, marker, &bytes));
    assert_int_equal(bytes, 4);
    assert_memory_equal(marker, "mine", 4);
    ops->close(self, 0);
    ops->close(other, 0);
}

static void test_log(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL;
    seen s;

    assert_ok(open_place(&where, &other));
    assert_ok(read_after(self, 0, &s));
    assert_int_equal(s.count, 0);
    for (uint64_t v = 0; v < 5; v++)
        assert_ok(append(v % 2 ? self : other, v, 100 + v));
    assert_status(append(self, 3, 100), LIG_E_BUSY);
    assert_status(append(self, 7, 100), LIG_E_BUSY);
    /* Large ones have objects of their own. */
    assert_ok(append(self, 5, 64 << 10));
    assert_ok(append(self, 6, (64 << 10) + 1));
    assert_status(append(other, 6, 9 << 20), LIG_E_BUSY);
    assert_ok(append(other, 7, 9 << 20));
    assert_ok(read_after(self, 3, &s));
    assert_int_equal(s.first, 4);
    assert_int_equal(s.last, 8);
    assert_int_equal(s.bytes[4], 9 << 20);
    assert_status(read_after(self, 9, &s), LIG_E_NOTFOUND);
    /* The newest are kept for those who follow the log. */
    assert_ok(ops->log_trim(other, 9, 0));
    assert_ok(read_after(self, 0, &s));
    assert_int_equal(s.count, 8);
    ops->close(self, 0);
    ops->close(other, 0);
}

static void test_trim(void **state)
{
    (void)state;
    const uint64_t count = LIGI_RADOS_LOG_PAGE + 10;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL;
    seen s;

    assert_ok(open_place(&where, &other));
    for (uint64_t v = 0; v < count; v++)
        assert_ok(append(self, v, v % 100 == 7 ? 100000 : 40));
    assert_status(append(self, 7, 100000), LIG_E_BUSY);
    assert_ok(read_after(other, 0, &s));
    assert_int_equal(s.count, count);
    assert_ok(ops->log_trim(other, 51, 0));
    assert_status(read_after(self, 49, &s), LIG_E_NOTFOUND);
    assert_ok(read_after(self, 50, &s));
    assert_int_equal(s.count, count - 50);
    assert_ok(ops->log_trim(other, count + 1, 0));
    assert_status(read_after(self, 50, &s), LIG_E_NOTFOUND);
    assert_ok(read_after(self, count - LIGI_RADOS_LOG_KEPT, &s));
    assert_int_equal(s.count, LIGI_RADOS_LOG_KEPT);
    /* A number that was removed is not free again. */
    assert_status(append(self, 3, 100), LIG_E_BUSY);
    assert_ok(append(self, count, 100));
    ops->close(self, 0);
    ops->close(other, 0);
}

/* 32 MiB are not written again for some hundred small commits. */
static void test_few_checkpoints(void **state)
{
    (void)state;
    const place where = fresh_place();
    const uint64_t large = 64;
    char config[512], *value = calloc(1, 512 << 10);
    void *self = NULL;
    uint64_t newest = 0;

    snprintf(config, sizeof config, "//%s/%s?conf=%s&id=%s", where.pool, where.prefix, where.conf,
             setting("ID"));
    assert_ok(ligi_remote_open(ops, config, &self));
    for (uint64_t i = 0; i < large + 400; i++) {
        const uint64_t key = i < large ? i : large;
        const lig_catalog_op op = {&key, sizeof key, value, i < large ? 512 << 10 : 8};
        assert_ok(commit_ops(&ligi_remote_volume_ops, self, i, &op, 1));
    }
    ligi_remote_close(self); /* finishes the checkpoint */
    free(value);
    assert_ok(open_place(&where, &self));
    assert_ok(ops->checkpoint_newest(self, UINT64_MAX, &newest));
    assert_in_range(newest, large, large + 200);
    ops->close(self, 0);
}

typedef struct appender {
    place where;
    unsigned won;
    lig_status status;
} appender;

static void *append_many(void *context)
{
    appender *a = context;
    void *self = NULL;
    seen s;

    a->status = open_place(&a->where, &self);
    while (a->status == LIG_OK && a->won < 20) {
        a->status = read_after(self, 0, &s);
        if (a->status != LIG_OK)
            break;
        lig_status status = append(self, s.last, 50);
        if (status == LIG_OK)
            a->won++;
        else if (status != LIG_E_BUSY)
            a->status = status;
    }
    if (self != NULL)
        ops->close(self, 0);
    return NULL;
}

static void test_many_committers(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where);
    pthread_t threads[4];
    appender appenders[4];
    seen s;

    for (int i = 0; i < 4; i++) {
        appenders[i] = (appender){.where = where};
        pthread_create(&threads[i], NULL, append_many, &appenders[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(appenders[i].status, LIG_OK);
    }
    assert_ok(read_after(self, 0, &s));
    assert_int_equal(s.count, 80);
    ops->close(self, 0);
}

static void *commit_later(void *context)
{
    return (void *)(intptr_t)append(context, 0, 50);
}

static void test_wait(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL, *result;
    pthread_t thread;

    assert_ok(open_place(&where, &other));
    assert_ok(ops->log_wait(other, 0, SECOND / 100));
    pthread_create(&thread, NULL, commit_later, self);
    seen s = {0};
    while (s.count == 0) {
        assert_ok(ops->log_wait(other, 0, 600 * SECOND));
        assert_ok(read_after(other, 0, &s));
    }
    pthread_join(thread, &result);
    assert_null(result);
    assert_ok(ops->log_wait(self, 0, 600 * SECOND)); /* its own */
    ops->close(other, 0);
    ops->close(self, 0);
}

/* --- what goes wrong --- */

static void test_refusals(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = NULL;

    snprintf(where.pool, sizeof where.pool, "no-such-pool");
    assert_status(open_place(&where, &self), LIG_E_NOTFOUND);
    assert_says("there is no pool 'no-such-pool'");
    where = fresh_place();
    where.conf = (char *)setting("BAD_CONF");
    assert_status(open_place(&where, &self), LIG_E_DENIED);
    assert_says("refuses the key of client.admin");
    where.conf = "/nonexistent/ceph.conf";
    assert_status(open_place(&where, &self), LIG_E_NOTFOUND);
    assert_says("/nonexistent/ceph.conf");
    where = fresh_place();
    snprintf(where.pool, sizeof where.pool, "%s", setting("EC_POOL"));
    assert_ok(open_place(&where, &self));
    assert_status(ops->marker_put(self, "m", 1), LIG_E_UNSUPPORTED);
    assert_says("data=");
    ops->close(self, 0);
}

static lig_status write_pack(void *self, uint64_t id)
{
    void *writer = NULL, *memory = NULL;
    uint64_t room = 0;

    LIG_TRY(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, id}, 0, 60 * SECOND, &writer));
    lig_status status = ops->object_room(writer, &memory, &room);
    if (status == LIG_OK)
        status = ops->object_push(writer, room);
    if (status == LIG_OK)
        status = ops->object_seal(writer);
    ops->object_close(writer, 0);
    return status;
}

static size_t remove_packs(void *self)
{
    uint64_t found[64];
    lig_status results[64];
    size_t count = 0;

    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, found, 64, &count));
    assert_ok(ops->object_remove(self, LIGI_OBJECT_PACK, found, count, results));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(results[i], LIG_OK);
    return count;
}

/* Writes fail at once, with a sentence, and removal works: a full pool can be cleared. The cluster
 * takes some seconds to notice that a pool is full, or no longer. */
static void test_full_pool(void **state)
{
    (void)state;
    const int64_t deadline = ligi_time_until(120 * SECOND);
    place where = fresh_place();
    lig_status status;
    void *self = NULL;
    size_t removed = 0;

    snprintf(where.pool, sizeof where.pool, "%s", setting("QUOTA_POOL"));
    assert_ok(open_place(&where, &self));
    do
        status = ops->marker_put(self, "marker", 6);
    while (status == LIG_E_LIMIT && ligi_time_left(deadline) > 0);
    assert_ok(status);
    for (uint64_t id = 1; status == LIG_OK && ligi_time_left(deadline) > 0; id++)
        status = write_pack(self, id);
    assert_status(status, LIG_E_LIMIT);
    assert_says("quota");
    assert_ok(append(self, 0, 1000)); /* keys do not count */
    for (size_t count = remove_packs(self); count > 0; count = remove_packs(self))
        removed += count;
    assert_true(removed > 0);
    ops->close(self, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_birth),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_few_checkpoints),
        cmocka_unit_test(test_many_committers),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_full_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
