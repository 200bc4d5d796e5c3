/* A job of several nodes, each in a process of its own: what the tests across processes share. What
 * goes wrong in a node is printed there, and the test fails for its exit status. */
#ifndef PARAMS_PEERS_H
#define PARAMS_PEERS_H

#include "base/test.h"

#include <ligament/ligament.h>
#include <ligament/params.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEERS_MAX = 8, PEERS_BLOB = 4096, PEERS_SECONDS = 120 };
#define PEERS_TIMEOUT_NS INT64_C(60000000000)

#define peer_fail(...)                                                                             \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        _exit(1);                                                                                  \
    } while (0)

#define peer_ok(call)                                                                              \
    do {                                                                                           \
        lig_status peer_status_ = (call);                                                          \
        if (peer_status_ != LIG_OK)                                                                \
            peer_fail("%s: %s: %s", #call, lig_status_name(peer_status_), lig_error_text());       \
    } while (0)

#define peer_true(what)                                                                            \
    do {                                                                                           \
        if (!(what))                                                                               \
            peer_fail("not so: %s (%s)", #what, lig_error_text());                                 \
    } while (0)

/* In memory that all of them see. */
typedef struct peers_shared {
    pthread_barrier_t barrier;
    uint8_t blobs[PEERS_MAX][PEERS_BLOB];
    _Atomic int64_t numbers[1 << 16]; /* the test's own */
} peers_shared;

typedef struct peers {
    lig_params_options options; /* node_count, worker_count, tables, ... */
    peers_shared *shared;
    void *context;
    int (*run)(struct peers *job,
               lig_params *node); /* in each process; its result is the exit status */
    pid_t pids[PEERS_MAX];
    uint32_t rank; /* in the process of a node */
} peers;

/* A job on one table; what else its options need is the test's. */
static inline peers peers_of(uint32_t nodes, const lig_params_table *table, const char *transport,
                             int (*run)(peers *job, lig_params *node))
{
    peers job = {.options = LIG_PARAMS_OPTIONS_INIT, .run = run};
    job.options.node_count = nodes;
    job.options.tables = table;
    job.options.table_count = 1;
    job.options.transport = transport;
    return job;
}

static inline lig_status peers_exchange(void *context, const void *mine, size_t bytes, void *all,
                                        size_t count)
{
    peers *job = context;
    if (bytes > PEERS_BLOB || count > PEERS_MAX)
        return lig_fail(LIG_E_LIMIT, "%zu blobs of %zu bytes", count, bytes);
    memcpy(job->shared->blobs[job->rank], mine, bytes);
    pthread_barrier_wait(&job->shared->barrier);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)all + i * bytes, job->shared->blobs[i], bytes);
    pthread_barrier_wait(&job->shared->barrier);
    return LIG_OK;
}

static inline void peers_child(peers *job, uint32_t rank)
{
    lig_params *node = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
    alarm(PEERS_SECONDS);             /* and one that hangs ends */
    job->rank = rank;
    job->options.rank = rank;
    job->options.exchange = peers_exchange;
    job->options.exchange_context = job;
    if (job->options.timeout_ns == 0)
        job->options.timeout_ns = PEERS_TIMEOUT_NS;
    peer_ok(lig_params_open(&node, &job->options));
    int result = job->run(job, node);
    if (node && result == 0)
        lig_params_close(node);
    _exit(result);
}

static inline void peers_make(peers *job)
{
    void *memory =
        mmap(NULL, sizeof *job->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    job->shared = memory;
}

static inline void peers_start(peers *job)
{
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&job->shared->barrier, &attributes, job->options.node_count);
    pthread_barrierattr_destroy(&attributes);
    fflush(NULL);
    for (uint32_t i = 0; i < job->options.node_count; i++) {
        job->pids[i] = fork();
        assert_true(job->pids[i] >= 0);
        if (job->pids[i] == 0)
            peers_child(job, i);
    }
}

/* What waitpid says of a node. */
static inline int peers_wait(peers *job, uint32_t rank)
{
    int ended = -1;
    while (waitpid(job->pids[rank], &ended, 0) < 0 && errno == EINTR)
        ;
    return ended;
}

static inline void peers_end(peers *job)
{
    munmap(job->shared, sizeof *job->shared);
    job->shared = NULL;
}

/* All nodes end well. */
static inline void peers_run(peers *job)
{
    int own = job->shared == NULL, failed = 0;
    if (own)
        peers_make(job);
    peers_start(job);
    for (uint32_t i = 0; i < job->options.node_count; i++) {
        int ended = peers_wait(job, i);
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
            fprintf(stderr, "node %u: %s %d\n", i, WIFEXITED(ended) ? "exit status" : "signal",
                    WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
            failed++;
        }
    }
    if (own)
        peers_end(job);
    assert_int_equal(failed, 0);
}

/* A worker of each number in a thread of its own; its result is added up. */
typedef struct peers_worker {
    peers *job;
    lig_params *node;
    lig_params_worker *worker;
    uint32_t id;
    int (*work)(struct peers_worker *self);
    int result;
} peers_worker;

static inline void *peers_thread(void *context)
{
    peers_worker *self = context;
    peer_ok(lig_params_worker_open(&self->worker, self->node, self->id));
    self->result = self->work(self);
    lig_params_worker_close(self->worker);
    return NULL;
}

static inline int peers_workers(peers *job, lig_params *node, int (*work)(peers_worker *self))
{
    uint32_t count = job->options.worker_count;
    peers_worker workers[16] = {0};
    pthread_t threads[16];
    int result = 0;
    peer_true(count <= 16);
    for (uint32_t i = 0; i < count; i++) {
        workers[i] = (peers_worker){.job = job, .node = node, .id = i, .work = work};
        peer_true(pthread_create(&threads[i], NULL, peers_thread, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        result |= workers[i].result;
    }
    return result;
}

/* A folder for a store, gone with peers_store_close. */
typedef struct peers_store {
    char folder[64], uri[128];
} peers_store;

static inline void peers_store_open(peers_store *store)
{
    snprintf(store->folder, sizeof store->folder, "/tmp/ligament-params-XXXXXX");
    assert_non_null(mkdtemp(store->folder));
    snprintf(store->uri, sizeof store->uri, "file://%s/store", store->folder);
}

static inline void peers_store_close(const peers_store *store)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", store->folder);
    assert_int_equal(system(command), 0);
}

#endif
