#include "mesh/device/courier.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/progress.h"
#include "tensor/cuda/cuda_work.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A copy of a megabyte takes some microseconds: after an event the thread polls without a pause for
 * a while, then less and less often. Without tasks it stays awake as long, because waking it takes
 * a system call. */
#define BUSY_NS INT64_C(200000)
#define GRAPHS_NS INT64_C(2000000)     /* the same with graphs: it does not know when they run */
#define GRAPHS_SLICE_NS INT64_C(10000) /* of polling graphs alone */
#define NAP_NS INT64_C(50000)
#define ASIDE_NS INT64_C(20000) /* callers poll: they are faster while they hold the locks */
#define SLACK_NS 1000L
#define DOUBT_NS INT64_C(20000000) /* then the device is checked for a failure */

static int is_over(const ligi_courier_task *task)
{
    return task->word == NULL || __atomic_load_n(task->word, __ATOMIC_ACQUIRE) >= task->least;
}

/* With the tasks' lock: takes the completed tasks, or all. */
static ligi_courier_task *take_over(ligi_courier *tasks, int all)
{
    ligi_courier_task *taken = NULL, **end = &taken, **at = &tasks->first;
    tasks->round++;
    while (*at) {
        ligi_courier_task *task = *at;
        int blocked = task->order && task->order->blocked == tasks->round;
        if (!all && (blocked || !is_over(task))) {
            if (task->order)
                task->order->blocked = tasks->round;
            at = &task->next;
            continue;
        }
        *at = task->next;
        *end = task;
        task->next = NULL;
        end = &task->next;
    }
    tasks->last = at;
    return taken;
}

/* With the tasks' lock: 1 if take_over would take one. */
static int any_over(ligi_courier *tasks)
{
    tasks->round++;
    for (ligi_courier_task *task = tasks->first; task; task = task->next) {
        if (!(task->order && task->order->blocked == tasks->round) && is_over(task))
            return 1;
        if (task->order)
            task->order->blocked = tasks->round;
    }
    return 0;
}

/* With the endpoint's lock, under which tasks are taken and done: the order of two that are taken
 * by two threads would be lost. */
static int finish(ligi_courier *tasks, int all, lig_status status)
{
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    pthread_mutex_lock(&tasks->lock);
    ligi_courier_task *taken = take_over(tasks, all);
    pthread_mutex_unlock(&tasks->lock);
    int some = taken != NULL;
    while (taken) {
        ligi_courier_task *next = taken->next;
        atomic_fetch_sub_explicit(&tasks->waiting, 1, memory_order_relaxed);
        (void)ligi_failure_publish(&failure);
        taken->done(taken, status);
        taken = next;
    }
    if (some)
        ligi_net_wake(tasks->net);
    return some;
}

static int finish_locked(ligi_courier *tasks, int all, lig_status status)
{
    ligi_net_lock(tasks->net);
    int some = finish(tasks, all, status);
    ligi_net_unlock(tasks->net);
    return some;
}

void ligi_courier_help(ligi_courier *tasks)
{
    atomic_fetch_add_explicit(&tasks->helped, 1, memory_order_relaxed);
    if (atomic_load_explicit(&tasks->waiting, memory_order_relaxed) == 0 ||
        pthread_mutex_trylock(&tasks->lock) != 0)
        return;
    int some = any_over(tasks);
    pthread_mutex_unlock(&tasks->lock);
    if (some)
        finish(tasks, 0, LIG_OK);
}

/* A failed device writes no words any more. */
static int find_failure(ligi_courier *tasks)
{
    lig_status status = ligi_cuda_alive(tasks->device, tasks->stream);
    if (status == LIG_OK)
        return 0;
    return finish_locked(tasks, 1, status);
}

static struct timespec moment(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* 1 if callers poll the words as well. */
static int callers_look(ligi_courier *tasks)
{
    unsigned helped = atomic_load_explicit(&tasks->helped, memory_order_relaxed);
    int looked = tasks->seen != helped;
    tasks->seen = helped;
    return looked;
}

/* With the courier's lock. */
static void rest(ligi_courier *tasks, int64_t idle_ns, int aside)
{
    int64_t nap_ns = aside ? ASIDE_NS : 0;
    if (idle_ns >= (tasks->polled ? GRAPHS_NS : BUSY_NS) && (tasks->first || tasks->polled))
        nap_ns = NAP_NS;
    if (nap_ns == 0)
        return;
    struct timespec end = moment(ligi_now_ns() + nap_ns);
    pthread_cond_timedwait(&tasks->changed, &tasks->lock, &end);
}

typedef struct round {
    int some, polled;
    uint64_t added;
} round;

/* 0: the thread ends. */
static int await_work(ligi_courier *tasks, int64_t idle_ns, round *now)
{
    if (idle_ns < BUSY_NS)
        sched_yield();
    pthread_mutex_lock(&tasks->lock);
    int aside = callers_look(tasks) && !tasks->polled;
    rest(tasks, idle_ns, aside);
    tasks->asleep = 1;
    while (tasks->first == NULL && !tasks->polled && !tasks->stopping && idle_ns >= BUSY_NS)
        pthread_cond_wait(&tasks->changed, &tasks->lock);
    tasks->asleep = 0;
    int runs = tasks->first != NULL || !tasks->stopping;
    *now = (round){!aside && any_over(tasks), tasks->polled && !tasks->stopping, tasks->added};
    pthread_mutex_unlock(&tasks->lock);
    return runs;
}

/* Polls for a moment without a pause and without the courier's lock: a graph is stopped until its
 * request has been answered. */
static int poll_graphs(ligi_courier *tasks)
{
    int64_t end = ligi_now_ns() + GRAPHS_SLICE_NS;
    int some = 0;
    do {
        some |= tasks->visit && tasks->visit(tasks->context);
        ligi_net_help(tasks->net);
    } while (!some && atomic_load_explicit(&tasks->waiting, memory_order_relaxed) == 0 &&
             ligi_now_ns() < end);
    return some;
}

static void *run(void *context)
{
    ligi_courier *tasks = context;
    round found;
    uint64_t added = 0;
    int64_t active = ligi_now_ns(), asked = active, now = active;
    prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0); /* its naps are shorter than the usual 50 us */
    while (await_work(tasks, now - active, &found)) {
        int some = (found.some && finish_locked(tasks, 0, LIG_OK)) || found.added != added;
        added = found.added;
        if (found.polled)
            some |= poll_graphs(tasks);
        now = ligi_now_ns();
        if (some)
            active = asked = now;
        if (now - asked > DOUBT_NS) {
            asked = now;
            if (find_failure(tasks))
                active = now;
        }
    }
    pthread_mutex_lock(&tasks->lock);
    tasks->ended = 1;
    pthread_cond_broadcast(&tasks->changed);
    pthread_mutex_unlock(&tasks->lock);
    return NULL;
}

lig_status ligi_courier_start(ligi_courier *tasks, ligi_net *net, int32_t device, void *stream)
{
    tasks->net = net;
    tasks->device = device;
    tasks->stream = stream;
    tasks->last = &tasks->first;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&tasks->lock, NULL);
    pthread_cond_init(&tasks->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int error = pthread_create(&tasks->thread, NULL, run, tasks);
    if (error != 0) {
        pthread_mutex_destroy(&tasks->lock);
        pthread_cond_destroy(&tasks->changed);
        return ligi_fail_errno(error, "cannot start the thread of a mesh with device tensors");
    }
    tasks->made = tasks->running = 1;
    return LIG_OK;
}

int ligi_courier_stop(ligi_courier *tasks, int64_t patience_ns)
{
    if (!tasks->running)
        return 1;
    struct timespec end = moment(ligi_now_ns() + patience_ns);
    pthread_mutex_lock(&tasks->lock);
    tasks->stopping = 1;
    pthread_cond_broadcast(&tasks->changed);
    while (!tasks->ended && pthread_cond_timedwait(&tasks->changed, &tasks->lock, &end) == 0)
        ;
    int ended = tasks->ended;
    tasks->first = NULL; /* nothing waits for unfinished tasks any more */
    tasks->last = &tasks->first;
    atomic_store_explicit(&tasks->waiting, 0, memory_order_relaxed);
    pthread_cond_broadcast(&tasks->changed);
    pthread_mutex_unlock(&tasks->lock);
    pthread_join(tasks->thread, NULL);
    tasks->running = 0;
    return ended;
}

void ligi_courier_fini(ligi_courier *tasks)
{
    if (!tasks->made)
        return;
    pthread_mutex_destroy(&tasks->lock);
    pthread_cond_destroy(&tasks->changed);
    tasks->made = 0;
}

void ligi_courier_add(ligi_courier *tasks, ligi_courier_task *task)
{
    pthread_mutex_lock(&tasks->lock);
    task->next = NULL;
    *tasks->last = task;
    tasks->last = &task->next;
    tasks->added++;
    atomic_fetch_add_explicit(&tasks->waiting, 1, memory_order_relaxed);
    if (tasks->asleep)
        pthread_cond_signal(&tasks->changed);
    pthread_mutex_unlock(&tasks->lock);
}

void ligi_courier_poll(ligi_courier *tasks, int more)
{
    pthread_mutex_lock(&tasks->lock);
    tasks->polled += more;
    pthread_cond_signal(&tasks->changed);
    pthread_mutex_unlock(&tasks->lock);
}
