#include "store/serve/server/workers/server_queue.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/server_session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define GROUPED_BYTES 65536 /* of a save that takes about as long as its sync */
/* While one syncs, the other runs the saves that arrive. */
enum { SAVERS_MAX = 2 };

ligi_served_job *ligi_served_job_make(ligi_served_session *session,
                                      void (*work)(ligi_served_job *job), void *context)
{
    ligi_served_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    if (session)
        ligi_served_session_hold(session);
    job->session = session;
    job->work = work;
    job->context = context;
    return job;
}

void ligi_served_job_free(ligi_served_job *job)
{
    if (job->charge)
        ligi_served_uncharge(job->session, job->charge);
    ligi_served_session_drop(job->session);
    free(job->memory);
    free(job);
}

/* --- the lists --- */

static void append(ligi_served_jobs *jobs, ligi_served_job *job)
{
    job->next = NULL;
    *jobs->end = job;
    jobs->end = &job->next;
}

/* With the lock. */
static ligi_served_job *pop(ligi_served_queue *queue, ligi_served_jobs *jobs)
{
    ligi_served_job *job = jobs->first;
    if (job == NULL)
        return NULL;
    jobs->first = job->next;
    if (jobs->first == NULL)
        jobs->end = &jobs->first;
    queue->waiting--;
    queue->running++;
    return job;
}

/* Large saves have threads: theirs is only the beginning. */
static int is_small_save(const ligi_served_job *job)
{
    return job->work == NULL && job->head.op == LIGI_SERVED_SAVE && job->data_bytes > 0 &&
           job->data_bytes <= GROUPED_BYTES;
}

static int is_change(const ligi_served_job *job)
{
    return job->work == NULL && ligi_served_op_mutates(job->head.op);
}

static ligi_served_jobs *list_of(ligi_served_queue *queue, const ligi_served_job *job)
{
    if (is_small_save(job))
        return &queue->saves;
    return is_change(job) ? &queue->changes : &queue->jobs;
}

/* With the lock. A quarter of the workers is left to requests that only read. */
static int may_change(const ligi_served_queue *queue)
{
    return queue->changers < queue->worker_max - queue->worker_max / 4;
}

/* With the lock. */
static int may_run(const ligi_served_queue *queue, const ligi_served_jobs *list)
{
    if (list == &queue->jobs)
        return 1;
    return may_change(queue) && (list == &queue->changes || queue->savers < SAVERS_MAX);
}

/* With the lock: 1 if an idle worker should be woken for what waits. */
static int should_wake(const ligi_served_queue *queue)
{
    return queue->idle && ((queue->changes.first && may_run(queue, &queue->changes)) ||
                           (queue->saves.first && may_run(queue, &queue->saves)));
}

void ligi_served_queue_init(ligi_served_queue *queue)
{
    queue->jobs.end = &queue->jobs.first;
    queue->changes.end = &queue->changes.first;
    queue->saves.end = &queue->saves.first;
}

void ligi_served_queue_put(ligi_served_queue *queue, ligi_served_job *job)
{
    ligi_served_jobs *list = list_of(queue, job);
    pthread_mutex_lock(&queue->lock);
    append(list, job);
    queue->waiting++;
    int wake = queue->idle && may_run(queue, list);
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        pthread_cond_signal(&queue->filled);
}

void ligi_served_queue_begin(ligi_served_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->running++;
    pthread_mutex_unlock(&queue->lock);
}

/* With the lock. */
static void end_running(ligi_served_queue *queue, size_t count)
{
    queue->running -= count;
    if (queue->running == 0 && queue->waiting == 0)
        pthread_cond_broadcast(&queue->emptied);
}

void ligi_served_queue_end(ligi_served_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    end_running(queue, 1);
    pthread_mutex_unlock(&queue->lock);
}

/* --- workers --- */

/* With the lock. In the order in which they came. */
static ligi_served_job *pop_other(ligi_served_queue *queue)
{
    const ligi_served_job *change = queue->changes.first, *job = queue->jobs.first;
    int first = change && (job == NULL || change->received_ns < job->received_ns);
    return pop(queue, first && may_change(queue) ? &queue->changes : &queue->jobs);
}

/* With the lock. NULL: nothing that this worker may run. */
static ligi_served_job *choose(ligi_served_worker *worker)
{
    ligi_served_queue *queue = &worker->server->queue;
    ligi_served_job *job = worker->saved ? pop_other(queue) : NULL;
    worker->saved = 0;
    if (job == NULL && may_run(queue, &queue->saves))
        job = pop(queue, &queue->saves);
    if (job == NULL)
        job = pop_other(queue);
    worker->saver = job && is_small_save(job);
    worker->changer = job && is_change(job);
    queue->savers += (size_t)worker->saver;
    queue->changers += (size_t)worker->changer;
    return job;
}

/* NULL: the queue is closed, and what is left belongs to other workers. */
static ligi_served_job *take(ligi_served_worker *worker)
{
    ligi_served_queue *queue = &worker->server->queue;
    ligi_served_job *job;
    pthread_mutex_lock(&queue->lock);
    queue->idle++;
    while ((job = choose(worker)) == NULL && !queue->closed)
        pthread_cond_wait(&queue->filled, &queue->lock);
    queue->idle--;
    pthread_mutex_unlock(&queue->lock);
    return job;
}

/* NULL: the group is complete. */
static ligi_served_job *take_save(const ligi_served_worker *worker, size_t taken)
{
    ligi_served_queue *queue = &worker->server->queue;
    if (!worker->saver || taken == LIGI_SERVED_GROUP_MAX)
        return NULL;
    pthread_mutex_lock(&queue->lock);
    ligi_served_job *job = pop(queue, &queue->saves);
    pthread_mutex_unlock(&queue->lock);
    return job;
}

/* Another worker may run the saves that wait. With the lock. */
static void leave_savers(ligi_served_worker *worker)
{
    ligi_served_queue *queue = &worker->server->queue;
    assert(queue->savers >= (size_t)worker->saver);
    queue->savers -= (size_t)worker->saver;
    worker->saver = 0;
}

static void end_jobs(ligi_served_worker *worker, size_t count)
{
    ligi_served_queue *queue = &worker->server->queue;
    pthread_mutex_lock(&queue->lock);
    leave_savers(worker);
    assert(queue->changers >= (size_t)worker->changer);
    queue->changers -= (size_t)worker->changer;
    worker->changer = 0;
    int wake = should_wake(queue);
    end_running(queue, count);
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        pthread_cond_signal(&queue->filled);
}

/* Their replies wait for one sync. Meanwhile the next ones gather, for the other saver. */
static void run_saves(ligi_served_worker *worker, ligi_served_job *job)
{
    size_t count = 0;
    for (; job != NULL; job = take_save(worker, count)) {
        ligi_served_request_run(worker, job);
        count++;
    }
    ligi_served_sync(worker);
    worker->saved = 1;
    end_jobs(worker, count);
}

void ligi_served_queue_blocked(ligi_served_worker *worker)
{
    ligi_served_queue *queue = &worker->server->queue;
    if (!worker->saver)
        return;
    ligi_served_sync(worker);
    pthread_mutex_lock(&queue->lock);
    leave_savers(worker);
    int wake = should_wake(queue);
    pthread_mutex_unlock(&queue->lock);
    if (wake)
        pthread_cond_signal(&queue->filled);
}

static lig_status run_worker(void *context, lig_ticket *ticket)
{
    ligi_served_worker *worker = context;
    ligi_served_job *job;
    (void)ticket;
    while ((job = take(worker)) != NULL) {
        if (worker->saver) {
            run_saves(worker, job);
            continue;
        }
        if (job->work)
            job->work(job);
        else
            ligi_served_request_run(worker, job);
        end_jobs(worker, 1);
    }
    return LIG_OK;
}

lig_status ligi_served_queue_start(lig_server *server, size_t workers)
{
    ligi_served_queue *queue = &server->queue;
    LIG_TRY(ligi_calloc(&queue->workers, workers, sizeof *queue->workers, "workers"));
    queue->worker_max = workers;
    for (size_t i = 0; i < workers; i++) {
        ligi_served_worker *worker = &queue->workers[i];
        worker->server = server;
        LIG_TRY(ligi_store_clone(server->store, &worker->store));
        queue->worker_count = i + 1;
        LIG_TRY(ligi_ticket_start(run_worker, NULL, worker, &worker->thread));
    }
    return LIG_OK;
}

void ligi_served_queue_stop(lig_server *server)
{
    ligi_served_queue *queue = &server->queue;
    pthread_mutex_lock(&queue->lock);
    queue->closed = 1;
    pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
    for (size_t i = 0; i < queue->worker_count; i++) {
        if (queue->workers[i].thread) {
            (void)lig_ticket_wait(queue->workers[i].thread, LIG_FOREVER);
            lig_ticket_destroy(queue->workers[i].thread);
        }
        queue->workers[i].thread = NULL;
    }
    for (size_t i = 0; i < queue->worker_count; i++)
        lig_store_close(queue->workers[i].store);
    queue->worker_count = 0;
    free(queue->workers);
    queue->workers = NULL;
}

lig_status ligi_served_queue_drain(ligi_served_queue *queue, int64_t timeout_ns)
{
    struct timespec end = ligi_deadline(timeout_ns);
    int late = 0;
    pthread_mutex_lock(&queue->lock);
    while ((queue->waiting || queue->running) && !late)
        late = pthread_cond_timedwait(&queue->emptied, &queue->lock, &end) == ETIMEDOUT;
    int busy = queue->waiting || queue->running;
    pthread_mutex_unlock(&queue->lock);
    return busy ? lig_fail(LIG_E_TIMEOUT, "timeout: requests are still running") : LIG_OK;
}
