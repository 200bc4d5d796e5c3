/* The shm transport below the core: what the conformance suite, which runs over every transport,
 * cannot ask. */
#include "net/link/link.h"
#include "net/link/link_send.h"
#include "net/net.h"
#include "net/net_state.h"
#include "net/progress.h"
#include "net/service.h"
#include "net/shm_pair.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t mib = UINT64_C(1) << 20;

static void fill(uint8_t *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (uint8_t)(i * 31 + i / 4096 + seed);
}

static void assert_filled(const uint8_t *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (uint8_t)(i * 31 + i / 4096 + seed))
            fail_msg("byte %zu of %zu is wrong", i, bytes);
}

/* --- moving --- */

static void test_sizes_both_ways(void **state)
{
    static const size_t sizes[] = {1, 8, 4095, 65536, 262144, 262145, 3 << 20, 9 << 20};
    pair both;
    (void)state;

    pair_open(&both, "shm:");
    uint8_t *data = malloc(9 << 20);
    assert_non_null(data);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(data, sizes[i], (unsigned)i);
        send_bytes(&both.client, data, sizes[i], 0);
        send_bytes(&both.server, data, sizes[i], 0);
        pair_until(&both, arrivals, (unsigned)i + 1);
        assert_int_equal(both.client.bytes, sizes[i]);
        assert_int_equal(both.server.bytes, sizes[i]);
        assert_filled(both.client.memory, sizes[i], (unsigned)i);
        assert_filled(both.server.memory, sizes[i], (unsigned)i);
        assert_int_equal(both.client.sent_count, i + 1);
    }
    free(data);
    pair_close(&both);
}

/* A thousand messages in the queue at once, more than the ring holds. */
static void test_full_ring_queues(void **state)
{
    enum { COUNT = 1000 };
    pair both;
    uint8_t *data = malloc(COUNT * 8192);
    (void)state;

    assert_non_null(data);
    pair_open(&both, "shm:");
    for (int i = 0; i < COUNT; i++) {
        memset(data + i * 8192, i, 8192);
        send_bytes(&both.client, data + i * 8192, 8192, 0);
    }
    assert_true(ligi_link_queued(both.client.link) > 0);
    pair_until(&both, server_arrivals, COUNT);
    assert_int_equal(both.server.memory[8191], (uint8_t)(COUNT - 1));
    assert_int_equal(both.client.sent_count, COUNT);
    free(data);
    pair_close(&both);
}

/* --- lending --- */

static void test_lent_memory_is_not_moved(void **state)
{
    pair both;
    (void)state;

    pair_open(&both, "shm:");
    uint8_t *tensor = alloc_of(&both.client, 3 * mib);
    fill(tensor, 3 * mib, 1);
    both.server.take = 1;
    send_bytes(&both.client, tensor + 4096, 2 * mib, LIGI_SEND_LEND);
    assert_int_equal(both.client.sent_count, 1);
    pair_until(&both, server_arrivals, 1);
    assert_non_null(both.server.taken);
    assert_ptr_not_equal(both.server.taken, tensor + 4096);
    assert_memory_equal(both.server.taken, tensor + 4096, 2 * mib);
    tensor[4096] = 77;
    assert_int_equal(both.server.taken[0], 77);
    both.server.taken[1] = 78;
    assert_int_equal(tensor[4097], 78);
    end_release(&both.server);
    ligi_net_free(both.client.net, tensor);
    pair_close(&both);
}

static void test_lent_and_not_taken_is_moved(void **state)
{
    pair both;
    (void)state;

    pair_open(&both, "shm:");
    uint8_t *tensor = alloc_of(&both.client, 5 * mib);
    fill(tensor, 5 * mib, 1);
    send_bytes(&both.client, tensor, 5 * mib, LIGI_SEND_LEND);
    pair_until(&both, server_arrivals, 1);
    assert_null(both.server.taken);
    assert_filled(both.server.memory, 5 * mib, 1);
    ligi_net_free(both.client.net, tensor);
    pair_close(&both);
}

/* Plain, lent, plain, small in shared memory, lent: taken are only the lent ones. */
static void test_mixed_pieces(void **state)
{
    pair both;
    uint8_t plain[70000];
    int done;
    (void)state;

    pair_open(&both, "shm:");
    uint8_t *one = alloc_of(&both.client, mib), *two = alloc_of(&both.client, 20 * mib);
    fill(plain, sizeof plain, 3);
    fill(one, mib, 4);
    fill(two, 20 * mib, 5);
    struct iovec pieces[] = {{plain, 70000}, {one, mib}, {plain, 5}, {one, 100}, {two, 20 * mib}};
    ligi_send message = {.head = "head",
                         .head_bytes = 4,
                         .iov = pieces,
                         .count = 5,
                         .flags = LIGI_SEND_LEND,
                         .token = &both.client};
    for (int take = 0; take < 2; take++) {
        both.server.take = take;
        assert_ok(ligi_net_send(both.client.link, &message, &done));
        pair_until(&both, server_arrivals, (unsigned)take + 1);
        uint8_t *got = both.server.memory;
        assert_filled(got, 70000, 3);
        if (!take)
            assert_filled(got + 70000, mib, 4);
        got += 70000 + (take ? 0 : mib);
        assert_filled(got, 5, 3);
        assert_filled(got + 5, 100, 4);
        if (!take)
            assert_filled(got + 105, 20 * mib, 5);
        else
            assert_memory_equal(both.server.taken, two, 20 * mib);
    }
    end_release(&both.server);
    ligi_net_free(both.client.net, one);
    ligi_net_free(both.client.net, two);
    pair_close(&both);
}

static size_t count_maps(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:ligament") != NULL;
    fclose(maps);
    return count;
}

/* Tensors that come and go leave no mapping behind at the peer; one that is kept stays readable
 * when its sender has freed it, closed and gone. */
static void test_views_end(void **state)
{
    pair both;
    (void)state;

    pair_open(&both, "shm:");
    both.server.take = 1;
    size_t before = count_maps();
    for (unsigned i = 0; i < 50; i++) {
        uint8_t *tensor = alloc_of(&both.client, 9 * mib);
        tensor[0] = (uint8_t)i;
        send_bytes(&both.client, tensor, 9 * mib, LIGI_SEND_LEND);
        pair_until(&both, server_arrivals, i + 1);
        assert_int_equal(both.server.taken[0], i);
        if (i < 49) {
            end_release(&both.server);
            ligi_net_free(both.client.net, tensor);
        } else {
            ligi_link_close(both.client.link, NULL);
            both.client.link = NULL;
            ligi_net_close(both.client.net);
            both.client.net = NULL;
            ligi_net_free(NULL, tensor);
        }
        assert_true(count_maps() <= before + 3);
    }
    pair_until(&both, server_lost, 1);
    assert_int_equal(both.server.lost_status, LIG_E_CLOSED);
    assert_int_equal(both.server.taken[8 * mib], 0);
    pair_close(&both);
    assert_int_equal(both.server.taken[9 * mib - 1], 0);
    assert_int_equal(count_maps(), 1);
    end_release(&both.server);
    assert_int_equal(count_maps(), 0);
}

/* It came after the last look and before the flag: whoever then does not sleep must find it. */
static void test_what_comes_before_sleep_is_found(void **state)
{
    static const uint8_t data[8] = {1};
    ligi_transport_slot *slot;
    pair both;
    (void)state;

    pair_open(&both, "shm:");
    assert_ok(ligi_net_transport(both.server.net, "shm", &slot));
    assert_ok(ligi_net_poll(both.server.net));
    send_bytes(&both.client, data, sizeof data, 0);
    assert_int_equal(slot->ops->arm(slot->self), 1);
    slot->ops->disarm(slot->self);
    pair_until(&both, server_arrivals, 1);
    pair_close(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_both_ways),
        cmocka_unit_test(test_full_ring_queues),
        cmocka_unit_test(test_lent_memory_is_not_moved),
        cmocka_unit_test(test_lent_and_not_taken_is_moved),
        cmocka_unit_test(test_mixed_pieces),
        cmocka_unit_test(test_views_end),
        cmocka_unit_test(test_what_comes_before_sleep_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
