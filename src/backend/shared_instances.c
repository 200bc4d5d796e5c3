#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/shared_instances.h"
#include "base/error.h"

typedef struct entry {
    struct entry *next;
    char *key;
    const ligi_shared_kind *kind;
    void *object;
    size_t refs;
    pid_t pid;
} entry;

/* Held while an object is made or destroyed: an environment must be closed before it can be opened
 * again. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static entry *table;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&table_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&table_lock);
}

static void after_fork_in_child(void)
{
    for (entry *at = table; at != NULL; at = at->next)
        if (at->kind->forked != NULL)
            at->kind->forked(at->object);
    pthread_mutex_unlock(&table_lock);
}

/* A child that was forked while another thread held the lock could never open anything. */
static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static entry *find(const char *key, const ligi_shared_kind *kind)
{
    pid_t pid = getpid();
    for (entry *at = table; at != NULL; at = at->next)
        if (at->pid == pid && at->kind == kind && strcmp(at->key, key) == 0)
            return at;
    return NULL;
}

static lig_status add(const char *key, const ligi_shared_kind *kind, void *context, entry **added)
{
    entry *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the table of shared objects"));
    lig_status status = ligi_strdup(&made->key, key);
    if (status != LIG_OK)
        goto free_entry;
    status = kind->create(context, &made->object);
    if (status != LIG_OK)
        goto free_key;
    made->kind = kind;
    made->pid = getpid();
    made->next = table;
    table = made;
    *added = made;
    return LIG_OK;

free_key:
    free(made->key);
free_entry:
    free(made);
    return status;
}

lig_status ligi_shared_acquire(const char *key, const ligi_shared_kind *kind, ligi_shared_want want,
                               void *context, void **object)
{
    lig_status status = LIG_OK;

    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&table_lock);
    entry *found = find(key, kind);
    if (found != NULL && want == LIGI_SHARED_NEW)
        status = LIG_E_EXISTS;
    else if (found == NULL && want == LIGI_SHARED_OLD)
        status = LIG_E_NOTFOUND;
    else if (found == NULL)
        status = add(key, kind, context, &found);
    if (status == LIG_OK) {
        found->refs++;
        *object = found->object;
    }
    pthread_mutex_unlock(&table_lock);
    return status;
}

void ligi_shared_release(void *object)
{
    pid_t pid = getpid();

    pthread_mutex_lock(&table_lock);
    entry **link = &table;
    while (*link != NULL && ((*link)->object != object || (*link)->pid != pid))
        link = &(*link)->next;
    entry *found = *link;
    if (found != NULL && --found->refs == 0) {
        *link = found->next;
        found->kind->destroy(found->object);
        free(found->key);
        free(found);
    }
    pthread_mutex_unlock(&table_lock);
}
