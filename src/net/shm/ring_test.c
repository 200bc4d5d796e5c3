#include "net/shm/ring.h"

#include "base/test.h"

#include <pthread.h>
#include <stdlib.h>

static const ligi_ring_shape tiny = {64, 512};

typedef struct pair {
    void *memory;
    ligi_ring writer, reader;
} pair;

/* Exactly as large as a ring takes: the address sanitizer sees a byte beyond. */
static void pair_init(pair *both, ligi_ring_shape shape)
{
    assert_int_equal(posix_memalign(&both->memory, 128, ligi_ring_bytes(shape)), 0);
    memset(both->memory, 0, ligi_ring_bytes(shape));
    ligi_ring_attach(&both->writer, both->memory, shape);
    ligi_ring_attach(&both->reader, both->memory, shape);
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void test_empty_full_wrap(void **state)
{
    pair both;
    uint8_t data[64], back[64];
    size_t bytes;
    (void)state;

    pair_init(&both, tiny);
    assert_ok(ligi_ring_room(&both.writer, 1, &bytes));
    assert_int_equal(bytes, 64);
    assert_ok(ligi_ring_ready(&both.reader, 1, &bytes));
    assert_int_equal(bytes, 0);
    for (int round = 0; round < 9; round++) {
        memset(data, round, sizeof data);
        ligi_ring_put(&both.writer, data, 48);
        assert_ok(ligi_ring_ready(&both.reader, 1, &bytes));
        assert_int_equal(bytes, 0);
        assert_int_equal(ligi_ring_publish(&both.writer), 0);
        assert_ok(ligi_ring_room(&both.writer, 48, &bytes));
        assert_int_equal(bytes, 16);
        assert_ok(ligi_ring_ready(&both.reader, 1, &bytes));
        assert_int_equal(bytes, 48);
        ligi_ring_get(&both.reader, back, 48);
        assert_memory_equal(back, data, 48);
        assert_ok(ligi_ring_room(&both.writer, 48, &bytes));
        assert_int_equal(bytes, 16);
        assert_int_equal(ligi_ring_release(&both.reader), 0);
        assert_ok(ligi_ring_room(&both.writer, 48, &bytes));
        assert_int_equal(bytes, 64);
    }
    free(both.memory);
}

static void test_filled_in_place(void **state)
{
    pair both;
    uint8_t back[64];
    size_t bytes;
    (void)state;

    pair_init(&both, tiny);
    for (int round = 0; round < 9; round++) {
        uint8_t *into = ligi_ring_piece(&both.writer, 16);
        assert_non_null(into);
        memset(into, round + 1, 16);
        assert_true(ligi_ring_still(&both.reader));
        ligi_ring_skip(&both.writer, 16);
        assert_int_equal(ligi_ring_publish(&both.writer), 0);
        assert_false(ligi_ring_still(&both.reader));
        assert_ok(ligi_ring_ready(&both.reader, 16, &bytes));
        assert_int_equal(bytes, 16);
        assert_true(ligi_ring_still(&both.reader));
        ligi_ring_get(&both.reader, back, 16);
        assert_int_equal(back[15], round + 1);
        assert_int_equal(ligi_ring_release(&both.reader), 0);
        assert_ok(ligi_ring_room(&both.writer, 64, &bytes));
        assert_null(ligi_ring_piece(&both.writer, 65));
    }
    ligi_ring_skip(&both.writer, 32);
    assert_null(ligi_ring_piece(&both.writer, 17)); /* it would not lie in one piece */
    assert_non_null(ligi_ring_piece(&both.writer, 16));
    ligi_ring_skip(&both.writer, 16);
    assert_null(ligi_ring_piece(&both.writer, 17)); /* the rest is not read yet */
    assert_non_null(ligi_ring_piece(&both.writer, 16));
    ligi_ring_grow(&both.writer);
    assert_ptr_equal(ligi_ring_piece(&both.writer, 320), both.writer.full + 192);
    free(both.memory);
}

static void test_grow_keeps_what_was_written(void **state)
{
    pair both;
    uint8_t data[576], back[576];
    size_t bytes;
    (void)state;

    pair_init(&both, tiny);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    ligi_ring_put(&both.writer, data, 64);
    (void)ligi_ring_publish(&both.writer);
    assert_ok(ligi_ring_room(&both.writer, 1, &bytes));
    assert_int_equal(bytes, 0);
    ligi_ring_grow(&both.writer);
    ligi_ring_grow(&both.writer);
    assert_ok(ligi_ring_room(&both.writer, 1, &bytes));
    assert_int_equal(bytes, 512);
    ligi_ring_put(&both.writer, data + 64, 512);
    (void)ligi_ring_publish(&both.writer);
    assert_ok(ligi_ring_ready(&both.reader, 1, &bytes));
    assert_int_equal(bytes, 576);
    ligi_ring_get(&both.reader, back, 576);
    assert_memory_equal(back, data, 576);
    (void)ligi_ring_release(&both.reader);
    assert_ok(ligi_ring_room(&both.writer, 512, &bytes));
    assert_int_equal(bytes, 512);
    free(both.memory);
}

static void test_who_sleeps_is_woken_once(void **state)
{
    pair both;
    uint8_t data[64] = {0};
    size_t bytes;
    (void)state;

    pair_init(&both, tiny);
    assert_int_equal(ligi_ring_reader_sleeps(&both.reader, 1), 0);
    ligi_ring_put(&both.writer, data, 8);
    assert_int_equal(ligi_ring_publish(&both.writer), 1);
    ligi_ring_put(&both.writer, data, 56);
    assert_int_equal(ligi_ring_publish(&both.writer), 0);
    assert_int_equal(ligi_ring_publish(&both.writer), 0);
    assert_int_equal(ligi_ring_reader_sleeps(&both.reader, 1), 1);
    assert_int_equal(ligi_ring_writer_sleeps(&both.writer, 16), 0);
    assert_ok(ligi_ring_ready(&both.reader, 64, &bytes));
    ligi_ring_get(&both.reader, data, 8);
    assert_int_equal(ligi_ring_release(&both.reader), 1);
    assert_int_equal(ligi_ring_writer_sleeps(&both.writer, 16), 0);
    ligi_ring_get(&both.reader, data, 8);
    ligi_ring_writer_awake(&both.writer);
    assert_int_equal(ligi_ring_release(&both.reader), 0);
    assert_int_equal(ligi_ring_writer_sleeps(&both.writer, 16), 1);
    ligi_ring_get(&both.reader, data, 48);
    assert_int_equal(ligi_ring_reader_sleeps(&both.reader, 1), 0);
    ligi_ring_reader_awake(&both.reader);
    ligi_ring_put(&both.writer, data, 8);
    assert_int_equal(ligi_ring_publish(&both.writer), 0);
    free(both.memory);
}

/* The slow twin: all bytes ever written in one array, and four numbers. */
typedef struct twin {
    uint8_t *bytes;
    size_t put, published, got, released, grown;
    int grew;
} twin;

static size_t twin_room(const twin *slow, ligi_ring_shape shape)
{
    size_t room = 0, limit = slow->grew ? shape.full_bytes : shape.first_bytes;
    for (size_t at = slow->put; room < limit; at++, room++) {
        size_t oldest = slow->grew && slow->released < slow->grown ? slow->grown : slow->released;
        if (at - oldest >= limit)
            break;
    }
    return room;
}

static void twin_step(pair *both, twin *slow, uint64_t *random)
{
    uint8_t back[600];
    size_t bytes, take;

    switch (next_random(random) % 6) {
    case 0:
    case 1:
        assert_ok(ligi_ring_room(&both->writer, SIZE_MAX, &bytes));
        assert_int_equal(bytes, twin_room(slow, tiny));
        take = next_random(random) % (bytes + 1);
        ligi_ring_put(&both->writer, slow->bytes + slow->put, take);
        slow->put += take;
        return;
    case 2:
        (void)ligi_ring_publish(&both->writer);
        slow->published = slow->put;
        return;
    case 3:
        assert_ok(ligi_ring_ready(&both->reader, SIZE_MAX, &bytes));
        assert_int_equal(bytes, slow->published - slow->got);
        take = next_random(random) % (bytes + 1);
        ligi_ring_get(&both->reader, back, take);
        assert_memory_equal(back, slow->bytes + slow->got, take);
        slow->got += take;
        return;
    case 4:
        (void)ligi_ring_release(&both->reader);
        slow->released = slow->got;
        return;
    default:
        if (slow->grew || next_random(random) % 50 != 0)
            return;
        ligi_ring_grow(&both->writer);
        slow->grew = 1;
        slow->grown = slow->put;
    }
}

static void test_random_against_twin(void **state)
{
    enum { LENGTH = 1 << 18 };
    uint64_t random = 11;
    (void)state;

    uint8_t *bytes = malloc(LENGTH + 1024);
    assert_non_null(bytes);
    for (size_t i = 0; i < LENGTH + 1024; i++)
        bytes[i] = (uint8_t)next_random(&random);
    for (int round = 0; round < 40; round++) {
        pair both;
        twin slow = {.bytes = bytes};
        pair_init(&both, tiny);
        for (int step = 0; step < 3000 && slow.put < LENGTH; step++)
            twin_step(&both, &slow, &random);
        assert_true(slow.got > 1000);
        free(both.memory);
    }
    free(bytes);
}

/* Whatever the other side writes into the control, what is put and got stays within the memory and
 * what does not fit the own books is an error. */
static void test_hostile_positions(void **state)
{
    uint64_t random = 5;
    unsigned refused = 0;
    (void)state;

    for (int round = 0; round < 20000; round++) {
        pair both;
        uint8_t data[1024] = {0};
        size_t bytes = 0;
        pair_init(&both, tiny);
        ligi_ring_control *control = both.memory;
        lig_status status = LIG_OK;
        for (int step = 0; step < 12 && status == LIG_OK; step++) {
            uint64_t value = next_random(&random) >> (next_random(&random) % 64);
            _Atomic uint64_t *fields[] = {&control->tail, &control->moved, &control->head};
            if (next_random(&random) % 2)
                atomic_store(fields[next_random(&random) % 3], value);
            if (next_random(&random) % 2) {
                status = ligi_ring_ready(&both.reader, SIZE_MAX, &bytes);
                if (status == LIG_OK) {
                    assert_true(bytes <= 576);
                    ligi_ring_get(&both.reader, data, bytes);
                    (void)ligi_ring_release(&both.reader);
                }
            } else {
                status = ligi_ring_room(&both.writer, SIZE_MAX, &bytes);
                if (status == LIG_OK) {
                    assert_true(bytes <= 512);
                    ligi_ring_put(&both.writer, data, bytes);
                    (void)ligi_ring_publish(&both.writer);
                }
            }
        }
        assert_true(status == LIG_OK || status == LIG_E_CORRUPT);
        refused += status != LIG_OK;
        free(both.memory);
    }
    assert_true(refused > 5000);
}

static void test_positions_never_go_back(void **state)
{
    pair both;
    uint8_t data[32] = {0};
    size_t bytes;
    (void)state;

    pair_init(&both, tiny);
    ligi_ring_control *control = both.memory;
    ligi_ring_put(&both.writer, data, 32);
    (void)ligi_ring_publish(&both.writer);
    assert_ok(ligi_ring_ready(&both.reader, 1, &bytes));
    atomic_store(&control->tail, 31);
    assert_status(ligi_ring_ready(&both.reader, 64, &bytes), LIG_E_CORRUPT);
    assert_says("32 were");
    atomic_store(&control->head, 33);
    assert_status(ligi_ring_room(&both.writer, 64, &bytes), LIG_E_CORRUPT);
    assert_says("33 of 32");
    assert_int_equal(ligi_ring_writer_sleeps(&both.writer, 64), 1);
    assert_int_equal(ligi_ring_reader_sleeps(&both.reader, 64), 1);
    atomic_store(&control->tail, 33);
    atomic_store(&control->moved, 32);
    assert_status(ligi_ring_ready(&both.reader, 64, &bytes), LIG_E_CORRUPT);
    assert_says("moved at byte 31");
    free(both.memory);
}

static void test_slow_puts_go_past_the_cache(void **state)
{
    const ligi_ring_shape real = {LIGI_RING_FIRST_BYTES, LIGI_RING_FULL_BYTES};
    pair both;
    (void)state;

    pair_init(&both, real);
    int timed = 0;
    for (int i = 0; i < 80; i++)
        timed += ligi_ring_paced(&both.writer, 131072) + 100 * ligi_ring_paced(&both.writer, 1024);
    assert_int_equal(timed, 10);
    for (int i = 0; i < 3; i++)
        ligi_ring_pace(&both.writer, 131072, 50000);
    assert_int_equal(ligi_ring_paced(&both.writer, 131072), 1);
    ligi_ring_pace(&both.writer, 131072, 10000);
    assert_int_equal(ligi_ring_paced(&both.writer, 131072), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(both.writer.far_count, 0);
        ligi_ring_pace(&both.writer, 131072, 50000);
    }
    for (uint32_t left = both.writer.far_count; left > 0; left--)
        assert_int_equal(ligi_ring_paced(&both.writer, 131072), 0);
    assert_true(both.writer.put_count > 10);
    assert_int_equal(both.writer.far_count, 0);
    free(both.memory);
}

/* Whatever the addresses, what goes past the cache arrives as it was, and nothing beside it. */
static void test_past_the_cache_is_a_copy(void **state)
{
    const ligi_ring_shape real = {LIGI_RING_FIRST_BYTES, LIGI_RING_FULL_BYTES};
    uint8_t *data = malloc(200000), *back = malloc(200000);
    uint64_t random = 17;
    pair both;
    (void)state;

    assert_true(data != NULL && back != NULL);
    for (size_t i = 0; i < 200000; i++)
        data[i] = (uint8_t)next_random(&random);
    pair_init(&both, real);
    both.writer.far_count = UINT32_MAX;
    for (int round = 0; round < 100; round++) {
        size_t bytes = 2048 + next_random(&random) % 110000, from = next_random(&random) % 64;
        size_t ready = 0;
        ligi_ring_put(&both.writer, data + from, bytes);
        (void)ligi_ring_publish(&both.writer);
        assert_ok(ligi_ring_ready(&both.reader, bytes, &ready));
        assert_int_equal(ready, bytes);
        ligi_ring_get(&both.reader, back, bytes);
        assert_memory_equal(back, data + from, bytes);
        (void)ligi_ring_release(&both.reader);
        assert_ok(ligi_ring_room(&both.writer, SIZE_MAX, &ready));
        if (round == 50)
            ligi_ring_grow(&both.writer);
    }
    free(both.memory);
    free(data);
    free(back);
}

/* Two threads, each asleep on a semaphore of its own whenever the ring says so. */
typedef struct race {
    pair both;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    int woken[2];
    uint64_t total;
} race;

static void ring_bell(race *shared, int who)
{
    pthread_mutex_lock(&shared->lock);
    shared->woken[who] = 1;
    pthread_cond_broadcast(&shared->bell);
    pthread_mutex_unlock(&shared->lock);
}

static void wait_bell(race *shared, int who)
{
    pthread_mutex_lock(&shared->lock);
    while (!shared->woken[who])
        pthread_cond_wait(&shared->bell, &shared->lock);
    shared->woken[who] = 0;
    pthread_mutex_unlock(&shared->lock);
}

static void *write_all(void *context)
{
    race *shared = context;
    ligi_ring *ring = &shared->both.writer;
    uint64_t random = 3, at = 0;
    uint8_t data[256];

    while (at < shared->total) {
        size_t want = 1 + next_random(&random) % (at > shared->total / 2 ? 256 : 64), room = 0;
        want = want < shared->total - at ? want : (size_t)(shared->total - at);
        if (at > shared->total / 2)
            ligi_ring_grow(ring);
        if (ligi_ring_room(ring, want, &room) != LIG_OK)
            return context;
        if (room < want) {
            if (!ligi_ring_writer_sleeps(ring, want))
                wait_bell(shared, 0);
            continue;
        }
        for (size_t i = 0; i < want; i++)
            data[i] = (uint8_t)((at + i) * 31 >> 3);
        ligi_ring_put(ring, data, want);
        at += want;
        if (ligi_ring_publish(ring))
            ring_bell(shared, 1);
    }
    return NULL;
}

static void test_two_threads_lose_nothing(void **state)
{
    race shared = {.total = 2000000};
    pthread_t thread;
    uint64_t at = 0, random = 9;
    (void)state;

    pair_init(&shared.both, tiny);
    assert_int_equal(pthread_mutex_init(&shared.lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&shared.bell, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_all, &shared), 0);
    while (at < shared.total) {
        uint8_t back[600];
        size_t bytes = 0;
        assert_ok(ligi_ring_ready(&shared.both.reader, 1, &bytes));
        if (bytes == 0) {
            if (!ligi_ring_reader_sleeps(&shared.both.reader, 1))
                wait_bell(&shared, 1);
            continue;
        }
        bytes = 1 + next_random(&random) % bytes;
        ligi_ring_get(&shared.both.reader, back, bytes);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(back[i], (uint8_t)((at + i) * 31 >> 3));
        at += bytes;
        if (ligi_ring_release(&shared.both.reader))
            ring_bell(&shared, 0);
    }
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    pthread_cond_destroy(&shared.bell);
    pthread_mutex_destroy(&shared.lock);
    free(shared.both.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_full_wrap),
        cmocka_unit_test(test_filled_in_place),
        cmocka_unit_test(test_grow_keeps_what_was_written),
        cmocka_unit_test(test_who_sleeps_is_woken_once),
        cmocka_unit_test(test_random_against_twin),
        cmocka_unit_test(test_hostile_positions),
        cmocka_unit_test(test_positions_never_go_back),
        cmocka_unit_test(test_slow_puts_go_past_the_cache),
        cmocka_unit_test(test_past_the_cache_is_a_copy),
        cmocka_unit_test(test_two_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
