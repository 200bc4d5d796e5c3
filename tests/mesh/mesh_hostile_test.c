/* A member that has joined properly and then sends what no member would: the other end refuses it
 * or takes it for what it says, and is none the worse for it. */
#include "mesh/mesh.h"
#include "mesh_scene.h"
#include "net/link/link_connect.h"
#include "net/link/link_send.h"

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A request or a reply that would be right, with some bytes changed. */
static size_t make_head(uint64_t *state, int reply, uint8_t *head)
{
    int64_t shape[2] = {(int64_t)(next_random(state) % 5), 4};
    lig_tensor tensors[2] = {{.dtype = LIG_FLOAT32, .ndim = 2, .shape = shape},
                             {.dtype = LIG_INT8, .ndim = 1, .shape = shape}};
    uint64_t keys[2] = {1, 2}, stamps[4] = {1, 2, 3, 4};
    ligi_place places[2] = {{.kind = (uint32_t)(next_random(state) % 3)},
                            {LIGI_PLACE_ARENA, 0, next_random(state) % 1000}};
    ligi_request_parts parts = {next_random(state) % 3,
                                tensors,
                                tensors,
                                keys,
                                keys,
                                next_random(state) % 2 ? places : NULL,
                                next_random(state) % 2 ? places : NULL,
                                (uint32_t)(next_random(state) % 3),
                                (uint32_t)(next_random(state) % 3)};
    size_t bytes =
        reply ? ligi_message_small(LIGI_MESSAGE_REPLY, next_random(state) % 3, stamps, head)
              : ligi_message_request(&parts, head);
    for (uint64_t changes = next_random(state) % 4; changes > 0; changes--)
        head[next_random(state) % bytes] = (uint8_t)next_random(state);
    if (next_random(state) % 8 == 0)
        bytes = next_random(state) % bytes + 1;
    return bytes;
}

/* By the member's own link, behind the back of its mesh. */
static void send_wild(lig_mesh *mesh, uint64_t *state, int reply)
{
    static uint8_t payload[4096];
    uint8_t head[1024];
    struct iovec iov = {payload, next_random(state) % 2 ? 16 * (next_random(state) % 5)
                                                        : next_random(state) % sizeof payload};
    ligi_send send = {.head = head,
                      .head_bytes = make_head(state, reply, head),
                      .iov = &iov,
                      .count = iov.iov_len > 0};
    int done = 0;
    ligi_net_lock(mesh->session.net);
    if (mesh->parties[0].peer.link)
        (void)ligi_net_send(mesh->parties[0].peer.link, &send, &done);
    ligi_net_unlock(mesh->session.net);
}

static void answer(lig_mesh *server, const lig_mesh_arrival *arrival)
{
    static uint8_t zeros[1 << 20];
    lig_tensor tensors[LIG_MESH_TENSORS_MAX];
    for (uint32_t i = 0; i < arrival->tensor_count; i++) /* every byte of it can be read */
        for (uint64_t b = 0; b < arrival->tensors[i].bytes; b++)
            zeros[0] ^= ((const uint8_t *)arrival->tensors[i].data)[b];
    zeros[0] = 0;
    for (uint32_t i = 0; i < arrival->pull_count; i++) {
        tensors[i] = arrival->pulls[i];
        tensors[i].data = zeros;
        if (tensors[i].bytes > sizeof zeros) {
            assert_ok(lig_mesh_refuse(server, arrival->handler, LIG_E_LIMIT, "too large"));
            return;
        }
    }
    (void)lig_mesh_respond(server, arrival->handler, tensors, arrival->pull_count, SCENE_SECOND);
}

static void test_hostile_worker(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t state = seed * 7919;
        scene *all = scene_create(1, 1, seed % 2 ? "inproc" : "shm");
        scene_run(all);
        lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
        for (int i = 0; i < 20; i++)
            send_wild(worker, &state, seed % 10 == 0);
        lig_status status = LIG_OK;
        while (status == LIG_OK) {
            lig_mesh_arrival arrival;
            size_t count;
            status =
                lig_mesh_get_batch(server, LIG_MESH_ANY, SCENE_SECOND / 50, &arrival, 1, &count);
            if (status == LIG_OK)
                answer(server, &arrival);
        }
        assert_true(status == LIG_E_PEER || status == LIG_E_TIMEOUT || status == LIG_E_CLOSED);
        scene_destroy(all);
    }
}

static void test_hostile_server(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t state = seed * 104729, handler;
        int64_t sixteen = 16;
        uint8_t from[16] = {0}, to[16] = {0};
        scene *all = scene_create(1, 1, seed % 2 ? "inproc" : "shm");
        scene_run(all);
        lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
        lig_tensor push = {
            .data = from, .bytes = 16, .shape = &sixteen, .ndim = 1, .dtype = LIG_UINT8};
        lig_tensor pull = push;
        uint64_t key = 1;
        pull.data = to;
        lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
        for (int i = 0; i < 3; i++)
            assert_ok(lig_mesh_push_pull(worker, &request, &handler));
        for (int i = 0; i < 20; i++)
            send_wild(server, &state, seed % 10 != 0);
        lig_status status = lig_mesh_wait(worker, handler, SCENE_SECOND / 20);
        assert_true(status != LIG_E_INTERNAL && status != LIG_E_NOTFOUND);
        scene_destroy(all);
    }
}

/* Ranks, counts and group of a greeting are looked at. */
static void test_hostile_greetings(void **unused)
{
    (void)unused;
    scene *all = scene_create(1, 1, "inproc");
    scene_run(all);
    lig_mesh *worker = scene_worker(all, 0)->mesh, *server = scene_server(all, 0)->mesh;
    uint8_t card[LIGI_CARD_BYTES_MAX], hello[64] = "LIGMESH\2";
    size_t card_bytes = sizeof card;
    assert_ok(ligi_net_card(server->session.net, NULL, card, &card_bytes));
    uint64_t state = 4711;
    for (int i = 0; i < 50; i++) {
        ligi_connect connect = {.card = card,
                                .card_bytes = card_bytes,
                                .only = "inproc",
                                .service = LIGI_SERVICE_MESH,
                                .hello = hello,
                                .hello_bytes = i % 5 ? 56 : next_random(&state) % 64,
                                .timeout_ns = SCENE_SECOND};
        ligi_link *link;
        for (int b = 8; b < 56; b++)
            hello[b] = next_random(&state) % 4 ? 0 : (uint8_t)next_random(&state) % 3;
        ligi_net_lock(worker->session.net);
        assert_ok(ligi_net_connect(worker->session.net, &connect, &link));
        ligi_net_unlock(worker->session.net);
    }
    uint64_t handler;
    size_t count;
    lig_mesh_arrival arrival;
    assert_ok(lig_mesh_push_pull(worker, &(lig_mesh_request){0}, &handler));
    assert_ok(lig_mesh_get_batch(server, LIG_MESH_ALL, 10 * SCENE_SECOND, &arrival, 1, &count));
    assert_ok(lig_mesh_respond(server, arrival.handler, NULL, 0, 10 * SCENE_SECOND));
    assert_ok(lig_mesh_wait(worker, handler, 10 * SCENE_SECOND));
    scene_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_worker),
        cmocka_unit_test(test_hostile_server),
        cmocka_unit_test(test_hostile_greetings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
