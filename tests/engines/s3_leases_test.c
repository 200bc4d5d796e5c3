/* Claims, pins and locks against a real server (make test-engines). */
#include "s3_scene.h"

static void test_claims(void **state)
{
    void *self = ((scene *)*state)->self, *writer, *other;
    lig_status result;
    uint64_t id = 77;

    assert_ok(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, id}, 10, HOUR, &writer));
    assert_status(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, id}, 10, HOUR, &other),
                  LIG_E_EXISTS);
    assert_ok(push_all(writer, 10, 1));
    assert_ok(ops->object_renew(writer, HOUR));
    assert_ok(ops->object_seal(writer));
    assert_status(ops->pack_held(self, id), LIG_E_BUSY);
    ops->object_close(writer, 0);
    assert_ok(ops->pack_held(self, id));
    assert_ok(ops->object_remove(self, LIGI_OBJECT_PACK, &id, 1, &result));
    assert_int_equal(result, LIG_OK);
    assert_status(ops->pack_held(self, id), LIG_E_NOTFOUND);
}

/* A claim that ended by time: the draft goes, and its writer cannot seal. */
static void lose_claim(void *self, uint64_t id, uint64_t bytes)
{
    void *writer;
    uint64_t ids[2];
    size_t count;
    int more;
    lig_status renewed = LIG_OK;

    assert_ok(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, id}, bytes, 1, &writer));
    assert_ok(push_all(writer, bytes, 1));
    /* Ages are in seconds: the claim is stale when the server's clock has moved on by two. */
    for (int64_t until = ligi_time_until(30 * SECOND); ligi_time_left(until) > 0;) {
        assert_ok(ops->log_wait(self, 1000000, SECOND / 5));
        assert_ok(ops->drafts_remove(self, &more));
        ligi_object_kind kind = LIGI_OBJECT_PACK;
        assert_ok(ops->object_list(self, kind, 0, ids, 2, &count));
        /* The claim is free for others once it was removed. */
        void *other;
        renewed = ops->object_create(self, (ligi_object){kind, id}, 1, 1, &other);
        if (renewed == LIG_OK) {
            ops->object_close(other, 0);
            break;
        }
    }
    assert_int_equal(renewed, LIG_OK);
    assert_ok(ops->drafts_remove(self, &more));
    assert_status(ops->object_renew(writer, HOUR), LIG_E_NOTFOUND);
    lig_status sealed = ops->object_seal(writer);
    assert_true(sealed == LIG_E_TIMEOUT || sealed == LIG_E_IO);
    ops->object_close(writer, 0);
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, ids, 2, &count));
    assert_int_equal(count, 0);
}

static void test_lost_claims(void **state)
{
    void *self = ((scene *)*state)->self;

    lose_claim(self, 5, 100);
    lose_claim(self, 6, 20 * MIB);
}

static void test_pins(void **state)
{
    void *self = ((scene *)*state)->self, *pin, *second;
    const uint64_t packs[] = {1, 2, 3};
    lig_status results[3];
    uint8_t pinned[3];

    for (size_t i = 0; i < 3; i++)
        write_object(self, (ligi_object){LIGI_OBJECT_PACK, packs[i]}, 10, i);
    assert_ok(ops->pin(self, packs, 2, HOUR, &pin));
    assert_ok(ops->pin(self, packs + 1, 1, HOUR, &second));
    assert_ok(ops->pin_renew(pin, HOUR));
    assert_ok(ops->pinned(self, packs, 3, pinned));
    assert_memory_equal(pinned, "\1\1\0", 3);
    assert_ok(ops->object_remove(self, LIGI_OBJECT_PACK, packs, 3, results));
    assert_int_equal(results[0], LIG_E_BUSY);
    assert_int_equal(results[1], LIG_E_BUSY);
    assert_int_equal(results[2], LIG_OK);
    ops->unpin(pin, 0);
    assert_ok(ops->pinned(self, packs, 3, pinned));
    assert_memory_equal(pinned, "\0\1\0", 3);
    ops->unpin(second, 0);
    ops->unpin(NULL, 0);
    assert_ok(ops->object_remove(self, LIGI_OBJECT_PACK, packs, 3, results));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(results[i], LIG_OK);
}

static void test_locks(void **state)
{
    void *self = ((scene *)*state)->self, *lock, *other;

    for (int round = 0; round < 4; round++) {
        assert_ok(ops->lock(self, "compact/me", "process 1 on host a", HOUR, &lock));
        assert_status(ops->lock(self, "compact/me", "process 2 on host b", HOUR, &other),
                      LIG_E_BUSY);
        assert_says("process 1 on host a");
        assert_ok(ops->lock(self, "another", "process 2", HOUR, &other));
        assert_ok(ops->lock_renew(lock, HOUR));
        ops->unlock(lock, 0);
        ops->unlock(other, 0);
    }
    ops->unlock(NULL, 0);
    /* One whose holder died is taken over, and the old holder learns of it. */
    assert_ok(ops->lock(self, "lost", "process 1", 1, &lock));
    lig_status status = LIG_E_BUSY;
    for (int64_t until = ligi_time_until(30 * SECOND); status == LIG_E_BUSY;) {
        assert_true(ligi_time_left(until) > 0);
        status = ops->lock(self, "lost", "process 2", HOUR, &other);
    }
    assert_int_equal(status, LIG_OK);
    assert_status(ops->lock_renew(lock, HOUR), LIG_E_NOTFOUND);
    ops->unlock(lock, 0);
    assert_status(ops->lock(self, "lost", "process 3", HOUR, &lock), LIG_E_BUSY);
    assert_says("process 2");
    ops->unlock(other, 0);
}

int main(void)
{
    if (getenv("LIGAMENT_TEST_S3_ENDPOINT") == NULL) {
        puts("skipped: no S3 server (make test-engines)");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_claims, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_claims, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_locks, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
