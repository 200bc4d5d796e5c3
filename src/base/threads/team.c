#include "base/threads/team.h"

#include "base/error.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SIZE_DEFAULT 8 /* gathering rows is bound by memory: more threads gain little */

struct ligi_team {
    unsigned size, started;
    pthread_mutex_t turn; /* held by the caller that has the threads */
    pthread_mutex_t lock; /* guards what follows; not held while work runs */
    pthread_cond_t begun, ended;
    ligi_team_work work;
    void *context;
    size_t count, next; /* parts, and the first that nobody has taken */
    size_t running;     /* parts */
    int closing;
    struct member {
        ligi_team *team;
        unsigned number;
        pthread_t thread;
    } members[]; /* [size]; the first is the caller */
};

static unsigned size_default(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > SIZE_DEFAULT ? SIZE_DEFAULT : (unsigned)count;
}

lig_status ligi_team_create(ligi_team **out, unsigned size)
{
    ligi_team *team;
    assert(size <= LIGI_TEAM_MAX);
    if (size == 0)
        size = size_default();
    LIG_TRY(ligi_calloc(&team, 1, sizeof *team + size * sizeof *team->members, "threads"));
    team->size = size;
    pthread_mutex_init(&team->turn, NULL);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
    *out = team;
    return LIG_OK;
}

unsigned ligi_team_size(const ligi_team *team)
{
    return team ? team->size : 1;
}

/* Under the lock, which is released while work runs. */
static void take_parts(ligi_team *team, unsigned member)
{
    while (team->next < team->count) {
        size_t part = team->next++;
        team->running++;
        pthread_mutex_unlock(&team->lock);
        team->work(team->context, part, member);
        pthread_mutex_lock(&team->lock);
        team->running--;
    }
}

static void *member_main(void *context)
{
    struct member *member = context;
    ligi_team *team = member->team;
    pthread_mutex_lock(&team->lock);
    while (!team->closing) {
        take_parts(team, member->number); /* before it waits: it may have started late */
        if (team->running == 0)
            pthread_cond_signal(&team->ended);
        pthread_cond_wait(&team->begun, &team->lock);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* Under the lock. If a thread cannot be started, the work only takes longer. */
static void start(ligi_team *team)
{
    sigset_t all, before;
    if (team->started > 0)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (team->started = 1; team->started < team->size; team->started++) {
        struct member *member = &team->members[team->started];
        *member = (struct member){.team = team, .number = team->started};
        if (pthread_create(&member->thread, NULL, member_main, member) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void share(ligi_team *team, ligi_team_work work, void *context, size_t count)
{
    pthread_mutex_lock(&team->lock);
    assert(team->running == 0 && team->next == team->count);
    team->work = work;
    team->context = context;
    team->count = count;
    team->next = 0;
    start(team);
    pthread_cond_broadcast(&team->begun);
    take_parts(team, 0);
    while (team->running > 0)
        pthread_cond_wait(&team->ended, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

void ligi_team_run(ligi_team *team, ligi_team_work work, void *context, size_t count)
{
    if (count > 1 && ligi_team_size(team) > 1 && pthread_mutex_trylock(&team->turn) == 0) {
        share(team, work, context, count);
        pthread_mutex_unlock(&team->turn);
        return;
    }
    for (size_t part = 0; part < count; part++)
        work(context, part, 0);
}

void ligi_team_destroy(ligi_team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    team->closing = 1;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    for (unsigned i = 1; i < team->started; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_mutex_destroy(&team->turn);
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->begun);
    pthread_cond_destroy(&team->ended);
    free(team);
}

void ligi_team_forget(ligi_team *team)
{
    free(team);
}

/* --- a team for one call --- */

typedef struct attempts {
    ligi_team_attempt attempt;
    void *context;
    atomic_int failed;
    ligi_failure failure; /* of the part that set `failed` */
} attempts;

static void run_attempt(void *context, size_t part, unsigned member)
{
    attempts *self = context;
    if (atomic_load(&self->failed))
        return;
    lig_status status = self->attempt(self->context, part, member);
    if (status != LIG_OK && !atomic_exchange(&self->failed, 1))
        ligi_failure_take(&self->failure, status);
}

lig_status ligi_team_once(unsigned size, ligi_team_attempt attempt, void *context, size_t count)
{
    attempts self = {.attempt = attempt, .context = context};
    ligi_team *team = NULL;
    if (size == 0)
        size = size_default();
    if (size > 1 && count > 1)
        (void)ligi_team_create(&team, count < size ? (unsigned)count : size);
    ligi_team_run(team, run_attempt, &self, count);
    ligi_team_destroy(team);
    return self.failed ? ligi_failure_publish(&self.failure) : LIG_OK;
}
