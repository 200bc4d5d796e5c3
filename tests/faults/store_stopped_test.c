/* A process is stopped, or killed, at each of the system calls of a commit, while it holds the lock
 * of those who write or syncs for everybody. The others read, save or end with a timeout that names
 * it; and when it continues, it does no harm. */
#include "backend/file/log/head/head.h"
#include "faults/traced_store.h"

#define SAVE "save new - 100 1 1000" /* in the catalog: its only sync is that of the log */

typedef struct saver { /* a process whose system calls are watched */
    peer peer;
    trace traced;
} saver;

typedef struct stage {
    traced_store store;
    saver b, c;
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

/* A fresh store, which process A has open. */
static void begin(stage *self)
{
    remove_folder(self->store.place);
    copy_folder(self->store.template, self->store.place);
    assert_answer(peer_ask(&self->store.a, "open %s?wait=1", self->store.place));
}

/* The saver begins to save, and stands at `step`. */
static enum trace_end save_until(stage *self, saver *one, const char *command, size_t step)
{
    assert_int_equal(peer_start(&one->peer), 0);
    assert_answer(peer_ask(&one->peer, "open %s", self->store.place));
    int number = trace_begin(&one->traced, one->peer.process);
    self->store.refused = number == EPERM || number == ENOSYS;
    if (self->store.refused) {
        peer_kill(&one->peer);
        return TRACE_FAILED;
    }
    peer_send(&one->peer, "%s", command);
    return trace_until(&one->traced, one->peer.fd, step, &self->store.mask);
}

static void end_saver(stage *self, saver *one)
{
    trace_kill(&one->traced, &self->store.mask);
    close(one->peer.fd);
}

/* The step of a whole command at which such a call begins, or has ended: the first one or the
 * last. */
static size_t find_step_of(stage *self, const char *command, long call, int ended, int first)
{
    const trace *traced = &self->b.traced;
    size_t found = SIZE_MAX;
    begin(self);
    enum trace_end end = save_until(self, &self->b, command, SIZE_MAX);
    if (!self->store.refused) {
        assert_int_equal(end, TRACE_READABLE);
        assert_answer(peer_hear(&self->b.peer));
        for (size_t i = 0; i < traced->step && !(first && found != SIZE_MAX); i++)
            if (traced->log[i].call == call && traced->log[i].ended == ended)
                found = i;
        end_saver(self, &self->b);
        assert_true(found != SIZE_MAX);
    }
    assert_answer(peer_ask(&self->store.a, "close"));
    return found;
}

static size_t find_step(stage *self, long call, int ended, int first)
{
    return find_step_of(self, SAVE, call, ended, first);
}

static int holds(peer *who, const char *model)
{
    assert_answer(peer_ask(who, "look"));
    return strstr(who->answer, model) != NULL;
}

/* It continues, and its commit succeeds. */
static void go_on(stage *self, saver *one)
{
    trace_continue(&one->traced);
    assert_int_equal(trace_run(&one->traced, one->peer.fd, SIZE_MAX, &self->store.mask),
                     TRACE_READABLE);
    assert_answer(peer_hear(&one->peer));
    end_saver(self, one);
}

static void end(stage *self)
{
    assert_true(holds(&self->store.a, "new{"));
    assert_answer(peer_ask(&self->store.a, "check"));
    assert_answer(peer_ask(&self->store.a, "close"));
}

/* The step at which a saver that does the same has written to the index. */
static size_t find_commit(const trace *other)
{
    size_t step = other->step;
    while (step > 0 && !trace_wrote(&other->log[step - 1]))
        step--;
    return step - 1;
}

static void stopped_in_the_sync(void **state)
{
    stage *self = *state;
    for (int ended = 0; ended < 2; ended++) {
        size_t step = find_step(self, SYS_fdatasync, ended, 0);
        if (self->store.refused)
            skip();
        begin(self);
        assert_int_equal(save_until(self, &self->b, SAVE, step), TRACE_STOPPED);
        assert_true(holds(&self->store.a, "new{"));
        assert_answer(peer_ask(&self->store.a, "save other - 200 1 1000"));
        assert_answer(peer_ask(&self->store.a, "save another - 201 1 20480"));
        go_on(self, &self->b);
        assert_true(holds(&self->store.a, "another{"));
        end(self);
    }
}

/* Process C has appended its record, too, when B is killed in its sync: C is not told of a failure
 * that was not its own. */
static void killed_in_the_sync(void **state)
{
    stage *self = *state;
    for (int ended = 0; ended < 2; ended++) {
        size_t lock = find_step(self, SYS_fcntl, 0, 1);
        if (self->store.refused)
            skip();
        size_t step = find_step(self, SYS_fdatasync, ended, 0);
        begin(self);
        assert_int_equal(save_until(self, &self->c, "save other - 200 1 1000", lock),
                         TRACE_STOPPED);
        assert_int_equal(save_until(self, &self->b, SAVE, step), TRACE_STOPPED);
        trace_continue(&self->c.traced);
        /* up to where it has put its commit into the index */
        assert_int_equal(trace_until(&self->c.traced, self->c.peer.fd, find_commit(&self->b.traced),
                                     &self->store.mask),
                         TRACE_STOPPED);
        end_saver(self, &self->b);
        go_on(self, &self->c);
        assert_true(holds(&self->store.a, "other{"));
        end(self);
    }
}

/* Reads go on; a save ends with a timeout that names the process. */
static void stopped_in_the_append(void **state)
{
    stage *self = *state;
    char pid[32];
    for (int ended = 0; ended < 2; ended++) {
        size_t step = find_step(self, SYS_pwrite64, ended, 0);
        if (self->store.refused)
            skip();
        begin(self);
        assert_int_equal(save_until(self, &self->b, SAVE, step), TRACE_STOPPED);
        assert_true(holds(&self->store.a, "keep{"));
        snprintf(pid, sizeof pid, "process %ld (", (long)self->b.peer.process);
        peer_ask(&self->store.a, "save other - 200 1 20480");
        assert_non_null(strstr(self->store.a.answer, "error: save: timeout"));
        assert_non_null(strstr(self->store.a.answer, pid));
        assert_non_null(strstr(self->store.a.answer, "stopped)"));
        assert_non_null(strstr(peer_ask(&self->store.a, "describe"), pid));
        assert_answer(peer_ask(&self->store.a, "open %s?mode=r", self->store.place));
        assert_non_null(strstr(peer_ask(&self->store.a, "describe"), pid)); /* for ligament info */
        assert_answer(peer_ask(&self->store.a, "open %s?wait=1", self->store.place));
        go_on(self, &self->b);
        assert_false(holds(&self->store.a, "other{"));
        assert_answer(peer_ask(&self->store.a, "save other - 200 1 20480"));
        end(self);
    }
}

/* The last version known to be durable. */
static uint64_t durable_version(const stage *self)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log/head", self->store.place);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t version = ligi_head_witness(fd);
    close(fd);
    return version;
}

/* B has retired the model, and nobody knows whether that is durable: A, which finds nothing to
 * retire, makes it so before it says that. */
static void an_answer_is_durable(void **state)
{
    stage *self = *state;
    size_t step = find_step_of(self, "retire keep", SYS_fdatasync, 0, 0);
    if (self->store.refused)
        skip();
    begin(self);
    uint64_t before = durable_version(self);
    assert_int_equal(save_until(self, &self->b, "retire keep", step), TRACE_STOPPED);
    assert_int_equal(durable_version(self), before);
    peer_ask(&self->store.a, "retire keep");
    assert_non_null(strstr(self->store.a.answer, "error: retire: notfound"));
    assert_int_equal(durable_version(self), before + 1);
    go_on(self, &self->b);
    assert_answer(peer_ask(&self->store.a, "check"));
    assert_answer(peer_ask(&self->store.a, "close"));
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "peer") == 0) {
        lig_log_set(store_peer_quiet, NULL);
        return store_peer_main(atoi(arguments[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stopped_in_the_sync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed_in_the_sync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_in_the_append, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_is_durable, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
