#include "net/progress.h"

#include "base/clock.h"
#include "net/link/link.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/net_state.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EVENTS 64
#define BUSY_MOST_NS 1000000  /* how long a driver that is never idle excludes other callers */
#define WAY_NS 20000          /* and for how long it admits them */
#define YIELD_AFTER_NS 3000   /* of spinning without events */
#define SOCKETS_PAUSE_NS 4000 /* between two calls of epoll while the rings are active */
#define SOCKETS_MOST_NS 10000 /* the same while they deliver messages */
#define GLANCES_MOST 32       /* polls of the rings between two polls of everything else */
#define GLANCES_NS 2000       /* the time limit of these polls */

static void bell_ready(void *context, uint32_t events)
{
    ligi_net *net = context;
    uint64_t rings;

    (void)events;
    net->stats.wakes++;
    if (read(net->bell, &rings, sizeof rings) < 0)
        return; /* another thread has read it */
}

lig_status ligi_progress_open(ligi_net *net)
{
    pthread_condattr_t attributes;

    net->bell = -1;
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (net->epoll < 0)
        return ligi_fail_errno(errno, "epoll_create1 failed");
    net->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (net->bell < 0)
        return ligi_fail_errno(errno, "eventfd failed");
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&net->changed, &attributes);
    pthread_cond_init(&net->parked, &attributes);
    pthread_condattr_destroy(&attributes);
    net->bell_watch = (ligi_watch){.ready = bell_ready, .context = net, .fd = -1};
    return ligi_net_watch(net, &net->bell_watch, net->bell, EPOLLIN);
}

void ligi_progress_close(ligi_net *net)
{
    if (net->bell >= 0)
        close(net->bell);
    if (net->epoll >= 0)
        close(net->epoll);
}

static lig_status control(ligi_net *net, int operation, ligi_watch *watch)
{
    struct epoll_event event = {.events = watch->events, .data.ptr = watch};

    if (epoll_ctl(net->epoll, operation, watch->fd, &event) != 0)
        return ligi_fail_errno(errno, "epoll_ctl failed");
    return LIG_OK;
}

lig_status ligi_net_watch(ligi_net *net, ligi_watch *watch, int fd, uint32_t events)
{
    watch->fd = fd;
    watch->events = events;
    lig_status status = control(net, EPOLL_CTL_ADD, watch);
    if (status != LIG_OK)
        watch->fd = -1;
    return status;
}

lig_status ligi_net_rewatch(ligi_net *net, ligi_watch *watch, uint32_t events)
{
    if (watch->events == events)
        return LIG_OK;
    watch->events = events;
    return control(net, EPOLL_CTL_MOD, watch);
}

void ligi_net_forget(ligi_net *net, ligi_watch *watch)
{
    if (watch->fd >= 0)
        epoll_ctl(net->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->fd = -1;
}

/* The asleep flag is set before `rung` is read, `rung` before the flag: one of the two sees the
 * other. */
void ligi_net_wake(ligi_net *net)
{
    const uint64_t one = 1;

    atomic_store(&net->rung, 1);
    if (atomic_load(&net->asleep) && write(net->bell, &one, sizeof one) < 0)
        return; /* full: it is already readable */
}

void ligi_net_due(ligi_net *net, int64_t at_ns)
{
    if (at_ns >= net->next_ns)
        return;
    net->next_ns = at_ns;
    if (atomic_load(&net->asleep))
        ligi_net_wake(net);
}

/* Stored separately: the transport that set it is polled in the round in which it ends, and sets it
 * again. */
void ligi_net_alarm(ligi_net *net, int64_t at_ns)
{
    if (at_ns < net->alarm_ns)
        net->alarm_ns = at_ns;
    ligi_net_due(net, at_ns);
}

static void past_deadline(ligi_link *link)
{
    ligi_connect_plan *plan = link->plan;

    link->final = 1;
    if (plan != NULL && plan->last[0] != '\0')
        lig_fail(LIG_E_TIMEOUT, "timeout: no connection to %s; the last attempt: %s", link->name,
                 plan->last);
    else
        lig_fail(LIG_E_TIMEOUT, "timeout: no hello from %s", link->name);
    ligi_link_fail(link, LIG_E_TIMEOUT);
}

/* A stopped peer may already have the hello, and would treat it as a connection when it continues:
 * it would see two connections and lose the first. */
static void look_at_turn(ligi_link *link, int64_t now)
{
    if (ligi_link_hello_left(link))
        return;
    if (link->plan->turn_ns > now) {
        ligi_net_due(link->net, link->plan->turn_ns);
        return;
    }
    ligi_link_fail(link,
                   lig_fail(LIG_E_PEER, "'%s' did not answer in time, trying the other addresses",
                            link->address));
}

static void look_at_link(ligi_link *link, int64_t now)
{
    if (link->state != LIGI_STRANGER && link->state != LIGI_CONNECTING)
        return;
    if (link->deadline_ns <= now) {
        past_deadline(link);
        return;
    }
    ligi_net_due(link->net, link->deadline_ns);
    if (link->plan == NULL)
        return;
    if (link->wire != NULL) {
        look_at_turn(link, now);
        return;
    }
    if (link->plan->again_ns > now) {
        ligi_net_due(link->net, link->plan->again_ns);
        return;
    }
    lig_status status = ligi_link_connect_next(link);
    if (status != LIG_OK) {
        link->final = 1;
        ligi_link_fail(link, status);
    }
}

/* Runs ticks, deadlines and attempts that are due; computes when the next is. */
static void look_at_clock(ligi_net *net, int64_t now)
{
    net->next_ns = net->alarm_ns;
    atomic_store(&net->hurried, 0);
    for (int i = 0; i < LIGI_SERVICE_COUNT; i++) {
        ligi_served *served = &net->services[i];
        if (atomic_exchange(&served->hurried, 0))
            served->tick_ns = 0;
        if (served->hooks == NULL || served->hooks->tick == NULL)
            continue;
        if (served->tick_ns <= now)
            served->tick_ns = served->hooks->tick(served->context, now);
        ligi_net_due(net, served->tick_ns);
    }
    for (ligi_link *link = net->links; link != NULL; link = link->next)
        look_at_link(link, now);
}

static int poll_rings(ligi_net *net)
{
    int happened = 0;

    for (size_t i = 0; i < net->slot_count; i++)
        if (net->slots[i].ops->poll != NULL)
            happened += net->slots[i].ops->poll(net->slots[i].self);
    return happened;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A spinning thread reads the clock and everything else only once in several polls: messages are
 * seen sooner, and a peer on the sibling hyperthread gets more of the core. */
static int look_at_rings(ligi_net *net, int glances)
{
    int happened = poll_rings(net);

    for (; happened == 0 && glances > 0; glances--) {
        if (atomic_load_explicit(&net->wanting, memory_order_relaxed) > 0)
            break;
        relax();
        happened = poll_rings(net);
    }
    if (net->corked != NULL)
        ligi_net_flush(net);
    return happened;
}

static int look_at_sockets(ligi_net *net)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(net->epoll, events, EVENTS, 0), happened = 0;

    for (int i = 0; i < count; i++) {
        ligi_watch *watch = events[i].data.ptr;
        /* It was signalled for the sleeper, which would go back to sleep if it were cleared by
         * then. */
        if (watch == &net->bell_watch && atomic_load(&net->asleep))
            continue;
        happened++;
        if (watch->fd >= 0)
            watch->ready(watch->context, events[i].events);
        if (net->corked != NULL)
            ligi_net_flush(net);
    }
    return happened;
}

/* Sockets are polled if the last event came from one, or if they have not been polled for a while.
 */
static int sockets_due(const ligi_net *net, int64_t now, int happened)
{
    return net->sockets_hot ||
           now - net->sockets_ns >= (happened > 0 ? SOCKETS_MOST_NS : SOCKETS_PAUSE_NS);
}

static int round_at(ligi_net *net, int64_t now, int thorough)
{
    net->in_round++;
    net->depth++;
    net->round_ns = now;
    if (net->finished != NULL)
        ligi_net_tell_sent(net, NULL);
    if (net->corked != NULL)
        ligi_net_flush(net);
    if (now >= net->alarm_ns)
        net->alarm_ns = LIGI_NEVER;
    int happened = look_at_rings(net, thorough || net->sockets_hot ? 0 : net->glances);
    if (happened > 0)
        net->sockets_hot = 0;
    if (thorough || sockets_due(net, now, happened)) {
        int ready = look_at_sockets(net);
        net->sockets_hot |= ready > 0;
        net->sockets_ns = now;
        happened += ready;
    }
    if (now >= net->next_ns || atomic_load_explicit(&net->hurried, memory_order_relaxed)) {
        look_at_clock(net, now);
        happened++;
    }
    if (net->corked != NULL)
        ligi_net_flush(net);
    if (net->failing != NULL) {
        ligi_net_settle(net);
        happened++;
    }
    net->in_round--;
    if (--net->depth == 0 && net->dead != NULL)
        ligi_net_bury(net);
    if (happened > 0 && net->waiters > 0)
        pthread_cond_broadcast(&net->changed);
    /* This thread may have handled what a sleeper waits for, and consumed its wake-up: a peer does
     * not ring twice. */
    if (happened > 0 && net->driver != LIGI_NOBODY)
        ligi_net_wake(net);
    return happened;
}

int64_t ligi_net_round_ns(const ligi_net *net)
{
    return net->round_ns;
}

int ligi_net_round(ligi_net *net)
{
    return round_at(net, ligi_now_ns(), 1);
}

static int arm(ligi_net *net)
{
    int happened = 0;

    for (size_t i = 0; i < net->slot_count; i++)
        if (net->slots[i].ops->arm != NULL)
            happened |= net->slots[i].ops->arm(net->slots[i].self);
    return happened;
}

static void disarm(ligi_net *net)
{
    for (size_t i = 0; i < net->slot_count; i++)
        if (net->slots[i].ops->disarm != NULL)
            net->slots[i].ops->disarm(net->slots[i].self);
}

/* Until something is due; -1: unknown. */
static int64_t sleep_ns(const ligi_net *net, int64_t deadline_ns)
{
    int64_t until = deadline_ns < net->next_ns ? deadline_ns : net->next_ns;

    if (until == LIGI_NEVER)
        return -1;
    int64_t left = until - ligi_now_ns();
    return left > 0 ? left : 0;
}

/* epoll_wait's milliseconds are too coarse for ticks that are 1 ms apart; older kernels have
 * nothing else, and some sandboxes deny unknown system calls. */
static void nap(int epoll, int64_t left_ns)
{
    struct epoll_event unused;
    int64_t left_ms = left_ns < 0 ? -1 : (left_ns + 999999) / 1000000;

#ifdef SYS_epoll_pwait2
    struct timespec left = {.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    if (syscall(SYS_epoll_pwait2, epoll, &unused, 1, left_ns < 0 ? NULL : &left, NULL, 0) >= 0 ||
        (errno != ENOSYS && errno != EPERM))
        return;
#endif
    epoll_wait(epoll, &unused, 1, left_ms < 1000000 ? (int)left_ms : 1000000);
}

/* The flag is set after arm, in which transports may set deadlines. */
static int may_sleep(ligi_net *net)
{
    if (arm(net))
        return 0;
    atomic_store(&net->asleep, 1);
    return !atomic_exchange(&net->rung, 0);
}

/* As the driver: what happened is found by the next round, under the lock, since a watch seen here
 * may have been removed when the lock is acquired. */
static void sleep_as(ligi_net *net, ligi_driver as, int64_t deadline_ns)
{
    int slept = 0;

    net->driver = as;
    if (may_sleep(net)) {
        int64_t left = sleep_ns(net, deadline_ns);
        net->stats.sleeps++;
        pthread_mutex_unlock(&net->lock);
        nap(net->epoll, left);
        ligi_net_lock(net); /* counted: the holder lets this thread in */
        net->sockets_hot = 1;
        atomic_store(&net->rung, 0);
        slept = 1;
    }
    atomic_store(&net->asleep, 0);
    disarm(net);
    net->driver = LIGI_NOBODY;
    if (net->waiters > 0)
        pthread_cond_broadcast(&net->changed);
    if (!slept)
        ligi_net_let_in(net); /* a transport may report for a long time that an event is imminent */
}

static void wait_for_driver(ligi_net *net, int64_t deadline_ns)
{
    net->waiters++;
    if (deadline_ns == LIGI_NEVER) {
        pthread_cond_wait(&net->changed, &net->lock);
    } else {
        struct timespec at = {.tv_sec = deadline_ns / 1000000000,
                              .tv_nsec = deadline_ns % 1000000000};
        pthread_cond_timedwait(&net->changed, &net->lock, &at);
    }
    net->waiters--;
}

void ligi_net_sleep(ligi_net *net, ligi_driver as, int64_t deadline_ns)
{
    if (net->driver == LIGI_NOBODY) {
        sleep_as(net, as, deadline_ns);
        return;
    }
    if (net->driver == LIGI_BACKGROUND)
        ligi_net_wake(net); /* it yields to callers */
    wait_for_driver(net, deadline_ns);
}

/* A mutex that is released and taken again at once never reaches a sleeping waiter. */
void ligi_net_let_in(ligi_net *net)
{
    if (atomic_load_explicit(&net->wanting, memory_order_relaxed) == 0) {
        relax();
        return;
    }
    pthread_mutex_unlock(&net->lock);
    for (int i = 0; i < 200 && atomic_load_explicit(&net->wanting, memory_order_relaxed) > 0; i++)
        sched_yield();
    pthread_mutex_lock(&net->lock);
}

void ligi_net_be_patient(ligi_net *net, int64_t most_ns)
{
    if (net->patience_most_ns != most_ns)
        net->patience_ns = 0;
    net->patience_most_ns = most_ns;
}

/* Adjusts the patience to the time that would have sufficed, within the limit. */
static void learn_gap(ligi_net *net, int64_t slept_ns)
{
    int64_t most = net->patience_most_ns, enough = net->patience_ns + slept_ns;

    if (enough <= most)
        net->patience_ns =
            most - enough > net->options.spin_ns ? enough + net->options.spin_ns : most;
    else
        net->patience_ns -= net->patience_ns / 4;
}

/* Sleeping just before something arrives costs a wake-up, which takes longer than the spin: a
 * thread that is woken soon spins longer next time, up to three times as long, unless that did not
 * help either. */
static void learn(ligi_net *net, int64_t slept_ns)
{
    int64_t spin = net->options.spin_ns;

    if (net->patience_most_ns > 0)
        learn_gap(net, slept_ns);
    else if (net->discouraged > 0)
        net->discouraged--;
    else if (slept_ns >= 5 * spin)
        net->patience_ns = net->patience_ns > spin / 2 ? net->patience_ns - spin / 2 : 0;
    else if (net->patience_ns < 2 * spin)
        net->patience_ns += spin;
    else {
        net->patience_ns = 0;
        net->discouraged = 256;
    }
}

static int64_t spin_until(const ligi_net *net, int64_t now)
{
    return now + net->options.spin_ns + net->patience_ns;
}

/* The peer may be waiting for this processor: on a busy machine spinning without a break delays
 * each answer by the length of the spin. */
static void offer_processor(ligi_net *net)
{
    pthread_mutex_unlock(&net->lock);
    sched_yield();
    pthread_mutex_lock(&net->lock);
}

/* Other callers were woken and wait for the lock, and not all of them are counted; under constant
 * load it would never be free for them. */
static void make_way(ligi_net *net, int64_t now, int64_t *since_ns)
{
    int64_t until = now + WAY_NS;
    struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};

    if (net->callers < 2 || now - *since_ns < BUSY_MOST_NS)
        return;
    pthread_cond_timedwait(&net->changed, &net->lock, &at);
    *since_ns = ligi_now_ns();
}

/* A poll takes nanoseconds or, with system calls or thousands of links, very much longer. */
static void pace_glances(ligi_net *net, int64_t took_ns)
{
    if (took_ns > GLANCES_NS)
        net->glances /= 2;
    else if (took_ns < GLANCES_NS / 2 && net->glances < GLANCES_MOST)
        net->glances++;
}

static lig_status drive(ligi_net *net, int (*until)(void *context), void *context,
                        int64_t timeout_ns)
{
    int64_t now = ligi_now_ns();
    int64_t deadline =
        timeout_ns < 0 || timeout_ns > LIGI_NEVER - now ? LIGI_NEVER : now + timeout_ns;
    int64_t spin_end = spin_until(net, now), quiet_ns = now, since_ns = now;

    for (;;) {
        if (net->closing)
            return lig_fail(LIG_E_CLOSED, "the endpoint is being closed");
        if (until(context))
            return LIG_OK;
        int64_t began = now;
        int happened = round_at(net, now, now >= spin_end);
        if (until(context))
            return LIG_OK;
        now = ligi_now_ns();
        if (happened == 0)
            pace_glances(net, now - began);
        if (now >= deadline)
            return lig_fail(LIG_E_TIMEOUT, "timed out after %.3f s", (double)timeout_ns / 1e9);
        if (happened > 0) {
            spin_end = spin_until(net, now);
            quiet_ns = now;
            ligi_net_let_in(net);
            make_way(net, now, &since_ns);
            continue;
        }
        if (now < spin_end) {
            ligi_net_let_in(net);
            if (now - quiet_ns >= YIELD_AFTER_NS)
                offer_processor(net);
            continue;
        }
        began = now;
        ligi_net_sleep(net, LIGI_CALLER, deadline);
        now = ligi_now_ns();
        since_ns = now;
        learn(net, now - began);
    }
}

lig_status ligi_net_await(ligi_net *net, int (*until)(void *context), void *context,
                          int64_t timeout_ns)
{
    /* If the condition holds at once, the caller does not drive and must not be counted as driving:
     * the background thread backs off for callers that drive. */
    if (!net->closing && until(context))
        return LIG_OK;
    net->callers++;
    net->drives++;
    lig_status status = drive(net, until, context, timeout_ns);
    net->callers--;
    net->drives++;
    if (net->callers == 0 && net->parked_deep) {
        net->parked_deep = 0;
        pthread_cond_signal(&net->parked);
    }
    if (net->closing)
        pthread_cond_broadcast(&net->changed);
    return status;
}

lig_status ligi_net_wait(ligi_net *net, int (*until)(void *context), void *context,
                         int64_t timeout_ns)
{
    LIG_TRY(ligi_net_mine(net));
    ligi_net_lock(net);
    lig_status status = ligi_net_await(net, until, context, timeout_ns);
    ligi_net_unlock(net);
    return status;
}

lig_status ligi_net_poll(ligi_net *net)
{
    LIG_TRY(ligi_net_mine(net));
    ligi_net_lock(net);
    if (!net->closing)
        ligi_net_round(net);
    ligi_net_unlock(net);
    return LIG_OK;
}

void ligi_net_help(ligi_net *net)
{
    if (ligi_net_mine(net) != LIG_OK || pthread_mutex_trylock(&net->lock) != 0)
        return;
    if (!net->closing)
        ligi_net_round(net);
    ligi_net_unlock(net);
}
