/* A whole mesh in one process: every member a handle of its own, opened on a thread of its own. */
#ifndef LIGI_MESH_SCENE_H
#define LIGI_MESH_SCENE_H

#include "base/test.h"

#include <ligament/mesh.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SCENE_MEMBERS_MAX = 80 };
#define SCENE_SECOND INT64_C(1000000000)

typedef struct scene_member {
    lig_mesh_options options;
    lig_mesh *mesh;
    lig_status status;
    char text[1024];
    pthread_t thread;
    void *(*run)(struct scene_member *member); /* after opening; NULL: nothing */
    void *context;
} scene_member;

typedef struct scene {
    uint32_t worker_count, server_count;
    char address[128];
    scene_member members[SCENE_MEMBERS_MAX]; /* servers, then workers */
} scene;

static inline scene_member *scene_server(scene *all, uint32_t i)
{
    return &all->members[i];
}

static inline scene_member *scene_worker(scene *all, uint32_t i)
{
    return &all->members[all->server_count + i];
}

static inline scene_member *scene_add(scene *all, uint32_t role, uint32_t rank,
                                      const char *transport)
{
    scene_member *member =
        role == LIG_MESH_SERVER ? scene_server(all, rank) : scene_worker(all, rank);
    lig_mesh_options options = LIG_MESH_OPTIONS_INIT;
    options.role = role;
    options.rank = rank;
    options.worker_count = all->worker_count;
    options.server_count = all->server_count;
    options.address = all->address;
    options.transport = transport;
    options.timeout_ns = 60 * SCENE_SECOND;
    *member = (scene_member){.options = options};
    return member;
}

/* Members that talk by `transport` and meet at a name of their own. */
static inline scene *scene_create(uint32_t workers, uint32_t servers, const char *transport)
{
    scene *all = calloc(1, sizeof *all);
    assert_true(workers + servers <= SCENE_MEMBERS_MAX);
    all->worker_count = workers;
    all->server_count = servers;
    snprintf(all->address, sizeof all->address, "inproc:mesh-%d-%p", (int)getpid(), (void *)all);
    for (uint32_t i = 0; i < servers; i++)
        scene_add(all, LIG_MESH_SERVER, i, transport);
    for (uint32_t i = 0; i < workers; i++)
        scene_add(all, LIG_MESH_WORKER, i, transport);
    return all;
}

static inline void *scene_main(void *argument)
{
    scene_member *member = argument;
    member->status = lig_mesh_open(&member->mesh, &member->options);
    if (member->status != LIG_OK)
        snprintf(member->text, sizeof member->text, "%s", lig_error_text());
    else if (member->run)
        member->run(member);
    return NULL;
}

static inline void scene_start(scene_member *member)
{
    assert_int_equal(pthread_create(&member->thread, NULL, scene_main, member), 0);
}

static inline void scene_join(scene_member *member)
{
    pthread_join(member->thread, NULL);
    if (member->status != LIG_OK)
        fail_msg("a member failed: %s", member->text);
}

static inline void scene_run(scene *all)
{
    uint32_t count = all->worker_count + all->server_count;
    for (uint32_t i = 0; i < count; i++)
        scene_start(&all->members[i]);
    for (uint32_t i = 0; i < count; i++)
        scene_join(&all->members[i]);
}

/* For runs: a failure is kept for the thread that joins. */
#define SCENE_TRY(member, call)                                                                    \
    do {                                                                                           \
        lig_status scene_status_ = (call);                                                         \
        if (scene_status_ != LIG_OK) {                                                             \
            (member)->status = scene_status_;                                                      \
            snprintf((member)->text, sizeof(member)->text, "%s: %s", #call, lig_error_text());     \
            return NULL;                                                                           \
        }                                                                                          \
    } while (0)

#define SCENE_NEED(member, condition)                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (member)->status = LIG_E_INTERNAL;                                                     \
            snprintf((member)->text, sizeof(member)->text, "%s:%d: %s", __FILE__, __LINE__,        \
                     #condition);                                                                  \
            return NULL;                                                                           \
        }                                                                                          \
    } while (0)

static inline void scene_destroy(scene *all)
{
    uint32_t count = all->worker_count + all->server_count;
    for (uint32_t i = count; i-- > 0;)
        lig_mesh_close(all->members[i].mesh);
    free(all);
}

#endif
