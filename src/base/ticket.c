#include "base/ticket.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct lig_ticket {
    pid_t pid; /* the thread exists in this process only */
    ligi_ticket_run run;
    void (*release)(void *context);
    void *context;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    uint64_t steps;
    int ended, cancelled;
    ligi_failure failure;
};

static void *thread_main(void *argument)
{
    lig_ticket *ticket = argument;
    lig_status status = ticket->run(ticket->context, ticket);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    if (ticket->release)
        ticket->release(ticket->context);
    pthread_mutex_lock(&ticket->lock);
    ticket->failure = failure;
    ticket->ended = 1;
    pthread_cond_broadcast(&ticket->changed);
    pthread_mutex_unlock(&ticket->lock);
    return NULL;
}

/* A library thread must never receive a signal meant for the program. Its own faults stay
 * unblocked: blocked, they would end the process without calling a handler. */
static int start_thread(lig_ticket *ticket)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int number = pthread_create(&ticket->thread, NULL, thread_main, ticket);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

static void destroy_parts(lig_ticket *ticket)
{
    pthread_cond_destroy(&ticket->changed);
    pthread_mutex_destroy(&ticket->lock);
    free(ticket);
}

lig_status ligi_ticket_start(ligi_ticket_run run, void (*release)(void *), void *context,
                             lig_ticket **out)
{
    lig_ticket *ticket;
    LIG_TRY(ligi_calloc(&ticket, 1, sizeof *ticket, "a ticket"));
    ticket->pid = getpid();
    ticket->run = run;
    ticket->release = release;
    ticket->context = context;
    pthread_mutex_init(&ticket->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ticket->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    /* The caller's *out is set first: run may read it as soon as the thread starts. */
    lig_ticket *before = *out;
    *out = ticket;
    int number = start_thread(ticket);
    if (number == 0)
        return LIG_OK;
    *out = before;
    destroy_parts(ticket);
    return ligi_fail_errno(number, "pthread_create failed");
}

void ligi_ticket_advance(lig_ticket *ticket, uint64_t done)
{
    pthread_mutex_lock(&ticket->lock);
    ticket->steps = done;
    pthread_cond_broadcast(&ticket->changed);
    pthread_mutex_unlock(&ticket->lock);
}

int ligi_ticket_cancelled(lig_ticket *ticket)
{
    pthread_mutex_lock(&ticket->lock);
    int cancelled = ticket->cancelled;
    pthread_mutex_unlock(&ticket->lock);
    return cancelled;
}

/* Waits, with the lock held, for one change or the deadline; 0 when the deadline has passed. */
static int wait_change(lig_ticket *ticket, int64_t timeout_ns, const struct timespec *deadline)
{
    if (timeout_ns < 0)
        return pthread_cond_wait(&ticket->changed, &ticket->lock) == 0;
    return pthread_cond_timedwait(&ticket->changed, &ticket->lock, deadline) != ETIMEDOUT;
}

static lig_status check_process(const lig_ticket *ticket)
{
    if (ticket->pid == getpid())
        return LIG_OK;
    return lig_fail(LIG_E_CLOSED, "the ticket belongs to the parent process (forked)");
}

lig_status lig_ticket_wait(lig_ticket *ticket, int64_t timeout_ns)
{
    LIG_TRY(check_process(ticket));
    struct timespec deadline = ligi_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    pthread_mutex_lock(&ticket->lock);
    while (!ticket->ended && wait_change(ticket, timeout_ns, &deadline))
        ;
    int ended = ticket->ended;
    lig_status status = ended ? ligi_failure_publish(&ticket->failure) : LIG_E_TIMEOUT;
    pthread_mutex_unlock(&ticket->lock);
    return ended ? status : lig_fail(LIG_E_TIMEOUT, "timeout: the operation continues");
}

lig_status lig_ticket_progress(lig_ticket *ticket, uint64_t seen, int64_t timeout_ns,
                               uint64_t *done)
{
    LIG_TRY(check_process(ticket));
    struct timespec deadline = ligi_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    pthread_mutex_lock(&ticket->lock);
    while (!ticket->ended && ticket->steps <= seen && wait_change(ticket, timeout_ns, &deadline))
        ;
    *done = ticket->steps;
    int moved = ticket->ended || ticket->steps > seen;
    pthread_mutex_unlock(&ticket->lock);
    return moved ? LIG_OK : lig_fail(LIG_E_TIMEOUT, "timeout: no progress");
}

int lig_ticket_done(lig_ticket *ticket)
{
    if (ticket->pid != getpid()) /* the lock may be held by a thread of the parent */
        return 0;
    pthread_mutex_lock(&ticket->lock);
    int ended = ticket->ended;
    pthread_mutex_unlock(&ticket->lock);
    return ended;
}

void lig_ticket_cancel(lig_ticket *ticket)
{
    if (ticket->pid != getpid())
        return;
    pthread_mutex_lock(&ticket->lock);
    ticket->cancelled = 1;
    pthread_cond_broadcast(&ticket->changed);
    pthread_mutex_unlock(&ticket->lock);
}

void lig_ticket_destroy(lig_ticket *ticket)
{
    if (ticket == NULL)
        return;
    if (ticket->pid != getpid()) { /* the lock may be held by a thread of the parent */
        free(ticket);
        return;
    }
    pthread_join(ticket->thread, NULL);
    destroy_parts(ticket);
}
