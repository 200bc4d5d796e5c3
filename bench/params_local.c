/* The limit of local access, and ours: rows gathered and added to through the same index over the
 * same slab, bare (no sequence, no second look at the word) and by the tables' read and write, in
 * batches of 100 random keys.
 *
 *     params_local [mb=N] [rounds=N] [threads=N] [length=N]
 *
 * prints one line of JSON for each length (10, 100, 200 floats) and number of threads (1, 2):
 * millions of rows a second and processor, and ratios. Rounds of all ways take turns; figures are
 * medians of rounds, ratios medians of the ratios within a round. Time is the threads' own, so that
 * neighbours on a busy machine do not count. */
#include "params/rows/table_state.h"
#include "params/state/node.h"
#include "peers/median.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 100, BATCHES = 1000, THREADS_MAX = 16, ROUNDS_MAX = 1001 };
enum { WORDS_AHEAD = 32, ROWS_AHEAD = 16 };
enum { GATHER, GATHER_MEMCPY, PULL, ADD, PUSH, WAYS };

typedef struct trial {
    lig_params *params;
    ligi_tables *tables;
    uint32_t length, threads;
    uint64_t rows, rounds;
    pthread_barrier_t barrier;
    double *times; /* rounds x WAYS x threads, seconds */
} trial;

typedef struct runner {
    trial *bench;
    uint32_t number;
    int64_t *keys;
    float *values;
    lig_params_worker *worker;
} runner;

static void fail(void)
{
    fprintf(stderr, "params_local: %s\n", lig_error_text());
    exit(1);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline uint8_t *row_at(const ligi_tables *tables, const ligi_slab *slab, int64_t key)
{
    uint32_t word = atomic_load_explicit(&tables->words[key], memory_order_relaxed);

    return slab->rows + (size_t)ligi_word_slot(word) * slab->stride;
}

static inline void fetch(const uint8_t *row, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(row + at, 0, 2);
}

typedef float wide __attribute__((vector_size(64), aligned(4)));

/* 1: to += from. */
static inline __attribute__((always_inline)) void move(float *to, const float *from,
                                                       uint32_t length, int add)
{
    uint32_t i = 0;

    for (; i + 16 <= length; i += 16)
        *(wide *)(to + i) =
            add ? *(wide *)(to + i) + *(const wide *)(from + i) : *(const wide *)(from + i);
    for (; i < length; i++)
        to[i] = add ? to[i] + from[i] : from[i];
}

/* Bare, with the best fetching ahead that was found. */
static inline __attribute__((always_inline)) void bare(runner *self, const int64_t *keys, int way)
{
    const ligi_tables *tables = self->bench->tables;
    const ligi_slab *slab = &tables->slabs[0];

    for (int i = 0; i < WORDS_AHEAD; i++)
        __builtin_prefetch(&tables->words[keys[i]]);
    for (int i = 0; i < ROWS_AHEAD; i++)
        fetch(row_at(tables, slab, keys[i]), slab->stride);
    for (int i = 0; i < BATCH; i++) {
        if (i + WORDS_AHEAD < BATCH)
            __builtin_prefetch(&tables->words[keys[i + WORDS_AHEAD]]);
        if (i + ROWS_AHEAD < BATCH)
            fetch(row_at(tables, slab, keys[i + ROWS_AHEAD]), slab->stride);
        float *row = (float *)(row_at(tables, slab, keys[i]) + sizeof(ligi_row_head));
        float *values = self->values + (size_t)i * slab->length;
        if (way == GATHER_MEMCPY)
            memcpy(values, row, slab->value_bytes);
        else if (way == GATHER)
            move(values, row, slab->length, 0);
        else
            move(row, values, slab->length, 1);
    }
}

static void bare_plain(runner *self, const int64_t *keys, int way)
{
    bare(self, keys, way);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void bare_avx512(runner *self, const int64_t *keys,
                                                           int way)
{
    bare(self, keys, way);
}

__attribute__((target("avx2"))) static void bare_avx2(runner *self, const int64_t *keys, int way)
{
    bare(self, keys, way);
}
#endif

static void bare_best(runner *self, const int64_t *keys, int way)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        bare_avx512(self, keys, way);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        bare_avx2(self, keys, way);
        return;
    }
#endif
    bare_plain(self, keys, way);
}

static void ours(runner *self, const int64_t *keys, int way)
{
    uint64_t elements = (uint64_t)BATCH * self->bench->length;
    int64_t ticket;
    lig_status status =
        way == PULL ? lig_params_pull(self->worker, keys, BATCH, self->values, elements, &ticket)
                    : lig_params_push(self->worker, keys, BATCH, self->values, elements, &ticket);

    if (status || ticket != LIG_PARAMS_LOCAL)
        fail();
}

static void *run(void *argument)
{
    runner *self = argument;
    trial *bench = self->bench;
    uint64_t seed = self->number + 1;

    for (uint64_t round = 0; round < bench->rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (int)((round + (uint64_t)turn) % WAYS);
            for (size_t i = 0; i < (size_t)BATCH * BATCHES; i++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
                self->keys[i] = (int64_t)((seed >> 33) * bench->rows >> 31);
            }
            pthread_barrier_wait(&bench->barrier);
            double start = now();
            for (int i = 0; i < BATCHES; i++)
                if (way == PULL || way == PUSH)
                    ours(self, self->keys + i * BATCH, way);
                else
                    bare_best(self, self->keys + i * BATCH, way);
            bench->times[(round * WAYS + (uint64_t)way) * bench->threads + self->number] =
                now() - start;
        }
    }
    return NULL;
}

static double round_time(const trial *bench, uint64_t round, int way)
{
    double sum = 0;

    for (uint32_t i = 0; i < bench->threads; i++)
        sum += bench->times[(round * WAYS + (uint64_t)way) * bench->threads + i];
    return sum / bench->threads;
}

static double rate(const trial *bench, int way)
{
    double times[ROUNDS_MAX];

    for (uint64_t i = 0; i < bench->rounds; i++)
        times[i] = round_time(bench, i, way);
    return BATCH * BATCHES / median(times, bench->rounds) / 1e6;
}

static double ratio(const trial *bench, int limit, int way)
{
    double ratios[ROUNDS_MAX];

    for (uint64_t i = 0; i < bench->rounds; i++)
        ratios[i] = round_time(bench, i, limit) / round_time(bench, i, way);
    return median(ratios, bench->rounds);
}

static void report(const trial *bench)
{
    double pull = ratio(bench, GATHER, PULL), plain = ratio(bench, GATHER_MEMCPY, PULL);

    printf("{\"length\": %u, \"threads\": %u, \"gather_mrows\": %.2f, \"memcpy_mrows\": %.2f, "
           "\"pull_mrows\": %.2f, \"add_mrows\": %.2f, \"push_mrows\": %.2f, "
           "\"pull_ratio\": %.3f, \"push_ratio\": %.3f}\n",
           bench->length, bench->threads, rate(bench, GATHER), rate(bench, GATHER_MEMCPY),
           rate(bench, PULL), rate(bench, ADD), rate(bench, PUSH), pull < plain ? pull : plain,
           ratio(bench, ADD, PUSH));
    fflush(stdout);
}

static void *memory(size_t bytes)
{
    void *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (!made)
        exit(1);
    memset(made, 0, bytes);
    return made;
}

static void measure(trial *bench)
{
    runner runners[THREADS_MAX];
    pthread_t threads[THREADS_MAX];

    bench->times = memory(bench->rounds * WAYS * bench->threads * sizeof(double));
    pthread_barrier_init(&bench->barrier, NULL, bench->threads);
    for (uint32_t i = 0; i < bench->threads; i++) {
        runners[i] = (runner){bench, i, memory(BATCH * BATCHES * sizeof(int64_t)),
                              memory((size_t)BATCH * bench->length * sizeof(float)), NULL};
        if (lig_params_worker_open(&runners[i].worker, bench->params, i))
            fail();
        if (pthread_create(&threads[i], NULL, run, &runners[i]))
            exit(1);
    }
    for (uint32_t i = 0; i < bench->threads; i++) {
        pthread_join(threads[i], NULL);
        free(runners[i].keys);
        free(runners[i].values);
        lig_params_worker_close(runners[i].worker);
    }
    pthread_barrier_destroy(&bench->barrier);
    report(bench);
    free(bench->times);
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    size_t bytes = strlen(name);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, bytes) == 0 && argv[i][bytes] == '=')
            return strtoull(argv[i] + bytes + 1, NULL, 10);
    return otherwise;
}

/* Rows were made in the order of keys: the index is shuffled, as moving would in time. */
static void shuffle(ligi_tables *tables)
{
    uint64_t seed = 42;

    for (uint64_t i = tables->entry_limit - 1; i > 0; i--) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t other = (seed >> 33) % (i + 1);
        uint32_t word = tables->words[i];
        tables->words[i] = tables->words[other];
        tables->words[other] = word;
    }
}

static void run_length(uint32_t length, uint64_t mb, uint64_t rounds, uint64_t only_threads)
{
    lig_params_table table = {.length = length, .init = {LIG_PARAMS_CONSTANT, 0, 1, 0, 0}};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    trial bench = {.length = length, .rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX};

    bench.rows = table.key_count = (mb << 20) / ((16 + 4 * length + 63) / 64 * 64);
    options.tables = &table;
    options.table_count = 1;
    options.worker_count = 2;
    if (lig_params_open(&bench.params, &options))
        fail();
    bench.tables = bench.params->tables;
    shuffle(bench.tables);
    for (uint32_t threads = 1; threads <= 2; threads++)
        if (only_threads == 0 || only_threads == threads) {
            bench.threads = threads;
            measure(&bench);
        }
    lig_params_close(bench.params);
}

int main(int argc, char **argv)
{
    static const uint32_t lengths[] = {10, 100, 200};
    uint64_t mb = option(argc, argv, "mb", 1024), rounds = option(argc, argv, "rounds", 31);
    uint64_t threads = option(argc, argv, "threads", 0), only = option(argc, argv, "length", 0);

    for (int i = 0; i < 3; i++)
        if (only == 0 || only == lengths[i])
            run_length(lengths[i], mb, rounds, threads);
    return 0;
}
