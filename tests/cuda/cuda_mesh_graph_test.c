/* Captured calls under faults, over the fake driver: driver calls that fail, replays that cannot be
 * answered, and a mesh that is closed while replays are queued. */
#include "mesh/mesh_scene.h"

#include "fake_cuda.h"

#include <stdatomic.h>
#include <string.h>

enum { COUNT = 3000, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, CONTEXT_LOST = 709 };
#define BYTES (COUNT * sizeof(float))
#define SECOND SCENE_SECOND

static const int64_t count = COUNT;
static const uint64_t key = 1;

typedef struct stage {
    scene *all;
    lig_mesh *worker, *server;
    void *ours, *theirs; /* streams */
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

static lig_mesh_arrival take_one(stage *on)
{
    lig_mesh_arrival arrival = {0};
    size_t found = 0;
    assert_ok(lig_mesh_get_batch(on->server, LIG_MESH_ANY, 20 * SECOND, &arrival, 1, &found));
    return arrival;
}

/* The first byte that it was pushed. */
static int answer_one(stage *on)
{
    lig_mesh_arrival arrival = take_one(on);
    (void)fake_cuda_live("streams"); /* its lock shows TSan that the copy has been made */
    int first = ((uint8_t *)arrival.tensors[0].data)[0];
    assert_ok(lig_mesh_respond(on->server, arrival.handler, &on->answer, 1, 20 * SECOND));
    return first;
}

static lig_mesh_request echo_of(stage *on)
{
    return (lig_mesh_request){&on->push, &key, 1, &on->pull, &key, 1};
}

static void exchange(stage *on)
{
    uint64_t handler;
    lig_mesh_request request = echo_of(on);
    assert_ok(lig_mesh_push_pull(on->worker, &request, &handler));
    (void)answer_one(on);
    assert_ok(lig_mesh_wait(on->worker, handler, 20 * SECOND));
    assert_memory_equal(on->pull.data, on->answer.data, BYTES);
}

static stage open_stage(const char *transport)
{
    stage made = {.all = scene_create(1, 1, transport),
                  .ours = fake_cuda_stream(),
                  .theirs = fake_cuda_stream(),
                  .push = device_tensor(1),
                  .pull = device_tensor(2),
                  .answer = device_tensor(3)};
    scene_server(made.all, 0)->options.receive_memory = LIG_MEMORY_CUDA;
    scene_run(made.all);
    made.worker = scene_worker(made.all, 0)->mesh;
    made.server = scene_server(made.all, 0)->mesh;
    for (int i = 0; i < 5; i++)
        exchange(&made);
    return made;
}

static void close_stage(stage *ended)
{
    scene_destroy(ended->all);
    fake_cuda_free(ended->push.data);
    fake_cuda_free(ended->pull.data);
    fake_cuda_free(ended->answer.data);
    assert_string_equal(fake_cuda_breach(), "");
}

static void capture(stage *on)
{
    uint64_t handler;
    lig_mesh_request request = echo_of(on);
    fake_cuda_capture(on->ours, 1);
    assert_ok(lig_mesh_push_pull_on(on->worker, &request, on->ours, &handler));
    assert_ok(lig_mesh_wait_on(on->worker, handler, on->ours, 0));
    fake_cuda_capture(on->ours, 0);
}

/* A replay and a request behind it on the same stream: the request's copies wait for the replay,
 * which is answered. */
static void test_a_request_behind_replays(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    uint64_t handler;
    lig_mesh_request request = echo_of(&on);
    capture(&on);
    for (int i = 0; i < 20; i++) {
        fake_cuda_replay(on.ours);
        fake_cuda_replay(on.ours);
        assert_ok(lig_mesh_push_pull_on(on.worker, &request, on.ours, &handler));
        for (int k = 0; k < 3; k++)
            answer_one(&on);
        assert_ok(lig_mesh_wait(on.worker, handler, 20 * SECOND));
    }
    close_stage(&on);
}

/* Requests of one stream reach the server in its order, those of replays too. */
static void test_order(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    lig_mesh_request request = echo_of(&on);
    capture(&on);
    for (int i = 0; i < 200; i++) {
        uint64_t handler;
        fake_cuda_fill(on.ours, on.push.data, 1, BYTES);
        assert_ok(lig_mesh_push_pull_on(on.worker, &request, on.ours, &handler));
        fake_cuda_fill(on.ours, on.push.data, 2, BYTES);
        fake_cuda_replay(on.ours);
        for (int k = 1; k <= 2; k++)
            assert_int_equal(answer_one(&on), k);
        assert_ok(lig_mesh_wait(on.worker, handler, 20 * SECOND));
        fake_cuda_finish(on.ours);
    }
    close_stage(&on);
}

/* Closing waits for copies that are queued behind replays, which nobody answers any more. */
static void test_closing_with_a_request_behind_replays(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    uint64_t handler;
    lig_mesh_request request = echo_of(&on);
    char *marker = fake_cuda_alloc(1, 0);
    *marker = 0;
    capture(&on);
    for (int i = 0; i < 3; i++)
        fake_cuda_replay(on.ours);
    fake_cuda_fill(on.ours, marker, 1, 1);
    assert_ok(lig_mesh_push_pull_on(on.worker, &request, on.ours, &handler));
    (void)take_one(&on);
    lig_mesh_close(on.worker);
    (void)fake_cuda_live("streams"); /* its lock */
    assert_int_equal(*marker, 1);
    scene_worker(on.all, 0)->mesh = NULL;
    fake_cuda_replay(on.ours); /* forbidden, and does not stop the stream */
    fake_cuda_finish(on.ours);
    close_stage(&on);
    fake_cuda_free(marker);
}

static void capture_response(stage *on, uint64_t handler)
{
    fake_cuda_capture(on->theirs, 1);
    assert_ok(lig_mesh_respond_on(on->server, handler, &on->answer, 1, on->theirs, SECOND));
    fake_cuda_capture(on->theirs, 0);
}

/* A server's replays that answer nobody end, and its next call says so. */
static void test_a_response_without_a_request(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    uint64_t handler;
    lig_mesh_arrival arrival;
    size_t found;
    lig_mesh_request request = echo_of(&on);
    assert_ok(lig_mesh_push_pull(on.worker, &request, &handler));
    capture_response(&on, take_one(&on).handler);
    fake_cuda_replay(on.theirs);
    assert_ok(lig_mesh_wait(on.worker, handler, 20 * SECOND));
    fake_cuda_replay(on.theirs);
    fake_cuda_finish(on.theirs);
    assert_status(lig_mesh_get_batch(on.server, LIG_MESH_ANY, 20 * SECOND, &arrival, 1, &found),
                  LIG_E_NOTFOUND);
    assert_says("no request of worker 0 has been taken and not answered");
    exchange(&on);
    close_stage(&on);
}

typedef struct replaying {
    void *stream;
    atomic_int ended;
} replaying;

static void *finish(void *context)
{
    replaying *of = context;
    fake_cuda_finish(of->stream);
    atomic_store(&of->ended, 1);
    return NULL;
}

/* One replay: it is answered, or fails. */
static void replay_one(stage *on)
{
    replaying of = {.stream = on->ours};
    pthread_t thread;
    fake_cuda_replay(on->ours);
    assert_int_equal(pthread_create(&thread, NULL, finish, &of), 0);
    while (!atomic_load(&of.ended)) {
        lig_mesh_arrival arrival;
        size_t found = 0;
        lig_status status =
            lig_mesh_get_batch(on->server, LIG_MESH_ANY, SECOND / 100, &arrival, 1, &found);
        if (status == LIG_OK)
            status = lig_mesh_respond(on->server, arrival.handler, &on->answer, 1, 20 * SECOND);
        if (status != LIG_OK && found > 0) /* a server's own way out */
            (void)lig_mesh_refuse(on->server, arrival.handler, status, lig_error_text());
    }
    pthread_join(thread, NULL);
}

/* What failed is reported once. */
static void exchange_again(stage *on)
{
    uint64_t handler;
    lig_mesh_request request = echo_of(on);
    if (lig_mesh_push_pull(on->worker, &request, &handler) != LIG_OK)
        assert_ok(lig_mesh_push_pull(on->worker, &request, &handler));
    lig_mesh_arrival arrival = {0};
    size_t found = 0;
    if (lig_mesh_get_batch(on->server, LIG_MESH_ANY, 20 * SECOND, &arrival, 1, &found) != LIG_OK)
        arrival = take_one(on);
    assert_ok(lig_mesh_respond(on->server, arrival.handler, &on->answer, 1, 20 * SECOND));
    assert_ok(lig_mesh_wait(on->worker, handler, 20 * SECOND));
    assert_memory_equal(on->pull.data, on->answer.data, BYTES);
}

static void test_each_call_of_a_replay_fails(void **state)
{
    static const char *const names[] = {"cuMemcpyAsync",
                                        "cuStreamWriteValue64",
                                        "cuStreamSynchronize",
                                        "cuStreamQuery",
                                        "cuCtxPushCurrent",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuPointerGetAttribute"};
    stage on = open_stage(*state);
    capture(&on);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (unsigned n = 1; n <= 5; n++) {
            fake_cuda_fail(names[i], n, n % 2 ? OUT_OF_MEMORY : INVALID_HANDLE);
            for (int round = 0; round < 3; round++)
                replay_one(&on);
            fake_cuda_fail(names[i], 0, 0);
            exchange_again(&on);
        }
    close_stage(&on);
}

/* A capture that fails halfway may be replayed: it ends, and makes its request if it was complete. */
static void test_each_call_of_a_capture_fails(void **unused)
{
    (void)unused;
    static const char *const names[] = {"cuMemcpyAsync",
                                        "cuStreamWriteValue32",
                                        "cuStreamWaitValue64",
                                        "cuStreamIsCapturing",
                                        "cuCtxPushCurrent",
                                        "cuThreadExchangeStreamCaptureMode"};
    stage on = open_stage("shm");
    lig_mesh_request request = echo_of(&on);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (unsigned n = 1; n <= 8; n++) {
            void *stream = fake_cuda_stream();
            uint64_t handler;
            fake_cuda_fail(names[i], n, OUT_OF_MEMORY);
            fake_cuda_capture(stream, 1);
            int made = lig_mesh_push_pull_on(on.worker, &request, stream, &handler) == LIG_OK;
            if (made)
                (void)lig_mesh_wait_on(on.worker, handler, stream, 0);
            fake_cuda_capture(stream, 0);
            fake_cuda_fail(names[i], 0, 0);
            fake_cuda_replay(stream);
            if (made)
                answer_one(&on);
            fake_cuda_finish(stream);
            exchange(&on);
        }
    close_stage(&on);
}

/* The device fails while a replay is in flight: it ends, and both sides say why. */
static void test_a_device_that_fails_during_a_replay(void **unused)
{
    (void)unused;
    stage on = open_stage("shm");
    uint64_t handler;
    lig_mesh_request request = echo_of(&on);
    capture(&on);
    fake_cuda_replay(on.ours);
    lig_mesh_arrival arrival = take_one(&on);
    fake_cuda_lose(CONTEXT_LOST);
    assert_int_not_equal(
        lig_mesh_respond(on.server, arrival.handler, &on.answer, 1, 20 * SECOND), LIG_OK);
    assert_says("error 709");
    lig_status status = LIG_E_IO;
    assert_ok(lig_mesh_refuse(on.server, arrival.handler, status, lig_error_text()));
    fake_cuda_finish(on.ours);
    assert_int_not_equal(lig_mesh_push_pull(on.worker, &request, &handler), LIG_OK);
    fake_cuda_lose(0);
    exchange_again(&on);
    close_stage(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_behind_replays),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_closing_with_a_request_behind_replays),
        cmocka_unit_test(test_a_response_without_a_request),
        cmocka_unit_test_prestate(test_each_call_of_a_replay_fails, "shm"),
        cmocka_unit_test_prestate(test_each_call_of_a_replay_fails, "tcp"),
        cmocka_unit_test(test_each_call_of_a_capture_fails),
        cmocka_unit_test(test_a_device_that_fails_during_a_replay),
    };
    return cmocka_run_group_tests_name("cuda_mesh_graph", tests, NULL, NULL);
}
