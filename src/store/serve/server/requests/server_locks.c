#include "store/serve/server/requests/server_locks.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/serve/server/server_roles.h"
#include "store/serve/server/server_session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A name that a process holds, once or several times. */
typedef struct ligi_served_lock {
    struct ligi_served_lock *next;
    lig_server *server;
    char *name;
    lig_lock *lock; /* NULL: being taken */
    size_t users;
    uint32_t pid;
    char host[LIGI_SERVED_HOST_BYTES_MAX + 1];
    int64_t since_ns;
} named_lock;

static void unlist(ligi_served_locks *locks, named_lock *one)
{
    named_lock **at = &locks->first;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
}

static void release(void *thing)
{
    named_lock *one = thing;
    ligi_served_locks *locks = &one->server->locks;
    pthread_mutex_lock(&locks->lock);
    int last = --one->users == 0;
    if (last)
        unlist(locks, one);
    pthread_mutex_unlock(&locks->lock);
    if (!last)
        return;
    lig_lock_release(one->lock);
    free(one->name);
    free(one);
}

static lig_status busy(const named_lock *one)
{
    char since[32] = "";
    time_t seconds = (time_t)(one->since_ns / 1000000000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &parts);
    return lig_fail(LIG_E_BUSY, "'%s' is locked by process %u on host %s since %s", one->name,
                    one->pid, one->host, since);
}

/* The lock is held. 1: `*out` has one more user. */
static int join_own(const ligi_served_session *session, const char *name, named_lock **out,
                    lig_status *status)
{
    named_lock *one = session->server->locks.first;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    if (one == NULL)
        return 0;
    if (one->lock == NULL || one->pid != session->pid || strcmp(one->host, session->host) != 0) {
        *status = busy(one);
        return 1;
    }
    one->users++;
    *out = one;
    return 1;
}

static lig_status make(const ligi_served_session *session, const char *name, named_lock **out)
{
    named_lock *one;
    LIG_TRY(ligi_calloc(&one, 1, sizeof *one, "a lock"));
    lig_status status = ligi_strdup(&one->name, name);
    if (status != LIG_OK) {
        free(one);
        return status;
    }
    one->server = session->server;
    one->users = 1;
    one->pid = session->pid;
    one->since_ns = ligi_date_ns();
    memcpy(one->host, session->host, sizeof one->host);
    *out = one;
    return LIG_OK;
}

/* Listed first, so that two clients cannot take it at once; then it is taken in the store. */
static lig_status take(ligi_served_call *call, const char *name, named_lock **out)
{
    ligi_served_locks *locks = &call->server->locks;
    named_lock *one = NULL;
    lig_status status = LIG_OK;
    LIG_TRY(make(call->session, name, &one));
    pthread_mutex_lock(&locks->lock);
    int known = join_own(call->session, name, out, &status);
    if (!known) {
        one->next = locks->first;
        locks->first = one;
    }
    pthread_mutex_unlock(&locks->lock);
    if (known) {
        free(one->name);
        free(one);
        return status;
    }
    lig_lock *lock = NULL;
    status = lig_store_lock(call->store, name, &lock);
    pthread_mutex_lock(&locks->lock);
    one->lock = lock;
    if (status != LIG_OK)
        unlist(locks, one);
    pthread_mutex_unlock(&locks->lock);
    if (status != LIG_OK) {
        free(one->name);
        free(one);
        return status;
    }
    *out = one;
    return LIG_OK;
}

lig_status ligi_served_lock_run(ligi_served_call *call)
{
    const char *name;
    named_lock *lock = NULL;
    uint64_t number;
    LIG_TRY(ligi_served_text_get(call->job->body, call->job->head.body_bytes, &name));
    LIG_TRY(ligi_served_may_name(call, name));
    LIG_TRY(take(call, name, &lock));
    LIG_TRY(ligi_served_hold(call->session, lock, sizeof *lock + strlen(name), release, &number));
    ligi_served_number_put(&call->body, number);
    return LIG_OK;
}
