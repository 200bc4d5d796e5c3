#include "base/test.h"
#include "base/ticket.h"

#include <sys/wait.h>
#include <unistd.h>

/* An operation whose steps the test releases one by one through a pipe. */
struct work {
    int gate[2];
    int released;
    lig_status end;
};

static lig_status step(void *context, lig_ticket *ticket)
{
    struct work *work = context;
    char byte;
    for (uint64_t i = 1; read(work->gate[0], &byte, 1) == 1 && byte != 'e'; i++) {
        if (ligi_ticket_cancelled(ticket))
            return lig_fail(LIG_E_CLOSED, "cancelled");
        ligi_ticket_advance(ticket, i);
    }
    return work->end == LIG_OK ? LIG_OK : lig_fail(work->end, "failed at the end");
}

static void release(void *context)
{
    ((struct work *)context)->released = 1;
}

static lig_ticket *start(struct work *work)
{
    assert_int_equal(pipe(work->gate), 0);
    lig_ticket *ticket = NULL;
    assert_ok(ligi_ticket_start(step, release, work, &ticket));
    return ticket;
}

static void finish(struct work *work)
{
    close(work->gate[0]);
    close(work->gate[1]);
}

static void progress_and_end_are_seen(void **state)
{
    (void)state;
    struct work work = {.end = LIG_OK};
    lig_ticket *ticket = start(&work);
    uint64_t done = 0;
    assert_int_equal(lig_ticket_done(ticket), 0);
    assert_status(lig_ticket_wait(ticket, 0), LIG_E_TIMEOUT);
    assert_status(lig_ticket_progress(ticket, 0, 1000, &done), LIG_E_TIMEOUT);
    assert_int_equal(write(work.gate[1], "ss", 2), 2);
    assert_ok(lig_ticket_progress(ticket, 1, LIG_FOREVER, &done));
    assert_true(done == 2);
    assert_int_equal(write(work.gate[1], "e", 1), 1);
    assert_ok(lig_ticket_progress(ticket, 2, LIG_FOREVER, &done));
    assert_ok(lig_ticket_wait(ticket, LIG_FOREVER));
    assert_ok(lig_ticket_wait(ticket, 0));
    assert_int_equal(lig_ticket_done(ticket), 1);
    assert_int_equal(work.released, 1);
    lig_ticket_destroy(ticket);
    finish(&work);
}

static void failure_is_told_to_every_waiter(void **state)
{
    (void)state;
    struct work work = {.end = LIG_E_CORRUPT};
    lig_ticket *ticket = start(&work);
    assert_int_equal(write(work.gate[1], "e", 1), 1);
    for (int i = 0; i < 2; i++) {
        lig_fail(LIG_E_IO, "something else");
        assert_status(lig_ticket_wait(ticket, LIG_FOREVER), LIG_E_CORRUPT);
        assert_says("failed at the end");
    }
    lig_ticket_destroy(ticket);
    finish(&work);
}

static void cancel_ends_it(void **state)
{
    (void)state;
    struct work work = {.end = LIG_OK};
    lig_ticket *ticket = start(&work);
    lig_ticket_cancel(ticket);
    assert_int_equal(write(work.gate[1], "s", 1), 1);
    assert_status(lig_ticket_wait(ticket, LIG_FOREVER), LIG_E_CLOSED);
    lig_ticket_destroy(ticket);
    lig_ticket_destroy(NULL);
    finish(&work);
}

static void forked_child_is_told(void **state)
{
    (void)state;
    struct work work = {.end = LIG_OK};
    lig_ticket *ticket = start(&work);
    pid_t child = fork();
    if (child == 0) {
        int closed = lig_ticket_wait(ticket, LIG_FOREVER) == LIG_E_CLOSED;
        lig_ticket_destroy(ticket);
        _exit(closed ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(write(work.gate[1], "e", 1), 1);
    lig_ticket_destroy(ticket);
    finish(&work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_and_end_are_seen),
        cmocka_unit_test(failure_is_told_to_every_waiter),
        cmocka_unit_test(cancel_ends_it),
        cmocka_unit_test(forked_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
