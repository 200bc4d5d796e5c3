/* Packs, checkpoints, claims and locks: tools/engines run build/tests/rados_object_engine_test */
#include "rados_scene.h"

/* --- objects --- */

static uint8_t byte_at(uint64_t id, uint64_t offset)
{
    return (uint8_t)((offset * UINT64_C(0x9e3779b97f4a7c15) >> 40) + id);
}

static void write_object(void *self, ligi_object object, uint64_t bytes, void **writer)
{
    void *memory;
    uint64_t room;

    assert_ok(ops->object_create(self, object, bytes, 60 * SECOND, writer));
    for (uint64_t at = 0; at < bytes;) {
        assert_ok(ops->object_room(*writer, &memory, &room));
        if (room > bytes - at)
            room = bytes - at;
        for (uint64_t i = 0; i < room; i++)
            ((uint8_t *)memory)[i] = byte_at(object.id, at + i);
        assert_ok(ops->object_push(*writer, room));
        at += room;
    }
    assert_ok(ops->object_seal(*writer));
}

static lig_status count_arrived(void *context, size_t index)
{
    (void)index;
    ++*(size_t *)context;
    return LIG_OK;
}

static lig_status refuse(void *context, size_t index)
{
    (void)context;
    return index == 1 ? lig_fail(LIG_E_CORRUPT, "refused") : LIG_OK;
}

static void read_and_compare(void *self, ligi_object object, uint64_t bytes)
{
    uint8_t *data = calloc(1, bytes + 1);
    const ligi_object_range ranges[] = {{data, 0, bytes / 3},
                                        {data + bytes / 3, bytes / 3, 0},
                                        {data + bytes / 3, bytes / 3, bytes - bytes / 3}};
    const ligi_object_range beyond = {data, bytes - 5, 6};
    size_t arrived = 0;

    assert_ok(ops->object_read(self, object, ranges, 3, count_arrived, &arrived));
    assert_int_equal(arrived, 3);
    for (uint64_t i = 0; i < bytes; i++)
        if (data[i] != byte_at(object.id, i))
            fail_msg("byte %llu differs", (unsigned long long)i);
    assert_status(ops->object_read(self, object, &beyond, 1, NULL, NULL), LIG_E_CORRUPT);
    assert_status(ops->object_read(self, object, ranges, 3, refuse, NULL), LIG_E_CORRUPT);
    assert_says("refused");
    free(data);
}

static lig_status remove_one(void *self, ligi_object object)
{
    lig_status result = LIG_OK;

    assert_ok(ops->object_remove(self, object.kind, &object.id, 1, &result));
    return result;
}

static void objects_in(place where)
{
    const ligi_object pack = {LIGI_OBJECT_PACK, UINT64_C(0x8000000000000001)};
    const uint64_t bytes = 70 * STRIPE + 12345; /* more stripes than announced */
    void *self = new_store(&where), *other = NULL, *writer = NULL, *again = NULL;
    uint64_t size = 0;

    assert_ok(ops->object_create(self, pack, 0, 60 * SECOND, &writer));
    assert_status(ops->object_create(self, pack, 0, 60 * SECOND, &again), LIG_E_EXISTS);
    ops->object_close(writer, 0);
    write_object(self, pack, bytes, &writer);
    assert_ok(open_place(&where, &other));
    uint8_t marker[LIGI_ENGINE_MARKER_MAX];
    assert_ok(ops->marker_get(other, marker, &size));
    assert_ok(ops->object_size(other, pack, &size));
    assert_int_equal(size, bytes);
    assert_status(ops->pack_held(other, pack.id), LIG_E_BUSY);
    assert_ok(ops->object_renew(writer, 60 * SECOND));
    ops->object_close(writer, 0);
    assert_ok(ops->pack_held(other, pack.id));
    assert_status(ops->object_create(other, pack, 0, 60 * SECOND, &again), LIG_E_EXISTS);
    read_and_compare(other, pack, bytes);
    assert_ok(remove_one(other, pack));
    assert_ok(remove_one(other, pack));
    assert_status(ops->object_size(other, pack, &size), LIG_E_NOTFOUND);
    assert_status(ops->pack_held(other, pack.id), LIG_E_NOTFOUND);
    /* The writer remembers its size. */
    uint8_t byte;
    const ligi_object_range first = {&byte, 0, 1};
    assert_status(ops->object_read(self, pack, &first, 1, NULL, NULL), LIG_E_NOTFOUND);
    ops->close(self, 0);
    ops->close(other, 0);
}

static void test_objects(void **state)
{
    (void)state;
    objects_in(fresh_place());
}

static void test_erasure_coded(void **state)
{
    (void)state;
    place where = fresh_place(), without;
    void *self = NULL;

    where.data = (char *)setting("EC_POOL");
    objects_in(where);
    /* The pool of the packs is the store's: others need not name it, and cannot name another. */
    without = where;
    without.data = NULL;
    uint8_t marker[LIGI_ENGINE_MARKER_MAX];
    size_t bytes;
    assert_ok(open_place(&without, &self));
    assert_ok(ops->marker_get(self, marker, &bytes));
    char text[256];
    ops->describe(self, text, sizeof text);
    assert_non_null(strstr(text, setting("EC_POOL")));
    ops->close(self, 0);
    without.data = (char *)setting("QUOTA_POOL");
    assert_ok(open_place(&without, &self));
    assert_status(ops->marker_get(self, marker, &bytes), LIG_E_MISMATCH);
    ops->close(self, 0);
}

static void test_list(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *writer;
    const uint64_t ids[] = {1, 2, UINT64_C(1) << 60, UINT64_MAX - 1, UINT64_MAX};
    uint64_t found[8];
    size_t count = 0;

    for (size_t i = 0; i < 5; i++) {
        write_object(self, (ligi_object){LIGI_OBJECT_PACK, ids[4 - i]}, i, &writer);
        ops->object_close(writer, 0);
    }
    assert_ok(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, 3}, 0, SECOND, &writer));
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, found, 8, &count));
    assert_int_equal(count, 5);
    assert_memory_equal(found, ids, sizeof ids);
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 1, found, 3, &count));
    assert_int_equal(count, 3);
    assert_memory_equal(found, ids + 1, 3 * sizeof *ids);
    ops->object_close(writer, 0);
    ops->close(self, 0);
}

static void test_checkpoints(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *first, *second;
    const ligi_object three = {LIGI_OBJECT_CHECKPOINT, 3}, nine = {LIGI_OBJECT_CHECKPOINT, 9};
    uint64_t version = 0, size = 0;

    assert_status(ops->checkpoint_newest(self, UINT64_MAX, &version), LIG_E_NOTFOUND);
    write_object(self, three, 2 * STRIPE + 7, &first);
    write_object(self, three, 2 * STRIPE + 7, &second); /* replaces it */
    ops->object_close(first, 0);
    ops->object_close(second, 0);
    read_and_compare(self, three, 2 * STRIPE + 7);
    assert_status(ops->checkpoint_newest(self, UINT64_MAX, &version), LIG_E_NOTFOUND);
    assert_ok(ops->checkpoint_publish(self, 3));
    write_object(self, nine, 5, &first);
    ops->object_close(first, 0);
    assert_ok(ops->checkpoint_publish(self, 9));
    assert_ok(ops->checkpoint_newest(self, UINT64_MAX, &version));
    assert_int_equal(version, 9);
    assert_ok(ops->checkpoint_newest(self, 9, &version));
    assert_int_equal(version, 3);
    assert_ok(remove_one(self, nine));
    assert_ok(ops->checkpoint_newest(self, UINT64_MAX, &version));
    assert_int_equal(version, 3);
    assert_status(ops->object_size(self, nine, &size), LIG_E_NOTFOUND);
    ops->close(self, 0);
}

/* --- users of packs --- */

static void test_pins(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL, *writer, *pin = NULL, *second = NULL;
    const ligi_object pack = {LIGI_OBJECT_PACK, 7};
    const uint64_t packs[] = {7, 8};
    uint8_t pinned[2] = {9, 9};

    write_object(self, pack, 10, &writer);
    ops->object_close(writer, 0);
    assert_ok(open_place(&where, &other));
    assert_ok(ops->pin(other, packs, 2, 60 * SECOND, &pin)); /* 8 does not exist */
    assert_ok(ops->pin(other, packs, 1, 60 * SECOND, &second));
    assert_ok(ops->pinned(self, packs, 2, pinned));
    assert_int_equal(pinned[0], 1);
    assert_int_equal(pinned[1], 0);
    assert_status(remove_one(self, pack), LIG_E_BUSY);
    ops->unpin(second, 0);
    assert_ok(ops->pin_renew(pin, 60 * SECOND));
    assert_status(remove_one(self, pack), LIG_E_BUSY);
    read_and_compare(self, pack, 10);
    ops->unpin(pin, 0);
    assert_ok(ops->pinned(self, packs, 1, pinned));
    assert_int_equal(pinned[0], 0);
    /* One that is not renewed ends by time. */
    assert_ok(ops->pin(other, packs, 1, SECOND / 5, &pin));
    while (remove_one(self, pack) == LIG_E_BUSY)
        ;
    assert_ok(ops->pin_renew(pin, SECOND));
    ops->unpin(pin, 0);
    uint64_t size;
    assert_status(ops->object_size(other, pack, &size), LIG_E_NOTFOUND);
    ops->close(self, 0);
    ops->close(other, 0);
}

static void test_drafts(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL, *slow = NULL, *alive = NULL, *memory;
    uint64_t room = 0, found[4];
    size_t count = 9;
    int more = 1;

    assert_ok(open_place(&where, &other));
    assert_ok(ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, 5}, 0, SECOND / 5, &slow));
    assert_ok(
        ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, 6}, 0, 600 * SECOND, &alive));
    assert_ok(ops->object_room(slow, &memory, &room));
    assert_ok(ops->object_push(slow, room));
    assert_ok(ops->object_push(slow, room));
    while (ops->object_renew(slow, 1) == LIG_OK) /* until the claim has ended */
        ;
    assert_ok(ops->drafts_remove(other, &more));
    assert_false(more);
    assert_status(ops->object_renew(slow, SECOND), LIG_E_NOTFOUND);
    assert_ok(ops->object_push(slow, 10));
    assert_status(ops->object_seal(slow), LIG_E_IO);
    assert_says("treated as a leftover");
    ops->object_close(slow, 0);
    assert_ok(ops->object_seal(alive));
    ops->object_close(alive, 0);
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, found, 4, &count));
    assert_int_equal(count, 1);
    assert_int_equal(found[0], 6);
    ops->close(self, 0);
    ops->close(other, 0);
}

static void test_locks(void **state)
{
    (void)state;
    place where = fresh_place();
    void *self = new_store(&where), *other = NULL, *lock = NULL, *second = NULL;

    assert_ok(open_place(&where, &other));
    assert_ok(ops->lock(self, "training run/1", "process 12 on host-a", 60 * SECOND, &lock));
    assert_status(ops->lock(other, "training run/1", "process 13", 60 * SECOND, &second),
                  LIG_E_BUSY);
    assert_says("process 12 on host-a");
    assert_ok(ops->lock_renew(lock, 60 * SECOND));
    ops->unlock(lock, 0);
    assert_ok(ops->lock(other, "training run/1", "process 13", 1, &second));
    while (ops->lock(self, "training run/1", "process 12", 60 * SECOND, &lock) == LIG_E_BUSY)
        ;
    assert_status(ops->lock_renew(second, SECOND), LIG_E_NOTFOUND);
    ops->unlock(second, 0); /* not the other's */
    assert_status(ops->lock(other, "training run/1", "process 13", SECOND, &second), LIG_E_BUSY);
    ops->unlock(lock, 0);
    ops->close(self, 0);
    ops->close(other, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects), cmocka_unit_test(test_erasure_coded),
        cmocka_unit_test(test_list),    cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_pins),    cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
