#include "base/test.h"
#include "mesh/server_requests.h"

#include <stdlib.h>

/* A request of one tensor, landed. */
static ligi_job *arrive(ligi_server_requests *inbox, uint32_t worker, uint64_t serial)
{
    ligi_job *job;
    assert_ok(ligi_server_requests_begin(inbox, worker, &job));
    assert_ok(ligi_pieces_reserve(&job->pieces, 1));
    assert_ok(ligi_job_reserve(job));
    assert_ok(ligi_block_pool_take(inbox->queues[worker].pool, 100, &job->block));
    job->pieces.tensors[0] = (lig_tensor){.data = job->block->data, .bytes = 8};
    job->places[0] = NULL;
    job->push_count = 1;
    job->serial = serial;
    ligi_server_requests_queue(inbox, job);
    return job;
}

static void test_lock_step(void **unused)
{
    (void)unused;
    ligi_server_requests inbox;
    ligi_job *jobs[3];
    size_t count;
    assert_ok(ligi_server_requests_init(&inbox, 3, 1 << 20));
    assert_status(ligi_server_requests_take(&inbox, LIG_MESH_ALL, jobs, 3, &count), LIG_E_PEER);
    for (uint32_t w = 0; w < 3; w++)
        ligi_server_requests_join(&inbox, w, 1);
    arrive(&inbox, 2, 20);
    arrive(&inbox, 2, 21);
    arrive(&inbox, 0, 0);
    assert_false(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, jobs, 3, &count));
    assert_int_equal(count, 0);
    arrive(&inbox, 1, 10);
    assert_true(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, jobs, 3, &count));
    assert_int_equal(count, 3);
    assert_int_equal(jobs[0]->serial, 0);
    assert_int_equal(jobs[1]->serial, 10);
    assert_int_equal(jobs[2]->serial, 20);
    assert_false(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ANY, jobs, 3, &count));
    assert_int_equal(count, 1);
    assert_int_equal(jobs[0]->serial, 21);
    ligi_server_requests_fini(&inbox);
}

static void test_answered_twice_and_unknown(void **unused)
{
    (void)unused;
    ligi_server_requests inbox;
    ligi_job *job, *found;
    size_t count;
    assert_ok(ligi_server_requests_init(&inbox, 1, 1 << 20));
    ligi_server_requests_join(&inbox, 0, 1);
    assert_status(ligi_server_requests_find(&inbox, 0, &found), LIG_E_NOTFOUND);
    assert_status(ligi_server_requests_find(&inbox, UINT64_MAX, &found), LIG_E_NOTFOUND);
    arrive(&inbox, 0, 1);
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ANY, &job, 1, &count));
    uint64_t handler = job->handler;
    assert_ok(ligi_server_requests_find(&inbox, handler, &found));
    ligi_server_requests_end(&inbox, found);
    assert_status(ligi_server_requests_find(&inbox, handler, &found), LIG_E_NOTFOUND);
    assert_says("already been answered");
    arrive(&inbox, 0, 2); /* the same slot again */
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ANY, &job, 1, &count));
    assert_status(ligi_server_requests_find(&inbox, handler, &found), LIG_E_NOTFOUND);
    assert_status(ligi_server_requests_find(&inbox, job->handler + (UINT64_C(1) << 20), &found),
                  LIG_E_NOTFOUND);
    assert_says("never returned");
    ligi_server_requests_fini(&inbox);
}

static void test_lost_and_back(void **unused)
{
    (void)unused;
    ligi_server_requests inbox;
    ligi_job *jobs[2], *found;
    size_t count;
    assert_ok(ligi_server_requests_init(&inbox, 2, 1 << 20));
    ligi_server_requests_join(&inbox, 0, 1);
    ligi_server_requests_join(&inbox, 1, 1);
    arrive(&inbox, 0, 1);
    arrive(&inbox, 1, 2);
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, jobs, 2, &count));
    uint64_t handler = jobs[1]->handler;
    arrive(&inbox, 0, 3);
    arrive(&inbox, 1, 4);
    ligi_server_requests_lose(&inbox, 1, LIG_MESH_LOST, "killed");
    assert_true(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    ligi_job *taken[2];
    assert_status(ligi_server_requests_take(&inbox, LIG_MESH_ALL, taken, 2, &count), LIG_E_PEER);
    assert_says("worker 1 is lost: killed");
    assert_int_equal(inbox.filled, 1); /* nothing was taken */
    assert_ok(ligi_server_requests_find(&inbox, handler, &found));
    assert_int_equal(found->state, LIGI_JOB_ORPHAN);
    ligi_server_requests_join(&inbox, 1, 2);
    assert_false(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    arrive(&inbox, 1, 1);
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, taken, 2, &count));
    assert_int_equal(taken[0]->serial, 3);
    assert_int_equal(taken[1]->serial, 1);
    ligi_server_requests_lose(&inbox, 1, LIG_MESH_STOPPED, "");
    assert_status(ligi_server_requests_take(&inbox, LIG_MESH_ALL, taken, 2, &count), LIG_E_CLOSED);
    ligi_server_requests_join(&inbox, 1,
                              3); /* the orphan of two requests before is still in use by its
                                   * taker */
    assert_ok(ligi_server_requests_find(&inbox, handler, &found));
    assert_int_equal(inbox.queues[1].jobs, 2);
    ligi_server_requests_end(&inbox, found);
    assert_status(ligi_server_requests_find(&inbox, handler, &found), LIG_E_NOTFOUND);
    assert_int_equal(inbox.queues[1].jobs, 1);
    ligi_server_requests_lose(&inbox, 1, LIG_MESH_LOST, "");
    ligi_server_requests_lose(&inbox, 0, LIG_MESH_LOST, "");
    assert_status(ligi_server_requests_take(&inbox, LIG_MESH_ANY, taken, 2, &count), LIG_E_PEER);
    ligi_server_requests_fini(&inbox);
}

static void test_a_registered_place_is_not_overwritten(void **unused)
{
    (void)unused;
    ligi_server_requests inbox;
    ligi_job *first, *second;
    size_t count;
    uint64_t place_memory = 0;
    assert_ok(ligi_server_requests_init(&inbox, 1, 1 << 20));
    ligi_server_requests_join(&inbox, 0, 1);
    assert_ok(ligi_registered_set(&inbox.queues[0].places, 5, &place_memory, 8, LIG_MEMORY_HOST));
    ligi_registered_buffer *place = ligi_registered_find(&inbox.queues[0].places, 5);
    ligi_job *job = arrive(&inbox, 0, 1);
    job->places[0] = place;
    job->pieces.tensors[0].data = place->data;
    place->holder = job;
    place_memory = 1;
    assert_ok(ligi_server_requests_begin(&inbox, 0, &job));
    assert_ok(ligi_pieces_reserve(&job->pieces, 1));
    assert_ok(ligi_job_reserve(job));
    assert_ok(ligi_block_pool_take(inbox.queues[0].pool, 100, &job->block));
    job->push_count = 1;
    job->places[0] = place;
    job->pieces.tensors[0] = (lig_tensor){.data = job->block->data, .bytes = 8};
    memcpy(job->block->data, &(uint64_t){2}, 8);
    job->parked = 1;
    place->parked = 1;
    ligi_server_requests_queue(&inbox, job);
    assert_status(ligi_registered_set(&inbox.queues[0].places, 5, &count, 8, LIG_MEMORY_HOST),
                  LIG_E_BUSY);
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, &first, 1, &count));
    assert_int_equal(count, 1);
    assert_false(ligi_server_requests_ready(&inbox, LIG_MESH_ALL));
    assert_false(ligi_server_requests_ready(&inbox, LIG_MESH_ANY));
    assert_int_equal(place_memory, 1);
    ligi_server_requests_end(&inbox, first);
    assert_true(ligi_server_requests_ready(&inbox, LIG_MESH_ANY));
    assert_ok(ligi_server_requests_take(&inbox, LIG_MESH_ALL, &second, 1, &count));
    assert_int_equal(place_memory, 2);
    assert_ptr_equal(second->pieces.tensors[0].data, &place_memory);
    ligi_server_requests_end(&inbox, second);
    assert_null(place->holder);
    assert_ok(ligi_registered_set(&inbox.queues[0].places, 5, &count, 8, LIG_MEMORY_HOST));
    ligi_server_requests_fini(&inbox);
}

static void test_blocks_are_used_again_and_bounded(void **unused)
{
    (void)unused;
    ligi_block_pool *pool;
    ligi_block *a, *b, *c;
    assert_ok(ligi_block_pool_create(&pool, 4096));
    assert_ok(ligi_block_pool_take(pool, 2000, &a));
    assert_ok(ligi_block_pool_take(pool, 2000, &b));
    assert_status(ligi_block_pool_take(pool, 1, &c), LIG_E_LIMIT);
    uint8_t *data = a->data;
    ligi_block_hold(a);
    ligi_block_drop(a);
    assert_status(ligi_block_pool_take(pool, 2000, &c), LIG_E_LIMIT); /* a hold is left */
    ligi_block_drop(a);
    assert_ok(ligi_block_pool_take(pool, 1500, &c));
    assert_ptr_equal(c->data, data);
    ligi_block_drop(c);
    assert_ok(ligi_block_pool_take(pool, 100, &c)); /* the free one makes room for another size */
    assert_int_equal(ligi_block_pool_bytes(pool), 2048 + 256);
    ligi_block_pool_close(pool);
    ligi_block_drop(b);
    ligi_block_drop(c); /* the last one frees the pool; LeakSanitizer would report a leak */
}

/* Compared with a naive model: a list of (worker, serial) in order of arrival. */
typedef struct slow {
    uint32_t worker[4096];
    uint64_t serial[4096];
    int gone[4096];
    size_t count;
} slow;

static int slow_first(const slow *model, uint32_t worker)
{
    for (size_t i = 0; i < model->count; i++)
        if (!model->gone[i] && model->worker[i] == worker)
            return (int)i;
    return -1;
}

static void compare_all(ligi_server_requests *inbox, slow *model, uint32_t workers)
{
    ligi_job *jobs[5];
    size_t count;
    int whole = 1;
    for (uint32_t w = 0; w < workers; w++)
        whole &= slow_first(model, w) >= 0;
    assert_int_equal(ligi_server_requests_ready(inbox, LIG_MESH_ALL), whole);
    assert_ok(ligi_server_requests_take(inbox, LIG_MESH_ALL, jobs, 5, &count));
    assert_int_equal(count, whole ? workers : 0);
    for (uint32_t w = 0; w < count; w++) {
        int at = slow_first(model, w);
        assert_int_equal(jobs[w]->worker, w);
        assert_int_equal(jobs[w]->serial, model->serial[at]);
        model->gone[at] = 1;
        ligi_server_requests_end(inbox, jobs[w]);
    }
}

static void compare_any(ligi_server_requests *inbox, slow *model, uint32_t workers, size_t room)
{
    ligi_job *jobs[5];
    size_t count, waiting = 0;
    for (uint32_t w = 0; w < workers; w++)
        waiting += slow_first(model, w) >= 0;
    assert_ok(ligi_server_requests_take(inbox, LIG_MESH_ANY, jobs, room, &count));
    assert_int_equal(count, waiting < room ? waiting : room);
    for (size_t i = 0; i < count; i++) {
        int at = slow_first(model, jobs[i]->worker);
        assert_int_equal(jobs[i]->serial, model->serial[at]);
        model->gone[at] = 1;
        ligi_server_requests_end(inbox, jobs[i]);
    }
}

static void test_random_against_the_obvious(void **unused)
{
    (void)unused;
    srand(7);
    for (int round = 0; round < 50; round++) {
        ligi_server_requests inbox;
        slow *model = calloc(1, sizeof *model);
        uint32_t workers = 1 + (uint32_t)rand() % 5;
        assert_ok(ligi_server_requests_init(&inbox, workers, 1 << 20));
        for (uint32_t w = 0; w < workers; w++)
            ligi_server_requests_join(&inbox, w, 1);
        for (int step = 0; step < 300; step++) {
            uint32_t worker = (uint32_t)rand() % workers;
            switch (rand() % 4) {
            case 0: compare_all(&inbox, model, workers); break;
            case 1: compare_any(&inbox, model, workers, 1 + (size_t)rand() % 5); break;
            default:
                arrive(&inbox, worker, model->count);
                model->worker[model->count] = worker;
                model->serial[model->count] = model->count;
                model->count++;
            }
        }
        free(model);
        ligi_server_requests_fini(&inbox);
    }
}

static void test_too_many_requests(void **unused)
{
    (void)unused;
    ligi_server_requests inbox;
    ligi_job *job;
    assert_ok(ligi_server_requests_init(&inbox, 2, 1 << 20));
    ligi_server_requests_join(&inbox, 0, 1);
    ligi_server_requests_join(&inbox, 1, 1);
    for (uint32_t i = 0; i <= LIG_MESH_REQUESTS_MAX; i++)
        assert_ok(ligi_server_requests_begin(&inbox, 0, &job));
    assert_status(ligi_server_requests_begin(&inbox, 0, &job), LIG_E_LIMIT);
    assert_ok(ligi_server_requests_begin(&inbox, 1, &job));
    ligi_server_requests_lose(&inbox, 0, LIG_MESH_LOST, "");
    ligi_server_requests_join(&inbox, 0, 2);
    assert_ok(ligi_server_requests_begin(&inbox, 0, &job));
    ligi_server_requests_fini(&inbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_step),
        cmocka_unit_test(test_answered_twice_and_unknown),
        cmocka_unit_test(test_lost_and_back),
        cmocka_unit_test(test_a_registered_place_is_not_overwritten),
        cmocka_unit_test(test_blocks_are_used_again_and_bounded),
        cmocka_unit_test(test_random_against_the_obvious),
        cmocka_unit_test(test_too_many_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
