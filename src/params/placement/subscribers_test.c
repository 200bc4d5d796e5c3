#include "params/placement/subscribers.h"

#include "base/test.h"
#include "params/sampling/draw.h"

enum { ROWS = 20, NODES = 7 };

typedef struct order { /* the subscribers of one row, as a plain array */
    uint32_t nodes[NODES];
    uint64_t numbers[NODES];
    uint32_t count;
} order;

static void check(const ligi_subscribers *subscribers, uint32_t row, const order *twin)
{
    uint32_t i = 0;

    for (ligi_subscriber *one = ligi_subscribers_at(subscribers, row); one != NULL;
         one = ligi_subscribers_at(subscribers, one->next), i++) {
        assert_true(i < twin->count);
        assert_int_equal(one->node, twin->nodes[i]);
        assert_int_equal(one->number, twin->numbers[i]);
    }
    assert_int_equal(i, twin->count);
    assert_int_equal(ligi_subscribers_count(subscribers, row), twin->count);
    assert_int_equal(row == 0, twin->count == 0);
}

static uint32_t index_of(const order *twin, uint32_t node)
{
    uint32_t i = 0;

    while (i < twin->count && twin->nodes[i] != node)
        i++;
    return i;
}

static void a_row_of_names(void **state)
{
    ligi_subscribers subscribers = {0};
    uint32_t rows[ROWS] = {0};
    order twins[ROWS] = {0};
    ligi_rng rng;

    (void)state;
    ligi_rng_init(&rng, 5, 0, 0);
    for (uint64_t step = 1; step < 20000; step++) {
        uint32_t r = (uint32_t)ligi_rng_below(&rng, ROWS);
        uint32_t node = (uint32_t)ligi_rng_below(&rng, NODES);
        order *twin = &twins[r];
        uint32_t at = index_of(twin, node);
        ligi_subscriber *one = ligi_subscribers_find(&subscribers, rows[r], node);
        assert_int_equal(one != NULL, at < twin->count);
        if (one == NULL) {
            assert_ok(ligi_subscribers_add(&subscribers, &rows[r], node, &one));
            one->number = step;
            one->has_replica = 1;
            twin->nodes[twin->count] = node;
            twin->numbers[twin->count++] = step;
        } else {
            assert_true(ligi_subscribers_remove(&subscribers, &rows[r], node));
            assert_false(ligi_subscribers_remove(&subscribers, &rows[r], node));
            for (twin->count--; at < twin->count; at++) {
                twin->nodes[at] = twin->nodes[at + 1];
                twin->numbers[at] = twin->numbers[at + 1];
            }
        }
        check(&subscribers, rows[r], twin);
        assert_int_equal(ligi_subscribers_replicas(&subscribers, rows[r]), twin->count);
    }
    assert_true(subscribers.count <= ROWS * NODES);
    ligi_subscribers_fini(&subscribers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_of_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
