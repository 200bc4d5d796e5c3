/* Several nodes for tests: as threads of this process, or as processes of their own. */
#ifndef LIGI_PARAMS_SCENE_H
#define LIGI_PARAMS_SCENE_H

#include <ligament/params.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCENE_MINUTE INT64_C(60000000000)

typedef struct scene_node scene_node;

/* What one node does: 0 is well; anything else is the line that went wrong. */
typedef int (*scene_play)(scene_node *self);

struct scene_node {
    lig_params_options options;
    scene_play play;
    void *context;
    int line; /* what play returned */
    char reports[512];
};

/* In a play: whatever fails ends it. */
#define PLAY_OK(call)                                                                              \
    do {                                                                                           \
        if ((call) != LIG_OK) {                                                                    \
            snprintf(self->reports, sizeof self->reports, "%s", lig_error_text());                 \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)
#define PLAY(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            snprintf(self->reports, sizeof self->reports, "%s", #condition);                       \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

enum { SCENE_NODES_MAX = 8 };

typedef struct scene {
    uint32_t count;
    char address[96];
    scene_node nodes[SCENE_NODES_MAX];
} scene;

/* A rendezvous that no other test uses: `transport` is that of the links. */
static inline void scene_init(scene *self, uint32_t count, const char *transport,
                              const lig_params_table *tables, uint32_t table_count)
{
    static int number;
    memset(self, 0, sizeof *self);
    self->count = count;
    snprintf(self->address, sizeof self->address, "%s:params-test-%d-%d",
             strcmp(transport, "inproc") == 0 ? "inproc" : "shm", (int)getpid(), ++number);
    for (uint32_t i = 0; i < count; i++) {
        lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
        options.rank = i;
        options.node_count = count;
        options.tables = tables;
        options.table_count = table_count;
        options.address = self->address;
        options.transport = transport;
        options.timeout_ns = INT64_C(30000000000);
        self->nodes[i].options = options;
    }
}

static inline void *scene_run_node(void *context)
{
    scene_node *self = context;
    self->line = self->play(self);
    return NULL;
}

/* All nodes in this process. Returns 0, or the line where the first went wrong, and prints it. */
static inline int scene_threads(scene *self, scene_play play)
{
    pthread_t threads[SCENE_NODES_MAX];
    int line = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        self->nodes[i].play = play;
        if (pthread_create(&threads[i], NULL, scene_run_node, &self->nodes[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < self->count; i++) {
        pthread_join(threads[i], NULL);
        if (self->nodes[i].line == 0)
            continue;
        fprintf(stderr, "node %u, line %d: %s\n", i, self->nodes[i].line, self->nodes[i].reports);
        line = line ? line : self->nodes[i].line;
    }
    return line;
}

static inline pid_t scene_fork(scene_node *self, uint32_t rank)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    self->line = self->play(self);
    if (self->line != 0)
        fprintf(stderr, "node %u, line %d: %s\n", rank, self->line, self->reports);
    _exit(self->line != 0);
}

/* Each node a process. Returns how many went wrong. */
static inline int scene_processes(scene *self, scene_play play)
{
    pid_t children[SCENE_NODES_MAX];
    int failed = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        self->nodes[i].play = play;
        children[i] = scene_fork(&self->nodes[i], i);
    }
    for (uint32_t i = 0; i < self->count; i++) {
        int status = -1;
        failed += waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    return failed;
}

/* A node and its only worker. */
static inline int scene_open_both(scene_node *self, lig_params **params, lig_params_worker **worker)
{
    PLAY_OK(lig_params_open(params, &self->options));
    PLAY_OK(lig_params_worker_open(worker, *params, 0));
    return 0;
}

static inline int scene_close_both(scene_node *self, lig_params *params, lig_params_worker *worker)
{
    PLAY_OK(lig_params_worker_finalize(worker, SCENE_MINUTE));
    lig_params_worker_close(worker);
    PLAY_OK(lig_params_shutdown(params, SCENE_MINUTE));
    lig_params_close(params);
    return 0;
}

#endif
