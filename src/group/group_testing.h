/* Groups whose members are threads of one process, each with an endpoint of its own. What needs
 * processes (kill, freeze) is in tests/group_fault_test.c. */
#ifndef LIGI_GROUP_TESTING_H
#define LIGI_GROUP_TESTING_H

#include "base/test.h"
#include "group/barrier_wait.h"
#include "group/group.h"
#include "group/group_info.h"
#include "net/progress.h"

#include <pthread.h>
#include <stdio.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
enum { ACTORS = 24 };

typedef struct actor {
    ligi_group_options options;
    ligi_net *net;
    ligi_group *group;
    const char *secret;
    pthread_t thread;
    int running;
    lig_status status;
    char text[1024];
    uint32_t mask, flags;
    int64_t timeout_ns;
    struct {
        ligi_group_change change;
        ligi_member member;
        char sentence[256];
    } events[64];
    int event_count; /* guarded by the endpoint's lock */
} actor;

typedef struct troupe {
    actor actors[ACTORS];
    size_t count;
    uint32_t server_count, worker_count, group_size;
    char address[64];
} troupe;

static inline void start(actor *one, void *(*run)(void *))
{
    one->running = 1;
    assert_int_equal(pthread_create(&one->thread, NULL, run, one), 0);
}

static inline void join(actor *one)
{
    if (one->running)
        pthread_join(one->thread, NULL);
    one->running = 0;
}

static inline void keep(actor *one, lig_status status)
{
    one->status = status;
    snprintf(one->text, sizeof one->text, "%s", status == LIG_OK ? "" : lig_error_text());
}

static inline void on_event(void *context, const ligi_group_event *event)
{
    actor *one = context;
    if (one->event_count == 64)
        return;
    one->events[one->event_count].change = event->change;
    one->events[one->event_count].member = event->member;
    snprintf(one->events[one->event_count++].sentence, 256, "%s", event->sentence);
}

static inline void *run_open(void *context)
{
    actor *one = context;
    lig_status status =
        ligi_net_open(&one->net, &(ligi_net_options){.background = 1,
                                                     .secret = one->secret,
                                                     .secret_bytes = one->secret ? 32 : 0});
    if (status == LIG_OK)
        status = ligi_group_open(&one->group, one->net, &one->options);
    keep(one, status);
    if (status == LIG_OK)
        ligi_group_watch(one->group, on_event, one);
    return NULL;
}

static inline void *run_barrier(void *context)
{
    actor *one = context;
    keep(one, ligi_group_barrier(one->group, one->mask, one->flags, one->timeout_ns));
    return NULL;
}

static inline void *run_close(void *context)
{
    actor *one = context;
    ligi_group_close(one->group, 5 * S);
    ligi_net_close(one->net);
    one->group = NULL;
    one->net = NULL;
    return NULL;
}

static inline actor *add(troupe *cast, ligi_role role, uint32_t rank)
{
    actor *one = &cast->actors[cast->count++];
    *one = (actor){.options = {.role = role,
                               .rank = rank,
                               .server_count = cast->server_count,
                               .worker_count = cast->worker_count,
                               .group_size = cast->group_size,
                               .coordinator = LIGI_COORDINATOR_FIRST,
                               .address = cast->address,
                               .liveness_ms = 20000,
                               .timeout_ns = 30 * S}};
    return one;
}

static inline void make(troupe *cast, const char *address, uint32_t servers, uint32_t workers)
{
    memset(cast, 0, sizeof *cast);
    cast->server_count = servers;
    cast->worker_count = workers;
    snprintf(cast->address, sizeof cast->address, "%s", address);
}

static inline void add_all(troupe *cast)
{
    for (uint32_t i = 0; i < cast->worker_count; i++)
        add(cast, LIGI_WORKER, i);
    for (uint32_t i = 0; i < cast->server_count; i++)
        add(cast, LIGI_SERVER, i);
}

static inline void all_do(troupe *cast, void *(*run)(void *))
{
    for (size_t i = 0; i < cast->count; i++)
        start(&cast->actors[i], run);
    for (size_t i = 0; i < cast->count; i++)
        join(&cast->actors[i]);
}

static inline void open_all(troupe *cast)
{
    all_do(cast, run_open);
    for (size_t i = 0; i < cast->count; i++)
        if (cast->actors[i].status != LIG_OK)
            fail_msg("actor %zu: %s", i, cast->actors[i].text);
}

static inline void close_all(troupe *cast)
{
    all_do(cast, run_close);
}

static inline void close_one(actor *one)
{
    start(one, run_close);
    join(one);
}

static inline int has_event(void *context)
{
    const actor *one = context;
    return one->event_count > 0;
}

/* The next event of the actor, taken out. */
static inline ligi_group_change event(actor *one, ligi_member *member, char sentence[256])
{
    assert_ok(ligi_net_wait(one->net, has_event, one, 20 * S));
    ligi_net_lock(one->net);
    ligi_group_change change = one->events[0].change;
    *member = one->events[0].member;
    memcpy(sentence, one->events[0].sentence, 256);
    memmove(&one->events[0], &one->events[1], sizeof one->events - sizeof one->events[0]);
    one->event_count--;
    ligi_net_unlock(one->net);
    return change;
}

#endif
