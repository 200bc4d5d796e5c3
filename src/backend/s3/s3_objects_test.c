/* Decisions of the engine that need no server: which requests fill ranges, names, times of
 * leases. */
#include "backend/s3/leases/s3_lease.h"
#include "backend/s3/s3_names.h"
#include "backend/s3/s3_read.h"
#include "backend/s3/s3_writer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/test.h"

#define SPACE (UINT64_C(64) << 20) /* of offsets */
#define SECOND INT64_C(1000000000)

/* Executes the plan on an object whose byte at offset n is a function of n. */
static void execute(const ligi_s3_plan *plan)
{
    for (size_t i = 0; i < plan->fetch_count; i++) {
        const ligi_s3_fetch *fetch = &plan->fetches[i];
        uint64_t at = fetch->from;
        assert_true(fetch->bytes > 0 && fetch->bytes <= LIGI_S3_RANGE_BYTES);
        assert_true(fetch->range_count > 0);
        for (size_t j = 0; j < fetch->part_count; j++) {
            const struct iovec *part = &plan->parts[fetch->part + j];
            for (size_t k = 0; part->iov_base != NULL && k < part->iov_len; k++)
                ((uint8_t *)part->iov_base)[k] = (uint8_t)((at + k) * 31 >> 3);
            at += part->iov_len;
        }
        assert_int_equal(at, fetch->from + fetch->bytes);
    }
}

/* Random ranges: every byte is filled, by requests of at most the limit. */
static void test_plans(void **state)
{
    uint8_t *memory = malloc(SPACE);

    (void)state;
    srandom(7);
    for (int round = 0; round < 60; round++) {
        ligi_object_range ranges[64];
        size_t count = 0;
        uint64_t offset = (uint64_t)random() % 100000;
        ligi_s3_plan plan;
        memset(memory, 0xA5, SPACE);
        while (count < 64 && offset < SPACE) {
            uint64_t bytes = (uint64_t)random() % (round % 3 == 0 ? 3000000 : 3000);
            bytes = bytes < SPACE - offset ? bytes : SPACE - offset;
            ranges[count++] = (ligi_object_range){memory + offset, offset, bytes};
            offset += bytes + (uint64_t)random() % (round % 2 ? 300000 : 3);
        }
        assert_true(ligi_s3_plan_make(ranges, count, &plan));
        execute(&plan);
        for (size_t i = 0; i < count; i++)
            for (uint64_t j = ranges[i].offset; j < ranges[i].offset + ranges[i].bytes; j++)
                if (memory[j] != (uint8_t)(j * 31 >> 3))
                    fail_msg("round %d: byte %llu was not read", round, (unsigned long long)j);
        ligi_s3_plan_fini(&plan);
    }
    free(memory);
}

static void test_requests_are_few(void **state)
{
    static uint8_t memory[16];
    ligi_object_range ranges[1000];
    ligi_s3_plan plan;

    (void)state;
    for (size_t i = 0; i < 1000; i++)
        ranges[i] = (ligi_object_range){memory, i * 8000, 16};
    assert_true(ligi_s3_plan_make(ranges, 1000, &plan));
    assert_int_equal(plan.fetch_count, 1);
    ligi_s3_plan_fini(&plan);
    assert_true(ligi_s3_plan_make(ranges, 0, &plan));
    assert_int_equal(plan.fetch_count, 0);
    ligi_s3_plan_fini(&plan);
    uint64_t whole = 0;
    for (unsigned i = 0; i < 10000; i++)
        whole += ligi_s3_part_bytes(i);
    assert_true(whole > UINT64_C(2) << 40);
    assert_true(ligi_s3_part_bytes(9999) <= UINT64_C(5) << 30);
    assert_int_equal(ligi_s3_part_bytes(999), ligi_s3_part_bytes(0));
}

static void test_names(void **state)
{
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint64_t number;
    const char *const bad[] = {"cat/",
                               "cat/1",
                               "cat/0000000000000000000x",
                               "cat/000000000000000000001",
                               "cat/-0000000000000000001",
                               "cat/99999999999999999999",
                               "dog/00000000000000000001",
                               "cat/0000000000000000001 "};

    (void)state;
    ligi_s3_name_commit(42, key);
    assert_string_equal(key, "cat/00000000000000000042");
    assert_true(ligi_s3_name_number(key, "cat/", &number));
    assert_int_equal(number, 42);
    ligi_s3_name_object((ligi_object){LIGI_OBJECT_PACK, UINT64_MAX}, key);
    assert_string_equal(key, "pack/ffffffffffffffff");
    assert_true(ligi_s3_name_number(key, "pack/", &number));
    assert_true(number == UINT64_MAX);
    assert_false(ligi_s3_name_number("pack/FFFFFFFFFFFFFFFF", "pack/", &number));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ligi_s3_name_number(bad[i], "cat/", &number));
}

static void test_leases(void **state)
{
    uint8_t body[LIGI_S3_LEASE_HEADER_BYTES + 3] = {0}, token[LIGI_RECORD_ID_BYTES] = {1, 2, 3};
    ligi_s3_small object = {(char *)body, sizeof body, 9};
    ligi_s3_lease lease;

    (void)state;
    ligi_s3_lease_encode(token, 10 * SECOND, body);
    assert_true(ligi_s3_lease_decode(&object, &lease));
    assert_memory_equal(lease.token, token, sizeof token);
    assert_int_equal(lease.rest_bytes, 3);
    const struct {
        int64_t age_s;
        int lives, stale;
    } ages[] = {{0, 1, 0},
                {10, 1, 0},
                {11, 1, 0},
                {12, 0, 0},
                {21, 0, 0},
                {22, 0, 1},
                {LIGI_S3_AGE_UNKNOWN, 1, 0}};
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++) {
        lease.age_s = ages[i].age_s;
        assert_int_equal(ligi_s3_lease_lives(&lease), ages[i].lives);
        assert_int_equal(ligi_s3_lease_stale(&lease), ages[i].stale);
    }
    object.bytes = LIGI_S3_LEASE_HEADER_BYTES - 1;
    assert_false(ligi_s3_lease_decode(&object, &lease));
    memset(body, 0xFF, sizeof body);
    object.bytes = sizeof body;
    assert_false(ligi_s3_lease_decode(&object, &lease));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_requests_are_few),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
