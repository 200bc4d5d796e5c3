/* Batches that several threads share: the same bytes as one thread gives. */
#include "base/test.h"

#include <ligament/params.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 20000, COUNT = 30000, LENGTH = 33, WORKERS = 3, ROUNDS = 4 };

typedef struct side {
    lig_params *params;
    lig_params_worker *workers[WORKERS];
} side;

static void open_side(side *self, uint32_t threads, uint32_t flags, uint32_t kind)
{
    const lig_params_table tables[] = {
        {.name = "other", .key_count = 5, .length = 3},
        {.name = "rows",
         .key_count = KEYS,
         .length = LENGTH,
         .optimizer = {.kind = kind, .lr = 0.3, .eps = 1e-8},
         .init = {.kind = LIG_PARAMS_UNIFORM, .a = -1, .b = 1}},
    };
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    options.tables = tables;
    options.table_count = 2;
    options.worker_count = WORKERS;
    options.flags = flags;
    options.batch_threads = threads;
    assert_ok(lig_params_open(&self->params, &options));
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_ok(lig_params_worker_open(&self->workers[i], self->params, i));
}

static void close_side(side *self)
{
    for (size_t i = 0; i < WORKERS; i++)
        lig_params_worker_close(self->workers[i]);
    lig_params_close(self->params);
}

typedef struct work {
    int64_t *keys, *places;
    float *values, *found[2];
} work;

static void make_work(work *self, const side *of, unsigned seed)
{
    int64_t first;
    assert_ok(lig_params_offset(of->params, "rows", &first));
    self->keys = test_malloc(COUNT * sizeof *self->keys);
    self->places = test_malloc(COUNT * sizeof *self->places);
    self->values = test_malloc(COUNT * LENGTH * sizeof *self->values);
    for (size_t i = 0; i < COUNT; i++) {
        self->keys[i] = first + (rand_r(&seed) % 2 ? rand_r(&seed) % 10 : rand_r(&seed) % KEYS);
        self->places[i] = rand_r(&seed) % COUNT;
    }
    for (size_t i = 0; i < COUNT * LENGTH; i++)
        self->values[i] = (float)rand_r(&seed) / 1e9f;
    for (size_t i = 0; i < 2; i++)
        self->found[i] = test_malloc(COUNT * LENGTH * sizeof **self->found);
}

static void free_work(work *self)
{
    test_free(self->keys);
    test_free(self->places);
    test_free(self->values);
    test_free(self->found[0]);
    test_free(self->found[1]);
}

static void push_all(const work *self, lig_params_worker *worker, int with_places)
{
    int64_t ticket = 7;
    lig_params_gradients given = {.keys = self->keys,
                                  .count = COUNT,
                                  .places = with_places ? self->places : NULL,
                                  .values = self->values,
                                  .elements = COUNT * LENGTH};
    assert_ok(lig_params_push_sums(worker, &given, &ticket));
    assert_int_equal(ticket, LIG_PARAMS_LOCAL);
    assert_ok(lig_params_push(worker, self->keys, COUNT, self->values, COUNT * LENGTH, &ticket));
}

static void compare(uint32_t flags, uint32_t kind)
{
    side sides[2];
    work given;
    int64_t ticket;
    open_side(&sides[0], 1, flags, kind);
    open_side(&sides[1], 4, flags, kind);
    make_work(&given, &sides[0], 5);
    for (int with_places = 0; with_places < 2; with_places++) {
        lig_params_stats stats[2];
        for (size_t i = 0; i < 2; i++) {
            push_all(&given, sides[i].workers[0], with_places);
            assert_ok(lig_params_pull(sides[i].workers[0], given.keys, COUNT, given.found[i],
                                      COUNT * LENGTH, &ticket));
            assert_ok(lig_params_stats_get(sides[i].params, &stats[i]));
        }
        assert_memory_equal(given.found[0], given.found[1], COUNT * LENGTH * sizeof(float));
        assert_memory_equal(&stats[0], &stats[1], sizeof *stats);
    }
    free_work(&given);
    close_side(&sides[0]);
    close_side(&sides[1]);
}

static void test_the_same_as_one_thread(void **unused)
{
    (void)unused;
    compare(0, LIG_PARAMS_ADD);
    compare(0, LIG_PARAMS_ADAGRAD);
    compare(LIG_PARAMS_HASHED, LIG_PARAMS_ADAGRAD);
}

typedef struct caller {
    lig_params_worker *worker;
    work *given;
    float *found;
} caller;

static void *push_and_pull(void *context)
{
    caller *self = context;
    int64_t ticket;
    for (int i = 0; i < ROUNDS; i++) {
        push_all(self->given, self->worker, 0);
        assert_ok(lig_params_pull(self->worker, self->given->keys, COUNT, self->found,
                                  COUNT * LENGTH, &ticket));
    }
    return NULL;
}

/* Whole numbers have the same sum in any order. */
static void test_workers_at_the_same_time(void **unused)
{
    (void)unused;
    side sides;
    work given;
    caller callers[WORKERS];
    pthread_t threads[WORKERS];
    int64_t ticket;
    open_side(&sides, 3, 0, LIG_PARAMS_ADD);
    make_work(&given, &sides, 6);
    for (size_t i = 0; i < COUNT * LENGTH; i++)
        given.values[i] = (float)(i % 3);
    memset(given.found[0], 0, COUNT * LENGTH * sizeof(float));
    assert_ok(lig_params_set(sides.workers[0], given.keys, COUNT, given.found[0], COUNT * LENGTH,
                             &ticket));
    for (size_t i = 0; i < WORKERS; i++) {
        callers[i] =
            (caller){sides.workers[i], &given, test_malloc(COUNT * LENGTH * sizeof(float))};
        assert_int_equal(pthread_create(&threads[i], NULL, push_and_pull, &callers[i]), 0);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        test_free(callers[i].found);
    }
    float *sums = test_calloc((KEYS + 5) * LENGTH, sizeof *sums);
    for (size_t i = 0; i < COUNT * LENGTH; i++)
        sums[(size_t)given.keys[i / LENGTH] * LENGTH + i % LENGTH] +=
            2 * ROUNDS * WORKERS * given.values[i];
    assert_ok(lig_params_pull(sides.workers[1], given.keys, COUNT, given.found[1], COUNT * LENGTH,
                              &ticket));
    for (size_t i = 0; i < COUNT; i++)
        assert_memory_equal(given.found[1] + i * LENGTH, sums + (size_t)given.keys[i] * LENGTH,
                            LENGTH * sizeof(float));
    test_free(sums);
    free_work(&given);
    close_side(&sides);
}

static void test_too_many_threads(void **unused)
{
    (void)unused;
    const lig_params_table table = {.key_count = 5, .length = 3};
    lig_params_options options = LIG_PARAMS_OPTIONS_INIT;
    lig_params *params = NULL;
    options.tables = &table;
    options.table_count = 1;
    options.batch_threads = 65;
    assert_int_equal(lig_params_open(&params, &options), LIG_E_INVALID);
    assert_string_equal(lig_error_text(), "batch_threads 65 is not in 0 .. 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_as_one_thread),
        cmocka_unit_test(test_workers_at_the_same_time),
        cmocka_unit_test(test_too_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
