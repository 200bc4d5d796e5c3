#include "backend/mem/mem_events.h"

#include "backend/registry.h"
#include "base/test.h"

#include <stdlib.h>

static int count_event(void *context, uint64_t version, int64_t date_ns, const void *data,
                       size_t bytes)
{
    uint64_t *last = context;
    (void)date_ns, (void)data, (void)bytes;
    assert_true(version == last[1] || version == last[1] + 1 || last[1] == 0);
    last[0]++;
    last[1] = version;
    return 0;
}

static lig_status commit_many(const lig_volume_ops *ops, void *self, uint64_t version, size_t count,
                              size_t bytes)
{
    const lig_catalog_op op = {"k", 1, "v", 1};
    lig_catalog_event *events = calloc(count, sizeof *events);
    char *text = calloc(1, bytes + 1);
    for (size_t i = 0; i < count; i++)
        events[i] = (lig_catalog_event){text, bytes};
    const lig_catalog_edit edit = {
        .version = version, .ops = &op, .op_count = 1, .events = events, .event_count = count};
    lig_status status = ops->catalog_commit(self, &edit);
    free(text);
    free(events);
    return status;
}

/* Commits until the first ones are forgotten: what is left is whole, and asking for more fails. */
static void forget(size_t count, size_t bytes, uint64_t commits, uint64_t kept)
{
    const lig_backend_ops *backend;
    void *self;
    uint64_t seen[2] = {0};
    assert_ok(ligi_backend_open_raw("mem", "", &backend, &self));
    const lig_volume_ops *ops = backend->volume;
    for (uint64_t i = 0; i < commits; i++)
        assert_ok(commit_many(ops, self, i, count, bytes));
    uint64_t oldest = commits - kept;
    if (oldest) {
        assert_status(ops->catalog_events(self, oldest - 1, count_event, seen), LIG_E_NOTFOUND);
        assert_says("are kept");
    }
    assert_ok(ops->catalog_events(self, oldest, count_event, seen));
    assert_int_equal(seen[0], kept * count);
    assert_int_equal(seen[1], commits);
    ligi_backend_close_raw(backend, self);
}

static void test_old_events_are_forgotten(void **state)
{
    (void)state;
    forget(100, 1, 3000, LIGI_MEM_EVENTS_MAX / 100);
    forget(1, 100000, 50, LIGI_MEM_EVENTS_BYTES / (100000 + sizeof(size_t)));
    forget(1, 10, 3000, 3000);
}

/* One commit that is larger than the limit is kept until the next. */
static void test_the_latest_is_kept(void **state)
{
    (void)state;
    forget(1, 2 * LIGI_MEM_EVENTS_BYTES, 3, 1);
    forget(LIGI_MEM_EVENTS_MAX + 1, 1, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_old_events_are_forgotten),
                                       cmocka_unit_test(test_the_latest_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
