#include "backend/file/packs/pack_warm.h"

#include "backend/file/packs/pack_folder.h"
#include "backend/file/packs/page_cache.h"
#include "base/error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_BYTES (UINT64_C(8) << 20) /* between two checks whether to stop */
#define JOBS_MAX 16

typedef struct job {
    uint64_t id, from, to; /* from == to: done */
    int fd;
} job;

struct ligi_warmer {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    pthread_t thread;
    int created; /* there is a thread to join */
    int running; /* it has not decided to end */
    int stopped;
    job jobs[JOBS_MAX];
    size_t count;
};

int ligi_file_may_cache(const ligi_file *volume, uint64_t bytes)
{
    return strcmp(volume->options.direct, "1") != 0 && volume->options.cache > 0 &&
           ligi_page_cache_fits(bytes, ligi_page_cache_available());
}

/* --- the thread --- */

static void drop_first(ligi_warmer *self)
{
    close(self->jobs[0].fd);
    memmove(self->jobs, self->jobs + 1, --self->count * sizeof self->jobs[0]);
}

/* The next step of the first job; 0: there is none, and the thread ends. Called with the lock. */
static int take_step(ligi_warmer *self, job *step)
{
    while (self->count > 0 && self->jobs[0].from >= self->jobs[0].to)
        drop_first(self);
    self->running = self->count > 0 && !self->stopped;
    if (!self->running) {
        pthread_cond_broadcast(&self->idle);
        return 0;
    }
    *step = self->jobs[0];
    if (step->to - step->from > STEP_BYTES)
        step->to = step->from + STEP_BYTES;
    self->jobs[0].from = step->to;
    return 1;
}

static void *warmer_main(void *context)
{
    ligi_warmer *self = context;
    job step;

    pthread_mutex_lock(&self->lock);
    while (take_step(self, &step)) {
        pthread_mutex_unlock(&self->lock);
        posix_fadvise(step.fd, (off_t)step.from, (off_t)(step.to - step.from), POSIX_FADV_WILLNEED);
        pthread_mutex_lock(&self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Called with the lock held; the thread that has ended no longer holds it. */
static void start(ligi_warmer *self)
{
    sigset_t all, before;

    if (self->created)
        pthread_join(self->thread, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->created = self->running =
        pthread_create(&self->thread, NULL, warmer_main, self) == 0 ? 1 : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* --- jobs --- */

static ligi_warmer *warmer_of(ligi_file *volume)
{
    pthread_mutex_lock(&volume->lock);
    if (volume->warmer == NULL &&
        ligi_calloc(&volume->warmer, 1, sizeof *volume->warmer, "a read-ahead thread") == LIG_OK) {
        pthread_mutex_init(&volume->warmer->lock, NULL);
        pthread_cond_init(&volume->warmer->idle, NULL);
    }
    ligi_warmer *found = volume->warmer;
    pthread_mutex_unlock(&volume->lock);
    return found;
}

/* Pieces of one load follow one another. */
static int extends(ligi_warmer *self, uint64_t id, uint64_t from, uint64_t to)
{
    for (size_t i = 0; i < self->count; i++) {
        job *each = &self->jobs[i];
        if (each->id != id || from > each->to + STEP_BYTES || to < each->from)
            continue;
        each->to = to > each->to ? to : each->to;
        return 1;
    }
    return 0;
}

/* Takes the descriptor. */
static void queue(ligi_warmer *self, const job *next)
{
    pthread_mutex_lock(&self->lock);
    if (extends(self, next->id, next->from, next->to) || self->count == JOBS_MAX)
        close(next->fd);
    else
        self->jobs[self->count++] = *next;
    if (!self->running && self->count > 0)
        start(self);
    pthread_mutex_unlock(&self->lock);
}

void ligi_file_pack_warm(void *opaque, uint64_t id, uint64_t from, uint64_t to)
{
    ligi_file *volume = opaque;
    job next = {.id = id,
                .from = from & ~(LIGI_ALIGN_BYTES - 1),
                .to = (to + LIGI_ALIGN_BYTES - 1) & ~(LIGI_ALIGN_BYTES - 1)};

    if (!volume->direct || volume->network || next.from >= next.to)
        return;
    if (ligi_file_pack_open(volume, id, O_RDONLY, &next.fd) != LIG_OK)
        return;
    ligi_warmer *self = NULL;
    if (ligi_page_cache_bytes(next.fd, next.from, next.to) < (int64_t)(next.to - next.from) &&
        ligi_file_may_cache(volume, next.to - next.from))
        self = warmer_of(volume);
    if (self != NULL)
        queue(self, &next);
    else
        close(next.fd);
}

void ligi_file_warm_wait(ligi_file *volume)
{
    ligi_warmer *self = warmer_of(volume);

    if (self == NULL)
        return;
    pthread_mutex_lock(&self->lock);
    while (self->running)
        pthread_cond_wait(&self->idle, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

void ligi_file_warm_end(ligi_file *volume, int forked)
{
    ligi_warmer *self = volume->warmer;

    if (self == NULL)
        return;
    if (!forked) {
        pthread_mutex_lock(&self->lock);
        self->stopped = 1;
        pthread_mutex_unlock(&self->lock);
        if (self->created)
            pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->idle);
        pthread_mutex_destroy(&self->lock);
    }
    for (size_t i = 0; i < self->count; i++)
        close(self->jobs[i].fd);
    free(self);
    volume->warmer = NULL;
}
