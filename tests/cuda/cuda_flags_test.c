/* Flags that a graph and a thread exchange, over the fake driver: a wait ends by its flag, by the
 * loss of a server, and by the end of the mesh. */
#include "mesh/mesh_scene.h"

#include "fake_cuda.h"

#include <ligament/mesh_flags.h>

#include <string.h>

enum { ROUNDS = 20 };
#define SECOND SCENE_SECOND

typedef struct flags {
    scene *all;
    lig_mesh *worker, *server;
    void *stream;
    int64_t *signal, *ack, *sequence;
} flags;

static void step(const flags *of, uint32_t action, int64_t *flag)
{
    lig_mesh_flag_step asked = {.action = action, .flag = flag, .sequence = of->sequence};
    assert_ok(lig_mesh_flag(of->worker, &asked, of->stream));
}

/* One round of the graph: it tells the thread, and waits for it. */
static void capture(const flags *of)
{
    fake_cuda_capture(of->stream, 1);
    step(of, LIG_MESH_FLAG_ADD, NULL);
    step(of, LIG_MESH_FLAG_WRITE, of->signal);
    step(of, LIG_MESH_FLAG_WAIT, of->ack);
    fake_cuda_capture(of->stream, 0);
}

static flags open_flags(void)
{
    flags made = {.all = scene_create(1, 2, "shm")};
    scene_run(made.all);
    made.worker = scene_worker(made.all, 0)->mesh;
    made.server = scene_server(made.all, 1)->mesh; /* server 0 runs the rendezvous */
    made.stream = fake_cuda_stream();
    made.signal = fake_cuda_alloc(sizeof *made.signal, 0);
    made.ack = fake_cuda_alloc(sizeof *made.ack, 0);
    made.sequence = fake_cuda_alloc(sizeof *made.sequence, 0);
    *made.signal = *made.ack = *made.sequence = 0;
    capture(&made);
    return made;
}

static void close_flags(flags *of)
{
    scene_destroy(of->all);
    fake_cuda_free(of->signal);
    fake_cuda_free(of->ack);
    fake_cuda_free(of->sequence);
    assert_string_equal(fake_cuda_breach(), "");
}

static void *answer(void *context)
{
    const flags *of = context;
    for (int64_t round = 1; round <= ROUNDS; round++) {
        while (__atomic_load_n(of->signal, __ATOMIC_ACQUIRE) < round)
            usleep(100);
        assert_int_equal(__atomic_load_n(of->ack, __ATOMIC_ACQUIRE), round - 1);
        __atomic_store_n(of->ack, round, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void test_a_graph_and_a_thread(void **unused)
{
    (void)unused;
    flags of = open_flags();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer, &of), 0);
    for (int round = 0; round < ROUNDS; round++)
        fake_cuda_replay(of.stream);
    fake_cuda_finish(of.stream);
    pthread_join(thread, NULL);
    assert_int_equal(*of.sequence, ROUNDS);
    close_flags(&of);
}

static void await_state(lig_mesh *mesh, uint32_t state)
{
    lig_mesh_member members[4];
    size_t count;
    do {
        usleep(1000);
        assert_ok(lig_mesh_members(mesh, members, 4, &count));
    } while (members[1].state != state);
}

static void test_a_wait_without_the_server(void **unused)
{
    (void)unused;
    flags of = open_flags();
    fake_cuda_replay(of.stream);
    lig_mesh_close(of.server);
    scene_server(of.all, 1)->mesh = NULL;
    fake_cuda_finish(of.stream); /* nobody answers: it ends */
    assert_int_equal(*of.ack, 0);
    scene_member *again = scene_add(of.all, LIG_MESH_SERVER, 1, "shm");
    scene_start(again);
    scene_join(again);
    await_state(of.worker, LIG_MESH_ALIVE);
    pthread_t thread;
    *of.signal = *of.sequence = 0;
    assert_int_equal(pthread_create(&thread, NULL, answer, &of), 0);
    for (int round = 0; round < ROUNDS; round++)
        fake_cuda_replay(of.stream); /* waits last again */
    fake_cuda_finish(of.stream);
    pthread_join(thread, NULL);
    close_flags(&of);
}

/* The thread has the server's answer, and writes the flag after the server has left. */
static void *answer_late(void *context)
{
    const flags *of = context;
    while (!fake_cuda_loss_seen())
        usleep(100);
    __atomic_store_n(of->ack, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void test_an_answer_before_the_server_left(void **unused)
{
    (void)unused;
    flags of = open_flags();
    fake_cuda_grace(60 * (int64_t)SECOND);
    fake_cuda_replay(of.stream);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer_late, &of), 0);
    lig_mesh_close(of.server);
    scene_server(of.all, 1)->mesh = NULL;
    fake_cuda_finish(of.stream);
    assert_int_equal(__atomic_load_n(of.ack, __ATOMIC_ACQUIRE), 1);
    pthread_join(thread, NULL);
    fake_cuda_grace(10000000);
    fake_cuda_replay(of.stream);
    fake_cuda_finish(of.stream); /* no answer any more */
    fake_cuda_grace(60 * (int64_t)SECOND);
    for (int round = 0; round < ROUNDS; round++)
        fake_cuda_replay(of.stream);
    fake_cuda_finish(of.stream); /* the loss is known: no further delay */
    fake_cuda_grace(10000000);
    close_flags(&of);
}

static void test_waits_of_a_closed_mesh(void **unused)
{
    (void)unused;
    flags of = open_flags();
    fake_cuda_replay(of.stream);
    fake_cuda_replay(of.stream);
    scene_worker(of.all, 0)->mesh = NULL;
    lig_mesh_close(of.worker);
    fake_cuda_replay(of.stream); /* forbidden, and does not stop the stream */
    fake_cuda_finish(of.stream);
    close_flags(&of);
}

/* The mesh waits for the copy, and the copy for the flag: closing is no loss, which would end the
 * wait later. */
static void test_a_copy_behind_a_wait(void **unused)
{
    (void)unused;
    flags of = open_flags();
    int64_t *data = fake_cuda_alloc(sizeof *data, 0);
    const int64_t shape[] = {1};
    const uint64_t key = 1;
    uint64_t handler;
    const lig_tensor tensor = {.data = data,
                               .bytes = sizeof *data,
                               .shape = shape,
                               .ndim = 1,
                               .dtype = LIG_INT64,
                               .memory = LIG_MEMORY_CUDA};
    const lig_mesh_request push = {.push = &tensor, .push_count = 1, .push_keys = &key};
    fake_cuda_grace(60 * (int64_t)SECOND);
    fake_cuda_replay(of.stream);
    assert_ok(lig_mesh_push_pull_on(of.worker, &push, of.stream, &handler));
    scene_worker(of.all, 0)->mesh = NULL;
    lig_mesh_close(of.worker);
    assert_false(fake_cuda_loss_seen());
    fake_cuda_finish(of.stream);
    fake_cuda_grace(10000000);
    fake_cuda_free(data);
    close_flags(&of);
}

static void *launch(void *context)
{
    step(context, LIG_MESH_FLAG_WRITE, ((const flags *)context)->signal);
    return NULL;
}

/* The stream's queue is full until somebody continues, which needs the mesh. */
static void test_a_full_queue(void **unused)
{
    (void)unused;
    flags of = open_flags();
    lig_mesh_member members[4];
    size_t count;
    pthread_t thread;
    fake_cuda_full(1);
    assert_int_equal(pthread_create(&thread, NULL, launch, &of), 0);
    while (!fake_cuda_is_full())
        usleep(100);
    assert_ok(lig_mesh_members(of.worker, members, 4, &count));
    fake_cuda_full(0);
    pthread_join(thread, NULL);
    fake_cuda_finish(of.stream);
    close_flags(&of);
}

static void test_what_is_refused(void **unused)
{
    (void)unused;
    flags of = open_flags();
    lig_mesh_flag_step asked = {.action = 3, .sequence = of.sequence};
    assert_status(lig_mesh_flag(of.worker, &asked, of.stream), LIG_E_INVALID);
    asked.action = LIG_MESH_FLAG_WAIT; /* without a flag */
    assert_status(lig_mesh_flag(of.worker, &asked, of.stream), LIG_E_INVALID);
    asked = (lig_mesh_flag_step){.action = LIG_MESH_FLAG_ADD};
    assert_status(lig_mesh_flag(of.worker, &asked, of.stream), LIG_E_INVALID);
    asked = (lig_mesh_flag_step){.device = 1, .action = LIG_MESH_FLAG_ADD, .sequence = of.sequence};
    assert_status(lig_mesh_flag(of.worker, &asked, of.stream), LIG_E_INVALID);
    void *mapped;
    int64_t pageable = 0;
    assert_status(lig_mesh_flag_map(of.worker, 0, &pageable, &mapped), LIG_E_IO);
    fake_cuda_fail("cuLaunchKernel", 1, 700);
    asked.device = 0;
    assert_status(lig_mesh_flag(of.worker, &asked, of.stream), LIG_E_IO);
    close_flags(&of);
}

/* The first test: the kernels are loaded once for a process. */
static void test_a_driver_that_refuses_kernels(void **unused)
{
    (void)unused;
    scene *all = scene_create(1, 1, "shm");
    scene_run(all);
    int64_t *sequence = fake_cuda_alloc(sizeof *sequence, 1);
    lig_mesh_flag_step asked = {.device = 1, .action = LIG_MESH_FLAG_ADD, .sequence = sequence};
    fake_cuda_fail("cuModuleLoadDataEx", 1, 222);
    for (int i = 0; i < 2; i++)
        assert_status(lig_mesh_flag(scene_worker(all, 0)->mesh, &asked, NULL), LIG_E_UNSUPPORTED);
    assert_non_null(strstr(lig_error_text(), "CUDA device 1 cannot load the kernels for flags"));
    scene_destroy(all);
    fake_cuda_free(sequence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_driver_that_refuses_kernels),
        cmocka_unit_test(test_a_graph_and_a_thread),
        cmocka_unit_test(test_a_wait_without_the_server),
        cmocka_unit_test(test_an_answer_before_the_server_left),
        cmocka_unit_test(test_waits_of_a_closed_mesh),
        cmocka_unit_test(test_a_copy_behind_a_wait),
        cmocka_unit_test(test_a_full_queue),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("cuda_flags", tests, NULL, NULL);
}
