/* A reader is stopped at each system call of a load. Meanwhile its model is retired, and other
 * bytes are saved. The load fails, or fills all tensors with what was saved: never a mixture. */
#include "faults/traced_store.h"

typedef struct stage {
    traced_store store;
    trace traced;
    unsigned whole, failed;
} stage;

/* "both" has a tensor in each of two packs, of which the first was written for "first". */
static int set_up(void **state)
{
    static const char *const commands[] = {"save first - 10 1 20480", "save both - 10 2 20480",
                                           "save keep - 30 1 1000"};
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    return traced_store_make(&self->store, "?fsync=0", commands,
                             sizeof commands / sizeof *commands);
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = traced_store_remove(&self->store);
    free(self);
    return failed;
}

/* 1 when the load reached the step. */
static int try_step(stage *self, size_t step)
{
    peer b;
    remove_folder(self->store.place);
    copy_folder(self->store.template, self->store.place);
    assert_answer(peer_ask(&self->store.a, "open %s?fsync=0", self->store.place));
    assert_int_equal(peer_start(&b), 0);
    assert_answer(peer_ask(&b, "open %s?mode=r", self->store.place));
    int number = trace_begin(&self->traced, b.process);
    self->store.refused = number == EPERM || number == ENOSYS;
    if (self->store.refused) {
        peer_kill(&b);
        return 0;
    }
    self->traced.opens = self->traced.reads = 1;
    peer_send(&b, "load both");
    enum trace_end end = trace_until(&self->traced, b.fd, step, &self->store.mask);
    if (end == TRACE_STOPPED) {
        assert_answer(peer_ask(&self->store.a, "retire both"));
        assert_answer(peer_ask(&self->store.a, "retire first"));
        assert_answer(peer_ask(&self->store.a, "compact"));
        assert_answer(peer_ask(&self->store.a, "save other - 50 3 20480"));
        trace_continue(&self->traced);
        assert_int_equal(trace_run(&self->traced, b.fd, SIZE_MAX, &self->store.mask),
                         TRACE_READABLE);
    }
    peer_hear(&b);
    int whole = strcmp(b.answer, "ok") == 0;
    int failed = strstr(b.answer, "error: load: notfound") != NULL;
    self->whole += (unsigned)whole;
    self->failed += (unsigned)failed;
    if (!whole && !failed)
        fail_msg("step %zu: %s", step, b.answer);
    trace_kill(&self->traced, &self->store.mask);
    close(b.fd);
    assert_answer(peer_ask(&self->store.a, "close"));
    return end == TRACE_STOPPED;
}

static void loads_are_whole_or_fail(void **state)
{
    stage *self = *state;
    size_t step = 0;
    while (try_step(self, step))
        step++;
    if (self->store.refused)
        skip();
    print_message("%zu steps: %u loads, %u failures\n", step, self->whole, self->failed);
    assert_true(self->whole > 1 && self->failed > 1);
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "peer") == 0) {
        lig_log_set(store_peer_quiet, NULL);
        return store_peer_main(atoi(arguments[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loads_are_whole_or_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
