/* Every driver call of a mesh with device tensors fails once: a call returns an error or works, no
 * wait hangs, and the next exchange works. */
#include "mesh/mesh_scene.h"

#include "fake_cuda.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000, OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719 };
#define BYTES (COUNT * sizeof(float))
#define SECOND SCENE_SECOND

static const int64_t count = COUNT;
static unsigned requests = 5000; /* of the test for leaks: more than there are words */

typedef struct stage {
    scene *all;
    lig_mesh *worker, *server;
    lig_tensor push, pull, answer;
} stage;

static lig_tensor device_tensor(int value)
{
    void *data = fake_cuda_alloc(BYTES, 0);
    memset(data, value, BYTES);
    return (lig_tensor){.data = data,
                        .bytes = BYTES,
                        .shape = &count,
                        .ndim = 1,
                        .dtype = LIG_FLOAT32,
                        .memory = LIG_MEMORY_CUDA};
}

static stage open_stage(const char *transport)
{
    stage made = {.all = scene_create(1, 1, transport),
                  .push = device_tensor(1),
                  .pull = device_tensor(2),
                  .answer = device_tensor(3)};
    scene_server(made.all, 0)->options.receive_memory = LIG_MEMORY_CUDA;
    scene_run(made.all);
    made.worker = scene_worker(made.all, 0)->mesh;
    made.server = scene_server(made.all, 0)->mesh;
    return made;
}

static void close_stage(stage *ended)
{
    assert_ok(lig_mesh_stop(ended->worker, 20 * SECOND));
    assert_ok(lig_mesh_stop(ended->server, 20 * SECOND));
    scene_destroy(ended->all);
    fake_cuda_free(ended->push.data);
    fake_cuda_free(ended->pull.data);
    fake_cuda_free(ended->answer.data);
}

/* The server answers one request, if one arrives before the worker's fails. */
static void serve_one(stage *on, uint64_t handler)
{
    lig_mesh_arrival arrival;
    size_t found = 0;
    while (!lig_mesh_done(on->worker, handler)) {
        lig_status status =
            lig_mesh_get_batch(on->server, LIG_MESH_ANY, SECOND / 100, &arrival, 1, &found);
        if (status == LIG_E_TIMEOUT)
            continue;
        assert_ok(status);
        status = lig_mesh_respond(on->server, arrival.handler, &on->answer, 1, 20 * SECOND);
        if (status != LIG_OK) /* a server's own way out */
            (void)lig_mesh_refuse(on->server, arrival.handler, status, lig_error_text());
    }
}

/* 1 if it worked, with the right bytes. */
static int exchange(stage *on)
{
    uint64_t key = 1, handler;
    lig_mesh_request request = {&on->push, &key, 1, &on->pull, &key, 1};
    memset(on->pull.data, 0, BYTES);
    if (lig_mesh_push_pull(on->worker, &request, &handler) != LIG_OK)
        return 0;
    serve_one(on, handler);
    lig_status status = lig_mesh_wait(on->worker, handler, 20 * SECOND);
    assert_int_not_equal(status, LIG_E_TIMEOUT);
    if (status != LIG_OK)
        return 0;
    assert_memory_equal(on->pull.data, on->answer.data, BYTES);
    return 1;
}

static const char *const names[] = {
    "cuMemAlloc",
    "cuMemHostRegister",
    "cuMemHostGetDevicePointer",
    "cuMemcpyAsync",
    "cuStreamWriteValue64",
    "cuStreamSynchronize",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle",
    "cuStreamCreate",
    "cuDeviceGetUuid",
    "cuCtxPushCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuPointerGetAttribute",
    "cuStreamQuery",
};

static void test_each_call_fails(const char *transport)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned worked = 0, failed = 0;
        for (unsigned n = 1; n <= 5; n++) {
            stage on = open_stage(transport);
            fake_cuda_fail(names[i], n, n % 2 ? OUT_OF_MEMORY : LAUNCH_FAILED);
            for (int round = 0; round < 4; round++)
                *(exchange(&on) ? &worked : &failed) += 1;
            fake_cuda_fail(names[i], 0, 0);
            if (!exchange(&on)) /* a failure that no call waited for is reported once */
                assert_true(exchange(&on));
            close_stage(&on);
        }
        assert_true(worked > 0);
        if (strcmp(names[i], "cuMemcpyAsync") == 0)
            assert_true(failed > 0);
    }
    assert_string_equal(fake_cuda_breach(), "");
    assert_int_equal(fake_cuda_live("allocated"), 0);
}

static void test_shm(void **unused)
{
    (void)unused;
    test_each_call_fails("shm");
}

static void test_tcp(void **unused)
{
    (void)unused;
    test_each_call_fails("tcp");
}

/* A device that fails while requests are in flight. */
static void test_a_device_that_fails(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    for (int i = 0; i < 5; i++)
        assert_true(exchange(&on));
    uint64_t key = 1, handler;
    void *stream = fake_cuda_stream();
    lig_mesh_request request = {&on.push, &key, 1, &on.pull, &key, 1};
    fake_cuda_lose(LAUNCH_FAILED);
    assert_int_not_equal(lig_mesh_push_pull_on(on.worker, &request, stream, &handler), LIG_OK);
    assert_says("error 719");
    fake_cuda_lose(0);
    assert_true(exchange(&on));
    close_stage(&on);
}

static void answer_one(stage *on)
{
    lig_mesh_arrival arrival;
    size_t found = 0;
    assert_ok(lig_mesh_get_batch(on->server, LIG_MESH_ANY, 20 * SECOND, &arrival, 1, &found));
    assert_ok(lig_mesh_respond(on->server, arrival.handler, &on->answer, 1, 20 * SECOND));
}

/* A call that fails on a stream which waits for an answer does not wait for the stream. */
static void test_a_failure_behind_a_wait(const char *name)
{
    stage on = open_stage("shm");
    for (int i = 0; i < 5; i++)
        assert_true(exchange(&on));
    uint64_t key = 1, first, second;
    void *stream = fake_cuda_stream();
    lig_tensor other = device_tensor(4);
    lig_mesh_request request = {&on.push, &key, 1, &on.pull, &key, 1};
    lig_mesh_request later = {&on.push, &key, 1, &other, &key, 1};
    assert_ok(lig_mesh_push_pull_on(on.worker, &request, stream, &first));
    assert_ok(lig_mesh_push_pull_on(on.worker, &later, stream, &second));
    assert_ok(lig_mesh_wait_on(on.worker, first, stream, 0));
    fake_cuda_fail(name, 1, OUT_OF_MEMORY);
    assert_int_not_equal(lig_mesh_wait_on(on.worker, second, stream, 0), LIG_OK);
    uint64_t third;
    fake_cuda_fail(name, 1, OUT_OF_MEMORY);
    assert_int_not_equal(lig_mesh_push_pull_on(on.worker, &request, stream, &third), LIG_OK);
    answer_one(&on);
    answer_one(&on);
    fake_cuda_finish(stream);
    assert_memory_equal(on.pull.data, on.answer.data, BYTES);
    assert_ok(lig_mesh_wait(on.worker, second, 20 * SECOND));
    assert_memory_equal(other.data, on.answer.data, BYTES);
    assert_true(exchange(&on));
    close_stage(&on);
    fake_cuda_free(other.data);
    assert_string_equal(fake_cuda_breach(), "");
}

static lig_mesh_arrival take_one(stage *on)
{
    lig_mesh_arrival arrival;
    size_t found = 0;
    assert_ok(lig_mesh_get_batch(on->server, LIG_MESH_ANY, 20 * SECOND, &arrival, 1, &found));
    return arrival;
}

/* A response that fails when a part of it is queued on a stream which does not run yet: the worker
 * gets its memory back only after the stream has written to it. */
static void test_a_response_behind_a_wait(const char *name, unsigned n)
{
    stage on = open_stage("shm");
    for (int i = 0; i < 5; i++)
        assert_true(exchange(&on));
    uint64_t keys[2] = {1, 2}, first, second;
    void *stream = fake_cuda_stream(), *data;
    lig_mesh_hold *hold;
    lig_tensor pulls[2] = {device_tensor(4), device_tensor(5)};
    lig_tensor answers[2] = {on.answer, on.answer};
    void *other = pulls[0].data;
    assert_ok(lig_mesh_empty_on(on.worker, 0, BYTES, &data, &hold));
    pulls[0].data = data;
    lig_mesh_request request = {&on.push, keys, 1, &on.pull, keys, 1};
    lig_mesh_request two = {&on.push, keys, 1, pulls, keys, 2};
    assert_ok(lig_mesh_push_pull(on.worker, &request, &first));
    assert_ok(lig_mesh_push_pull(on.worker, &two, &second));
    assert_ok(lig_mesh_wait_on(on.worker, first, stream, 0));
    lig_mesh_arrival arrivals[2] = {take_one(&on), take_one(&on)};
    fake_cuda_fail(name, n, OUT_OF_MEMORY);
    assert_status(
        lig_mesh_respond_on(on.server, arrivals[1].handler, answers, 2, stream, 20 * SECOND),
        LIG_E_NOMEM);
    assert_status(lig_mesh_respond(on.server, arrivals[1].handler, answers, 2, 20 * SECOND),
                  LIG_E_NOTFOUND);
    assert_status(lig_mesh_wait(on.worker, second, SECOND / 20), LIG_E_TIMEOUT);
    assert_ok(lig_mesh_respond(on.server, arrivals[0].handler, answers, 1, 20 * SECOND));
    assert_status(lig_mesh_wait(on.worker, second, 20 * SECOND), LIG_E_NOMEM);
    (void)fake_cuda_live("streams"); /* its lock shows TSan that the late copy has been made */
    memset(data, 9, BYTES);
    assert_ok(lig_mesh_wait(on.worker, first, 20 * SECOND));
    fake_cuda_finish(stream);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)data)[i], 9);
    assert_true(exchange(&on));
    close_stage(&on);
    lig_mesh_hold_drop(hold);
    fake_cuda_free(other);
    fake_cuda_free(pulls[1].data);
    assert_string_equal(fake_cuda_breach(), "");
}

static void test_responses_behind_waits(void **unused)
{
    (void)unused;
    int kept = fake_cuda_live("allocated");
    test_a_response_behind_a_wait("cuStreamWriteValue64", 1);
    test_a_response_behind_a_wait("cuMemcpyAsync", 2);
    assert_int_equal(fake_cuda_live("allocated"), kept);
}

/* Nothing of it is queued: another answer follows. */
static void test_a_response_that_is_repeated(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    for (int i = 0; i < 5; i++)
        assert_true(exchange(&on));
    uint64_t key = 1, handler;
    lig_mesh_request request = {&on.push, &key, 1, &on.pull, &key, 1};
    void *stream = fake_cuda_stream();
    assert_ok(lig_mesh_push_pull(on.worker, &request, &handler));
    lig_mesh_arrival arrival = take_one(&on);
    fake_cuda_fail("cuMemcpyAsync", 1, OUT_OF_MEMORY);
    assert_status(
        lig_mesh_respond_on(on.server, arrival.handler, &on.answer, 1, stream, 20 * SECOND),
        LIG_E_NOMEM);
    assert_ok(lig_mesh_respond_on(on.server, arrival.handler, &on.answer, 1, stream, 20 * SECOND));
    assert_ok(lig_mesh_wait(on.worker, handler, 20 * SECOND));
    assert_memory_equal(on.pull.data, on.answer.data, BYTES);
    close_stage(&on);
}

static void test_failures_behind_waits(void **unused)
{
    (void)unused;
    test_a_failure_behind_a_wait("cuStreamWriteValue64");
    test_a_failure_behind_a_wait("cuMemcpyAsync");
}

/* A stream that is late fills the tensors: the wait on the host ends at its timeout. */
static void test_a_wait_for_a_late_stream(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    assert_true(exchange(&on));
    uint64_t key = 1, first, second;
    void *stream = fake_cuda_stream();
    lig_tensor other = device_tensor(4);
    lig_mesh_request request = {&on.push, &key, 1, &on.pull, &key, 1};
    lig_mesh_request later = {&on.push, &key, 1, &other, &key, 1};
    lig_mesh_arrival arrivals[2];
    size_t found = 0;
    assert_ok(lig_mesh_push_pull(on.worker, &request, &first));
    assert_ok(lig_mesh_push_pull(on.worker, &later, &second));
    assert_ok(lig_mesh_wait_on(on.worker, first, stream, 0));
    assert_ok(lig_mesh_wait_on(on.worker, second, stream, 0));
    for (int i = 0; i < 2; i++)
        assert_ok(
            lig_mesh_get_batch(on.server, LIG_MESH_ANY, 20 * SECOND, &arrivals[i], 1, &found));
    assert_ok(lig_mesh_respond(on.server, arrivals[1].handler, &on.answer, 1, 20 * SECOND));
    assert_status(lig_mesh_wait(on.worker, second, SECOND / 20), LIG_E_TIMEOUT);
    while (!lig_mesh_done(on.worker, second))
        ;
    assert_status(lig_mesh_wait(on.worker, second, SECOND / 20), LIG_E_TIMEOUT);
    assert_says("the stream that fills its tensors");
    assert_ok(lig_mesh_respond(on.server, arrivals[0].handler, &on.answer, 1, 20 * SECOND));
    assert_ok(lig_mesh_wait(on.worker, second, 20 * SECOND));
    assert_memory_equal(other.data, on.answer.data, BYTES);
    assert_ok(lig_mesh_wait(on.worker, first, 20 * SECOND));
    close_stage(&on);
    fake_cuda_free(other.data);
}

/* Captured calls that fail before anything is in the graph keep nothing: there are 4,096 words, and
 * each call takes two. */
static void test_captured_calls_that_fail(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    uint64_t key = 1, handler;
    void *stream = fake_cuda_stream();
    lig_mesh_request request = {&on.push, &key, 1, &on.pull, &key, 1};
    fake_cuda_capture(stream, 1);
    for (int i = 0; i < 3000; i++) {
        fake_cuda_fail("cuStreamWaitValue64", 1, OUT_OF_MEMORY);
        assert_status(lig_mesh_push_pull_on(on.worker, &request, stream, &handler), LIG_E_NOMEM);
    }
    for (int i = 0; i < 5; i++)
        assert_true(exchange(&on));
    int kept = fake_cuda_live("allocated");
    assert_ok(lig_mesh_push_pull_on(on.worker, &request, stream, &handler));
    assert_ok(lig_mesh_wait_on(on.worker, handler, stream, 0));
    fake_cuda_capture(stream, 0);
    assert_int_equal(fake_cuda_live("allocated"), kept);
    fake_cuda_replay(stream);
    answer_one(&on);
    fake_cuda_finish(stream);
    assert_memory_equal(on.pull.data, on.answer.data, BYTES);
    stream = fake_cuda_stream();
    fake_cuda_capture(stream, 1);
    fake_cuda_fail("cuMemcpyAsync", 1, OUT_OF_MEMORY);
    assert_status(lig_mesh_push_pull_on(on.worker, &request, stream, &handler), LIG_E_NOMEM);
    fake_cuda_capture(stream, 0);
    fake_cuda_replay(stream); /* a part is in the graph: what that uses stays */
    fake_cuda_finish(stream);
    assert_true(exchange(&on));
    close_stage(&on);
    assert_string_equal(fake_cuda_breach(), "");
}

/* Those of shared memory: malloc and the sanitizers have others. */
static unsigned mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned found = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        found += strstr(line, " rw-s ") != NULL;
    fclose(file);
    return found;
}

static unsigned descriptors(void)
{
    unsigned found = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        found++;
    closedir(folder);
    return found;
}

/* Words, chunks, descriptors and mappings return: many more requests than there are. */
static void leak_test(const char *transport)
{
    static const char *const kinds[] = {"allocated", "pinned", "imported", "streams", "events"};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int live[KINDS];
    stage on = open_stage(transport);
    for (int i = 0; i < 100; i++)
        assert_true(exchange(&on));
    for (int i = 0; i < KINDS; i++)
        live[i] = fake_cuda_live(kinds[i]);
    unsigned open = descriptors(), maps = mappings();
    for (unsigned i = 0; i < requests; i++)
        assert_true(exchange(&on));
    for (int i = 0; i < KINDS; i++)
        assert_int_equal(fake_cuda_live(kinds[i]), live[i]);
    assert_int_equal(descriptors(), open);
    assert_int_equal(mappings(), maps);
    close_stage(&on);
    assert_string_equal(fake_cuda_breach(), "");
}

static void test_nothing_leaks(void **unused)
{
    (void)unused;
    leak_test("shm");
    leak_test("tcp");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        requests = (unsigned)strtoul(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_a_device_that_fails),
        cmocka_unit_test(test_nothing_leaks),
        cmocka_unit_test(test_failures_behind_waits),
        cmocka_unit_test(test_a_wait_for_a_late_stream),
        cmocka_unit_test(test_responses_behind_waits),
        cmocka_unit_test(test_captured_calls_that_fail),
        cmocka_unit_test(test_a_response_that_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
