#include "mesh/device/courier.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/progress.h"
#include "tensor/cuda/cuda_work.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* A copy of a megabyte takes some microseconds: after an event the thread polls without a pause for
 * a while, then less and less often. */
#define BUSY_NS INT64_C(200000)
#define NAP_NS INT64_C(50000)
#define DOUBT_NS INT64_C(20000000) /* then the device is checked for a failure */

static int is_over(const ligi_courier_task *task)
{
    return task->word == NULL || __atomic_load_n(task->word, __ATOMIC_ACQUIRE) >= task->least;
}

/* With the tasks' lock: takes the tasks that are over, or all. */
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

static int finish(ligi_courier *tasks, ligi_courier_task *taken, lig_status status)
{
    int some = taken != NULL;
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    if (some)
        ligi_net_lock(tasks->net);
    while (taken) {
        ligi_courier_task *next = taken->next;
        (void)ligi_failure_publish(&failure);
        taken->done(taken, status);
        taken = next;
    }
    if (some) {
        ligi_net_unlock(tasks->net);
        ligi_net_wake(tasks->net);
    }
    return some;
}

/* A failed device writes no words any more. */
static int find_failure(ligi_courier *tasks)
{
    lig_status status = ligi_cuda_alive(tasks->device, tasks->stream);
    if (status == LIG_OK)
        return 0;
    pthread_mutex_lock(&tasks->lock);
    ligi_courier_task *taken = take_over(tasks, 1);
    pthread_mutex_unlock(&tasks->lock);
    return finish(tasks, taken, status);
}

static struct timespec moment(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* With the courier's lock. */
static void rest(ligi_courier *tasks, int64_t idle_ns)
{
    if (idle_ns < BUSY_NS)
        return;
    struct timespec end = moment(ligi_now_ns() + NAP_NS);
    pthread_cond_timedwait(&tasks->changed, &tasks->lock, &end);
}

typedef struct round {
    ligi_courier_task *taken;
    int polled;
    uint64_t added;
} round;

/* 0: the thread ends. */
static int await_work(ligi_courier *tasks, int64_t idle_ns, round *now)
{
    if (idle_ns < BUSY_NS)
        sched_yield();
    pthread_mutex_lock(&tasks->lock);
    rest(tasks, idle_ns);
    while (tasks->first == NULL && !tasks->polled && !tasks->stopping)
        pthread_cond_wait(&tasks->changed, &tasks->lock);
    int runs = tasks->first != NULL || !tasks->stopping;
    *now = (round){take_over(tasks, 0), tasks->polled && !tasks->stopping, tasks->added};
    pthread_mutex_unlock(&tasks->lock);
    return runs;
}

static void *run(void *context)
{
    ligi_courier *tasks = context;
    round found;
    uint64_t added = 0;
    int64_t active = ligi_now_ns(), asked = active, now = active;
    while (await_work(tasks, now - active, &found)) {
        int some = finish(tasks, found.taken, LIG_OK) || found.added != added;
        added = found.added;
        if (found.polled) {
            some |= tasks->visit && tasks->visit(tasks->context);
            ligi_net_help(tasks->net);
        }
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
    tasks->running = 1;
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
    pthread_cond_broadcast(&tasks->changed);
    pthread_mutex_unlock(&tasks->lock);
    pthread_join(tasks->thread, NULL);
    pthread_mutex_destroy(&tasks->lock);
    pthread_cond_destroy(&tasks->changed);
    tasks->running = 0;
    return ended;
}

void ligi_courier_add(ligi_courier *tasks, ligi_courier_task *task)
{
    pthread_mutex_lock(&tasks->lock);
    task->next = NULL;
    *tasks->last = task;
    tasks->last = &task->next;
    tasks->added++;
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
