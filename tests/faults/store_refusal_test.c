/* Each system call of a commit is refused in turn, as by a kernel without descriptors, locks or
 * room. The returned status must be true: after a success the change is there; after a failure
 * it is not, unless the failure says that this is unknown; and others work on. */
#include "faults/traced_store.h"

typedef struct refusal { /* which call fails, and how */
    size_t step;
    int number;
    int done;
} refusal;

typedef struct stage {
    traced_store store;
    trace traced;
    unsigned long points, unknown, wrong;
} stage;

static int set_up(void **state)
{
    static const char *const commands[] = {"save keep - 1 1 1000"};
    stage *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -1;
    *state = self;
    return traced_store_make(&self->store, "", commands, sizeof commands / sizeof *commands);
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = traced_store_remove(&self->store);
    free(self);
    return failed;
}

static void refuse(trace *traced, trace_thread *thread, int ended, int64_t result)
{
    refusal *wish = traced->observer;
    (void)result;
    if (!ended && traced->step == wish->step)
        thread->refused = trace_refuse(thread, 0, wish->number);
    if (ended && thread->refused) {
        trace_refuse(thread, 1, wish->number);
        thread->refused = 0;
        wish->done = 1;
    }
}

/* Runs the command in a process of its own; its answer. */
static const char *run(stage *self, const char *command, refusal *wish, peer *b)
{
    remove_folder(self->store.place);
    copy_folder(self->store.template, self->store.place);
    assert_answer(peer_ask(&self->store.a, "open %s", self->store.place));
    assert_int_equal(peer_start(b), 0);
    assert_answer(peer_ask(b, "open %s?wait=1", self->store.place));
    int number = trace_begin(&self->traced, b->process);
    self->store.refused = number == EPERM || number == ENOSYS;
    if (self->store.refused) {
        peer_kill(b);
        return "";
    }
    self->traced.opens = 1;
    self->traced.observe = refuse;
    self->traced.observer = wish;
    peer_send(b, "%s", command);
    assert_int_equal(trace_run(&self->traced, b->fd, SIZE_MAX, &self->store.mask), TRACE_READABLE);
    peer_hear(b);
    trace_kill(&self->traced, &self->store.mask);
    close(b->fd);
    return b->answer;
}

/* How the call may fail; 0: it is left alone. */
static int failure_of(long call)
{
    switch (call) {
    case SYS_openat: return EMFILE;
    case SYS_fcntl: return EMFILE; /* a duplicate, or a lock */
    case SYS_pwrite64:
    case SYS_pwritev: return ENOSPC;
    case SYS_fdatasync:
    case SYS_fsync: return EIO;
    default: return 0;
    }
}

static void try_point(stage *self, const char *command, refusal *wish)
{
    char failure[PEER_TEXT_BYTES];
    peer b;
    snprintf(failure, sizeof failure, "%s", run(self, command, wish, &b));
    int ok = is_ok(failure), unknown = strstr(failure, "unknown") != NULL;
    int there =
        strstr(peer_ask(&self->store.a, "look"), "new{") != NULL && is_ok(self->store.a.answer);
    int sound = is_ok(self->store.a.answer) &&
                is_ok(peer_ask(&self->store.a, "save extra - 9 1 1000")) &&
                is_ok(peer_ask(&self->store.a, "check"));
    int told = ok ? there : unknown || !there;
    self->points++;
    self->unknown += unknown;
    self->wrong += !sound || !told;
    if (!sound || !told)
        print_message("step %zu, call %ld: %s: the model is %s; then %s\n", wish->step,
                      self->traced.log[wish->step].call, failure, there ? "there" : "not there",
                      self->store.a.answer);
    assert_answer(peer_ask(&self->store.a, "close"));
}

static void try_calls(stage *self, const char *command)
{
    trace_step steps[TRACE_LOG_MAX];
    refusal none = {.step = SIZE_MAX};
    peer b;
    const char *answer = run(self, command, &none, &b);
    if (self->store.refused)
        return;
    assert_answer(answer);
    assert_answer(peer_ask(&self->store.a, "close"));
    size_t count = self->traced.step;
    assert_in_range(count, 1, TRACE_LOG_MAX);
    memcpy(steps, self->traced.log, count * sizeof *steps);
    for (size_t i = 0; i < count; i++) {
        refusal wish = {.step = i, .number = failure_of(steps[i].call)};
        if (!steps[i].ended && wish.number != 0)
            try_point(self, command, &wish);
    }
}

static void calls_fail(void **state)
{
    stage *self = *state;
    try_calls(self, "save new - 100 1 1000"); /* in the catalog */
    if (self->store.refused)
        skip();
    try_calls(self, "save new - 100 1 20480"); /* with a pack */
    print_message("%lu calls, %lu unknown outcomes, %lu failures\n", self->points, self->unknown,
                  self->wrong);
    assert_int_equal(self->wrong, 0);
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "peer") == 0) {
        lig_log_set(store_peer_quiet, NULL);
        return store_peer_main(atoi(arguments[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
