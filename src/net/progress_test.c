/* The sleeping place, and a transport that has its say in it. */
#include "base/clock.h"
#include "base/test.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <sched.h>

#define WAIT_NS INT64_C(60000000000)

static const ligi_net_options threaded = {.background = 1};

/* Moves nothing: it only says whether the endpoint may sleep. */
typedef struct moody {
    ligi_net *net;
    int64_t next_ns, end_ns;
    _Atomic int asked, over, starved;
} moody;

static void moody_close(void *context, int forked)
{
    (void)context;
    (void)forked;
}

static void moody_open(moody *self, const ligi_transport_ops *ops)
{
    assert_ok(ligi_net_open(&self->net, &threaded));
    self->end_ns = ligi_now_ns() + WAIT_NS;
    self->next_ns = self->end_ns + WAIT_NS;
    ligi_net_lock(self->net);
    self->net->slots[self->net->slot_count++] = (ligi_transport_slot){ops, self};
    ligi_net_unlock(self->net);
    ligi_net_wake(self->net);
}

/* Until the endpoint's thread has been told that it may not sleep, or may. */
static void await_asked(moody *self, int times)
{
    while (atomic_load(&self->asked) < times && ligi_now_ns() < self->end_ns)
        sched_yield();
    assert_true(atomic_load(&self->asked) >= times);
}

/* Something is about to happen, it says, for as long as it is asked: as UCX does while a peer takes
 * nothing. */
static int refuses(void *context)
{
    moody *self = context;

    if (ligi_now_ns() >= self->end_ns)
        atomic_store(&self->starved, 1);
    atomic_fetch_add(&self->asked, 1);
    return !atomic_load(&self->over) && !atomic_load(&self->starved);
}

static void who_may_not_sleep_lets_others_in(void **state)
{
    static const ligi_transport_ops ops = {.scheme = "moody", .close = moody_close, .arm = refuses};
    moody self = {0};

    (void)state;
    moody_open(&self, &ops);
    await_asked(&self, 2);
    for (int i = 0; i < 100; i++) {
        ligi_net_lock(self.net);
        assert_false(atomic_load(&self.starved));
        ligi_net_unlock(self.net);
    }
    atomic_store(&self.over, 1);
    ligi_net_close(self.net);
}

/* It may sleep, but not for as long as it was told before. */
static int pauses(void *context)
{
    moody *self = context;

    ligi_net_alarm(self->net, self->next_ns--);
    atomic_fetch_add(&self->asked, 1);
    return 0;
}

/* What is due at a moment that a transport names while it is asked is no reason to stay awake. */
static void a_pause_is_slept(void **state)
{
    static const ligi_transport_ops ops = {.scheme = "moody", .close = moody_close, .arm = pauses};
    ligi_net_stats stats;
    moody self = {0};

    (void)state;
    moody_open(&self, &ops);
    await_asked(&self, 1);
    for (int i = 0; i < 3; i++) {
        ligi_net_stats_get(self.net, &stats);
        uint64_t before = stats.sleeps;
        ligi_net_wake(self.net);
        do {
            assert_true(ligi_now_ns() < self.end_ns);
            sched_yield();
            ligi_net_stats_get(self.net, &stats);
        } while (stats.sleeps == before);
    }
    ligi_net_close(self.net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_may_not_sleep_lets_others_in),
        cmocka_unit_test(a_pause_is_slept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
