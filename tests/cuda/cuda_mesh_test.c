/* A mesh with tensors in device memory, over the fake driver: in place, in order with streams,
 * through the worker's arena and through host memory. */
#include "mesh/mesh_scene.h"

#include "fake_cuda.h"
#include "mesh/mesh.h"
#include "net/net.h"
#include "tensor/cuda/cuda_driver.h"

#include <string.h>

enum { COUNT = 70001 };
#define BYTES (COUNT * sizeof(float))
#define SECOND SCENE_SECOND

static const char *transport;
static int receives_on_device;
static int kept; /* what meshes with graphs have left */

static scene *pair(void)
{
    scene *all = scene_create(1, 1, transport);
    if (receives_on_device)
        scene_server(all, 0)->options.receive_memory = LIG_MEMORY_CUDA;
    scene_run(all);
    return all;
}

static void end(scene *all)
{
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    assert_ok(lig_mesh_stop(worker, 10 * SECOND));
    assert_ok(lig_mesh_stop(server, 10 * SECOND));
    scene_destroy(all);
    assert_string_equal(fake_cuda_breach(), "");
}

static lig_tensor device_tensor(const int64_t *count, float value)
{
    float *data = fake_cuda_alloc((size_t)*count * sizeof *data, 0);
    for (int64_t i = 0; i < *count; i++)
        data[i] = value + (float)i;
    return (lig_tensor){.data = data,
                        .bytes = (uint64_t)*count * sizeof *data,
                        .shape = count,
                        .ndim = 1,
                        .dtype = LIG_FLOAT32,
                        .memory = LIG_MEMORY_CUDA};
}

static lig_mesh_arrival next(lig_mesh *server)
{
    lig_mesh_arrival arrival;
    size_t count;
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 20 * SECOND, &arrival, 1, &count));
    assert_int_equal(count, 1);
    /* A lock of the fake's: TSan does not see that messages order its copies before the test. */
    (void)fake_cuda_live("streams");
    return arrival;
}

static int has_arena(lig_mesh *worker)
{
    lig_mesh_member members[4];
    size_t count;
    assert_ok(lig_mesh_members(worker, members, 4, &count));
    return strstr(members[0].transport, "+cuda") != NULL;
}

/* One echo of device tensors; the server adds nothing. */
static void echo(lig_mesh *worker, lig_mesh *server, float value)
{
    const int64_t count = COUNT;
    lig_tensor push = device_tensor(&count, value), pull = device_tensor(&count, -1);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    lig_mesh_arrival arrival = next(server);
    assert_int_equal(arrival.tensors[0].bytes, BYTES);
    assert_int_equal(arrival.tensors[0].memory,
                     receives_on_device ? LIG_MEMORY_CUDA : LIG_MEMORY_HOST);
    assert_memory_equal(arrival.tensors[0].data, push.data, BYTES);
    assert_ok(lig_mesh_respond(server, arrival.handler, arrival.tensors, 1, 10 * SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 20 * SECOND));
    assert_memory_equal(pull.data, push.data, BYTES);
    fake_cuda_free(push.data);
    fake_cuda_free(pull.data);
}

static void test_echo(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    for (int i = 0; i < 20; i++)
        echo(worker, server, (float)i);
    int near = strcmp(transport, "shm") == 0 || strcmp(transport, "inproc") == 0;
    assert_int_equal(has_arena(worker), near && receives_on_device);
    end(all);
    assert_int_equal(fake_cuda_live("allocated"), kept);
    assert_int_equal(fake_cuda_live("imported"), 0);
}

static lig_status offer_to(lig_mesh *server, ligi_offer *offer)
{
    uint8_t head[LIGI_MESSAGE_OFFER_BYTES];
    size_t bytes = ligi_message_offer(offer, head);
    ligi_net_lock(server->session.net);
    lig_status status = ligi_arena_on_offer(&server->parties[0], head, bytes);
    ligi_net_unlock(server->session.net);
    return status;
}

/* A process is known by its random bytes: in two containers, process ids and addresses may be the
 * same. Memory at the address that another process names is not taken for the worker's. */
static void test_another_process_with_the_same_address(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    void *data = fake_cuda_alloc(BYTES, 0);
    ligi_offer offer = {.arena = 40, .address = (uint64_t)(uintptr_t)data, .bytes = BYTES};
    ligi_place place = {.kind = LIGI_PLACE_ARENA, .arena = 40};
    const ligi_arenas *arenas = &server->parties[0].arenas;
    if (has_arena(worker)) {
        memcpy(offer.device, server->device->uuid, sizeof offer.device);
        assert_ok(ligi_cuda_process(offer.process));
        offer.process[15] ^= 1;
        assert_ok(offer_to(server, &offer));
        assert_null(ligi_arenas_find(arenas, &place, 1));
        offer.process[15] ^= 1;
        assert_ok(offer_to(server, &offer));
        assert_ptr_equal(ligi_arenas_find(arenas, &place, 1), data);
    }
    echo(worker, server, 9);
    end(all);
    fake_cuda_free(data);
}

/* Neither call waits on the host: what it reads and fills is ordered by the streams. */
static void test_streams(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *ours = fake_cuda_stream(), *theirs = fake_cuda_stream();
    lig_tensor push = device_tensor(&count, 0), pull = device_tensor(&count, -1);
    lig_tensor answer = device_tensor(&count, 0);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    for (int round = 1; round < 20; round++) {
        fake_cuda_fill(ours, push.data, round, BYTES);
        assert_ok(lig_mesh_push_pull_on(worker, &request, ours, &handler));
        fake_cuda_fill(ours, push.data, 0xEE, BYTES); /* after it was read */
        if (round % 2)                                /* before the answer is there, and after */
            assert_ok(lig_mesh_wait_on(worker, handler, ours, 0));
        lig_mesh_arrival arrival = next(server);
        assert_int_equal(((uint8_t *)arrival.tensors[0].data)[BYTES - 1], round);
        fake_cuda_fill(theirs, answer.data, round + 100, BYTES);
        assert_ok(lig_mesh_respond_on(server, arrival.handler, &answer, 1, theirs, 10 * SECOND));
        fake_cuda_fill(theirs, answer.data, 0xDD, BYTES);
        if (round % 2 == 0)
            assert_ok(lig_mesh_wait_on(worker, handler, ours, 0));
        fake_cuda_finish(ours);
        assert_int_equal(((uint8_t *)pull.data)[0], round + 100);
        assert_int_equal(((uint8_t *)pull.data)[BYTES - 1], round + 100);
        assert_ok(lig_mesh_wait(worker, handler, 10 * SECOND)); /* says the same */
    }
    end(all);
}

/* Tensors in the worker's own arena are not copied: the server sees and fills them. */
static void test_empty_on(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *data[2];
    lig_mesh_hold *holds[2];
    uint64_t key = 1, handler;
    for (int i = 0; i < 2; i++)
        assert_ok(lig_mesh_empty_on(worker, 0, BYTES, &data[i], &holds[i]));
    lig_tensor push = {.data = data[0],
                       .bytes = BYTES,
                       .shape = &count,
                       .ndim = 1,
                       .dtype = LIG_FLOAT32,
                       .memory = LIG_MEMORY_CUDA};
    lig_tensor pull = push, answer = device_tensor(&count, 5);
    pull.data = data[1];
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    unsigned before = 0;
    for (int round = 0; round < 10; round++) {
        memset(data[0], round, BYTES);
        memset(data[1], 0, BYTES);
        if (round == 9)
            before = fake_cuda_calls("cuMemcpyAsync");
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        lig_mesh_arrival arrival = next(server);
        assert_memory_equal(arrival.tensors[0].data, data[0], BYTES);
        assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SECOND));
        assert_ok(lig_mesh_wait(worker, handler, 10 * SECOND));
        assert_memory_equal(data[1], answer.data, BYTES);
    }
    if (has_arena(worker))
        assert_int_equal(fake_cuda_calls("cuMemcpyAsync") - before, 1); /* the answer */
    end(all);
    lig_mesh_hold_drop(holds[0]);
    lig_mesh_hold_drop(holds[1]);
    assert_int_equal(fake_cuda_live("allocated"), kept);
}

/* Threads that call the mesh continue with what streams have ended: the courier is not needed. */
static void test_without_the_courier(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    lig_tensor push = device_tensor(&count, 3), pull = device_tensor(&count, -1);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    lig_mesh_arrival arrival;
    size_t found = 0;
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    assert_true(ligi_courier_stop(&worker->device->tasks, 10 * SECOND));
    assert_true(!server->device || ligi_courier_stop(&server->device->tasks, 10 * SECOND));
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    for (int i = 0; i < 2000 && found == 0; i++) {
        assert_false(lig_mesh_done(worker, handler));
        (void)lig_mesh_get_batch(server, LIG_MESH_ALL, SECOND / 100, &arrival, 1, &found);
    }
    assert_int_equal(found, 1);
    assert_ok(lig_mesh_respond(server, arrival.handler, arrival.tensors, 1, 10 * SECOND));
    assert_ok(lig_mesh_settle(server, 10 * SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SECOND));
    assert_memory_equal(pull.data, push.data, BYTES);
    end(all);
}

/* A request whose tensors are ready where they are leaves with the call. */
static void test_sent_at_once(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *data;
    lig_mesh_hold *hold;
    uint64_t key = 1, handler;
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    assert_ok(lig_mesh_empty_on(worker, 0, BYTES, &data, &hold));
    lig_tensor push = {.data = data,
                       .bytes = BYTES,
                       .shape = &count,
                       .ndim = 1,
                       .dtype = LIG_FLOAT32,
                       .memory = LIG_MEMORY_CUDA};
    lig_mesh_request request = {&push, &key, 1, NULL, NULL, 0};
    int shared = has_arena(worker);
    assert_true(!shared || ligi_courier_stop(&worker->device->tasks, 10 * SECOND));
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_true(!shared || worker->device->pushes.count == 0);
    lig_mesh_arrival arrival = next(server);
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 10 * SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SECOND));
    end(all);
    lig_mesh_hold_drop(hold);
}

/* A driver call takes microseconds: an exchange through the worker's arena makes no more than it
 * needs, which are three copies, each with its word, and the checks of three tensors. */
static void test_driver_calls(void **unused)
{
    (void)unused;
    static const char *const names[] = {"cuMemcpyAsync",
                                        "cuStreamWriteValue64",
                                        "cuPointerGetAttribute",
                                        "cuCtxPushCurrent",
                                        "cuCtxPopCurrent",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuMemHostGetDevicePointer",
                                        "cuStreamSynchronize",
                                        "cuStreamWaitValue64",
                                        "cuEventRecord",
                                        "cuMemAlloc",
                                        "cuMemHostRegister"};
    static const unsigned most[] = {3, 3, 6, 3, 3, 6};
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    unsigned before[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        before[i] = fake_cuda_calls(names[i]);
    unsigned doubts = fake_cuda_calls("cuStreamQuery"); /* when a stream is late */
    echo(worker, server, 9);
    doubts = fake_cuda_calls("cuStreamQuery") - doubts;
    for (size_t i = 0; has_arena(worker) && i < sizeof names / sizeof *names; i++) {
        unsigned calls = fake_cuda_calls(names[i]) - before[i];
        unsigned limit = i < sizeof most / sizeof *most ? most[i] : 0;
        assert_in_range(calls, 0, limit + 2 * doubts * (i >= 3 && i <= 5));
    }
    end(all);
}

/* A registered buffer in device memory, whose second push waits until the first is answered; host
 * tensors go there as well. */
static void test_registered(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    lig_tensor buffer = device_tensor(&count, -5);
    uint32_t rank = 0;
    uint64_t key = 7, handlers[3];
    assert_ok(lig_mesh_register_recv_buffer(server, &buffer, &rank, &key, 1));
    float *host = malloc(BYTES);
    for (int round = 0; round < 4; round++) {
        lig_tensor first = device_tensor(&count, 1), second = device_tensor(&count, 2);
        lig_tensor third = first;
        third.memory = LIG_MEMORY_HOST;
        third.data = host;
        memset(host, 9, BYTES);
        lig_tensor *pushes[3] = {&first, &second, &third};
        for (int i = 0; i < 3; i++) {
            lig_mesh_request request = {pushes[i], &key, 1, NULL, NULL, 0};
            assert_ok(lig_mesh_push_pull(worker, &request, &handlers[i]));
        }
        for (int i = 0; i < 3; i++) {
            lig_mesh_arrival arrival = next(server);
            assert_ptr_equal(arrival.tensors[0].data, buffer.data);
            assert_int_equal(arrival.tensors[0].memory, LIG_MEMORY_CUDA);
            assert_memory_equal(buffer.data, pushes[i]->data, BYTES);
            assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 10 * SECOND));
        }
        for (int i = 0; i < 3; i++)
            assert_ok(lig_mesh_wait(worker, handlers[i], 10 * SECOND));
        fake_cuda_free(first.data);
        fake_cuda_free(second.data);
    }
    free(host);
    end(all);
    fake_cuda_free(buffer.data);
}

static void test_what_is_refused(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh;
    const int64_t count = COUNT, shape[2] = {10, 10}, gaps[2] = {20, 1};
    lig_tensor good = device_tensor(&count, 0), other = good, strided = good;
    other.data = fake_cuda_alloc(BYTES, 1);
    other.device = 1;
    strided.shape = shape;
    strided.strides = gaps;
    strided.ndim = 2;
    strided.bytes = 400;
    uint64_t keys[2] = {1, 2}, handler;
    lig_tensor both[2] = {good, other};
    lig_mesh_request request = {both, keys, 2, NULL, NULL, 0};
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_INVALID);
    assert_says("CUDA devices 0 and 1");
    request = (lig_mesh_request){&strided, keys, 1, NULL, NULL, 0};
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_UNSUPPORTED);
    assert_says("not contiguous");
    lig_tensor wild = good;
    wild.data = &handler;
    request.push = &wild;
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_INVALID);
    assert_says("is not CUDA memory");
    echo(worker, scene_server(all, 0)->mesh, 3);
    request.push = &other;
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_INVALID);
    assert_says("exchanges tensors of CUDA device 0");
    echo(worker, scene_server(all, 0)->mesh, 4);
    end(all);
}

/* A request that is cancelled while the server has it: its chunk is not reused before the server
 * has answered. */
static void test_cancelled(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    for (int round = 0; round < 10; round++) {
        lig_tensor push = device_tensor(&count, 1), pull = device_tensor(&count, -1);
        uint64_t key = 1, handler;
        lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        lig_mesh_arrival arrival = next(server);
        assert_ok(lig_mesh_cancel(worker, handler));
        assert_status(lig_mesh_wait(worker, handler, 10 * SECOND), LIG_E_CLOSED);
        assert_memory_equal(arrival.tensors[0].data, push.data, BYTES);
        assert_ok(lig_mesh_respond(server, arrival.handler, &push, 1, 10 * SECOND));
        echo(worker, server, 2);
        assert_true(((float *)pull.data)[0] == -1);
        fake_cuda_free(push.data);
        fake_cuda_free(pull.data);
    }
    end(all);
    assert_int_equal(fake_cuda_live("allocated"), kept);
}

/* Captured calls are made by every replay, with the values of that moment. */
static void test_graphs(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *ours = fake_cuda_stream(), *theirs = fake_cuda_stream();
    lig_tensor push = device_tensor(&count, 0), pull = device_tensor(&count, -1);
    lig_tensor answer = device_tensor(&count, 0);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    fake_cuda_capture(ours, 1);
    assert_ok(lig_mesh_push_pull_on(worker, &request, ours, &handler));
    assert_ok(lig_mesh_wait_on(worker, handler, ours, 0));
    fake_cuda_capture(ours, 0);
    assert_status(lig_mesh_wait_on(worker, handler, ours, 0), LIG_E_INVALID);
    assert_status(lig_mesh_wait(worker, handler, 0), LIG_E_NOTFOUND);
    for (int round = 1; round < 20; round++) {
        memset(push.data, round, BYTES);
        fake_cuda_replay(ours);
        lig_mesh_arrival arrival = next(server);
        assert_int_equal(((uint8_t *)arrival.tensors[0].data)[BYTES - 1], round);
        if (round == 1) { /* the response is captured, and sent by its replays */
            fake_cuda_capture(theirs, 1);
            assert_ok(lig_mesh_respond_on(server, arrival.handler, &answer, 1, theirs, SECOND));
            fake_cuda_capture(theirs, 0);
        }
        memset(answer.data, round + 100, BYTES);
        fake_cuda_replay(theirs);
        fake_cuda_finish(ours);
        assert_int_equal(((uint8_t *)pull.data)[0], round + 100);
        assert_int_equal(((uint8_t *)pull.data)[BYTES - 1], round + 100);
        fake_cuda_finish(theirs);
    }
    end(all);
}

/* Tensors in the arena: nothing is copied, and no kernel runs. */
static void test_graphs_in_the_arena(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *ours = fake_cuda_stream(), *data[2];
    lig_mesh_hold *holds[2];
    for (int i = 0; i < 2; i++)
        assert_ok(lig_mesh_empty_on(worker, 0, BYTES, &data[i], &holds[i]));
    lig_tensor push = device_tensor(&count, 0), pull = push, answer = push;
    push.data = data[0];
    pull.data = data[1];
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    unsigned before = fake_cuda_calls("cuLaunchKernel");
    fake_cuda_capture(ours, 1);
    assert_ok(lig_mesh_push_pull_on(worker, &request, ours, &handler));
    assert_ok(lig_mesh_wait_on(worker, handler, ours, 0));
    fake_cuda_capture(ours, 0);
    assert_int_equal(fake_cuda_calls("cuLaunchKernel"), before);
    for (int round = 1; round < 20; round++) {
        memset(push.data, round, BYTES);
        fake_cuda_replay(ours);
        fake_cuda_replay(ours); /* waits for the first one */
        for (int i = 0; i < 2; i++) {
            lig_mesh_arrival arrival = next(server);
            assert_int_equal(((uint8_t *)arrival.tensors[0].data)[BYTES - 1], round);
            memset(answer.data, round + 100 + i, BYTES);
            assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SECOND));
        }
        fake_cuda_finish(ours);
        assert_int_equal(((uint8_t *)pull.data)[BYTES - 1], round + 101);
    }
    fake_cuda_free(answer.data);
    for (int i = 0; i < 2; i++)
        lig_mesh_hold_drop(holds[i]);
    end(all);
}

/* A replay waits until the request of the one before it has ended, also without a captured wait:
 * none is lost, and none overwrites what a server still reads. */
static void test_replays_before_the_end(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *ours = fake_cuda_stream(), *later = fake_cuda_stream();
    lig_tensor push = device_tensor(&count, 0), pull = device_tensor(&count, -1);
    lig_tensor answer = device_tensor(&count, 0);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    for (int i = 0; i < 5; i++)
        echo(worker, server, (float)i);
    fake_cuda_capture(ours, 1);
    assert_ok(lig_mesh_push_pull_on(worker, &request, ours, &handler));
    fake_cuda_capture(ours, 0);
    fake_cuda_capture(later, 1);
    assert_ok(lig_mesh_wait_on(worker, handler, later, 0));
    fake_cuda_capture(later, 0);
    for (int round = 1; round < 10; round++) {
        fake_cuda_fill(ours, push.data, round, BYTES);
        fake_cuda_replay(ours);
    }
    for (int round = 1; round < 10; round++) {
        lig_mesh_arrival arrival = next(server);
        assert_int_equal(((uint8_t *)arrival.tensors[0].data)[0], round);
        assert_int_equal(((uint8_t *)arrival.tensors[0].data)[BYTES - 1], round);
        memset(answer.data, round + 100, BYTES);
        assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SECOND));
    }
    fake_cuda_finish(ours);
    fake_cuda_replay(later);
    fake_cuda_finish(later);
    assert_int_equal(((uint8_t *)pull.data)[0], 109);
    assert_int_equal(((uint8_t *)pull.data)[BYTES - 1], 109);
    fake_cuda_replay(ours);
    fake_cuda_replay(ours);
    scene_worker(all, 0)->mesh = NULL;
    lig_mesh_close(worker);
    fake_cuda_replay(ours);
    fake_cuda_finish(ours); /* all continue, those that were queued and a forbidden one */
    scene_destroy(all);
    assert_string_equal(fake_cuda_breach(), "");
}

/* A replay whose server is gone ends, and the next call says why. */
static void test_a_graph_without_its_server(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    const int64_t count = COUNT;
    void *ours = fake_cuda_stream();
    lig_tensor push = device_tensor(&count, 0), pull = device_tensor(&count, -1);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    echo(worker, server, 1);
    fake_cuda_capture(ours, 1);
    assert_ok(lig_mesh_push_pull_on(worker, &request, ours, &handler));
    assert_ok(lig_mesh_wait_on(worker, handler, ours, 0));
    fake_cuda_capture(ours, 0);
    fake_cuda_replay(ours);
    (void)next(server);
    lig_mesh_close(server); /* it does not answer */
    scene_server(all, 0)->mesh = NULL;
    fake_cuda_finish(ours);
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_PEER);
    fake_cuda_replay(ours); /* it is still gone */
    fake_cuda_finish(ours);
    scene_destroy(all);
    assert_string_equal(fake_cuda_breach(), "");
}

int main(void)
{
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_another_process_with_the_same_address),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_empty_on),
        cmocka_unit_test(test_without_the_courier),
        cmocka_unit_test(test_sent_at_once),
        cmocka_unit_test(test_driver_calls),
        cmocka_unit_test(test_registered),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_graphs_in_the_arena),
        cmocka_unit_test(test_a_graph_without_its_server),
        cmocka_unit_test(test_replays_before_the_end),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        transport = transports[i];
        for (receives_on_device = 0; receives_on_device < 2; receives_on_device++) {
            kept = fake_cuda_live("allocated");
            failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
        }
    }
    return failed;
}
