/* A reader is stopped at each system call of a load. Meanwhile its model is retired, and other
 * bytes are saved. The load fails, or fills all tensors with what was saved: never a mixture. */
#include "store_folder.h"
#include "store_peer.h"
#include "trace_kill.h"

typedef struct stage {
    char folder[64], template[96], place[96];
    sigset_t mask;
    peer a;      /* writes */
    int refused; /* ptrace is not permitted */
    trace traced;
    unsigned whole, failed;
} stage;

/* "both" has a tensor in each of two packs, of which the first was written for "first". */
static int set_up(void **state)
{
    static const char *const commands[] = {"save first - 10 1 20480", "save both - 10 2 20480",
                                           "save keep - 30 1 1000"};
    stage *self = calloc(1, sizeof *self);
    peer maker;
    if (self == NULL)
        return -1;
    *state = self;
    self->mask = trace_prepare();
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-retired-XXXXXX");
    if (mkdtemp(self->folder) == NULL || peer_start(&self->a) || peer_start(&maker))
        return -1;
    snprintf(self->template, sizeof self->template, "%s/template", self->folder);
    snprintf(self->place, sizeof self->place, "%s/store", self->folder);
    assert_answer(peer_ask(&maker, "open %s?fsync=0", self->template));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_answer(peer_ask(&maker, "%s", commands[i]));
    return peer_stop(&maker);
}

static int tear_down(void **state)
{
    stage *self = *state;
    int failed = peer_stop(&self->a);
    remove_folder(self->folder);
    free(self);
    return failed;
}

/* 1 when the load reached the step. */
static int try_step(stage *self, size_t step)
{
    peer b;
    remove_folder(self->place);
    copy_folder(self->template, self->place);
    assert_answer(peer_ask(&self->a, "open %s?fsync=0", self->place));
    assert_int_equal(peer_start(&b), 0);
    assert_answer(peer_ask(&b, "open %s?mode=r", self->place));
    int number = trace_begin(&self->traced, b.process);
    self->refused = number == EPERM || number == ENOSYS;
    if (self->refused) {
        peer_kill(&b);
        return 0;
    }
    self->traced.opens = self->traced.reads = 1;
    peer_send(&b, "load both");
    enum trace_end end = trace_until(&self->traced, b.fd, step, &self->mask);
    if (end == TRACE_STOPPED) {
        assert_answer(peer_ask(&self->a, "retire both"));
        assert_answer(peer_ask(&self->a, "retire first"));
        assert_answer(peer_ask(&self->a, "compact"));
        assert_answer(peer_ask(&self->a, "save other - 50 3 20480"));
        trace_continue(&self->traced);
        assert_int_equal(trace_run(&self->traced, b.fd, SIZE_MAX, &self->mask), TRACE_READABLE);
    }
    peer_hear(&b);
    int whole = strcmp(b.answer, "ok") == 0;
    int failed = strstr(b.answer, "error: load: notfound") != NULL;
    self->whole += (unsigned)whole;
    self->failed += (unsigned)failed;
    if (!whole && !failed)
        fail_msg("step %zu: %s", step, b.answer);
    trace_kill(&self->traced, &self->mask);
    close(b.fd);
    assert_answer(peer_ask(&self->a, "close"));
    return end == TRACE_STOPPED;
}

static void loads_are_whole_or_fail(void **state)
{
    stage *self = *state;
    size_t step = 0;
    while (try_step(self, step))
        step++;
    if (self->refused)
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
