/* Many workers and servers: every sum is right, whatever the dtypes, shapes, strides and order;
 * more than 31 workers; memory that stays flat. */
#include "mesh_scene.h"

#include <malloc.h>

enum { TENSORS_MAX = 4, ELEMENTS_MAX = 400 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static const uint16_t dtypes[] = {LIG_UINT8, LIG_INT16, LIG_INT32, LIG_INT64};

static int64_t get(const lig_tensor *tensor, const void *data, size_t i)
{
    switch (tensor->dtype) {
    case LIG_UINT8: return ((const uint8_t *)data)[i];
    case LIG_INT16: return ((const int16_t *)data)[i];
    case LIG_INT32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static void put(const lig_tensor *tensor, void *data, size_t i, int64_t value)
{
    switch (tensor->dtype) {
    case LIG_UINT8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case LIG_INT16: ((int16_t *)data)[i] = (int16_t)value; break;
    case LIG_INT32: ((int32_t *)data)[i] = (int32_t)value; break;
    default: ((int64_t *)data)[i] = value;
    }
}

/* A tensor in memory of its own, with gaps when it has room for them. */
typedef struct sample {
    lig_tensor tensor;
    int64_t shape[3], strides[3];
    uint8_t memory[ELEMENTS_MAX * 8 * 4];
} sample;

static void make_tensor(sample *one, uint64_t *state, int strided)
{
    lig_tensor *tensor = &one->tensor;
    *tensor = (lig_tensor){.data = one->memory, .shape = one->shape};
    tensor->dtype = dtypes[next_random(state) % 4];
    tensor->ndim = (uint32_t)(next_random(state) % 4);
    tensor->bytes = lig_dtype_bytes(tensor->dtype);
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        one->shape[d] = (int64_t)(next_random(state) % 8);
        tensor->bytes *= (uint64_t)one->shape[d];
    }
    int64_t step = 1;
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        one->strides[d] = step;
        step *= one->shape[d] > 0 ? one->shape[d] : 1;
    }
    if (!strided || tensor->ndim < 2)
        return;
    if (next_random(state) % 2) { /* transposed */
        int64_t swap = one->strides[0];
        one->strides[0] = one->strides[1];
        one->strides[1] = swap;
        swap = one->shape[0];
        one->shape[0] = one->shape[1];
        one->shape[1] = swap;
    } else { /* every second one */
        for (uint32_t d = 0; d < tensor->ndim; d++)
            one->strides[d] *= 2;
    }
    tensor->strides = one->strides;
}

static void fill(sample *one, int64_t seed)
{
    uint64_t count = one->tensor.bytes / lig_dtype_bytes(one->tensor.dtype);
    uint8_t flat[ELEMENTS_MAX * 8];
    for (size_t i = 0; i < count; i++)
        put(&one->tensor, flat, i, seed + (int64_t)i);
    lig_tensor_unpack(&one->tensor, flat);
}

static int holds(sample *one, int64_t seed)
{
    uint64_t count = one->tensor.bytes / lig_dtype_bytes(one->tensor.dtype);
    uint8_t flat[ELEMENTS_MAX * 8], right[8];
    lig_tensor_pack(&one->tensor, flat);
    for (size_t i = 0; i < count; i++) {
        put(&one->tensor, right, 0, seed + (int64_t)i);
        if (get(&one->tensor, flat, i) != get(&one->tensor, right, 0))
            return 0;
    }
    return 1;
}

/* The server checks what it gets (key = seed of the contents) and answers with the pull's key plus
 * its own rank; a worker's last request has no tensors at all. */
typedef struct play {
    uint32_t rounds, mode;
} play;

static void *serve(scene_member *member)
{
    play *rules = member->context;
    uint32_t left = member->options.worker_count;
    lig_mesh_arrival arrivals[SCENE_MEMBERS_MAX];
    while (left > 0) {
        size_t count;
        SCENE_TRY(member, lig_mesh_get_batch(member->mesh, rules->mode, 60 * SCENE_SECOND, arrivals,
                                             SCENE_MEMBERS_MAX, &count));
        for (size_t i = 0; i < count; i++) {
            const lig_mesh_arrival *one = &arrivals[i];
            SCENE_NEED(member, rules->mode != LIG_MESH_ALL || one->worker == i);
            for (uint32_t t = 0; t < one->tensor_count; t++) {
                uint64_t elements = one->tensors[t].bytes / lig_dtype_bytes(one->tensors[t].dtype);
                uint8_t right[8];
                for (size_t e = 0; e < elements; e++) {
                    put(&one->tensors[t], right, 0, (int64_t)one->keys[t] + (int64_t)e);
                    SCENE_NEED(member, get(&one->tensors[t], one->tensors[t].data, e) ==
                                           get(&one->tensors[t], right, 0));
                }
            }
            lig_tensor answers[TENSORS_MAX];
            uint8_t memory[TENSORS_MAX][ELEMENTS_MAX * 8];
            for (uint32_t t = 0; t < one->pull_count; t++) {
                answers[t] = one->pulls[t];
                answers[t].data = memory[t];
                uint64_t elements = answers[t].bytes / lig_dtype_bytes(answers[t].dtype);
                int64_t seed = (int64_t)one->pull_keys[t] + member->options.rank;
                for (size_t e = 0; e < elements; e++)
                    put(&answers[t], memory[t], e, seed + (int64_t)e);
            }
            left -= one->tensor_count == 0 && one->pull_count == 0;
            SCENE_TRY(member, lig_mesh_respond(member->mesh, one->handler, answers, one->pull_count,
                                               60 * SCENE_SECOND));
        }
    }
    return NULL;
}

typedef struct ask {
    sample push[TENSORS_MAX], pull[4 * TENSORS_MAX];
    uint64_t push_keys[TENSORS_MAX], pull_keys[4 * TENSORS_MAX];
    uint32_t push_count, pull_count; /* pulls of one server */
    uint64_t handler;
} ask;

static lig_status begin(scene_member *member, ask *one, uint64_t *state, uint64_t round)
{
    uint32_t servers = member->options.server_count;
    lig_tensor push[TENSORS_MAX], pull[4 * TENSORS_MAX];
    one->push_count = (uint32_t)(next_random(state) % TENSORS_MAX);
    one->pull_count = (uint32_t)(next_random(state) % TENSORS_MAX) + (one->push_count == 0);
    for (uint32_t i = 0; i < one->push_count; i++) {
        make_tensor(&one->push[i], state, next_random(state) % 2 == 0);
        one->push_keys[i] = round * 100 + i;
        fill(&one->push[i], (int64_t)one->push_keys[i]);
        push[i] = one->push[i].tensor;
    }
    for (uint32_t i = 0; i < one->pull_count * servers; i++) {
        make_tensor(&one->pull[i], state, next_random(state) % 2 == 0);
        one->pull_keys[i] = round * 7 + i;
        pull[i] = one->pull[i].tensor;
    }
    lig_mesh_request request = {push, one->push_keys, one->push_count,
                                pull, one->pull_keys, (size_t)one->pull_count * servers};
    return lig_mesh_push_pull(member->mesh, &request, &one->handler);
}

static void *work(scene_member *member)
{
    play *rules = member->context;
    uint64_t state = 1 + member->options.rank * 7919u;
    ask *flight = calloc(3, sizeof *flight);
    for (uint64_t round = 0; round < rules->rounds + 3; round++) {
        ask *one = &flight[round % 3];
        if (round >= 3) {
            SCENE_TRY(member, lig_mesh_wait(member->mesh, one->handler, 60 * SCENE_SECOND));
            for (uint32_t i = 0; i < one->pull_count * member->options.server_count; i++)
                SCENE_NEED(member,
                           holds(&one->pull[i], (int64_t)one->pull_keys[i] + i / one->pull_count));
        }
        if (round < rules->rounds)
            SCENE_TRY(member, begin(member, one, &state, round));
    }
    uint64_t handler;
    SCENE_TRY(member, lig_mesh_push_pull(member->mesh, &(lig_mesh_request){0}, &handler));
    SCENE_TRY(member, lig_mesh_wait(member->mesh, handler, 60 * SCENE_SECOND));
    free(flight);
    return NULL;
}

static void play_scene(uint32_t workers, uint32_t servers, const char *transport, play rules)
{
    scene *all = scene_create(workers, servers, transport);
    for (uint32_t i = 0; i < workers + servers; i++) {
        all->members[i].run = i < servers ? serve : work;
        all->members[i].context = &rules;
    }
    scene_run(all);
    scene_destroy(all);
}

static void test_workers_by_servers(void **unused)
{
    (void)unused;
    static const char *const transports[] = {"inproc", "shm", "tcp", "auto"};
    uint32_t turn = 0;
    for (uint32_t workers = 1; workers <= 8; workers++)
        for (uint32_t servers = 1; servers <= 4; servers++, turn++)
            play_scene(workers, servers, transports[turn % 4],
                       (play){20, turn % 3 ? LIG_MESH_ALL : LIG_MESH_ANY});
}

static void test_sixty_four_workers(void **unused)
{
    (void)unused;
    play_scene(64, 1, "inproc", (play){20, LIG_MESH_ALL});
    play_scene(40, 1, "shm", (play){10, LIG_MESH_ANY});
}

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Once warm, a request allocates nothing: the heap is the same after 20,000 more. */
static void *flat_worker(scene_member *member)
{
    int64_t count = 16;
    float data[16] = {1}, got[16];
    lig_tensor push = {.data = data, .bytes = 64, .shape = &count, .ndim = 1, .dtype = LIG_FLOAT32};
    lig_tensor pull = push;
    pull.data = got;
    uint64_t key = 1, handler, rounds = 22000;
    size_t before = 0;
    lig_mesh_request request = {&push, &key, 1, &pull, &key, 1};
    const char *wanted = getenv("LIGAMENT_SOAK_REQUESTS");
    if (wanted)
        rounds = strtoull(wanted, NULL, 10);
    for (uint64_t i = 0; i < rounds; i++) {
        key = i % 1000; /* keys are names, not memory */
        data[0] = (float)(i % 1000);
        SCENE_TRY(member, lig_mesh_push_pull(member->mesh, &request, &handler));
        SCENE_TRY(member, lig_mesh_wait(member->mesh, handler, 60 * SCENE_SECOND));
        SCENE_NEED(member, got[0] == data[0]);
        if (i == 2000)
            before = in_use();
    }
    size_t after = in_use();
    SCENE_NEED(member, after <= before + 4096);
    SCENE_TRY(member, lig_mesh_stop(member->mesh, 60 * SCENE_SECOND));
    return NULL;
}

static void *echo_server(scene_member *member)
{
    for (;;) {
        lig_mesh_arrival arrival;
        size_t count;
        lig_status status =
            lig_mesh_get_batch(member->mesh, LIG_MESH_ALL, 60 * SCENE_SECOND, &arrival, 1, &count);
        if (status == LIG_E_CLOSED)
            return NULL;
        SCENE_TRY(member, status);
        SCENE_TRY(member, lig_mesh_respond(member->mesh, arrival.handler, arrival.tensors, 1,
                                           60 * SCENE_SECOND));
    }
}

static void test_flat_memory(void **unused)
{
    (void)unused;
    scene *all = scene_create(1, 1, "shm");
    scene_worker(all, 0)->run = flat_worker;
    scene_server(all, 0)->run = echo_server;
    scene_run(all);
    scene_destroy(all);
}

/* An all-gather between threads, as MPI would do it between processes. */
typedef struct gathering {
    pthread_barrier_t meet;
    uint8_t all[8][4096];
} gathering;

typedef struct place {
    gathering *shared;
    uint32_t index;
} place;

static lig_status gather(void *context, const void *mine, size_t bytes, void *all, size_t count)
{
    place *own = context;
    if (bytes > sizeof own->shared->all[0] || count > 8)
        return lig_fail(LIG_E_LIMIT, "the test gathers 8 blobs of 4 KiB");
    memcpy(own->shared->all[own->index], mine, bytes);
    pthread_barrier_wait(&own->shared->meet);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)all + i * bytes, own->shared->all[i], bytes);
    pthread_barrier_wait(&own->shared->meet);
    return LIG_OK;
}

static void test_exchange_instead_of_an_address(void **unused)
{
    (void)unused;
    enum { SERVERS = 2, WORKERS = 3 };
    gathering *shared = calloc(1, sizeof *shared);
    place places[SERVERS + WORKERS];
    play rules = {10, LIG_MESH_ALL};
    pthread_barrier_init(&shared->meet, NULL, SERVERS + WORKERS);
    scene *all = scene_create(WORKERS, SERVERS, "auto");
    for (uint32_t i = 0; i < SERVERS + WORKERS; i++) {
        places[i] = (place){shared, i};
        all->members[i].options.address = NULL;
        all->members[i].options.exchange = gather;
        all->members[i].options.exchange_context = &places[i];
        all->members[i].run = i < SERVERS ? serve : work;
        all->members[i].context = &rules;
    }
    scene_run(all);
    scene_destroy(all);
    pthread_barrier_destroy(&shared->meet);
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_by_servers),
        cmocka_unit_test(test_sixty_four_workers),
        cmocka_unit_test(test_flat_memory),
        cmocka_unit_test(test_exchange_instead_of_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
