/* The engine's table against a real server (make test-engines): what storage_engine.h promises. */
#include "s3_scene.h"

/* --- the marker ----------------------------------------------------------------------------- */

static void test_marker(void **state)
{
    void *self = ((scene *)*state)->self;
    char marker[LIGI_ENGINE_MARKER_MAX];
    size_t bytes = 0;
    int64_t now;

    assert_status(ops->marker_get(self, marker, &bytes), LIG_E_NOTFOUND);
    assert_ok(ops->marker_put(self, "first marker", 12));
    assert_status(ops->marker_put(self, "another one!", 12), LIG_E_EXISTS);
    assert_ok(ops->marker_get(self, marker, &bytes));
    assert_int_equal(bytes, 12);
    assert_memory_equal(marker, "first marker", 12);
    assert_ok(ops->now(self, &now));
    assert_true(llabs(now - ligi_date_ns()) < 60 * SECOND);
}

/* --- the log -------------------------------------------------------------------------------- */

typedef struct seen_log {
    uint64_t last;
    size_t count;
    char text[64];
} seen_log;

static lig_status see(void *context, uint64_t version, const void *record, size_t bytes)
{
    seen_log *seen = context;

    assert_true(seen->count == 0 || version == seen->last + 1);
    seen->last = version;
    seen->count++;
    snprintf(seen->text, sizeof seen->text, "%.*s", (int)bytes, (const char *)record);
    return LIG_OK;
}

static lig_status append(void *self, uint64_t version, const char *name)
{
    char record[64];

    snprintf(record, sizeof record, "%-16s record %llu", name, (unsigned long long)version);
    return ops->log_append(self, &(ligi_log_end){version, ligi_date_ns()}, HOUR, record,
                           strlen(record));
}

static lig_status read_from(void *self, uint64_t version, int64_t seen_ns, seen_log *seen)
{
    *seen = (seen_log){0};
    return ops->log_read(self, &(ligi_log_end){version, seen_ns}, HOUR, see, seen);
}

static void test_log(void **state)
{
    void *self = ((scene *)*state)->self;
    seen_log seen;

    assert_ok(read_from(self, 0, 0, &seen));
    assert_int_equal(seen.count, 0);
    for (uint64_t i = 0; i < 40; i++)
        assert_ok(append(self, i, "mine"));
    assert_status(append(self, 39, "another's"), LIG_E_BUSY);
    /* The same record again is the same commit. */
    assert_ok(append(self, 39, "mine"));
    assert_ok(read_from(self, 0, 0, &seen));
    assert_int_equal(seen.count, 40);
    assert_int_equal(seen.last, 40);
    assert_string_equal(seen.text, "mine             record 39");
    assert_ok(read_from(self, 38, ligi_date_ns(), &seen));
    assert_int_equal(seen.count, 2);
    assert_ok(read_from(self, 40, ligi_date_ns(), &seen));
    assert_ok(read_from(self, 40, 0, &seen));
    assert_int_equal(seen.count, 0);
    /* Never a version 41. */
    assert_status(read_from(self, 41, 0, &seen), LIG_E_NOTFOUND);
    assert_ok(ops->log_wait(self, 39, 10 * SECOND));
    assert_ok(ops->log_wait(self, 40, SECOND / 20));
}

/* A writer whose view is too old does not commit, whatever the server would say. */
static void test_fence(void **state)
{
    void *self = ((scene *)*state)->self;
    seen_log seen;
    int64_t now = ligi_date_ns();

    assert_status(
        ops->log_append(self, &(ligi_log_end){0, now - 2 * HOUR}, HOUR, "0123456789abcdef", 16),
        LIG_E_BUSY);
    assert_status(
        ops->log_append(self, &(ligi_log_end){0, now + 2 * HOUR}, HOUR, "0123456789abcdef", 16),
        LIG_E_BUSY);
    assert_ok(read_from(self, 0, 0, &seen));
    assert_int_equal(seen.count, 0);
}

static void test_trim(void **state)
{
    void *self = ((scene *)*state)->self;
    seen_log seen;
    uint64_t version;

    for (uint64_t i = 0; i < 6; i++)
        assert_ok(append(self, i, "mine"));
    assert_ok(ops->log_trim(self, 5, HOUR)); /* all are younger */
    assert_ok(read_from(self, 0, 0, &seen));
    assert_int_equal(seen.count, 6);
    assert_status(ops->checkpoint_newest(self, UINT64_MAX, &version), LIG_E_NOTFOUND);
    write_object(self, (ligi_object){LIGI_OBJECT_CHECKPOINT, 3}, 100, 1);
    write_object(self, (ligi_object){LIGI_OBJECT_CHECKPOINT, 5}, 100, 1);
    assert_ok(ops->checkpoint_publish(self, 5));
    assert_ok(ops->checkpoint_newest(self, UINT64_MAX, &version));
    assert_int_equal(version, 5);
    assert_ok(ops->checkpoint_newest(self, 5, &version));
    assert_int_equal(version, 3);
    assert_ok(ops->log_trim(self, 5, -10 * SECOND));
    assert_status(read_from(self, 0, 0, &seen), LIG_E_NOTFOUND);
    assert_ok(read_from(self, 4, 0, &seen));
    assert_int_equal(seen.count, 2);
    assert_ok(ops->log_trim(self, 7, -10 * SECOND));
    assert_status(read_from(self, 0, 0, &seen), LIG_E_NOTFOUND);
    assert_ok(read_from(self, 5, 0, &seen));
    assert_status(read_from(self, 6, 0, &seen), LIG_E_NOTFOUND);
}

/* As many as there may be between two checkpoints, and more than one listing names. */
static void test_trim_many(void **state)
{
    void *self = ((scene *)*state)->self;
    seen_log seen;

    for (uint64_t i = 0; i < 300; i++)
        assert_ok(append(self, i, "mine"));
    assert_ok(ops->log_trim(self, 291, -10 * SECOND));
    assert_status(read_from(self, 280, 0, &seen), LIG_E_NOTFOUND);
    assert_ok(read_from(self, 290, 0, &seen));
    assert_int_equal(seen.count, 10);
}

typedef struct racer {
    pthread_t thread;
    void *self;
    int number;
    unsigned won;
} racer;

#define RACERS 4
#define RACES 10

/* Each commits RACES times, in whatever number is free. */
static void *race(void *context)
{
    racer *me = context;
    uint64_t version = 0;
    char record[32];

    while (me->won < RACES) {
        snprintf(record, sizeof record, "racer %02d/%07u", me->number, me->won);
        lig_status status =
            ops->log_append(me->self, &(ligi_log_end){version, ligi_date_ns()}, HOUR, record, 16);
        if (status != LIG_OK && status != LIG_E_BUSY)
            return NULL;
        me->won += status == LIG_OK;
        version++;
    }
    return me;
}

static void test_race(void **state)
{
    void *self = ((scene *)*state)->self, *ended;
    racer racers[RACERS] = {0};
    seen_log seen;

    for (int i = 0; i < RACERS; i++) {
        racers[i].self = self;
        racers[i].number = i;
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, &ended);
        assert_non_null(ended);
    }
    assert_ok(read_from(self, 0, 0, &seen));
    assert_int_equal(seen.count, RACERS * RACES);
}

/* --- objects -------------------------------------------------------------------------------- */

typedef struct arrivals {
    size_t count;
    uint8_t seen[64];
} arrivals;

static lig_status arrive(void *context, size_t index)
{
    arrivals *all = context;

    assert_int_equal(all->seen[index], 0);
    all->seen[index] = 1;
    all->count++;
    return LIG_OK;
}

static lig_status give_up(void *context, size_t index)
{
    (void)context;
    (void)index;
    return lig_fail(LIG_E_MISMATCH, "enough");
}

static void check_range(void *self, ligi_object object, uint64_t seed, ligi_object_range *range)
{
    assert_ok(ops->object_read(self, object, range, 1, NULL, NULL));
    for (uint64_t i = 0; i < range->bytes; i++)
        if (((uint8_t *)range->data)[i] != byte_at(seed, range->offset + i))
            fail_msg("byte %llu differs", (unsigned long long)(range->offset + i));
}

static void test_objects(void **state)
{
    void *self = ((scene *)*state)->self, *writer;
    const uint64_t sizes[] = {0, 1, 5000, 8 * MIB, 8 * MIB + 1, 21 * MIB + 12345};
    uint8_t *memory = malloc(22 * MIB);
    uint64_t bytes, ids[8];
    size_t count;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ligi_object pack = {LIGI_OBJECT_PACK, 1000 + i};
        write_object(self, pack, sizes[i], i);
        assert_ok(ops->object_size(self, pack, &bytes));
        assert_int_equal(bytes, sizes[i]);
        check_range(self, pack, i, &(ligi_object_range){memory, 0, sizes[i]});
        if (sizes[i] > 100)
            check_range(self, pack, i, &(ligi_object_range){memory, 77, sizes[i] - 99});
        assert_status(
            ops->object_read(self, pack, &(ligi_object_range){memory, sizes[i], 1}, 1, NULL, NULL),
            LIG_E_CORRUPT);
        assert_status(ops->object_create(self, pack, 10, HOUR, &writer), LIG_E_EXISTS);
    }
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, ids, 4, &count));
    assert_int_equal(count, 4);
    assert_int_equal(ids[0], 1000);
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, ids[3], ids, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(ids[1], 1005);
    assert_status(ops->object_size(self, (ligi_object){LIGI_OBJECT_PACK, 5}, &bytes),
                  LIG_E_NOTFOUND);
    free(memory);
}

static void test_many_ranges(void **state)
{
    void *self = ((scene *)*state)->self;
    ligi_object pack = {LIGI_OBJECT_PACK, 7};
    ligi_object_range ranges[40];
    uint8_t *memory = malloc(40 * MIB);
    arrivals all = {0};

    write_object(self, pack, 45 * MIB, 3);
    /* Close together, apart, adjacent, empty and larger than a request. */
    for (size_t i = 0; i < 40; i++)
        ranges[i] = (ligi_object_range){memory + i * 300000, i * 300001, i % 7 == 3 ? 0 : 299990};
    ranges[39] = (ligi_object_range){memory + 39 * 300000, 20 * MIB, 19 * MIB};
    assert_ok(ops->object_read(self, pack, ranges, 40, arrive, &all));
    assert_int_equal(all.count, 40);
    for (size_t i = 0; i < 40; i++)
        for (uint64_t at = 0; at < ranges[i].bytes; at++)
            if (((uint8_t *)ranges[i].data)[at] != byte_at(3, ranges[i].offset + at))
                fail_msg("range %zu differs at %llu", i, (unsigned long long)at);
    assert_status(ops->object_read(self, pack, ranges, 40, give_up, NULL), LIG_E_MISMATCH);
    assert_says("enough");
    free(memory);
}

/* What was not sealed is not there; a checkpoint is replaced. */
static void test_abandoned(void **state)
{
    void *self = ((scene *)*state)->self, *writer, *memory;
    uint64_t bytes, ids[4];
    size_t count;
    int more;

    assert_ok(
        ops->object_create(self, (ligi_object){LIGI_OBJECT_PACK, 9}, 30 * MIB, HOUR, &writer));
    assert_ok(ops->object_room(writer, &memory, &bytes));
    void *again;
    assert_ok(ops->object_room(writer, &again, &bytes));
    assert_ptr_equal(memory, again);
    assert_ok(push_all(writer, 20 * MIB, 1));
    ops->object_close(writer, 0);
    assert_ok(ops->object_list(self, LIGI_OBJECT_PACK, 0, ids, 4, &count));
    assert_int_equal(count, 0);
    assert_status(ops->pack_held(self, 9), LIG_E_NOTFOUND);
    assert_ok(ops->drafts_remove(self, &more));
    write_object(self, (ligi_object){LIGI_OBJECT_CHECKPOINT, 4}, 100, 1);
    write_object(self, (ligi_object){LIGI_OBJECT_CHECKPOINT, 4}, 9 * MIB, 2);
    assert_ok(ops->object_size(self, (ligi_object){LIGI_OBJECT_CHECKPOINT, 4}, &bytes));
    assert_int_equal(bytes, 9 * MIB);
}

/* --- what goes wrong ------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    void *self;

    (void)state;
    assert_status(open_engine(&(opening){.bucket = "no-such-bucket", .prefix = "x"}, &self),
                  LIG_E_NOTFOUND);
    assert_says("the bucket does not exist");
    secret_key = "wrong-secret-value";
    assert_status(open_engine(&(opening){.prefix = "x"}, &self), LIG_E_DENIED);
    assert_says("the secret access key is wrong");
    assert_null(strstr(lig_error_text(), "wrong-secret-value"));
    secret_key = getenv("LIGAMENT_TEST_S3_SECRET");
    assert_status(open_engine(&(opening){.prefix = "x", .endpoint = "http://127.0.0.1:1"}, &self),
                  LIG_E_IO);
    assert_says("no connection to http://127.0.0.1:1");
    assert_status(open_engine(&(opening){.prefix = "x", .extra = "&writer=none"}, &self),
                  LIG_E_INVALID);
    assert_status(open_engine(&(opening){.prefix = "x", .extra = "&connections=0"}, &self),
                  LIG_E_INVALID);
}

int main(void)
{
    if (getenv("LIGAMENT_TEST_S3_ENDPOINT") == NULL) {
        puts("skipped: no S3 server (make test-engines)");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_marker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trim, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trim_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_race, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_objects, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_ranges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abandoned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
