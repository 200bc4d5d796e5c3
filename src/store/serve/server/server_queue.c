#include "store/serve/server/server_queue.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/server_session.h"

#include <errno.h>
#include <stdlib.h>

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

void ligi_served_queue_put(ligi_served_queue *queue, ligi_served_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&queue->lock);
    *queue->end = job;
    queue->end = &job->next;
    queue->waiting++;
    if (queue->idle)
        pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
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

/* NULL: the queue is closed and empty. `ran`: one that this worker took before has ended. */
static ligi_served_job *take(ligi_served_queue *queue, int ran)
{
    pthread_mutex_lock(&queue->lock);
    end_running(queue, (size_t)ran);
    queue->idle++;
    while (queue->first == NULL && !queue->closed)
        pthread_cond_wait(&queue->filled, &queue->lock);
    queue->idle--;
    ligi_served_job *job = queue->first;
    if (job) {
        queue->first = job->next;
        if (queue->first == NULL)
            queue->end = &queue->first;
        queue->waiting--;
        queue->running++;
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

static lig_status run_worker(void *context, lig_ticket *ticket)
{
    ligi_served_worker *worker = context;
    ligi_served_queue *queue = &worker->server->queue;
    ligi_served_job *job;
    (void)ticket;
    for (int ran = 0; (job = take(queue, ran)) != NULL; ran = 1) {
        if (job->work)
            job->work(job);
        else
            ligi_served_request_run(worker, job);
    }
    return LIG_OK;
}

lig_status ligi_served_queue_start(lig_server *server, size_t workers)
{
    ligi_served_queue *queue = &server->queue;
    LIG_TRY(ligi_calloc(&queue->workers, workers, sizeof *queue->workers, "workers"));
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
