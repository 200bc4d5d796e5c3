#include "store/serve/server/workers/server_driver.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/progress.h"
#include "store/serve/server/server_dispatch.h"
#include "store/serve/server/workers/server_queue.h"

#define SHORT_NS 500000          /* an operation that takes longer on average is run by a worker */
#define COUNTED_NS 2000000       /* what one slow request counts at most in the average */
#define LATE_NS INT64_C(2000000) /* then the relief receives */
#define PATIENCE_NS INT64_C(300000) /* between short requests: a wake-up takes as long as many */
enum { TAKEN_MAX = 8, QUIET_LOOKS = 50 };

/* --- which requests --- */

/* An operation that has been slow is tried again after some requests. */
static int is_short(ligi_served_driver *self, uint32_t op)
{
    uint32_t mean = atomic_load(&self->mean_ns[op]);
    if (mean <= SHORT_NS)
        return 1;
    atomic_store(&self->mean_ns[op], mean - mean / 32);
    return 0;
}

static void note_time(ligi_served_driver *self, uint32_t op, int64_t took_ns)
{
    uint32_t mean = atomic_load(&self->mean_ns[op]);
    uint32_t took = took_ns < COUNTED_NS ? (uint32_t)took_ns : COUNTED_NS;
    atomic_store(&self->mean_ns[op], mean - mean / 8 + took / 8);
}

/* Nothing overtakes a RELEASE: later requests may depend on it. */
static int is_for_driver(ligi_served_driver *self, uint32_t op)
{
    if (!self->receiving)
        return 0;
    return self->releases > 0 ||
           (self->count < TAKEN_MAX && ligi_served_op_brief(op) && is_short(self, op));
}

int ligi_served_driver_take(lig_server *server, ligi_served_job *job)
{
    ligi_served_driver *self = &server->driver;
    if (!is_for_driver(self, job->head.op)) {
        self->patient = 0;
        return 0;
    }
    ligi_served_queue_begin(&server->queue);
    job->next = NULL;
    *self->end = job;
    self->end = &job->next;
    self->count++;
    self->releases += job->head.op == LIGI_SERVED_RELEASE;
    return 1;
}

/* With the endpoint's lock. */
static ligi_served_job *pop(ligi_served_driver *self)
{
    ligi_served_job *job = self->first;
    if (job == NULL)
        return NULL;
    self->first = job->next;
    if (self->first == NULL)
        self->end = &self->first;
    self->count--;
    self->releases -= job->head.op == LIGI_SERVED_RELEASE;
    return job;
}

/* --- the driver --- */

static int has_work(void *context)
{
    lig_server *server = context;
    return server->driver.first != NULL || atomic_load(&server->closing);
}

/* The relief watches the driver only while there are requests: an idle server sleeps. */
static void call_relief(ligi_served_driver *self)
{
    if (atomic_load(&self->watched))
        return;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->watched, 1);
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void pass_on(lig_server *server, ligi_served_job *job)
{
    server->driver.patient = 0;
    ligi_served_queue_put(&server->queue, job);
    ligi_served_queue_end(&server->queue);
}

static void run(lig_server *server, ligi_served_job *job)
{
    ligi_served_driver *self = &server->driver;
    uint32_t op = job->head.op;
    int64_t begin_ns = ligi_now_ns();
    atomic_store(&self->since_ns, begin_ns);
    call_relief(self);
    self->patient = 1; /* unless it is passed on: workers and large transfers need the cores */
    ligi_served_request_run(&self->worker, job);
    atomic_store(&self->since_ns, 0);
    note_time(self, op, ligi_now_ns() - begin_ns);
    ligi_served_queue_end(&server->queue);
}

static lig_status drive(void *context, lig_ticket *ticket)
{
    lig_server *server = context;
    ligi_served_driver *self = &server->driver;
    lig_status status = LIG_OK;
    (void)ticket;
    ligi_net_lock(server->net);
    for (;;) {
        ligi_served_job *job = pop(self);
        if (job) {
            ligi_net_unlock(server->net);
            if (ligi_served_op_brief(job->head.op))
                run(server, job);
            else
                pass_on(server, job);
            ligi_net_lock(server->net);
            continue;
        }
        if (status != LIG_OK || atomic_load(&server->closing))
            break;
        self->receiving = 1;
        ligi_net_be_patient(server->net, self->patient ? PATIENCE_NS : 0);
        if (self->relieved)
            ligi_net_wake(server->net);
        status = ligi_net_await(server->net, has_work, server, LIG_FOREVER);
        self->receiving = 0;
    }
    ligi_net_unlock(server->net);
    return status;
}

/* --- the relief --- */

static int is_back(void *context)
{
    lig_server *server = context;
    return server->driver.receiving || atomic_load(&server->closing);
}

/* Receives until the driver returns; requests queued behind the slow one go to workers. */
static void relieve(lig_server *server)
{
    ligi_served_driver *self = &server->driver;
    ligi_served_job *job;
    ligi_net_lock(server->net);
    if (!is_back(server)) {
        while ((job = pop(self)) != NULL)
            pass_on(server, job);
        self->relieved = 1;
        (void)ligi_net_await(server->net, is_back, server, LIG_FOREVER);
        self->relieved = 0;
    }
    ligi_net_unlock(server->net);
}

/* 1 if the driver has been running a request for too long. */
static int is_late(ligi_served_driver *self, int *quiet)
{
    int64_t since_ns = atomic_load(&self->since_ns);
    *quiet = since_ns ? 0 : *quiet + 1;
    if (*quiet >= QUIET_LOOKS) {
        atomic_store(&self->watched, 0);
        /* The driver sets one before it reads the other. */
        if (atomic_load(&self->since_ns))
            atomic_store(&self->watched, 1);
        *quiet = 0;
    }
    return since_ns && ligi_now_ns() - since_ns >= LATE_NS;
}

static lig_status watch(void *context, lig_ticket *ticket)
{
    lig_server *server = context;
    ligi_served_driver *self = &server->driver;
    int quiet = 0;
    (void)ticket;
    pthread_mutex_lock(&self->lock);
    while (!self->closed) {
        if (!atomic_load(&self->watched)) {
            pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        struct timespec soon = ligi_deadline(LATE_NS);
        pthread_cond_timedwait(&self->changed, &self->lock, &soon);
        if (self->closed || !is_late(self, &quiet))
            continue;
        pthread_mutex_unlock(&self->lock);
        relieve(server);
        pthread_mutex_lock(&self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    return LIG_OK;
}

/* --- both --- */

lig_status ligi_served_driver_start(lig_server *server)
{
    ligi_served_driver *self = &server->driver;
    self->end = &self->first;
    self->closed = 0;
    self->worker.server = server;
    LIG_TRY(ligi_store_clone(server->store, &self->worker.store));
    LIG_TRY(ligi_ticket_start(drive, NULL, server, &self->worker.thread));
    return ligi_ticket_start(watch, NULL, server, &self->relief);
}

static void join(lig_ticket **thread)
{
    if (*thread) {
        (void)lig_ticket_wait(*thread, LIG_FOREVER);
        lig_ticket_destroy(*thread);
    }
    *thread = NULL;
}

void ligi_served_driver_stop(lig_server *server)
{
    ligi_served_driver *self = &server->driver;
    atomic_store(&server->closing, 1);
    ligi_net_wake(server->net);
    join(&self->worker.thread);
    pthread_mutex_lock(&self->lock);
    self->closed = 1;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
    ligi_net_wake(server->net);
    join(&self->relief);
    lig_store_close(self->worker.store);
    self->worker.store = NULL;
}
