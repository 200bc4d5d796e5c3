#include "net/progress_thread.h"

#include "base/clock.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <signal.h>

#define PAUSE_LEAST_NS INT64_C(200000)
#define PAUSE_MOST_NS INT64_C(2000000)

static void park(ligi_net *net, int64_t *pause_ns)
{
    struct timespec at = ligi_deadline(*pause_ns);

    if (*pause_ns == PAUSE_MOST_NS && net->driver == LIGI_CALLER) {
        net->parked_deep = 1;
        while (net->parked_deep && !net->thread_stop)
            pthread_cond_wait(&net->parked, &net->lock);
        *pause_ns = PAUSE_LEAST_NS;
        return;
    }
    pthread_cond_timedwait(&net->parked, &net->lock, &at);
    *pause_ns = *pause_ns * 2 < PAUSE_MOST_NS ? *pause_ns * 2 : PAUSE_MOST_NS;
}

static void *background(void *context)
{
    ligi_net *net = context;
    uint64_t seen = 0;
    int64_t pause = PAUSE_LEAST_NS;

    ligi_net_lock(net);
    while (!net->thread_stop) {
        if (net->callers > 0 || net->drives != seen) {
            seen = net->drives;
            park(net, &pause);
            continue;
        }
        pause = PAUSE_LEAST_NS;
        if (ligi_net_round(net) > 0)
            ligi_net_let_in(net);
        else if (net->driver == LIGI_NOBODY && net->callers == 0)
            ligi_net_sleep(net, LIGI_BACKGROUND, LIGI_NEVER);
    }
    ligi_net_unlock(net);
    return NULL;
}

lig_status ligi_progress_thread_start(ligi_net *net)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&net->thread, NULL, background, net);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number != 0)
        return ligi_fail_errno(number, "pthread_create failed for the background thread");
    net->thread_started = 1;
    return LIG_OK;
}

void ligi_progress_thread_stop(ligi_net *net)
{
    if (!net->thread_started)
        return;
    ligi_net_lock(net);
    net->thread_stop = 1;
    pthread_cond_signal(&net->parked);
    ligi_net_wake(net);
    ligi_net_unlock(net);
    pthread_join(net->thread, NULL);
    net->thread_started = 0;
}
