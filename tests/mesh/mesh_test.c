/* One worker, one server, every call: what it does and what it refuses. */
#include "mesh_scene.h"

#include <poll.h>
#include <sys/wait.h>

static const char *transport;

static scene *pair(void)
{
    scene *all = scene_create(1, 1, transport);
    scene_run(all);
    return all;
}

static lig_tensor view(void *data, int64_t *count, uint16_t dtype)
{
    return (lig_tensor){.data = data,
                        .bytes = (uint64_t)*count * lig_dtype_bytes(dtype),
                        .shape = count,
                        .ndim = 1,
                        .dtype = dtype};
}

static void test_push_pull(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, sum[4] = {0}, got[4] = {0};
    int64_t four = 4;
    lig_tensor push[2] = {view(a, &four, LIG_FLOAT32), view(b, &four, LIG_FLOAT32)};
    lig_tensor pull = view(got, &four, LIG_FLOAT32), answer = view(sum, &four, LIG_FLOAT32);
    uint64_t keys[2] = {7, 8}, pull_key = 9, handler;
    lig_mesh_request request = {push, keys, 2, &pull, &pull_key, 1};
    for (uint64_t round = 0; round < 100; round++) {
        lig_mesh_arrival arrival;
        size_t count;
        uint64_t numbers[4], stamps[8];
        a[0] = (float)round;
        got[0] = -1;
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        assert_int_equal(handler, 3 * round);
        assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1, &count));
        assert_int_equal(count, 1);
        assert_int_equal(arrival.worker, 0);
        assert_int_equal(arrival.tensor_count, 2);
        assert_int_equal(arrival.keys[1], 8);
        assert_int_equal(arrival.pull_keys[0], 9);
        assert_int_equal(arrival.pulls[0].bytes, 16);
        for (int i = 0; i < 4; i++)
            sum[i] = ((float *)arrival.tensors[0].data)[i] + ((float *)arrival.tensors[1].data)[i];
        assert_status(lig_mesh_wait(worker, handler, 0), LIG_E_TIMEOUT);
        assert_ok(lig_mesh_get_all_handlers(worker, handler, numbers, 4, &count));
        assert_int_equal(count, 3);
        assert_int_equal(numbers[2], handler + 2);
        assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SCENE_SECOND));
        assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
        assert_ok(lig_mesh_wait(worker, handler, 0)); /* once more says the same */
        assert_true(got[0] == (float)round + 10 && got[3] == 44);
        assert_ok(lig_mesh_get_all_handlers(worker, handler, numbers, 4, &count));
        assert_int_equal(count, 1);
        assert_ok(lig_mesh_fetch_trace(worker, handler, stamps));
        for (int i = 0; i < 8; i++)
            assert_true(stamps[i] > 0 && (i == 0 || stamps[i] >= stamps[i - 1]));
        for (uint64_t i = 1; i < 3; i++) {
            uint64_t same[8];
            assert_ok(lig_mesh_fetch_trace(worker, handler + i, same));
            assert_memory_equal(same, stamps, sizeof stamps);
            assert_status(lig_mesh_wait(worker, handler + i, 0), LIG_E_NOTFOUND);
        }
        assert_status(lig_mesh_fetch_trace(worker, handler + 3, stamps), LIG_E_NOTFOUND);
    }
    lig_mesh_stats stats;
    assert_ok(lig_mesh_stats_get(worker, &stats));
    assert_int_equal(stats.requests, 100);
    assert_int_equal(stats.responses, 100);
    assert_int_equal(stats.in_flight, 0);
    assert_ok(lig_mesh_stats_get(server, &stats));
    assert_int_equal(stats.in_flight, 0);
    assert_int_equal(stats.bytes_pushed, 3200);
    scene_destroy(all);
}

static void test_what_is_refused(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int64_t four = 4, five = 5;
    float data[8] = {0};
    int32_t other[4];
    lig_tensor tensor = view(data, &four, LIG_FLOAT32), wrong = tensor;
    uint64_t key = 1, handler;
    size_t count;
    lig_mesh_arrival arrival;
    lig_mesh_request request = {&tensor, &key, 1, &tensor, &key, 1};
    assert_status(lig_mesh_wait(worker, 0, 0), LIG_E_NOTFOUND);
    assert_status(lig_mesh_wait(worker, 99, 0), LIG_E_NOTFOUND);
    assert_status(lig_mesh_push_pull(server, &request, &handler), LIG_E_INVALID);
    assert_status(lig_mesh_get_batch(worker, LIG_MESH_ALL, 0, &arrival, 1, &count), LIG_E_INVALID);
    wrong.bytes = 15;
    request.push = &wrong;
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_INVALID);
    assert_says("push tensor 0");
    request.push = &tensor;
    assert_status(lig_mesh_get_batch(server, LIG_MESH_ANY, 0, &arrival, 1, &count), LIG_E_TIMEOUT);
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrival, 1, &count));
    lig_tensor integers = view(other, &four, LIG_INT32), longer = view(data, &five, LIG_FLOAT32);
    assert_status(lig_mesh_respond(server, arrival.handler, NULL, 0, 0), LIG_E_MISMATCH);
    assert_status(lig_mesh_respond(server, arrival.handler, &integers, 1, 0), LIG_E_MISMATCH);
    assert_says("int32");
    assert_status(lig_mesh_respond(server, arrival.handler, &longer, 1, 0), LIG_E_MISMATCH);
    assert_status(lig_mesh_respond(server, arrival.handler + 1, &tensor, 1, 0), LIG_E_NOTFOUND);
    float answer[4] = {0}; /* not `data`, where it arrives */
    lig_tensor given = view(answer, &four, LIG_FLOAT32);
    assert_ok(lig_mesh_respond(server, arrival.handler, &given, 1, 10 * SCENE_SECOND));
    assert_status(lig_mesh_respond(server, arrival.handler, &given, 1, 0), LIG_E_NOTFOUND);
    assert_says("already been answered");
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrival, 1, &count));
    assert_ok(lig_mesh_refuse(server, arrival.handler, LIG_E_UNSUPPORTED, "no such layer"));
    assert_status(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND), LIG_E_UNSUPPORTED);
    assert_says("server 0: no such layer");
    scene_destroy(all);
}

static void test_registered_buffers(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int64_t eight = 8, four = 4, five = 5;
    double buffer[8] = {0}, data[5] = {1, 2, 3, 4, 5};
    lig_tensor whole = view(buffer, &eight, LIG_FLOAT64), tensor = view(data, &four, LIG_FLOAT64);
    lig_tensor large = view(data, &five, LIG_FLOAT64);
    uint32_t ranks[2] = {0, 0}, nobody[2] = {0, 3};
    uint64_t keys[2] = {11, 12}, first, second;
    lig_mesh_arrival arrival;
    size_t count;
    assert_status(lig_mesh_register_recv_buffer(server, &whole, nobody, keys, 2), LIG_E_NOTFOUND);
    assert_status(lig_mesh_register_recv_buffer(server, &whole, ranks, keys, 3), LIG_E_INVALID);
    assert_status(lig_mesh_register_recv_buffer(server, &whole, ranks, keys, 0), LIG_E_INVALID);
    assert_ok(lig_mesh_register_recv_buffer(server, &whole, ranks, keys, 2));
    lig_mesh_request request = {&tensor, &keys[1], 1, NULL, NULL, 0};
    assert_ok(lig_mesh_push_pull(worker, &request, &first));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1, &count));
    assert_ptr_equal(arrival.tensors[0].data, buffer + 4);
    assert_memory_equal(buffer + 4, data, 32);
    data[0] = 100; /* under the same key while the first is not answered */
    assert_ok(lig_mesh_push_pull(worker, &request, &second));
    lig_mesh_arrival next;
    assert_status(lig_mesh_get_batch(server, LIG_MESH_ANY, SCENE_SECOND / 20, &next, 1, &count),
                  LIG_E_TIMEOUT);
    assert_true(buffer[4] == 1);
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 0));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &next, 1, &count));
    assert_ptr_equal(next.tensors[0].data, buffer + 4);
    assert_true(buffer[4] == 100);
    assert_ok(lig_mesh_respond(server, next.handler, NULL, 0, 0));
    assert_ok(lig_mesh_wait(worker, first, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_wait(worker, second, 10 * SCENE_SECOND));
    request.push = &large;
    assert_ok(lig_mesh_push_pull(worker, &request, &first));
    assert_status(lig_mesh_wait(worker, first, 10 * SCENE_SECOND), LIG_E_LIMIT);
    assert_says("the buffer registered for it only 32");
    scene_destroy(all);
}

static void test_strides_both_ways(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int32_t from[12], to[12], answer[12];
    for (int i = 0; i < 12; i++) {
        from[i] = i;
        to[i] = -1;
        answer[i] = 100 + i;
    }
    int64_t shape[2] = {3, 2}, turned[2] = {1, 4}, gaps[2] = {4, 2};
    lig_tensor push = {
        .data = from, .bytes = 24, .shape = shape, .strides = gaps, .ndim = 2, .dtype = LIG_INT32};
    lig_tensor pull = push, respond = push;
    pull.data = to;
    pull.strides = turned;
    respond.data = answer;
    uint64_t key = 1, handler;
    size_t count;
    lig_mesh_arrival arrival;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1, &count));
    const int32_t packed[6] = {0, 2, 4, 6, 8, 10};
    assert_memory_equal(arrival.tensors[0].data, packed, sizeof packed);
    assert_ok(lig_mesh_respond(server, arrival.handler, &respond, 1, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    const int32_t right[12] = {100, 104, 108, -1, 102, 106, 110, -1, -1, -1, -1, -1};
    assert_memory_equal(to, right, sizeof right);
    scene_destroy(all);
}

static void test_holds_and_many_in_flight(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int64_t one = 1;
    uint64_t value = 0, key = 5, handler;
    size_t count;
    lig_tensor tensor = view(&value, &one, LIG_UINT64);
    lig_mesh_request request = {&tensor, &key, 1, NULL, NULL, 0};
    lig_mesh_arrival arrivals[50];
    lig_mesh_hold *holds[50];
    const uint64_t *seen[50];
    for (uint64_t i = 0; i < 50; i++) { /* one key, all views stay as they were */
        value = i;
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        assert_ok(
            lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrivals[i], 1, &count));
        assert_ok(lig_mesh_hold_take(server, arrivals[i].handler, &holds[i]));
        seen[i] = arrivals[i].tensors[0].data;
    }
    for (int i = 0; i < 50; i++)
        assert_ok(lig_mesh_respond(server, arrivals[i].handler, NULL, 0, 0));
    for (uint64_t i = 0; i < 50; i++) {
        value = 1000;
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        assert_ok(
            lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrivals[0], 1, &count));
        assert_ok(lig_mesh_respond(server, arrivals[0].handler, NULL, 0, 0));
    }
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    scene_destroy(all);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(*seen[i], i);
        lig_mesh_hold_drop(holds[i]);
    }
}

static void test_limits_and_cancel(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int64_t one = 1;
    uint64_t value = 3, result = 4, key = 5, first = 0, handler;
    uint64_t *got = calloc(LIG_MESH_REQUESTS_MAX + 1, sizeof *got);
    size_t count;
    lig_tensor tensor = view(&value, &one, LIG_UINT64), answer = view(&result, &one, LIG_UINT64);
    lig_tensor pull = view(got, &one, LIG_UINT64);
    lig_mesh_request request = {&tensor, &key, 1, &pull, &key, 1};
    for (uint32_t i = 0; i < LIG_MESH_REQUESTS_MAX; i++) {
        pull.data = &got[i];
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        first = i == 0 ? handler : first;
    }
    assert_status(lig_mesh_push_pull(worker, &request, &handler), LIG_E_LIMIT);
    assert_false(lig_mesh_done(worker, first));
    assert_ok(lig_mesh_cancel(worker, first));
    assert_status(lig_mesh_wait(worker, first, 10 * SCENE_SECOND), LIG_E_CLOSED);
    assert_true(lig_mesh_done(worker, first));
    lig_mesh_arrival arrival;
    for (uint32_t i = 0; i < LIG_MESH_REQUESTS_MAX; i++) {
        assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrival, 1, &count));
        assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SCENE_SECOND));
    }
    pull.data = &got[LIG_MESH_REQUESTS_MAX];
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrival, 1, &count));
    assert_ok(lig_mesh_respond(server, arrival.handler, &answer, 1, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    assert_status(lig_mesh_wait(worker, first, 0), LIG_E_NOTFOUND); /* forgotten */
    assert_int_equal(got[0], 0); /* the answer to a cancelled one was thrown away */
    for (uint32_t i = 1; i <= LIG_MESH_REQUESTS_MAX; i++)
        assert_int_equal(got[i], 4);
    scene_destroy(all);
    free(got);
}

static void test_bell(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    struct pollfd asked = {.fd = lig_mesh_fileno(server), .events = POLLIN};
    struct pollfd answered = {.fd = lig_mesh_fileno(worker), .events = POLLIN};
    assert_true(asked.fd >= 0 && answered.fd >= 0);
    assert_int_equal(poll(&asked, 1, 0), 0);
    uint64_t handler;
    size_t count;
    lig_mesh_arrival arrival;
    lig_mesh_request request = {0};
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_int_equal(poll(&asked, 1, 10000), 1);
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 0, &arrival, 1, &count));
    assert_int_equal(poll(&asked, 1, 0), 0);
    assert_int_equal(poll(&answered, 1, 0), 0);
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 0));
    assert_int_equal(poll(&answered, 1, 10000), 1);
    assert_ok(lig_mesh_wait(worker, handler, 0));
    assert_int_equal(poll(&answered, 1, 0), 0);
    scene_destroy(all);
}

static void *stop_worker(scene_member *member)
{
    SCENE_TRY(member, lig_mesh_barrier(member->mesh, LIG_MESH_WITH_SERVERS | LIG_MESH_WITH_WORKERS,
                                       10 * SCENE_SECOND));
    SCENE_TRY(member, lig_mesh_stop(member->mesh, 10 * SCENE_SECOND));
    uint64_t handler;
    SCENE_NEED(member,
               lig_mesh_push_pull(member->mesh, &(lig_mesh_request){0}, &handler) == LIG_E_CLOSED);
    return NULL;
}

static void *stop_server(scene_member *member)
{
    lig_mesh_arrival arrival;
    lig_mesh_member members[3];
    size_t count;
    SCENE_TRY(member, lig_mesh_barrier(member->mesh, LIG_MESH_WITH_SERVERS | LIG_MESH_WITH_WORKERS,
                                       10 * SCENE_SECOND));
    SCENE_NEED(member, lig_mesh_get_batch(member->mesh, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival,
                                          1, &count) == LIG_E_CLOSED);
    SCENE_TRY(member, lig_mesh_members(member->mesh, members, 3, &count));
    SCENE_NEED(member, count == 2 && members[0].role == LIG_MESH_SERVER);
    SCENE_NEED(member, members[1].state == LIG_MESH_STOPPED);
    SCENE_TRY(member, lig_mesh_stop(member->mesh, 10 * SCENE_SECOND));
    return NULL;
}

static void test_stop(void **unused)
{
    (void)unused;
    scene *all = scene_create(1, 1, transport);
    scene_worker(all, 0)->run = stop_worker;
    scene_server(all, 0)->run = stop_server;
    scene_run(all);
    scene_destroy(all);
}

static void *last_answer(scene_member *member)
{
    lig_mesh_arrival arrival;
    size_t count;
    SCENE_TRY(member, lig_mesh_get_batch(member->mesh, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1,
                                         &count));
    SCENE_TRY(member, lig_mesh_respond(member->mesh, arrival.handler, arrival.tensors, 1,
                                       10 * SCENE_SECOND));
    SCENE_TRY(member, lig_mesh_stop(member->mesh, 10 * SCENE_SECOND));
    return NULL;
}

enum { LAST_BYTES = 3 << 20 };

static void *last_question(scene_member *member)
{
    static uint8_t from[LAST_BYTES], to[LAST_BYTES];
    int64_t bytes = member->context ? 8 : LAST_BYTES;
    memset(from, 7, sizeof from);
    memset(to, 0, sizeof to);
    lig_tensor push = view(from, &bytes, LIG_UINT8), pull = view(to, &bytes, LIG_UINT8);
    uint64_t key = 1, handler;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    SCENE_TRY(member, lig_mesh_push_pull(member->mesh, &request, &handler));
    SCENE_TRY(member, lig_mesh_wait(member->mesh, handler, 10 * SCENE_SECOND));
    SCENE_NEED(member, memcmp(from, to, (size_t)bytes) == 0);
    SCENE_TRY(member, lig_mesh_stop(member->mesh, 10 * SCENE_SECOND));
    return NULL;
}

/* What was answered arrives, also when the server leaves right behind it. */
static void test_answer_before_goodbye(void **unused)
{
    (void)unused;
    for (int round = 0; round < 30; round++) {
        scene *all = scene_create(1, 1, transport);
        scene_worker(all, 0)->run = last_question;
        scene_worker(all, 0)->context = round % 3 ? all : NULL; /* small or large */
        scene_server(all, 0)->run = last_answer;
        scene_run(all);
        scene_destroy(all);
    }
}

enum { EVERYBODY = LIG_MESH_WITH_SERVERS | LIG_MESH_WITH_WORKERS };

static void *wait_in_barrier(void *argument)
{
    static lig_status status;
    status = lig_mesh_barrier(argument, EVERYBODY, LIG_FOREVER);
    return &status;
}

/* A barrier that no other member enters ends when the mesh stops, and the member has left. */
static void test_stop_ends_a_barrier(void **unused)
{
    (void)unused;
    scene *all = scene_create(2, 1, transport);
    scene_run(all);
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_barrier, worker), 0);
    do /* until only the other one is missing */
        assert_status(lig_mesh_barrier(server, EVERYBODY, SCENE_SECOND / 100), LIG_E_TIMEOUT);
    while (strstr(lig_error_text(), "worker 1") == NULL || strstr(lig_error_text(), "worker 0"));
    assert_ok(lig_mesh_stop(worker, 10 * SCENE_SECOND));
    pthread_join(thread, &status);
    assert_int_equal(*(lig_status *)status, LIG_E_CLOSED);
    assert_ok(lig_mesh_stop(scene_worker(all, 1)->mesh, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_linger(server, 10 * SCENE_SECOND)); /* it is alone */
    scene_destroy(all);
}

/* Requests that the worker has given up are still the server's: beyond the limit it refuses. */
static void test_too_many_is_refused(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    lig_mesh_request request = {0};
    uint64_t handler;
    for (uint32_t i = 0; i <= LIG_MESH_REQUESTS_MAX; i++) {
        assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        assert_ok(lig_mesh_cancel(worker, handler));
    }
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_status(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND), LIG_E_LIMIT);
    assert_says("unanswered");
    lig_mesh_arrival arrival;
    size_t count;
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 0, &arrival, 1, &count));
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 0));
    assert_ok(lig_mesh_push_pull(worker, &request, &handler)); /* the link lives */
    for (uint32_t i = 0; i <= LIG_MESH_REQUESTS_MAX; i++) {
        assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, INT64_MAX, &arrival, 1, &count));
        assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 0));
    }
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    scene_destroy(all);
}

/* One lost worker does not starve those behind it. */
static void test_all_rows_are_answered(void **unused)
{
    (void)unused;
    scene *all = scene_create(2, 1, transport);
    scene_run(all);
    lig_mesh *server = scene_server(all, 0)->mesh;
    int64_t one = 1, rows[2] = {1, 1};
    uint64_t value = 6, got[2] = {0}, key = 5, numbers[2], handlers[2];
    size_t count;
    for (uint32_t i = 0; i < 2; i++) {
        lig_tensor pull = view(&got[i], &one, LIG_UINT64);
        lig_mesh_request request = {NULL, NULL, 0, &pull, &key, 1};
        assert_ok(lig_mesh_push_pull(scene_worker(all, i)->mesh, &request, &numbers[i]));
    }
    lig_mesh_arrival arrivals[2];
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, arrivals, 2, &count));
    for (uint32_t i = 0; i < 2; i++)
        handlers[i] = arrivals[i].handler;
    lig_mesh_close(scene_worker(all, 0)->mesh);
    scene_worker(all, 0)->mesh = NULL;
    lig_status status = LIG_OK; /* until the server has heard of it */
    while (status == LIG_OK || status == LIG_E_TIMEOUT)
        status = lig_mesh_get_batch(server, LIG_MESH_ALL, SCENE_SECOND, arrivals, 2, &count);
    lig_tensor buffer = view(&value, &one, LIG_UINT64);
    assert_status(lig_mesh_respond_vec(server, &buffer, rows, handlers, 2, SCENE_SECOND),
                  LIG_E_PEER);
    assert_ok(lig_mesh_wait(scene_worker(all, 1)->mesh, numbers[1], 10 * SCENE_SECOND));
    assert_int_equal(got[1], 6);
    scene_destroy(all);
}

/* Readable means that there is something to do. */
static void test_bell_is_quiet(void **unused)
{
    (void)unused;
    scene *all = scene_create(2, 2, transport);
    scene_run(all);
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    struct pollfd asked = {.fd = lig_mesh_fileno(server), .events = POLLIN};
    struct pollfd answered = {.fd = lig_mesh_fileno(worker), .events = POLLIN};
    uint64_t handler;
    size_t count;
    lig_mesh_arrival arrivals[2];
    lig_mesh_stats stats = {0};
    assert_status(lig_mesh_get_batch(server, LIG_MESH_ALL, 0, arrivals, 2, &count), LIG_E_TIMEOUT);
    assert_ok(lig_mesh_push_pull(worker, &(lig_mesh_request){0}, &handler));
    while (stats.requests == 0)
        assert_ok(lig_mesh_stats_get(server, &stats));
    assert_int_equal(poll(&asked, 1, 0), 0); /* the other worker has sent nothing */
    assert_ok(lig_mesh_push_pull(scene_worker(all, 1)->mesh, &(lig_mesh_request){0}, &handler));
    assert_int_equal(poll(&asked, 1, 10000), 1);
    lig_mesh_close(scene_server(all, 1)->mesh);
    scene_server(all, 1)->mesh = NULL;
    assert_int_equal(poll(&answered, 1, 10000), 1);
    assert_int_not_equal(lig_mesh_wait(worker, 0, 10 * SCENE_SECOND), LIG_OK);
    assert_int_equal(poll(&answered, 1, 0), 0);
    scene_destroy(all);
}

/* What is pushed without moving costs no receive buffer. */
static void test_lent_memory_is_not_charged(void **unused)
{
    (void)unused;
    if (strcmp(transport, "shm") != 0)
        return;
    scene *all = scene_create(1, 1, transport);
    scene_server(all, 0)->options.receive_bytes = 1 << 20;
    scene_run(all);
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    int64_t bytes = 8 << 20;
    uint64_t key = 1, handler;
    size_t count;
    void *data;
    lig_mesh_arrival arrival;
    assert_ok(lig_mesh_empty(worker, (uint64_t)bytes, &data));
    memset(data, 9, (size_t)bytes);
    lig_tensor push = view(data, &bytes, LIG_UINT8);
    lig_mesh_request request = {&push, &key, 1, NULL, NULL, 0};
    assert_ok(lig_mesh_push_pull(worker, &request, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ANY, 10 * SCENE_SECOND, &arrival, 1, &count));
    assert_int_equal(((uint8_t *)arrival.tensors[0].data)[bytes - 1], 9);
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 0));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    lig_mesh_free(worker, data);
    scene_destroy(all);
}

static void test_fork(void **unused)
{
    (void)unused;
    scene *all = pair();
    lig_mesh *worker = scene_worker(all, 0)->mesh;
    pid_t child = fork();
    if (child == 0) {
        uint64_t handler;
        lig_status status = lig_mesh_push_pull(worker, &(lig_mesh_request){0}, &handler);
        lig_mesh_close(worker);
        _exit(status == LIG_E_CLOSED ? 0 : 1);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    uint64_t handler;
    size_t count;
    lig_mesh_arrival arrival;
    lig_mesh *server = scene_server(all, 0)->mesh;
    assert_ok(lig_mesh_push_pull(worker, &(lig_mesh_request){0}, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1, &count));
    scene_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push_pull),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_registered_buffers),
        cmocka_unit_test(test_strides_both_ways),
        cmocka_unit_test(test_holds_and_many_in_flight),
        cmocka_unit_test(test_limits_and_cancel),
        cmocka_unit_test(test_bell),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_answer_before_goodbye),
        cmocka_unit_test(test_stop_ends_a_barrier),
        cmocka_unit_test(test_too_many_is_refused),
        cmocka_unit_test(test_all_rows_are_answered),
        cmocka_unit_test(test_bell_is_quiet),
        cmocka_unit_test(test_lent_memory_is_not_charged),
        cmocka_unit_test(test_fork),
    };
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    int failed = 0;
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        transport = transports[i];
        failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
    }
    return failed;
}
