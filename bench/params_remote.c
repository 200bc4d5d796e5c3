/* The parameter manager between processes:
 *
 *     params_remote MODE [name=value ...]
 *
 * prints one line of JSON. Modes:
 *   latency  one key that lives in another process: pull and wait, push and wait
 *   rate     batches of such keys, `window` of them under way; what=pull or push;
 *            own=1: keys that live here; both=1: all nodes ask at once
 *   intent   each key is wanted `accesses` times by the node it does not live on
 *            (own=1: by the one it lives on): pull, push, advance, with intent
 *            `ahead` clocks before (0: none), said of each access, or once=1 of all
 *            accesses of a key together
 *   sample   prepare, pull and finish; what=local, naive, preloc or pool
 *   idle     nothing for `seconds`, after some rows were copied and moved
 * Further names: nodes threads length keys batch spin_us transport. */
#include "base/clock.h"

#include <ligament/params.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
enum { NODES_MAX = 16, THREADS_MAX = 16, WINDOW_MAX = 64, ROUNDS = 20000, DRAWS = 400000 };

typedef struct params_task {
    const char *mode, *what, *transport;
    uint64_t nodes, threads, length, keys, batch, window, accesses, ahead, spin_us, own, both, once;
    double seconds;
    char address[64];
} params_task;

/* Of one worker; node 0 prints the sum. */
typedef struct figures {
    double keys, seconds, processor; /* seconds by the clock, and of the worker's own thread */
    double pull_p50, pull_p99, push_p50, push_p99;
} figures;

typedef struct params_board {
    figures workers[NODES_MAX][THREADS_MAX];
    lig_params_stats stats[NODES_MAX];
    double idle[NODES_MAX];
} params_board;

typedef struct seat {
    const params_task *task;
    params_board *board;
    lig_params *params;
    uint32_t rank, id;
    pthread_t thread;
    lig_params_worker *worker;
    uint64_t random;
} seat;

static void need(lig_status status)
{
    if (status == LIG_OK)
        return;
    fprintf(stderr, "params_remote: %s\n", lig_error_text());
    exit(1);
}

static void *memory(size_t bytes)
{
    void *data = NULL;
    if (posix_memalign(&data, 4096, bytes + 4096) != 0)
        exit(1);
    memset(data, 0, bytes);
    return data;
}

static uint64_t now(void)
{
    return (uint64_t)ligi_now_ns();
}

/* Of this thread: what others do on a busy machine does not count. */
static double processor(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double since(uint64_t start)
{
    return (double)(now() - start) / 1e9;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint64_t)(((unsigned __int128)*state * below) >> 64);
}

/* A key whose home is another node, or this one. */
static int64_t draw_key(seat *self, int here)
{
    uint64_t nodes = self->task->nodes, home = self->rank;
    if (!here && nodes > 1)
        home = (home + 1 + draw(&self->random, nodes - 1)) % nodes;
    return (int64_t)(draw(&self->random, self->task->keys / nodes) * nodes + home);
}

static int is_active(const seat *self)
{
    return self->rank == 0 || self->task->both;
}

/* Unwritten rows may share one page of zeros. */
static void fill(seat *self)
{
    const params_task *task = self->task;
    uint64_t homed = task->keys / task->nodes, step = 1000;
    float *rows = memory(step * task->length * sizeof *rows);
    int64_t *keys = memory(step * sizeof *keys), ticket;
    for (uint64_t i = 0; i < step * task->length; i++)
        rows[i] = (float)i;
    for (uint64_t at = self->id * step; at < homed; at += task->threads * step) {
        uint64_t count = homed - at < step ? homed - at : step;
        for (uint64_t i = 0; i < count; i++)
            keys[i] = (int64_t)((at + i) * task->nodes + self->rank);
        need(lig_params_set(self->worker, keys, count, rows, count * task->length, &ticket));
    }
    need(lig_params_wait_all(self->worker, 60 * SECOND));
    free(keys);
    free(rows);
}

/* --- latency --- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_one(seat *self, int push, double *p50, double *p99)
{
    double *times = memory(ROUNDS * sizeof *times);
    float *row = memory(self->task->length * sizeof *row);
    for (int i = -ROUNDS / 10; i < ROUNDS; i++) {
        int64_t key = draw_key(self, 0), ticket;
        uint64_t start = now();
        need(push ? lig_params_push(self->worker, &key, 1, row, self->task->length, &ticket)
                  : lig_params_pull(self->worker, &key, 1, row, self->task->length, &ticket));
        need(lig_params_wait(self->worker, ticket, 60 * SECOND));
        if (i >= 0)
            times[i] = (double)(now() - start) / 1e3;
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    *p50 = times[ROUNDS / 2];
    *p99 = times[ROUNDS * 99 / 100];
    free(times);
    free(row);
}

static void latency(seat *self, figures *found)
{
    if (self->rank != 0 || self->id != 0)
        return;
    time_one(self, 0, &found->pull_p50, &found->pull_p99);
    time_one(self, 1, &found->push_p50, &found->push_p99);
}

/* --- rate --- */

static void rate(seat *self, figures *found)
{
    const params_task *task = self->task;
    uint64_t batch = task->batch, elements = batch * task->length, done = 0, start = 0;
    uint64_t list_count = DRAWS / batch + 1; /* so many keys that caches do not hold their rows */
    int push = strcmp(task->what, "push") == 0;
    int64_t *lists = memory(list_count * batch * sizeof *lists), tickets[WINDOW_MAX];
    float *values = memory(task->window * elements * sizeof *values);
    if (!is_active(self))
        goto give_back;
    for (uint64_t i = 0; i < list_count * batch; i++)
        lists[i] = draw_key(self, (int)task->own);
    for (uint64_t i = 0;; i++) {
        uint64_t slot = i % task->window;
        const int64_t *keys = lists + i % list_count * batch;
        float *data = values + slot * elements;
        if (i >= task->window)
            need(lig_params_wait(self->worker, tickets[slot], 60 * SECOND));
        if (i == task->window + list_count) { /* all lists have been used */
            start = now();
            found->processor = -processor();
        }
        need(push ? lig_params_push(self->worker, keys, batch, data, elements, &tickets[slot])
                  : lig_params_pull(self->worker, keys, batch, data, elements, &tickets[slot]));
        done += start > 0 ? batch : 0;
        if (start > 0 && since(start) >= task->seconds)
            break;
    }
    need(lig_params_wait_all(self->worker, 60 * SECOND));
    found->seconds = since(start);
    found->processor += processor();
    found->keys = (double)done;
give_back:
    free(values);
    free(lists);
}

/* --- intent --- */

static void shuffle(uint64_t *random, int64_t *keys, uint64_t count)
{
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t j = draw(random, i + 1);
        int64_t kept = keys[i];
        keys[i] = keys[j];
        keys[j] = kept;
    }
}

/* Each key of this worker's share, `accesses` times: pass after pass, each in an order of its own.
 */
static int64_t *plan(seat *self, uint64_t *count)
{
    const params_task *task = self->task;
    uint64_t homed = task->keys / task->nodes, share = homed / task->threads,
             first = self->id * share;
    uint64_t home = task->own ? self->rank : (self->rank + 1) % task->nodes;
    share -= share % task->batch;
    int64_t *keys = memory(task->accesses * share * sizeof *keys);
    for (uint64_t pass = 0; pass < task->accesses; pass++) {
        int64_t *part = keys + pass * share;
        for (uint64_t i = 0; i < share; i++)
            part[i] = (int64_t)((first + i) * task->nodes + home);
        shuffle(&self->random, part, share);
    }
    *count = task->accesses * share / task->batch;
    return keys;
}

static void intent(seat *self, figures *found)
{
    const params_task *task = self->task;
    uint64_t count, batch = task->batch, elements = batch * task->length, told = 0;
    int64_t *keys = plan(self, &count), ticket;
    uint64_t pass = count / task->accesses;
    float *rows = memory(elements * sizeof *rows), *changes = memory(elements * sizeof *changes);
    need(lig_params_begin_setup(self->worker, 60 * SECOND));
    need(lig_params_end_setup(self->worker, 60 * SECOND));
    uint64_t start = now();
    found->processor = -processor();
    for (uint64_t i = 0; i < count; i++) {
        const int64_t *mine = keys + i * batch;
        for (; task->ahead > 0 && told < count && told <= i + task->ahead; told++)
            if (!task->once || told < pass)
                need(lig_params_intent(self->worker, keys + told * batch, batch, (int64_t)told,
                                       task->once ? (int64_t)count : 0));
        need(lig_params_pull(self->worker, mine, batch, rows, elements, &ticket));
        need(lig_params_wait(self->worker, ticket, 60 * SECOND));
        need(lig_params_push(self->worker, mine, batch, changes, elements, &ticket));
        lig_params_advance_clock(self->worker);
    }
    need(lig_params_wait_all(self->worker, 60 * SECOND));
    found->seconds = since(start);
    found->processor += processor();
    found->keys = (double)(count * batch);
    free(changes);
    free(rows);
    free(keys);
}

/* --- sample --- */

static void sample(seat *self, figures *found)
{
    uint64_t count = self->task->batch, elements = count * self->task->length, start = now(),
             all = 0;
    int64_t *keys = memory(count * sizeof *keys), which, ticket;
    float *rows = memory(elements * sizeof *rows);
    found->processor = -processor();
    do {
        for (int i = 0; i < 100; i++) {
            int64_t clock = lig_params_advance_clock(self->worker);
            need(lig_params_prepare_sample(self->worker, count, clock, 0, &which));
            need(lig_params_pull_sample(self->worker, which, keys, count, rows, &ticket));
            need(lig_params_wait(self->worker, ticket, 60 * SECOND));
            need(lig_params_finish_sample(self->worker, which));
            all += count;
        }
    } while (since(start) < self->task->seconds);
    found->seconds = since(start);
    found->processor += processor();
    found->keys = (double)all;
    free(rows);
    free(keys);
}

static void enable_sampling(lig_params *params, const params_task *task)
{
    lig_params_sampling sampling = {.scheme =
                                        strcmp(task->what, "naive") == 0    ? LIG_PARAMS_NAIVE
                                        : strcmp(task->what, "preloc") == 0 ? LIG_PARAMS_PRELOC
                                        : strcmp(task->what, "pool") == 0 ? LIG_PARAMS_POOL
                                                                          : LIG_PARAMS_SAMPLE_LOCAL,
                                    .distribution = LIG_PARAMS_SAMPLE_UNIFORM,
                                    .max = (int64_t)task->keys,
                                    .with_replacement = 1,
                                    .seed = 1};
    need(lig_params_enable_sampling(params, &sampling));
}

/* --- idle --- */

static double spent(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* Some rows wanted by all nodes for ever, some by this one alone, and then silence. */
static void idle(seat *self, figures *found)
{
    float *rows = memory(100 * self->task->length * sizeof *rows);
    int64_t keys[100], ticket;
    for (int i = 0; i < 100; i++)
        keys[i] = i < 50 ? i : draw_key(self, 0);
    need(lig_params_intent(self->worker, keys, 100, 0, LIG_PARAMS_FOREVER_CLOCK));
    for (int i = 0; i < 1000; i++) {
        need(lig_params_push(self->worker, keys, 100, rows, 100 * self->task->length, &ticket));
        lig_params_advance_clock(self->worker);
    }
    need(lig_params_wait_all(self->worker, 60 * SECOND));
    need(lig_params_flush(self->worker, 60 * SECOND));
    need(lig_params_worker_barrier(self->worker, 60 * SECOND));
    if (self->id == 0) {
        double before = spent();
        struct timespec time = {(time_t)self->task->seconds, 0};
        nanosleep(&time, NULL);
        self->board->idle[self->rank] = (spent() - before) / self->task->seconds;
    }
    found->seconds = self->task->seconds;
    free(rows);
}

/* --- processes --- */

static void *work(void *argument)
{
    static const struct {
        const char *name;
        void (*run)(seat *, figures *);
    } modes[] = {{"latency", latency},
                 {"rate", rate},
                 {"intent", intent},
                 {"sample", sample},
                 {"idle", idle}};
    seat *self = argument;
    self->random = 88172645463325252u + 7919u * (self->rank * THREADS_MAX + self->id);
    need(lig_params_worker_open(&self->worker, self->params, self->id));
    fill(self);
    need(lig_params_worker_barrier(self->worker, 60 * SECOND));
    if (self->id == 0)
        need(lig_params_stats_reset(self->params));
    need(lig_params_worker_barrier(self->worker, 60 * SECOND));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(self->task->mode, modes[i].name) == 0)
            modes[i].run(self, &self->board->workers[self->rank][self->id]);
    need(lig_params_worker_barrier(self->worker, 60 * SECOND));
    if (self->id == 0)
        need(lig_params_stats_get(self->params, &self->board->stats[self->rank]));
    need(lig_params_worker_finalize(self->worker, 60 * SECOND));
    lig_params_worker_close(self->worker);
    return NULL;
}

static int run_node(const params_task *task, params_board *board, uint32_t rank)
{
    seat seats[THREADS_MAX] = {0};
    lig_params_table table = {.key_count = task->keys, .length = (uint32_t)task->length};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    lig_params *params;
    options.rank = rank;
    options.node_count = (uint32_t)task->nodes;
    options.worker_count = (uint32_t)task->threads;
    options.tables = &table;
    options.table_count = 1;
    options.address = task->nodes > 1 ? task->address : NULL;
    options.transport = task->transport;
    options.spin_ns = (int64_t)task->spin_us * 1000;
    need(lig_params_open(&params, &options));
    if (strcmp(task->mode, "sample") == 0)
        enable_sampling(params, task);
    for (uint32_t i = 0; i < task->threads; i++) {
        seats[i] = (seat){.task = task, .board = board, .params = params, .rank = rank, .id = i};
        if (pthread_create(&seats[i].thread, NULL, work, &seats[i]) != 0)
            exit(1);
    }
    for (uint32_t i = 0; i < task->threads; i++)
        pthread_join(seats[i].thread, NULL);
    need(lig_params_shutdown(params, 60 * SECOND));
    lig_params_close(params);
    return 0;
}

/* Workers ran side by side: the rate of all is the sum of theirs. */
static void report(const params_task *task, const params_board *board)
{
    double all = 0, own = 0, seconds = 0, idle = 0;
    lig_params_stats sum = {0};
    const figures *first = &board->workers[0][0];
    for (uint64_t node = 0; node < task->nodes; node++) {
        const lig_params_stats *one = &board->stats[node];
        for (uint64_t id = 0; id < task->threads; id++) {
            const figures *found = &board->workers[node][id];
            all += found->seconds > 0 ? found->keys / found->seconds : 0;
            own += found->processor > 0 ? found->keys / found->processor : 0;
            seconds = found->seconds > seconds ? found->seconds : seconds;
        }
        idle = board->idle[node] > idle ? board->idle[node] : idle;
        sum.pulls += one->pulls, sum.pushes += one->pushes;
        sum.local += one->local, sum.replica += one->replica, sum.shared += one->shared;
        sum.remote += one->remote, sum.relocations_in += one->relocations_in;
        sum.replications += one->replications, sum.rounds += one->rounds;
        sum.bytes_sent += one->bytes_sent, sum.forwarded += one->forwarded;
    }
    double accesses = (double)(sum.pulls + sum.pushes);
    printf("{\"mode\": \"%s\", \"nodes\": %d, \"threads\": %d, \"length\": %d, ", task->mode,
           (int)task->nodes, (int)task->threads, (int)task->length);
    printf("\"pull_p50_us\": %.3f, \"pull_p99_us\": %.3f, \"push_p50_us\": %.3f, \"push_p99_us\": "
           "%.3f, ",
           first->pull_p50, first->pull_p99, first->push_p50, first->push_p99);
    printf(
        "\"keys_per_s\": %.0f, \"keys_per_processor_s\": %.0f, \"seconds\": %.3f, \"idle\": %.5f, ",
        all, own, seconds, idle);
    printf("\"local\": %.5f, \"replica\": %.5f, \"shared\": %.5f, ", (double)sum.local / accesses,
           (double)sum.replica / accesses, (double)sum.shared / accesses);
    printf("\"relocations\": %llu, \"replications\": %llu, \"rounds\": %llu, \"forwarded\": %llu, "
           "\"bytes_sent\": %llu}\n",
           (unsigned long long)sum.relocations_in, (unsigned long long)sum.replications,
           (unsigned long long)sum.rounds, (unsigned long long)sum.forwarded,
           (unsigned long long)sum.bytes_sent);
}

static void read_word(params_task *task, const char *word)
{
    struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"nodes", &task->nodes},       {"threads", &task->threads}, {"length", &task->length},
        {"keys", &task->keys},         {"batch", &task->batch},     {"window", &task->window},
        {"accesses", &task->accesses}, {"ahead", &task->ahead},     {"spin_us", &task->spin_us},
        {"own", &task->own},           {"both", &task->both},       {"once", &task->once}};
    const char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : 0;
    for (size_t i = 0; value && i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == length && strncmp(word, numbers[i].name, length) == 0) {
            *numbers[i].value = strtoull(value + 1, NULL, 10);
            return;
        }
    if (value && strncmp(word, "seconds=", 8) == 0)
        task->seconds = strtod(value + 1, NULL);
    else if (value && strncmp(word, "transport=", 10) == 0)
        task->transport = value + 1;
    else if (value && strncmp(word, "what=", 5) == 0)
        task->what = value + 1;
    else {
        fprintf(stderr, "params_remote: '%s' is unknown\n", word);
        exit(2);
    }
}

int main(int count, char **words)
{
    params_task task = {
        .mode = count > 1 ? words[1] : "latency", .what = "pull", .transport = "auto"};
    int failed = 0, ended;
    task.nodes = 2, task.threads = 1, task.length = 100, task.keys = 800000, task.batch = 1000;
    task.window = 4, task.accesses = 8, task.ahead = 50, task.spin_us = 20, task.seconds = 2;
    for (int i = 2; i < count; i++)
        read_word(&task, words[i]);
    if (task.nodes < 1 || task.nodes > NODES_MAX || task.threads < 1 ||
        task.threads > THREADS_MAX || task.window < 1 || task.window > WINDOW_MAX)
        return 2;
    params_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    snprintf(task.address, sizeof task.address, "shm:params-%d", (int)getpid());
    for (uint32_t rank = 0; rank < task.nodes; rank++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return run_node(&task, board, rank);
        }
    while (wait(&ended) > 0)
        failed |= !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
    if (!failed)
        report(&task, board);
    return failed;
}
