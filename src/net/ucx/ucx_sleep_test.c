/* Sleeping on UCX's descriptor, with a UCX and a host of the test's own: who sleeps is told of what
 * others ask of UCX meanwhile, and a UCX that does not let us sleep is looked at after pauses. */
#include "net/ucx/ucx.h"

#include "base/clock.h"
#include "base/test.h"
#include "net/ucx/ucx_receive.h"
#include "net/ucx/ucx_wire.h"

#include <sys/epoll.h>

extern const ligi_transport_ops lig_transport_entry;

static struct {
    int wakes, alarms;      /* that the host was asked for */
    int64_t alarm_ns;       /* the last */
    ucs_status_t armed;     /* what UCX says to being armed */
    unsigned progress;      /* how much a look of UCX's brings */
    ligi_ucx_wire *landing; /* what lands here has landed after a look */
} now;

static void host_wake(ligi_net *net)
{
    (void)net;
    now.wakes++;
}

static void host_alarm(ligi_net *net, int64_t at_ns)
{
    (void)net;
    now.alarm_ns = at_ns;
    now.alarms++;
}

static lig_status host_rewatch(ligi_net *net, ligi_watch *watch, uint32_t events)
{
    (void)net;
    watch->events = events;
    return LIG_OK;
}

static const void *host_secret(const ligi_net *net, size_t *bytes)
{
    (void)net;
    *bytes = 0;
    return NULL;
}

static const ligi_host host = {.net_wake = host_wake,
                               .net_alarm = host_alarm,
                               .net_rewatch = host_rewatch,
                               .net_secret = host_secret};

static ucs_status_t ucx_arm(ucp_worker_h worker)
{
    (void)worker;
    return now.armed;
}

static unsigned ucx_progress(ucp_worker_h worker)
{
    (void)worker;
    if (now.landing != NULL)
        now.landing->landing = 0;
    return now.progress;
}

static ucs_status_t ucx_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep)
{
    static int someone;

    (void)worker;
    (void)params;
    *ep = (ucp_ep_h)&someone;
    return UCS_OK;
}

static ucs_status_ptr_t ucx_ep_close(ucp_ep_h ep, const ucp_request_param_t *param)
{
    (void)ep;
    (void)param;
    return NULL; /* at once */
}

/* As it is while another thread sleeps. */
static void open_asleep(ligi_ucx_self *self)
{
    memset(&now, 0, sizeof now);
    *self = (ligi_ucx_self){.host = &host,
                            .ucp = {.ucp_worker_arm = ucx_arm,
                                    .ucp_worker_progress = ucx_progress,
                                    .ucp_ep_create = ucx_ep_create,
                                    .ucp_ep_close_nbx = ucx_ep_close}};
    assert_int_equal(lig_transport_entry.arm(self), 0);
    assert_int_equal(self->watch.events, EPOLLIN);
}

static ligi_ucx_wire *open_wire(ligi_ucx_self *self)
{
    ucp_ep_params_t params = {0};
    ligi_ucx_wire *made;

    assert_ok(ligi_ucx_wire_create(self, &params, 0, &made));
    now.wakes = 0;
    return made;
}

/* What UCX does then shows on no descriptor. */
static void an_end_wakes_who_sleeps(void **state)
{
    ligi_ucx_self self;

    (void)state;
    open_asleep(&self);
    ligi_ucx_wire *wire = open_wire(&self);
    wire->broken = 1;
    ligi_ucx_wire_drop(wire, 0);
    assert_int_equal(now.wakes, 1);
    assert_null(self.wires);
}

/* It had waited for its peer to read a goodbye. The round in which its end begins has nothing else
 * to tell, and wakes nobody. */
static void a_late_end_wakes_who_sleeps(void **state)
{
    ligi_ucx_self self;

    (void)state;
    open_asleep(&self);
    ligi_ucx_wire *wire = open_wire(&self);
    ligi_ucx_wire_drop(wire, 1);
    assert_ptr_equal(self.wires, wire);
    assert_int_equal(now.alarms, 1);
    assert_int_equal(now.wakes, 0);
    wire->broken = 1;
    assert_int_equal(lig_transport_entry.poll(&self), 0);
    assert_int_equal(now.wakes, 1);
    assert_null(self.wires);
}

/* Whoever turns a landing away drives UCX, and may take what would have woken the sleeper. */
static void a_diversion_wakes_who_sleeps(void **state)
{
    ligi_ucx_self self;

    (void)state;
    open_asleep(&self);
    ligi_ucx_wire *wire = now.landing = open_wire(&self);
    wire->landing = 1;
    ligi_ucx_wire_divert(wire);
    assert_int_equal(wire->landing, 0);
    assert_int_equal(wire->closing, 0);
    assert_int_equal(now.wakes, 1);
    now.landing = NULL;
    wire->broken = 1;
    ligi_ucx_wire_drop(wire, 0);
}

static void nobody_is_woken_who_does_not_sleep(void **state)
{
    ligi_ucx_self self;

    (void)state;
    open_asleep(&self);
    ligi_ucx_wire *wire = open_wire(&self);
    lig_transport_entry.disarm(&self);
    wire->broken = 1;
    ligi_ucx_wire_drop(wire, 0);
    assert_int_equal(now.wakes, 0);
}

/* How often UCX is looked at without a break before there is a pause. */
static int looks_without_a_break(ligi_ucx_self *self)
{
    int looks = 0, before = now.alarms;

    while (lig_transport_entry.arm(self) == 1) {
        assert_int_equal(now.alarms, before);
        assert_true(++looks < 1000000);
    }
    return looks;
}

static void a_refusal_becomes_a_pause(void **state)
{
    ligi_ucx_self self;

    (void)state;
    open_asleep(&self);
    lig_transport_entry.disarm(&self);
    now.armed = UCS_ERR_BUSY;
    int64_t began_ns = ligi_now_ns();
    int looks = looks_without_a_break(&self);
    assert_true(looks > 0);
    assert_int_equal(now.alarms, 1);
    assert_true(now.alarm_ns > began_ns);
    assert_int_equal(self.watch.events, 0); /* it is not armed: its descriptor says nothing */
    /* A look that brings nothing is followed by the next pause. */
    assert_int_equal(lig_transport_entry.poll(&self), 0);
    assert_int_equal(looks_without_a_break(&self), 0);
    assert_int_equal(now.alarms, 2);
    /* One that brings something is not. */
    now.progress = 1;
    assert_int_equal(lig_transport_entry.poll(&self), 1);
    assert_int_equal(looks_without_a_break(&self), looks);
    assert_int_equal(now.alarms, 3);
    /* Nor the next refusal after a sleep. */
    now.armed = UCS_OK;
    assert_int_equal(looks_without_a_break(&self), 0);
    assert_int_equal(now.alarms, 3);
    assert_int_equal(self.watch.events, EPOLLIN);
    lig_transport_entry.disarm(&self);
    now.armed = UCS_ERR_BUSY;
    assert_int_equal(looks_without_a_break(&self), looks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_wakes_who_sleeps),
        cmocka_unit_test(a_late_end_wakes_who_sleeps),
        cmocka_unit_test(a_diversion_wakes_who_sleeps),
        cmocka_unit_test(nobody_is_woken_who_does_not_sleep),
        cmocka_unit_test(a_refusal_becomes_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
