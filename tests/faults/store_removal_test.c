/* A process is stopped at each file that it opens while it opens a store. Meanwhile another one
 * makes checkpoints, and what they make superfluous is removed. It must not be called missing. */
#include "store_folder.h"
#include "store_peer.h"
#include "superfluous.h"
#include "trace_kill.h"

typedef struct stage {
    char folder[64], place[96], log[128];
    sigset_t mask;
    peer a; /* writes */
    unsigned seed;
    int refused; /* ptrace is not permitted */
    trace traced;
} stage;

/* Every commit is larger than a segment: it begins a new one, and often a checkpoint is due. */
static void commit_some(stage *self, int count)
{
    for (int i = 0; i < count; i++, self->seed++)
        assert_answer(peer_ask(&self->a, "save m%d r %u 1 1000", i, self->seed));
}

static int set_up(void **state)
{
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    self->mask = trace_prepare();
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-removal-XXXXXX");
    if (mkdtemp(self->folder) == NULL || peer_start(&self->a))
        return -1;
    snprintf(self->place, sizeof self->place, "%s/store", self->folder);
    snprintf(self->log, sizeof self->log, "%s/log", self->place);
    assert_answer(peer_ask(&self->a, "open %s?log=4K&fsync=0", self->place));
    commit_some(self, 8);
    return 0;
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = peer_stop(&self->a);
    remove_folder(self->folder);
    free(self);
    return failed;
}

/* 1 when the operation reached the step. */
static int try_step(stage *self, const char *options, size_t step)
{
    peer b;
    assert_int_equal(peer_start(&b), 0);
    assert_answer(peer_ask(&b, "close")); /* the program has started */
    int number = trace_begin(&self->traced, b.process);
    self->refused = number == EPERM || number == ENOSYS;
    if (self->refused) {
        peer_kill(&b);
        return 0;
    }
    self->traced.opens = 1;
    peer_send(&b, "open %s%s", self->place, options);
    enum trace_end end = trace_until(&self->traced, b.fd, step, &self->mask);
    if (end == TRACE_STOPPED) {
        commit_some(self, 8);
        superfluous_remove(self->log);
        trace_continue(&self->traced);
        assert_int_equal(trace_run(&self->traced, b.fd, SIZE_MAX, &self->mask), TRACE_READABLE);
    }
    if (!is_ok(peer_hear(&b)))
        fail_msg("open %s, step %zu: %s", options, step, b.answer);
    trace_kill(&self->traced, &self->mask);
    close(b.fd);
    return end == TRACE_STOPPED;
}

static void try_steps(stage *self, const char *options)
{
    trace_step steps[TRACE_LOG_MAX];
    unsigned stops = 0;
    (void)try_step(self, options, SIZE_MAX);
    if (self->refused)
        skip();
    size_t count = self->traced.step;
    assert_in_range(count, 1, TRACE_LOG_MAX);
    memcpy(steps, self->traced.log, count * sizeof *steps);
    for (size_t i = 0; i < count; i++)
        if (steps[i].call == SYS_openat && !steps[i].ended)
            stops += (unsigned)try_step(self, options, i);
    assert_true(stops > 0);
}

static void opened_for_writing(void **state)
{
    try_steps(*state, "?fsync=0");
}

static void opened_for_reading(void **state)
{
    try_steps(*state, "?mode=r");
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "peer") == 0) {
        lig_log_set(store_peer_quiet, NULL);
        return store_peer_main(atoi(arguments[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opened_for_writing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(opened_for_reading, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
